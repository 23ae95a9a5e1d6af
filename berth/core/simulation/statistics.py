"""Statistics of a timeline: counts of jobs, waiting times, use of the chips, and spans over switches and SuperPoDs.

Jobs without a placement (rejected or cancelled) are counted, but not in times. All times are in milliseconds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.core.simulation.durations import Times, percentile, times_of
from berth.core.simulation.timeline import (
    FAILURE,
    SCOPES,
    FaultHistory,
    JobTimeline,
    Moment,
    StartFigures,
    Timeline,
)

LARGE_CHIPS: Final = 64
"""Chips of the smallest large job."""
_HOUR_MS: Final = 3_600_000
OUT: Final = 255
"""Value in a frame for a node that takes no work."""
CAUSES: Final = ("partial", "scattered", "topology", "reserved", "behind", "queue", "constraint")
"""Causes of blocked chips in display order; others follow by name."""


class SizeClass(NamedTuple):
    """Jobs of a similar number of chips.

    Attributes:
        name: For example ``8-15``.
        least: Lower bound; the upper bound is one less than the lower bound of the next class.
    """

    name: str
    least: int


SIZE_CLASSES: Final = (
    SizeClass("1", 0),  # a part of a chip counts as one
    SizeClass("2-7", 2),
    SizeClass("8-15", 8),
    SizeClass("16-63", 16),
    SizeClass("64-255", 64),
    SizeClass("256 and more", 256),
)


class Group(msgspec.Struct, frozen=True):
    """Waiting times of jobs of a size class or a priority."""

    name: str
    wait: Times


class QueueFigures(msgspec.Struct, frozen=True):
    """What the jobs of a queue got."""

    name: str
    wait: Times
    chip_h: float
    """Time of chips that its jobs held."""


class Span(msgspec.Struct, frozen=True):
    """Leaf switches, or SuperPoDs, that placed jobs of several nodes use; only jobs with both numbers known."""

    jobs: int = 0
    ratio_mean: float = 0.0
    """Mean ratio of the span to the smallest possible span; 0 without jobs."""
    ratio_p95: float = 0.0
    wider: int = 0
    """Jobs with a larger span than necessary."""
    several: int = 0
    """Jobs that use more than one."""
    could_fit: int = 0
    """Jobs that fit on one."""
    split: int = 0
    """Jobs that fit on one and use several."""


class Blocked(msgspec.Struct, frozen=True):
    """Idle chips that the first gang in the queue could not use, for one cause."""

    cause: str
    chips_mean: float
    """Mean over the whole time."""
    time_share: float
    """Share of the time with such chips, 0 to 1."""


class FaultFigures(msgspec.Struct, frozen=True):
    """What failures cost the jobs of a timeline. Chip time is that of all chips of a job, whether it has pods or not.

    The chip time of a placed job lasts from its first placement to its end. It is productive, redone or stopped.
    """

    failures: dict[str, int]
    """By kind of part."""
    interruptions: int
    """Failures and series of failures that stopped a job until it trained again."""
    by_scope: dict[str, int]
    """Interruptions by the widest scope of the recovery; ``none`` where nothing was restarted."""
    pods: int
    """Pods that were deleted."""
    ettr: float | None
    """Effective training time ratio: productive chip time over chip time; None without any."""
    productive_chip_h: float
    redone_chip_h: float
    """Work since the last checkpoint, which a failure took."""
    stopped_chip_h: float
    """From failures until training goes on: pods end, wait for places, are made, bound and started."""
    restart: Times
    """From a failure to training; without jobs that were cancelled before."""
    ends: int | None = None
    """How often jobs ended for others, each of which is an interruption; None where none may."""
    ends_chip_h: float = 0.0
    """What that cost: the work that was lost, and the time until training went on."""


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of a timeline. None when there is nothing to measure."""

    title: str
    jobs: int
    placed: int
    turned_away: int
    taken_back: int
    """Cancelled before placement."""
    waiting: int
    """Waiting at the end."""
    running: int
    """Running at the end."""
    wait: Times
    """From the request to the placement."""
    wait_large: Times
    """The same for jobs of 64 chips and more."""
    wait_by_size: list[Group]
    """All classes, ascending, also empty ones."""
    wait_by_priority: list[Group]
    """Highest first; empty when all jobs have the same priority."""
    completion: Times
    """From the request to the end of the job."""
    makespan_ms: int
    """From the first request to the last end of a job, or to the end of the timeline when a job has not ended."""
    is_over: bool
    """No job waits or runs at the end."""
    chips_mean: float | None
    """Available chips."""
    idle_chips_mean: float | None
    allocation_share: float | None
    """Share of the available chip time that was used, 0 to 1, over the whole time."""
    arrival_allocation_share: float | None
    """The same from the first request to the last."""
    queue_mean: float | None
    """Waiting gangs."""
    queue_max: int
    fragmented_chips_mean: float | None
    """Idle chips on partly used nodes: mean over the frames of the timeline."""
    leaf_span: Span
    superpod_span: Span
    blocked: list[Blocked]
    """Causes that occurred."""
    faults: FaultFigures | None = None
    """What failures cost; None where none were simulated."""
    queues: list[QueueFigures] = []
    """By name; empty where queues do nothing."""
    starts: StartFigures | None = None
    """How near expected starts were; None where nobody was asked about."""


