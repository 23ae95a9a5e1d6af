"""Timeline of a cell, recorded or simulated: its jobs and the use of its chips over time. Statistics and plots use it.

Times are in milliseconds on the clock of the timeline. Numbers of chips count healthy chips of present nodes.
"""

from typing import Final

import msgspec

from berth.schemas.recovery import Scope

FAILURE: Final = "failure"
SCOPES: Final[tuple[Scope, ...]] = ("pod", "rank-block", "superpod", "level", "job")
"""Scopes of recoveries, the widest last."""


class JobTimeline(msgspec.Struct, frozen=True, gc=False):
    """A job on the timeline."""

    namespace: str
    name: str
    chips: int
    """Chips of all its pods."""
    pods: int
    priority: int
    asked_ms: int
    placed_ms: int
    """Its last placement; -1 for never."""
    ended_ms: int
    """When its chips were released; -1 while it runs, or for never."""
    refused: str
    """Code of the last refusal of a job that was rejected or waits at the end; empty otherwise."""
    nodes: int
    """Nodes of its placement."""
    leaves: int = 0
    """Leaf switches of its nodes with chips; 0 when unknown."""
    leaves_least: int = 0
    """Smallest number of leaf switches with room for its nodes."""
    superpods: int = 0
    superpods_least: int = 0
    left_ms: int = -1
    """When it was rejected, or cancelled before placement (then ``refused`` is empty); -1 otherwise. A job that was
    never placed and has not left waits at the end."""
    queue: str = ""
    """Its queue; empty where queues do nothing."""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """Use of the cluster from this moment to the next one."""

    at_ms: int
    chips: int
    """Healthy chips of present nodes."""
    used: int
    waiting: int
    """Waiting gangs."""
    waiting_chips: int
    blocked: dict[str, int] = {}
    """Idle chips while a gang waits, by what keeps them from the first in the queue: ``partial`` (on nodes with too few
    for a pod), ``scattered`` (on nodes that would take a pod, but not enough of them), ``topology`` (enough nodes, but
    not below leaves or in SuperPoDs as asked), ``reserved``, ``behind``, ``queue``, ``rule`` and ``constraint``
    (selector, taint, health, cpu or memory)."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Use of each node at a moment."""

    at_ms: int
    used: bytes
    """One byte for each node of ``Timeline.nodes``: chips in use; 255 for a node that takes no work."""


class Interruption(msgspec.Struct, frozen=True, gc=False):
    """A time in which a job does not train, from a failure on, or from its end for another job."""

    namespace: str
    name: str
    chips: int
    at_ms: int
    """When it was stopped."""
    trains_ms: int
    """When it trained again; -1 if it never did."""
    scope: str
    """Widest scope of its recovery; empty where nothing was restarted, and its pods went on after the repair."""
    redone_ms: int
    """Work since its last checkpoint, which is lost."""
    is_cancelled: bool
    """The job was cancelled before it trained again."""
    cause: str = FAILURE
    """What stopped it: ``failure``, or that it ended for another job: ``Preempted``, ``Reclaimed``."""

    def cost(self, end_ms: int) -> int:
        """Chip time that it cost until it trained again, or until the end of the timeline (chip ms)."""
        stopped_ms = (self.trains_ms if self.trains_ms >= 0 else end_ms) - self.at_ms
        return self.chips * (self.redone_ms + stopped_ms)


class JobTraining(msgspec.Struct, frozen=True, gc=False):
    """What became of the time of a job that was placed."""

    namespace: str
    name: str
    chips: int
    begin_ms: int
    """Its first placement."""
    end_ms: int
    """When it ended, or the end of the simulation."""
    productive_ms: int
    """Training whose result was kept."""
    redone_ms: int
    """Training whose result was lost."""


class FaultHistory(msgspec.Struct, frozen=True):
    """What failures, and ends for others, did to the jobs of a simulation."""

    failures: dict[str, int]
    """Failures by kind of part, those that met no job included."""
    jobs: list[JobTraining]
    """By their end, then by name."""
    interruptions: list[Interruption]
    """By their end, then by name."""
    pods: int
    """Pods that were deleted."""
    has_preemption: bool = False
    """Jobs may end for others."""


class StartFigures(msgspec.Struct, frozen=True):
    """How near the answers were, over the jobs that were asked about and started."""

    asked: int
    ranges: int
    """Jobs for which Berth told a range."""
    in_range: int
    """Those of them that started within it, or within a minute of it."""
    near: int
    """Those of them whose wait its mean was near."""
    last_wait: int
    """Jobs before which another one of as many chips was placed."""
    last_wait_near: int
    reserved: int
    """Jobs for which a reservation was found."""
    reserved_near: int


class Timeline(msgspec.Struct, frozen=True):
    """All jobs, and the use of the cluster over time."""

    title: str
    """For example ``as recorded`` or ``queue_policy=easy``."""
    settings: dict[str, str]
    """Settings in words."""
    begin_ms: int
    end_ms: int
    jobs: list[JobTimeline]
    """By submission, then by name."""
    moments: list[Moment]
    """Ascending, one for each change."""
    nodes: list[str] = []
    """By leaf switch, then by name."""
    node_chips: list[int] = []
    """Chips of each node."""
    leaves: list[str] = []
    """Leaf switch of each node; empty without leaf switches."""
    frames: list[Frame] = []
    """About a hundred frames, evenly spaced."""
    faults: FaultHistory | None = None
    """What failures did; None where none were simulated."""
    starts: StartFigures | None = None
    """How near expected starts were; None where nobody was asked about."""
