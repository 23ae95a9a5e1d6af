"""Series of charts: values over time, waiting times and spans of a timeline as arrays, and which of them are equal."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.core.simulation.statistics import size_class
from berth.core.simulation.timeline import JobTimeline, Moment, Timeline

Columns = NDArray[np.float64]
SHORTEST_S: Final = 1.0
"""Left edge of an axis of waiting times."""
BAND_MOST: Final = (1.0, 2.0, 4.0, float("inf"))
"""Maximum of each band of span over the smallest possible."""
_RANKS: Final = 300
"""Points of a distribution."""
_NO_MOMENT: Final = Moment(0, 0, 0, 0, 0)


class Shares(NamedTuple):
    """Jobs of several nodes by their span over the smallest possible.

    Attributes:
        bands: Percentage of each band.
        mean: Mean of the span over the smallest possible.
    """

    bands: tuple[float, ...]
    mean: float


def alike(keys: Sequence[object]) -> list[list[int]]:
    """Places of equal keys together, in the order of the first of each."""
    found: dict[object, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return list(found.values())


def bytes_of(*arrays: Columns) -> bytes:
    """A key of arrays: equal for equal shapes and numbers."""
    return b"".join(repr(array.shape).encode() + array.tobytes() for array in arrays)


def steps(timeline: Timeline, read: Callable[[Moment], tuple[int, ...]], points: int) -> tuple[Columns, Columns]:
    """Values over time as steps: milliseconds since the start, and a row for each value, the last one at the end.

    If there are more moments than ``points``, they are averaged over that number of equal intervals.
    """
    values = np.array([read(moment) for moment in timeline.moments], np.float64).T
    if not values.size:
        return np.zeros(2), np.zeros((len(read(_NO_MOMENT)), 2))
    edges = np.array([*(moment.at_ms for moment in timeline.moments), timeline.end_ms], np.float64) - timeline.begin_ms
    edges = np.clip(edges, 0, timeline.end_ms - timeline.begin_ms)
    if len(timeline.moments) > points and edges[-1] > edges[0]:
        sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values * np.diff(edges), axis=1)], axis=1)
        even = np.linspace(edges[0], edges[-1], points + 1)
        upto = np.array([np.interp(even, edges, row) for row in sums])
        edges, values = even, np.diff(upto, axis=1) / np.diff(even)
    return edges, np.concatenate([values, values[:, -1:]], axis=1)


def waits_s(timeline: Timeline, index: int) -> tuple[Columns, int]:
    """Waiting times of the placed jobs of a size class in seconds, ascending, and the number of those that stayed."""
    members = [
        job for job in timeline.jobs if size_class(job.chips) == index and (job.placed_ms >= 0 or job.left_ms < 0)
    ]
    waits = sorted(job.placed_ms - job.asked_ms for job in members if job.placed_ms >= 0)
    return np.array(waits, np.float64) / 1000, len(members)


def distribution(waits: Columns, members: int, longest_s: float) -> tuple[Columns, Columns]:
    """Percentage of the members that were placed within a time, and that time; reduced to visible points."""
    if not waits.size:
        return np.zeros(2), np.array([SHORTEST_S, longest_s])
    ranks = np.unique(np.linspace(1, len(waits), min(len(waits), _RANKS)).round().astype(np.int64))
    seconds = np.maximum(waits[ranks - 1], SHORTEST_S)
    shares = 100 * ranks / members
    return np.concatenate([[0], shares, shares[-1:]]), np.concatenate([seconds[:1], seconds, [longest_s]])


def shares_of(timeline: Timeline, widths: Callable[[JobTimeline], tuple[int, int]]) -> Shares | None:
    """Shares of the placed jobs of several nodes by their span; None if none is known."""
    several_nodes = (widths(job) for job in timeline.jobs if job.placed_ms >= 0 and job.nodes > 1)
    ratios = np.array([width / least for width, least in several_nodes if width > 0 and least > 0])
    if not ratios.size:
        return None
    least = (0.0, *BAND_MOST)
    bands = [
        100 * float(((ratios > above) & (ratios <= most)).mean()) for above, most in zip(least, BAND_MOST, strict=False)
    ]
    return Shares(tuple(bands), float(ratios.mean()))
