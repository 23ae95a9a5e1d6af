"""Terms of the diagnosis: what is known of nodes and pods, and what is found."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from berth.core.requests.fault_rules import FaultRules
from berth.schemas import recovery
from berth.schemas.facts import PodPhase


class PodFaultKind(StrEnum):
    """Why a pod is faulty, in the words of the reference; ``Drain`` is one of Berth."""

    NODE_UNHEALTHY = "NodeUnhealthy"
    CARD_UNHEALTHY = "CardUnhealthy"
    POD_FAILED = "pod-failed"
    SEPARATE = "RelationFaultSeparate"
    SUB_HEALTH = "SubHealthFault"
    DRAIN = recovery.DRAIN
    """Its node is drained: the pod itself is well."""


class NodeFaultKind(StrEnum):
    """What is wrong with a node or with chips of it."""

    NODE_UNHEALTHY = "NodeUnhealthy"
    NODE_GONE = "NodeGone"
    NODE_NOT_READY = "NodeNotReady"
    NODE_NO_NEW_WORK = "NodeNoNewWork"
    NODE_SUB_HEALTHY = "NodeSubHealthy"
    CARD_UNHEALTHY = "CardUnhealthy"
    CARD_RECOVERING = "CardRecovering"
    CARD_NETWORK_UNHEALTHY = "CardNetworkUnhealthy"
    CARD_SUB_HEALTHY = "CardSubHealthy"


class NodeView(NamedTuple):
    """What is known of the health of a node. Masks are of chips."""

    is_unhealthy: bool = False
    """NodeD or the switch reports it as unhealthy."""
    is_gone: bool = False
    """The cluster has no such node."""
    is_ready: bool = True
    unhealthy: int = 0
    sub_healthy: int = 0
    is_sub_healthy: bool = False
    """All of it is: its switch, or a source that names no chip."""


class PodView(NamedTuple):
    """What is known of a pod that is bound."""

    rank: int
    node: str
    chips: int = 0
    """Mask."""
    phase: PodPhase = PodPhase.RUNNING
    exit_code: int = 0
    """A code other than 0 with which a container last ended; 0 without."""
    marks: Mapping[str, str] = {}
    """As in :class:`~berth.schemas.facts.PodMarks`."""


class PodFault(NamedTuple):
    """A pod that is faulty."""

    rank: int
    node: str
    kind: PodFaultKind
    chips: int
    """Mask of its own chips that are the cause; 0 if it is another."""
    reason: str
    """A sentence."""
    is_master: bool
    """It has rank 0, and is no worker."""
    is_hot_switch: bool = False
    """Its backup pod takes its place: only this pod is to be deleted."""


class ToleratedPod(NamedTuple):
    """A pod with a fault that counts for nothing, by the labels of its job or because it is left to others."""

    rank: int
    node: str
    reason: str
    """A sentence."""


class JobDiagnosis(msgspec.Struct, frozen=True):
    """What is wrong with a job. Pods are in the order of their ranks."""

    rules: FaultRules
    faults: tuple[PodFault, ...] = ()
    tolerated: tuple[ToleratedPod, ...] = ()

    @property
    def is_faulty(self) -> bool:
        """Whether a pod is faulty."""
        return bool(self.faults)

    @property
    def is_sub_health_only(self) -> bool:
        """Whether it is faulty, and all of its faults are sub-health."""
        return self.is_faulty and all(fault.kind is PodFaultKind.SUB_HEALTH for fault in self.faults)

    @property
    def has_master_fault(self) -> bool:
        """Whether the pod with rank 0 is faulty, and is no worker."""
        return any(fault.is_master for fault in self.faults)


class NodeFault(NamedTuple):
    """A fault of a node, or of chips of it."""

    node: str
    kind: NodeFaultKind
    chips: int
    """Mask; 0 for a fault of the whole node."""
    reason: str
    """What its sources report; empty where they give no reason."""
    reported_ms: int
    """Time of the last report of its source; 0 when unknown."""
