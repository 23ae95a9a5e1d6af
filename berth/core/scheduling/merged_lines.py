"""Entries of many lines in one order, with as few lines opened as needed.

Of tens of thousands of classes that are awake a round takes some hundreds of gangs. To open each line for its first
entry would cost each round more than its decisions; a bound of the first entry, which costs next to nothing, is enough
for all lines that are not reached.
"""

import functools
import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Order = tuple[int, int, str]
L = TypeVar("L")
G = TypeVar("G")


def merged(
    lines: list[tuple[Order, int, L]], entries_of: Callable[[L], Iterable[tuple[Order, G]]]
) -> Iterator[tuple[Order, G]]:
    """All entries of lines in order. A line is opened when nothing that is known comes before its bound.

    Args:
        lines: Of each line a bound that none of its entries is before, a number that no other has, and what
            ``entries_of`` takes. The list is consumed.
        entries_of: Opens a line; gives its entries in order.
    """
    heapq.heapify(lines)
    opened: list[tuple[Order, int, tuple[Order, G], Iterator[tuple[Order, G]]]] = []
    while lines or opened:
        while lines and (not opened or lines[0][0] <= opened[0][0]):
            _, number, line = heapq.heappop(lines)
            rest = iter(entries_of(line))
            first = next(rest, None)
            if first is not None:
                heapq.heappush(opened, (first[0], number, first, rest))
        if opened:
            _, number, entry, rest = opened[0]
            yield entry
            following = next(rest, None)
            if following is None:
                heapq.heappop(opened)
            else:
                heapq.heapreplace(opened, (following[0], number, following, rest))


def by_name(
    lines: list[tuple[Order, int, L]],
    entries_of: Callable[[L], Iterable[tuple[Order, G]]],
    name_of: Callable[[L], str],
) -> dict[str, Callable[[], Iterator[tuple[Order, G]]]]:
    """What opens the lines of each name: as :func:`merged`, of these alone.

    Args:
        lines: As there; the list stays.
        entries_of: As there.
        name_of: Name of a line.
    """
    found: dict[str, list[tuple[Order, int, L]]] = {}
    for line in lines:
        found.setdefault(name_of(line[2]), []).append(line)
    return {name: functools.partial(merged, some, entries_of) for name, some in found.items()}
