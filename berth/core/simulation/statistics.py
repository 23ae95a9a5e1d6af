"""Figures of a course: how many jobs, how long they waited, how well the chips were used, over how many switches they lay.

Percentiles are by nearest rank: of n values in ascending order, the one at place ceil(p x n / 100). A job that is not over
at the end of the course counts with the time that it has had; the figure is then a lower bound, and says so. Jobs that
left without a placement (rejected or cancelled) are counted, and are in no time. All times are milliseconds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from berth.core.simulation.timeline import JobCourse, Moment, Timeline

_Value = TypeVar("_Value", int, float)

LARGE_CHIPS: Final = 64
"""Chips from which on a job is large."""
OUT: Final = 255
"""Use of a node that takes no work, in a frame."""
CAUSES: Final = ("partial", "scattered", "topology", "reserved", "behind", "constraint")
"""Causes of blocked chips in the order in which they are shown; others follow by name."""


class SizeClass(NamedTuple):
    """Jobs of about the same number of chips.

    Attributes:
        name: Such as ``8-15``.
        least: Fewest chips; the most are one less than the next class's fewest.
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


class Times(msgspec.Struct, frozen=True):
    """How long something took for each of some jobs; zeros without any."""

    jobs: int = 0
    unfinished: int = 0
    """Those of them that are not over: they count with what they have had until the end."""
    mean_ms: float = 0.0
    p50_ms: int = 0
    p95_ms: int = 0
    p99_ms: int = 0
    max_ms: int = 0
    known_below_ms: int = -1
    """Shortest time of the unfinished: percentiles from here on are lower bounds, as are mean and maximum; -1 without."""


class Group(msgspec.Struct, frozen=True):
    """Waiting times of jobs of a size class or a priority."""

    name: str
    wait: Times


class Span(msgspec.Struct, frozen=True):
    """Over how many leaf switches, or SuperPoDs, placed jobs of several nodes lie; those of which both numbers are known."""

    jobs: int = 0
    ratio_mean: float = 0.0
    """Of span over the smallest possible; 0 without jobs."""
    ratio_p95: float = 0.0
    wider: int = 0
    """Jobs that lie on more than they must."""
    several: int = 0
    """Jobs that lie on more than one."""
    could_fit: int = 0
    """Jobs that one could hold ..."""
    split: int = 0
    """... and those of them that lie on several."""


class Blocked(msgspec.Struct, frozen=True):
    """Idle chips that a cause kept from the first gang in the queue."""

    cause: str
    chips_mean: float
    """Over the whole time."""
    time_share: float
    """Part of the time with any, 0 to 1."""


class Figures(msgspec.Struct, frozen=True):
    """Figures of a course. None where there is nothing to measure."""

    title: str
    jobs: int
    placed: int
    turned_away: int
    taken_back: int
    """By their users, before they were placed."""
    waiting: int
    """Never placed, and not gone at the end."""
    running: int
    """Placed, and not over at the end."""
    wait: Times
    """From the request to the placement."""
    wait_large: Times
    """The same for jobs of 64 chips and more."""
    wait_by_size: list[Group]
    """All classes, ascending, empty ones too."""
    wait_by_priority: list[Group]
    """The highest first; empty where all jobs have the same."""
    completion: Times
    """From the request to the end of the job."""
    makespan_ms: int
    """From the first request to the last end of a job, or to the end of the course when a job is not over."""
    is_over: bool
    """No job waits or runs at the end."""
    chips_mean: float | None
    """Chips that were there."""
    idle_chips_mean: float | None
    allocation_share: float | None
    """Chip-time used of the chip-time that was there, 0 to 1, over the whole time."""
    arrival_allocation_share: float | None
    """The same from the first request to the last."""
    queue_mean: float | None
    """Gangs that wait."""
    queue_max: int
    fragmented_chips_mean: float | None
    """Idle chips on nodes that are partly in use: mean over the frames of the course."""
    leaf_span: Span
    superpod_span: Span
    blocked: list[Blocked]
    """Causes that occurred."""


def figures_of(timeline: Timeline) -> Figures:
    """The figures of a course; they do not depend on the order of its jobs."""
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
    return Figures(
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
        completion=_times(((job.asked_ms, job.ended_ms) for job in stayed), timeline.end_ms),
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
    )


