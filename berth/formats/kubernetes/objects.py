"""Kubernetes objects as lean structs: only the fields that Berth reads; decoders skip the rest.

Every field has a default, lists may be null, and names are Kubernetes' own in camel case. The same structs serve lists,
watches and single objects. ``Source: Kubernetes API, v1; scheduling.volcano.sh/v1beta1.``
"""

from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

ENV_READ: Final = frozenset({"MASTER_ADDR", "VC_TASK_INDEX"})
"""Variables of a container that are read: the master of a job, and the index that Volcano sets in a pod."""


class Lean(msgspec.Struct, rename="camel", frozen=True, gc=False, kw_only=True):
    """Base of the objects."""


class OwnerReference(Lean, frozen=True):
    """An object that an object belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Lean, frozen=True):
    """Metadata of an object. Times are RFC 3339 texts."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object; None without one."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)

    def label(self, key: str, default: str = "") -> str:
        """Value of a label; empty without it."""
        return (self.labels or {}).get(key, default)

    def annotation(self, key: str, default: str = "") -> str:
        """Value of an annotation; empty without it."""
        return (self.annotations or {}).get(key, default)


class Requirements(Lean, frozen=True):
    """Resources of a container; quantities are texts or numbers."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class EnvVar(Lean, frozen=True):
    """Variable of a container's environment; the value is empty if it has another source."""

    name: str = ""
    value: str = ""


class Container(Lean, frozen=True):
    """A container of a pod. Of its environment only the variables of :data:`ENV_READ` are kept."""

    name: str = ""
    resources: Requirements | None = None
    env: list[EnvVar] | None = None
    restart_policy: str = ""
    """``Always`` for an init container that keeps running with the others."""

    def __post_init__(self) -> None:
        if self.env:
            msgspec.structs.force_setattr(self, "env", [item for item in self.env if item.name in ENV_READ] or None)


class SelectorRequirement(Lean, frozen=True):
    """One condition of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class SelectorTerm(Lean, frozen=True):
    """Conditions that must all hold."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Lean, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[SelectorTerm] | None = None


class NodeAffinity(Lean, frozen=True):
    """Affinity to nodes; preferred affinity is not read."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class LabelSelector(Lean, frozen=True):
    """Label selector; expressions are not read."""

    match_labels: dict[str, str] | None = None


class PodAffinityTerm(Lean, frozen=True):
    """Term of pod affinity; topology and namespaces are not read."""

    label_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Lean, frozen=True):
    """Preferred term of pod affinity; the weight is not read."""

    pod_affinity_term: PodAffinityTerm | None = None


class PodAffinity(Lean, frozen=True):
    """Affinity to pods; required affinity is not read."""

    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None


class Affinity(Lean, frozen=True):
    """Affinity of a pod, as far as it is read."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None


class PodToleration(Lean, frozen=True):
    """A taint that a pod accepts."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGate(Lean, frozen=True):
    """A condition that must be removed before the pod may be scheduled."""

    name: str = ""


class SchedulingGroup(Lean, frozen=True):
    """Native PodGroup of a pod (Kubernetes 1.36 and later)."""

    pod_group_name: str = ""


class WorkloadRef(Lean, frozen=True):
    """Native Workload of a pod (Kubernetes 1.35)."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(Lean, frozen=True):
    """Spec of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None


class ContainerStatus(Lean, frozen=True):
    """Status of a container."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    ready: bool = False
    restart_count: int = 0


class Condition(Lean, frozen=True):
    """Condition of a pod, node or group."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(Lean, frozen=True):
    """Status of a pod."""

    phase: str = ""
    reason: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    container_statuses: list[ContainerStatus] | None = None
    conditions: list[Condition] | None = None


class Pod(Lean, frozen=True):
    """A pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeTaint(Lean, frozen=True):
    """Taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Lean, frozen=True):
    """Spec of a node."""

    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeAddress(Lean, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(Lean, frozen=True):
    """Status of a node; quantities are texts."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: list[Condition] | None = None
    addresses: list[NodeAddress] | None = None


class Node(Lean, frozen=True):
    """A node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet reports the node as ready."""
        return any(item.type == "Ready" and item.status == "True" for item in self.status.conditions or ())

    @property
    def internal_ip(self) -> str:
        """InternalIP of the node; empty without one."""
        return next((item.address for item in self.status.addresses or () if item.type == "InternalIP"), "")


class ConfigMap(Lean, frozen=True):
    """A ConfigMap."""

    metadata: Meta = Meta()
    data: dict[str, str] | None = None


class PodGroupSpec(Lean, frozen=True):
    """Spec of a Volcano PodGroup."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, str | int | float] | None = None


class PodGroupCondition(Lean, frozen=True):
    """Condition of a Volcano PodGroup."""

    type: str = ""
    status: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(Lean, frozen=True):
    """Status of a Volcano PodGroup."""

    phase: str = ""
    conditions: list[PodGroupCondition] | None = None
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(Lean, frozen=True):
    """PodGroup of ``scheduling.volcano.sh/v1beta1``."""

    metadata: Meta = Meta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class ListMeta(Lean, frozen=True):
    """Metadata of a list: its version, and the start of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class Watched(msgspec.Struct, Generic[T], frozen=True):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object."""

    type: str
    object: T


class StatusReply(Lean, frozen=True):
    """Answer of the API server to a rejected request."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
