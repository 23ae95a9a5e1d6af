"""What the pairs of a row say: medians of the ratios, how far they spread, and whether this tree is slower. Pure."""

import math
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

from bench.against.rows import Cost

SLOWER: Final = 1.05
"""A row whose median ratio is beyond that is slower."""
_DOUBT: Final = 0.05
"""The median of the machine is outside of the interval on either side with at most this probability."""


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of this tree over seconds of the base, of all pairs; beyond 1 this tree is slower.

    Attributes:
        median: Median of the pairs.
        least: Least of them.
        most: Largest of them.
        low: Beginning of the interval in which the median is, whatever else the machine does.
        high: Its end.
        this_s: Median of this tree, in seconds.
        base_s: Median of the base, in seconds.
    """

    median: float
    least: float
    most: float
    low: float
    high: float
    this_s: float
    base_s: float

    @property
    def is_slower(self) -> bool:
        """Whether this tree is slower than it may be."""
        return self.median > SLOWER

    @property
    def is_certain(self) -> bool:
        """Whether more pairs would hardly change :attr:`is_slower`."""
        return self.high <= SLOWER or self.low > SLOWER


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table.

    Attributes:
        row: Its name.
        work: What one round does.
        pairs: Count of pairs.
        wall: By the clock; None if nothing was measured, as below.
        cpu: By the CPU seconds of what is measured.
        note: What else is to be said; empty if nothing is.
        is_measured: Whether both sides could be measured.
    """

    row: str
    work: str = ""
    pairs: int = 0
    wall: Ratio | None = None
    cpu: Ratio | None = None
    note: str = ""
    is_measured: bool = True

    @property
    def is_slower(self) -> bool:
        """Whether this tree is slower than it may be.

        By the clock, or by its CPU seconds; where the clock is uncertain after all pairs, by its CPU seconds alone.
        """
        is_by_clock = self.wall is not None and self.wall.is_slower and self.wall.is_certain
        return is_by_clock or (self.cpu is not None and self.cpu.is_slower)

    @property
    def is_certain(self) -> bool:
        """Whether more pairs would hardly change that."""
        return all(one.is_certain for one in (self.wall, self.cpu) if one is not None)

    @property
    def summary(self) -> str:
        """In one line."""
        figures = [
            f"{what} {one.median:.3f}" for what, one in (("wall", self.wall), ("CPU", self.cpu)) if one is not None
        ]
        return ", ".join([f"{self.pairs} pairs", *figures, self.verdict, *([self.note] if self.note else [])])

    @property
    def verdict(self) -> str:
        """In words."""
        if not self.is_measured:
            return "not compared"
        if self.is_certain:
            return "slower" if self.is_slower else "ok"
        by = "by CPU" if self.cpu is not None and self.cpu.is_certain else "within the noise"
        return f"{'slower' if self.is_slower else 'ok'}, {by}"


def ratio_of(this_s: Sequence[float], base_s: Sequence[float]) -> Ratio:
    """Ratio of pairs.

    Args:
        this_s: Seconds of this tree, of each pair.
        base_s: Seconds of the base, of the same pairs.
    """
    ratios = sorted(one / other for one, other in zip(this_s, base_s, strict=True))
    low, high = _interval(ratios)
    return Ratio(
        median=round(statistics.median(ratios), 4),
        least=round(ratios[0], 4),
        most=round(ratios[-1], 4),
        low=round(low, 4),
        high=round(high, 4),
        this_s=round(statistics.median(this_s), 6),
        base_s=round(statistics.median(base_s), 6),
    )


def _interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Interval of the median by signs: as many of the smallest and of the largest are left out as chance allows."""
    count = len(ordered)
    beyond, chance = 0, math.comb(count, 0) / 2**count
    while chance <= _DOUBT and beyond < count // 2:
        beyond += 1
        chance += math.comb(count, beyond) / 2**count
    left_out = max(beyond - 1, 0)
    return ordered[left_out], ordered[count - 1 - left_out]


def compared(row: str, work: str, pairs: Sequence[tuple[Cost, Cost]]) -> Compared:
    """A row of the table.

    Args:
        row: Its name.
        work: What one round does.
        pairs: Cost of this tree and of the base.
    """
    return Compared(
        row=row,
        work=work,
        pairs=len(pairs),
        wall=ratio_of([this.wall_s for this, _ in pairs], [base.wall_s for _, base in pairs]),
        cpu=ratio_of([this.cpu_s for this, _ in pairs], [base.cpu_s for _, base in pairs]),
    )
