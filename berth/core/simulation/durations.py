"""Durations of jobs and their distribution.

Percentiles are by nearest rank: of n values in ascending order, the one at position ceil(p x n / 100). A job that has
not ended at the end of the timeline counts with its time so far; the number is then marked as a lower bound.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

_Value = TypeVar("_Value", int, float)


class Times(msgspec.Struct, frozen=True):
    """Distribution of a duration over jobs; zeros without jobs."""

    jobs: int = 0
    unfinished: int = 0
    """Jobs that have not ended; they count with their time so far."""
    mean_ms: float = 0.0
    p50_ms: int = 0
    p95_ms: int = 0
    p99_ms: int = 0
    max_ms: int = 0
    known_below_ms: int = -1
    """Shortest time of the unfinished jobs: larger percentiles, mean and maximum are lower bounds; -1 without such
    jobs."""


def percentile(ascending: Sequence[_Value], percent: int) -> _Value:
    """The percentile by nearest rank of at least one ascending value; ``percent`` is 1 to 100."""
    return ascending[(percent * len(ascending) + 99) // 100 - 1]


def times_of(stretches: Iterable[tuple[int, int]], end_ms: int) -> Times:
    """Durations of intervals; an end of -1 is after the end of the timeline."""
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
