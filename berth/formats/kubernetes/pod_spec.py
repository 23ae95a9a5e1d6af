"""Spec of a pod as lean structs: only the fields that Berth reads.

Source: Kubernetes API, v1.
"""

from typing import Final

import msgspec

from berth.formats.kubernetes.lean import LabelSelector, Lean, NodeSelector, SelectorTerm
from berth.formats.whole_numbers import Int32
from berth.products.resources import is_npu

ENV_READ: Final = frozenset({"MASTER_ADDR", "VC_TASK_INDEX"})
"""Variables of a container that are read: the master of a job, and the index that Volcano sets in a pod."""


class Requirements(Lean, frozen=True):
    """Resources of a container; quantities are texts or numbers."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class EnvVar(Lean, frozen=True):
    """Variable of a container's environment; the value is empty if it has another source."""

    name: str = ""
    value: str = ""


class ContainerPort(Lean, frozen=True):
    """Port of a container."""

    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Lean, frozen=True):
    """A container of a pod. Kept are only the variables of :data:`ENV_READ`, and the ports that it has on the node."""

    name: str = ""
    resources: Requirements | None = None
    env: list[EnvVar] | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str = ""
    """``Always`` for an init container that keeps running with the others."""

    def __post_init__(self) -> None:
        if self.env:
            msgspec.structs.force_setattr(self, "env", [item for item in self.env if item.name in ENV_READ] or None)
        if self.ports:
            msgspec.structs.force_setattr(self, "ports", [item for item in self.ports if item.host_port] or None)


class PreferredSchedulingTerm(Lean, frozen=True):
    """Nodes that a pod prefers."""

    weight: Int32 = 0
    preference: SelectorTerm = SelectorTerm()


class NodeAffinity(Lean, frozen=True):
    """Affinity to nodes."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = None


class PodAffinityTerm(Lean, frozen=True):
    """Term of pod affinity. The server adds what ``matchLabelKeys`` and ``mismatchLabelKeys`` say to the selector."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Lean, frozen=True):
    """Preferred term of pod affinity."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm | None = None


class PodAffinity(Lean, frozen=True):
    """Affinity or anti-affinity to pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = None


class Affinity(Lean, frozen=True):
    """Affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Lean, frozen=True):
    """Even distribution of pods over the values of a label of nodes."""

    topology_key: str = ""
    max_skew: Int32 = 0
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""


class ClaimVolume(Lean, frozen=True):
    """Use of a PersistentVolumeClaim."""

    claim_name: str = ""


class Source(Lean, frozen=True):
    """Source of a volume, of which nothing is read."""


class Volume(Lean, frozen=True):
    """A volume of a pod. Of the sources that nodes cannot share, only that they are there is read."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: Source | None = None
    """The claim is named after the pod and the volume."""
    aws_elastic_block_store: Source | None = None
    gce_persistent_disk: Source | None = None
    iscsi: Source | None = None
    rbd: Source | None = None


class ResourceClaimUse(Lean, frozen=True):
    """Use of a ResourceClaim (dynamic resource allocation)."""

    name: str = ""


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
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    """That of its PriorityClass; the server writes it."""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[PodToleration] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int | float] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resources: Requirements | None = None
    """Of the whole pod, in place of the sum of its containers."""
    resource_claims: list[ResourceClaimUse] | None = None


class TemplateSpec(Lean, frozen=True):
    """Spec of a pod template."""

    scheduler_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class Template(Lean, frozen=True):
    """A pod template."""

    spec: TemplateSpec | None = None

    @property
    def scheduler_name(self) -> str:
        """Scheduler of the pods; empty if not set."""
        return self.spec.scheduler_name if self.spec is not None else ""

    @property
    def has_chips(self) -> bool | None:
        """Whether the pods ask for chips; None if it has no containers."""
        if self.spec is None or not self.spec.containers:
            return None
        containers = (*self.spec.containers, *(self.spec.init_containers or ()))
        asked = (container.resources or Requirements() for container in containers)
        amounts = ((one.limits or {}) | (one.requests or {}) for one in asked)
        return any(is_npu(key) and value not in {0, "0"} for one in amounts for key, value in one.items())
