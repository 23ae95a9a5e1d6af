"""The split of an amount by weights, in whole units: exact, and independent of the order of its entries."""

from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """Who gets a part.

    Attributes:
        name: Name; no two are equal.
        weight: Weight, at least 0; one of 0 gets its floor.
        floor: Least part.
        cap: Largest part, at least the floor; None: no bound.
    """

    name: str
    weight: int
    floor: int = 0
    cap: int | None = None


def split(amount: int, entries: Sequence[Entry], *, unit: int = 1) -> dict[str, int]:
    """Part of each entry by weight, between its floor and its cap.

    The sum is the amount, unless all caps or all floors forbid it. The method is that of CSS for flexible lengths: all
    that is not frozen gets its part of what is left by weight, and what had to be raised is frozen, or what had to be
    lowered, by what weighs more together.

    Args:
        amount: What is split.
        entries: Who gets a part, in any order.
        unit: What is not broken, such as a chip. If the amount, a floor or a cap is no multiple of it, 1 is.
    """
    numbers = [amount, *(entry.floor for entry in entries), *(entry.cap or 0 for entry in entries)]
    if any(number % unit for number in numbers):
        unit = 1
    scaled = [
        entry._replace(floor=entry.floor // unit, cap=None if entry.cap is None else entry.cap // unit)
        for entry in entries
    ]
    return {name: part * unit for name, part in _split(amount // unit, scaled).items()}


def _split(amount: int, entries: Sequence[Entry]) -> dict[str, int]:
    parts = {entry.name: entry.floor for entry in entries if not entry.weight}
    free = [entry for entry in entries if entry.weight]
    while free:
        rest, weights = amount - sum(parts.values()), sum(entry.weight for entry in free)
        raised = [entry for entry in free if entry.floor * weights > rest * entry.weight]
        lowered = [entry for entry in free if entry.cap is not None and entry.cap * weights < rest * entry.weight]
        lacking = sum(entry.floor * weights - rest * entry.weight for entry in raised)
        spared = sum(rest * entry.weight - (entry.cap or 0) * weights for entry in lowered)
        frozen = {entry.name: entry.floor for entry in raised} if lacking >= spared else {}
        if spared >= lacking:
            frozen |= {entry.name: entry.cap or 0 for entry in lowered}
        if not frozen:
            return parts | _whole_parts(rest, free)
        parts |= frozen
        free = [entry for entry in free if entry.name not in frozen]
    return parts


def _whole_parts(rest: int, free: Sequence[Entry]) -> dict[str, int]:
    """Parts without bounds: rounded down, and what is left one each by largest remainder, weight and name."""
    weights = sum(entry.weight for entry in free)
    parts = {entry.name: rest * entry.weight // weights for entry in free}
    left = rest - sum(parts.values())
    ranked = sorted(free, key=lambda entry: (-(rest * entry.weight % weights), -entry.weight, entry.name))
    for entry in ranked[:left]:
        parts[entry.name] += 1
    return parts