def percentile(ascending: Sequence[_Value], percent: int) -> _Value:
    """The value at nearest rank: one of the values, which are ascending and at least one; ``percent`` is 1 to 100."""
    return ascending[(percent * len(ascending) + 99) // 100 - 1]


def size_class(chips: int) -> int:
    """Index of the size class of a job with so many chips."""
    return max(index for index, known in enumerate(SIZE_CLASSES) if known.least <= max(0, chips))


def in_order(causes: Iterable[str]) -> list[str]:
    """Causes of blocked chips, each once, in the order in which they are shown."""
    found = set(causes)
    return [cause for cause in CAUSES if cause in found] + sorted(found.difference(CAUSES))


def _waits(jobs: Iterable[JobCourse], end_ms: int) -> Times:
    return _times(((job.asked_ms, job.placed_ms) for job in jobs), end_ms)


def _times(stretches: Iterable[tuple[int, int]], end_ms: int) -> Times:
    """Of stretches from a moment to another, -1 where that has not come before the end."""
    taken: list[int] = []
    unfinished: list[int] = []
    for from_ms, to_ms in stretches:
        if to_ms >= 0:
            taken.append(to_ms - from_ms)
        else:
            unfinished.append(max(0, end_ms - from_ms))
    ascending = sorted([*taken, *unfinished])
    if not ascending:
        return Times()
    return Times(
        jobs=len(ascending),
        unfinished=len(unfinished),
        mean_ms=sum(ascending) / len(ascending),
        p50_ms=percentile(ascending, 50),
        p95_ms=percentile(ascending, 95),
        p99_ms=percentile(ascending, 99),
        max_ms=ascending[-1],
        known_below_ms=min(unfinished, default=-1),
    )


def _by_size(jobs: Iterable[JobCourse], end_ms: int) -> list[Group]:
    classes: list[list[JobCourse]] = [[] for _ in SIZE_CLASSES]
    for job in jobs:
        classes[size_class(job.chips)].append(job)
    return [Group(known.name, _waits(members, end_ms)) for known, members in zip(SIZE_CLASSES, classes, strict=True)]


def _by_priority(jobs: Iterable[JobCourse], end_ms: int) -> list[Group]:
    members: dict[int, list[JobCourse]] = defaultdict(list)
    for job in jobs:
        members[job.priority].append(job)
    if len(members) <= 1:
        return []
    return [Group(str(priority), _waits(members[priority], end_ms)) for priority in sorted(members, reverse=True)]


def _span(placed: Iterable[JobCourse], widths: Callable[[JobCourse], tuple[int, int]]) -> Span:
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
    """Moments of a course as columns, each with how long it lasts within the course."""

    def __init__(self, timeline: Timeline) -> None:
        moments = timeline.moments
        self._edges_ms = _column([*(moment.at_ms for moment in moments), timeline.end_ms] if moments else [])
        self.chips = _column(moment.chips for moment in moments)
        self.used = _column(moment.used for moment in moments)
        self.waiting = _column(moment.waiting for moment in moments)
        self.lengths_ms = self._lengths(timeline.begin_ms, timeline.end_ms)

    def mean(self, values: NDArray[np.int64]) -> float | None:
        """Mean over the time that moments tell of; None without."""
        total_ms = int(self.lengths_ms.sum())
        return int(values @ self.lengths_ms) / total_ms if total_ms else None

    def share(self, from_ms: int, to_ms: int) -> float | None:
        """Chip-time used of that which was there; None where none was."""
        lengths = self._lengths(from_ms, to_ms)
        there = int(self.chips @ lengths)
        return int(self.used @ lengths) / there if there else None

    def _lengths(self, from_ms: int, to_ms: int) -> NDArray[np.int64]:
        """How long each moment lasts between two times."""
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
    """Idle chips on partly used nodes: mean over the frames, which lie evenly over the time; None without frames."""
    if not timeline.frames:
        return None
    chips = _column(timeline.node_chips)
    total = 0
    for frame in timeline.frames:
        used = np.frombuffer(frame.used, np.uint8)
        partly = (used > 0) & (used != OUT) & (used < chips)
        total += int((chips - used)[partly].sum())
    return total / len(timeline.frames)