def statistics_of(timeline: Timeline) -> Statistics:
    """Statistics of a timeline, independent of the order of its jobs."""
    placed = [job for job in timeline.jobs if job.placed_ms >= 0]
    left = [job for job in timeline.jobs if job.placed_ms < 0 and job.left_ms >= 0]
    turned_away = sum(bool(job.refused) for job in left)
    stayed = [job for job in timeline.jobs if job.placed_ms >= 0 or job.left_ms < 0]
    running = sum(job.ended_ms < 0 for job in placed)
    use = _Use(timeline)
    arrivals = [job.asked_ms for job in timeline.jobs]
    first_ms = min(arrivals, default=timeline.begin_ms)
    is_over = not running and len(stayed) == len(placed)
    over_ms = max((job.ended_ms for job in placed), default=first_ms) if is_over else timeline.end_ms
    return Statistics(
        title=timeline.title,
        jobs=len(timeline.jobs),
        placed=len(placed),
        turned_away=turned_away,
        taken_back=len(left) - turned_away,
        waiting=len(stayed) - len(placed),
        running=running,
        wait=_waits(stayed, timeline.end_ms),
        wait_large=_waits((job for job in stayed if job.chips >= LARGE_CHIPS), timeline.end_ms),
        wait_by_size=_by_size(stayed, timeline.end_ms),
        wait_by_priority=_by_priority(stayed, timeline.end_ms),
        completion=times_of(((job.asked_ms, job.ended_ms) for job in stayed), timeline.end_ms),
        makespan_ms=max(0, over_ms - first_ms),
        is_over=is_over,
        chips_mean=use.mean(use.chips),
        idle_chips_mean=use.mean(use.chips - use.used),
        allocation_share=use.share(timeline.begin_ms, timeline.end_ms),
        arrival_allocation_share=use.share(first_ms, max(arrivals, default=first_ms)),
        queue_mean=use.mean(use.waiting),
        queue_max=max((moment.waiting for moment in timeline.moments), default=0),
        fragmented_chips_mean=_fragmented(timeline),
        leaf_span=_span(placed, lambda job: (job.leaves, job.leaves_least)),
        superpod_span=_span(placed, lambda job: (job.superpods, job.superpods_least)),
        blocked=_blocked(timeline.moments, use.lengths_ms.tolist()),
        faults=_faults(timeline.faults, timeline.end_ms) if timeline.faults is not None else None,
        queues=_by_queue(stayed, timeline.end_ms),
        starts=timeline.starts,
    )


def size_class(chips: int) -> int:
    """Index of the size class of a job with so many chips."""
    return max(index for index, known in enumerate(SIZE_CLASSES) if known.least <= max(0, chips))


def in_order(causes: Iterable[str]) -> list[str]:
    """Distinct causes of blocked chips in display order."""
    found = set(causes)
    return [cause for cause in CAUSES if cause in found] + sorted(found.difference(CAUSES))


def _faults(history: FaultHistory, end_ms: int) -> FaultFigures:
    whole = sum(job.chips * (job.end_ms - job.begin_ms) for job in history.jobs)
    productive = sum(job.chips * job.productive_ms for job in history.jobs)
    redone = sum(job.chips * job.redone_ms for job in history.jobs)
    stops = history.interruptions
    by_scope = {scope or "none": sum(one.scope == scope for one in stops) for scope in (*SCOPES, "")}
    ends = [one for one in stops if one.cause != FAILURE]
    return FaultFigures(
        failures=history.failures,
        interruptions=len(stops),
        by_scope={scope: count for scope, count in by_scope.items() if count},
        pods=history.pods,
        ettr=productive / whole if whole else None,
        productive_chip_h=productive / _HOUR_MS,
        redone_chip_h=redone / _HOUR_MS,
        stopped_chip_h=(whole - productive - redone) / _HOUR_MS,
        restart=times_of(((one.at_ms, one.trains_ms) for one in stops if not one.is_cancelled), end_ms),
        ends=len(ends) if history.has_preemption else None,
        ends_chip_h=sum(one.cost(end_ms) for one in ends) / _HOUR_MS,
    )


