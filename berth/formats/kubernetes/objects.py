"""Kubernetes objects as lean structs: only the fields that Berth reads; decoders skip the rest.

Every field has a default, lists may be null, and names are Kubernetes' own in camel case. The same structs serve lists,
watches and single objects. ``Source: Kubernetes API, v1; scheduling.volcano.sh/v1beta1.``
"""

from typing import Final, Generic, TypeVar

import msgspec

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.pod_spec import PodSpec, Requirements
from berth.formats.whole_numbers import Int32, Int64

T = TypeVar("T")


class Terminated(Lean, frozen=True):
    """End of a container."""

    exit_code: Int32 = 0


class ContainerState(Lean, frozen=True):
    """State of a container."""

    terminated: Terminated | None = None


class ContainerStatus(Lean, frozen=True):
    """Status of a container."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    ready: bool = False
    restart_count: Int32 = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    """Its end before the last restart."""
    resources: Requirements | None = None
    """Resources in force."""
    allocated_resources: dict[str, str | int | float] | None = None
    """Requests that the kubelet has allocated."""

    @property
    def exit_code(self) -> int:
        """Code of its last end; 0 if it never ended."""
        for state in (self.state, self.last_state):
            if state is not None and state.terminated is not None:
                return state.terminated.exit_code
        return 0


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
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Requirements | None = None
    """Resources of the whole pod in force."""
    allocated_resources: dict[str, str | int | float] | None = None
    """Requests of the whole pod that the kubelet has allocated."""
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


class NetworkTopology(Lean, frozen=True):
    """Network topology of a Volcano PodGroup, as far as it is named."""

    mode: str = ""


class SubGroup(Lean, frozen=True):
    """Policy of a part of a Volcano PodGroup, as far as it is named."""

    name: str = ""


class PodGroupSpec(Lean, frozen=True):
    """Spec of a Volcano PodGroup."""

    min_member: Int32 | None = None
    min_task_member: dict[str, Int32] | None = None
    queue: str = ""
    priority_class_name: str = ""
    min_resources: dict[str, str | int | float] | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[SubGroup] | None = None


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
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


PODGROUP_VERSION: Final = "scheduling.volcano.sh/v1beta1"
"""API version of Volcano's PodGroups and Queues."""


class PodGroup(Lean, frozen=True):
    """PodGroup of Volcano."""

    metadata: Meta = Meta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class ListMeta(Lean, frozen=True):
    """Metadata of a list: its version, and the start of the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: Int64 | None = None


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
    code: Int32 = 0
