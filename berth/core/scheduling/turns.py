"""Turns of queues: gangs of many queues in one order, that changes with each gang that is taken."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from berth.core.gangs import Gang, QueueOrder

Entry = tuple[QueueOrder, Gang]


class Turns(Protocol):
    """Who has the next turn."""

    def open(self, lines: Iterable[str]) -> None:
        """Begin with lines, all of which have a gang to take."""

    def next(self) -> str | None:
        """The line that has the next turn; None without an open one."""

    def took(self, line: str, gang: Gang) -> None:
        """Note that the first gang of the line that has its turn was taken."""

    def close(self, line: str) -> None:
        """Note that the line that has its turn has no further gang."""


def in_turns(lines: Mapping[str, Iterator[Entry]], turns: Turns) -> Iterator[Entry]:
    """Gangs of all lines, each line in its own order, as they have their turns.

    Args:
        lines: Entries of each line in order.
        turns: Who has the next turn.
    """
    heads = {line: first for line, entries in lines.items() if (first := next(entries, None)) is not None}
    turns.open(heads)
    while (line := turns.next()) is not None:
        entry = heads[line]
        yield entry
        turns.took(line, entry[1])
        following = next(lines[line], None)
        if following is None:
            turns.close(line)
        else:
            heads[line] = following