def _waits(jobs: Iterable[JobTimeline], end_ms: int) -> Times:
    return times_of(((job.asked_ms, job.placed_ms) for job in jobs), end_ms)


def _by_size(jobs: Iterable[JobTimeline], end_ms: int) -> list[Group]:
    classes: list[list[JobTimeline]] = [[] for _ in SIZE_CLASSES]
    for job in jobs:
        classes[size_class(job.chips)].append(job)
    return [Group(known.name, _waits(members, end_ms)) for known, members in zip(SIZE_CLASSES, classes, strict=True)]


def _by_priority(jobs: Iterable[JobTimeline], end_ms: int) -> list[Group]:
    members: dict[int, list[JobTimeline]] = defaultdict(list)
    for job in jobs:
        members[job.priority].append(job)
    if len(members) <= 1:
        return []
    return [Group(str(priority), _waits(members[priority], end_ms)) for priority in sorted(members, reverse=True)]


def _by_queue(jobs: Iterable[JobTimeline], end_ms: int) -> list[QueueFigures]:
    members: dict[str, list[JobTimeline]] = defaultdict(list)
    for job in jobs:
        if job.queue:
            members[job.queue].append(job)
    return [
        QueueFigures(name, _waits(members[name], end_ms), _chip_h(members[name], end_ms)) for name in sorted(members)
    ]


def _chip_h(jobs: Iterable[JobTimeline], end_ms: int) -> float:
    ends = ((job, job.ended_ms if job.ended_ms >= 0 else end_ms) for job in jobs if job.placed_ms >= 0)
    return sum(job.chips * (ended_ms - job.placed_ms) for job, ended_ms in ends) / _HOUR_MS


def _span(placed: Iterable[JobTimeline], widths: Callable[[JobTimeline], tuple[int, int]]) -> Span:
    several_nodes = (widths(job) for job in placed if job.nodes > 1)
    known = [(width, least) for width, least in several_nodes if width > 0 and least > 0]
    if not known:
        return Span()
    ratios = sorted(width / least for width, least in known)
    return Span(
        jobs=len(known),
        ratio_mean=fsum(ratios) / len(ratios),
        ratio_p95=percentile(ratios, 95),
        wider=sum(width > least for width, least in known),
        several=sum(width > 1 for width, _ in known),
        could_fit=sum(least == 1 for _, least in known),
        split=sum(width > 1 and least == 1 for width, least in known),
    )


class _Use:
    """Moments of a timeline as columns of shape (moments,), with the duration of each."""

    def __init__(self, timeline: Timeline) -> None:
        moments = timeline.moments
        self._edges_ms = _column([*(moment.at_ms for moment in moments), timeline.end_ms] if moments else [])
        self.chips = _column(moment.chips for moment in moments)
        self.used = _column(moment.used for moment in moments)
        self.waiting = _column(moment.waiting for moment in moments)
        self.lengths_ms = self._lengths(timeline.begin_ms, timeline.end_ms)

    def mean(self, values: NDArray[np.int64]) -> float | None:
        """Mean over the time of all moments; None without moments."""
        total_ms = int(self.lengths_ms.sum())
        return int(values @ self.lengths_ms) / total_ms if total_ms else None

    def share(self, from_ms: int, to_ms: int) -> float | None:
        """Share of the available chip time that was used; None without chips."""
        lengths = self._lengths(from_ms, to_ms)
        there = int(self.chips @ lengths)
        return int(self.used @ lengths) / there if there else None

    def _lengths(self, from_ms: int, to_ms: int) -> NDArray[np.int64]:
        """Duration of each moment between two times."""
        edges = np.clip(self._edges_ms, from_ms, max(from_ms, to_ms))
        return edges[1:] - edges[:-1]


def _column(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, np.int64)


def _blocked(moments: Sequence[Moment], lengths_ms: Sequence[int]) -> list[Blocked]:
    chips: dict[str, int] = defaultdict(int)
    time: dict[str, int] = defaultdict(int)
    for moment, length_ms in zip(moments, lengths_ms, strict=True):
        for cause, count in moment.blocked.items():
            chips[cause] += count * length_ms
            time[cause] += length_ms if count else 0
    total_ms = sum(lengths_ms)
    return [Blocked(cause, chips[cause] / total_ms, time[cause] / total_ms) for cause in in_order(chips) if time[cause]]


def _fragmented(timeline: Timeline) -> float | None:
    """Idle chips on partly used nodes: mean over the evenly spaced frames; None without frames."""
    if not timeline.frames:
        return None
    chips = _column(timeline.node_chips)
    total = 0
    for frame in timeline.frames:
        used = np.frombuffer(frame.used, np.uint8)
        partly = (used > 0) & (used != OUT) & (used < chips)
        total += int((chips - used)[partly].sum())
    return total / len(timeline.frames)
