"""Requests to a simulated cluster and its answers. Sent over core NATS, never stored."""

from typing import ClassVar

from berth.schemas.facts import RankFailure
from berth.schemas.message import Message
from berth.schemas.placement import Placement


class BindGang(Message, frozen=True):
    """Request to run the pods of an attempt according to its placement. It is idempotent for an attempt."""

    KIND: ClassVar[str] = "sim.bind"

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    run_ms: int = 0
    """Run time of the pods; 0: the cluster chooses."""


class GangBound(Message, frozen=True):
    """Answer to :class:`BindGang`: how many pods run, and why the others do not."""

    KIND: ClassVar[str] = "sim.bound"

    bound: int
    failures: list[RankFailure] = []
    retry_after_ms: int = 0
    """Nothing was done because pods of another attempt still have the name. The caller repeats the request after this
    time."""


class SimCounts(Message, frozen=True):
    """Counters of a simulated cluster since its start."""

    KIND: ClassVar[str] = "sim.counts"

    nodes: int
    gangs_live: int = 0
    pods_live: int = 0
    chips_held: int = 0
    pods_bound: int = 0
    pods_failed: int = 0
    pods_ended: int = 0
    double_allocations: int = 0
    """Chips that a second pod was to get. More than 0 is a fault of the scheduler."""
    overcommits: int = 0
    """Pods for which a node had no cpu or memory left. More than 0 is a fault of the scheduler."""
    swapped: int = 0
    """Pods that got other chips than those of their annotation. More than 0 is a fault of the binder."""
    admission_errors: int = 0
    """Pods for which the device plug-in found no annotation. More than 0 is a fault of the binder."""


class EvictGang(Message, frozen=True):
    """Request to end the pods of an attempt. Repeating it is harmless."""

    KIND: ClassVar[str] = "sim.evict"

    namespace: str
    name: str
    uid: str
    attempt: int
    reason: str = ""


class GangEvicted(Message, frozen=True):
    """Answer to :class:`EvictGang`: the pods end, or have ended."""

    KIND: ClassVar[str] = "sim.evicted"

    pods: int
    """Pods that still existed."""


class BreakNode(Message, frozen=True):
    """Request to break something of a simulated node, or to repair it."""

    KIND: ClassVar[str] = "sim.break"

    node: str
    fault: str
    """chip, network, recovering, node, switch, kubelet (the node is not ready), plugin (its reports stop), gone (the
    node leaves the cluster), container (a pod fails) or relation (ClusterD labels a pod ``fault-type``)."""
    chips: list[int] = []
    """Chips, for the faults of chips."""
    level: str = ""
    """Level as the reporting agent names it, such as ``RestartNPU`` or ``SeparateFault``; empty: the default of the
    fault."""
    code: str = ""
    """Fault code in upper-case hex; empty: the default of the fault."""
    lasts_ms: int = 0
    """Duration; 0: until it is repaired."""
    repair: bool = False
    """Repair it instead."""
    leaf: bool = False
    """``node`` is a leaf switch: the fault is that of each node below it."""
    pod: str = ""
    """Pod of a fault of kind container or relation, as ``namespace/name``; empty: the first running pod of the node, by
    name."""
    exit_code: int = 0
    """Exit code of its containers; 0: 1."""


class NodeBroken(Message, frozen=True):
    """Answer to :class:`BreakNode`."""

    KIND: ClassVar[str] = "sim.broken"

    reason: str
    """Why nothing was done; empty on success."""
