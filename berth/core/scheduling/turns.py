"""Turns of queues: gangs of many queues in one order, that changes with each gang that is taken."""

import functools
import heapq
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from berth.core.gangs import Gang, QueueOrder

Entry = tuple[QueueOrder, Gang]


class Turns(Protocol):
    """Who has the next turn."""

    def open(self, lines: Iterable[str]) -> None:
        """Begin with lines, which may have a gang to take."""

    def next(self) -> str | None:
        """The line that has the next turn; None without an open one."""

    def took(self, line: str, gang: Gang) -> None:
        """Note that the first gang of the line that has its turn was taken."""

    def close(self, line: str) -> None:
        """Note that the line that has its turn has no further gang."""


def in_turns(lines: Mapping[str, Callable[[], Iterator[Entry]]], turns: Turns) -> Iterator[Entry]:
    """Gangs of all lines, each line in its own order, as they have their turns.

    Args:
        lines: Opens each line, for its entries in order.
        turns: Who has the next turn.
    """
    opened: dict[str, Iterator[Entry]] = {}
    heads: dict[str, Entry] = {}
    turns.open(lines)
    while (line := turns.next()) is not None:
        entries = opened.get(line)
        if entries is None:  # of thousands of lines a round reaches some hundreds
            entries = opened[line] = iter(lines[line]())
        entry = heads.pop(line, None) or next(entries, None)
        if entry is None:
            turns.close(line)
            continue
        yield entry
        turns.took(line, entry[1])
        following = next(entries, None)
        if following is None:
            turns.close(line)
        else:
            heads[line] = following


def in_lines(lines: Mapping[str, Sequence[Iterable[Entry]]], turns: Turns | None) -> Iterator[Entry]:
    """Gangs in order, each line in its turns if there are any.

    Args:
        lines: Parts of each line, each in order.
        turns: Who has the next turn; None where all lines are one.
    """
    if turns is None:
        return heapq.merge(*itertools.chain(*lines.values()), key=operator.itemgetter(0))
    opened = {name: functools.partial(heapq.merge, *parts, key=operator.itemgetter(0)) for name, parts in lines.items()}
    return in_turns(opened, turns)
