"""Requests to a simulated cluster and its answers. Sent over core NATS, never stored."""

from typing import ClassVar

from berth.schemas.facts import RankFailure
from berth.schemas.message import Message
from berth.schemas.placement import Placement


class BindGang(Message, frozen=True):
    """Wish that the pods of an attempt run where the placement says. Asking again for the same attempt is harmless."""

    KIND: ClassVar[str] = "sim.bind"

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    run_ms: int = 0
    """How long the pods run; 0 leaves it to the cluster."""


class GangBound(Message, frozen=True):
    """What became of the wish: how many pods run, and why the others do not."""

    KIND: ClassVar[str] = "sim.bound"

    bound: int
    failures: list[RankFailure] = []
    retry_after_ms: int = 0
    """Nothing was done: pods of another attempt still have the name. Ask again after this time."""


class SimCounts(Message, frozen=True):
    """What a simulated cluster has seen since its start."""

    KIND: ClassVar[str] = "sim.counts"

    nodes: int
    gangs_live: int = 0
    pods_live: int = 0
    chips_held: int = 0
    pods_bound: int = 0
    pods_failed: int = 0
    pods_ended: int = 0
    double_allocations: int = 0
    """Chips that were to be given to a second pod. More than 0 is an error of the scheduler."""
    overcommits: int = 0
    """Pods for which a node had no cpu or memory left. Likewise."""
    swapped: int = 0
    """Pods that got other chips than those of their own annotation. More than 0 is an error of the binding scheduler."""
    admission_errors: int = 0
    """Pods that failed since the device plug-in found no annotation for them. Likewise."""


class EvictGang(Message, frozen=True):
    """Wish that the pods of an attempt end. Asking again is harmless."""

    KIND: ClassVar[str] = "sim.evict"

    namespace: str
    name: str
    uid: str
    attempt: int
    reason: str = ""


class GangEvicted(Message, frozen=True):
    """The pods end, or have ended."""

    KIND: ClassVar[str] = "sim.evicted"

    pods: int
    """Pods that were still there."""


class BreakNode(Message, frozen=True):
    """Request to break or to repair a part of a simulated node."""

    KIND: ClassVar[str] = "sim.break"

    node: str
    fault: str
    """chip, network, recovering, node, switch, kubelet (the node is not ready) or plugin (its reports stop)."""
    chips: list[int] = []
    """Chips, for the faults of chips."""
    level: str = ""
    """Level as the reporting agent names it, such as ``RestartNPU`` or ``SeparateFault``; empty for the fault's usual one."""
    code: str = ""
    """Fault code in upper-case hex; empty for a usual one."""
    lasts_ms: int = 0
    """Duration in milliseconds; 0 until it is repaired."""
    mend: bool = False
    """Repair it instead."""


class NodeBroken(Message, frozen=True):
    """Answer to :class:`BreakNode`."""

    KIND: ClassVar[str] = "sim.broken"

    reason: str
    """Why nothing was done; empty when it was."""
