"""Waiting gangs of one request class, which sleep and wake together."""

import heapq
import operator
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from berth.core.requests.gangs import ClassKey, Gang

Entry = tuple[tuple[int, int, str], Gang]
ORDER: Final = operator.itemgetter(0)
"""Sort key of an entry; it is unique for each gang."""


class Sleep(NamedTuple):
    """How a class sleeps."""

    retry_at_ms: int
    """When to try again without an improvement; 0 for never."""
    never: bool = False
    """It is larger than the cluster: it waits for more nodes, and does not block other gangs."""
    by_any_change: bool = False
    """Any change of a node may help it, also one for the worse."""


class GangClass(msgspec.Struct, gc=False):
    """Waiting gangs of one class, and whether the class sleeps."""

    key: ClassKey
    is_plain: bool = False
    """It is in the lane of jobs without chips."""
    gangs: dict[str, Gang] = {}
    line: list[tuple[tuple[int, int, str], str]] = []
    """(order, uid), sorted; entries of gangs that left are passed over, and removed when they are many."""
    gone: int = 0
    """Entries of ``line`` whose gang left, or more."""
    fresh: dict[str, None] = {}
    """Gangs (uid) without a verdict."""
    sleeps: bool = False
    retry_at_ms: int = 0
    """When to try again without an improvement; 0 for never."""
    never: bool = False
    """It is larger than the cluster: it waits for more nodes, and does not block other gangs."""
    by_any_change: bool = False
    """Any change of a node may help it, also one for the worse."""
    held: dict[str, int] = {}
    """Gangs (uid) that may not start because of a reservation, and when to try again; 0 for never."""

    def fall_asleep(self, sleep: Sleep) -> None:
        """Sleep, in the way that is given."""
        self.sleeps = True
        self.retry_at_ms, self.never, self.by_any_change = sleep

    def wake(self) -> None:
        """Sleep no longer."""
        self.sleeps = False
        self.retry_at_ms = 0
        self.never = self.by_any_change = False

    @property
    def sleep(self) -> Sleep:
        """How it sleeps."""
        return Sleep(self.retry_at_ms, self.never, self.by_any_change)

    def known(self) -> Iterator[Entry]:
        """Gangs in order, those left out that had no verdict yet."""
        before: str | None = None
        for order, uid in self.line:
            gang = self.gangs.get(uid)
            if gang is not None and gang.order == order and uid != before and not gang.fresh:
                before = uid
                yield order, gang

    def free(self) -> Iterator[Entry]:
        """Gangs in order, those left out that are held."""
        return (entry for entry in self.in_order() if entry[1].uid not in self.held)

    def first_fresh(self, count: int) -> list[Entry]:
        """The first gangs without a verdict, in order."""
        gangs = [self.gangs[uid] for uid in self.fresh]
        return [(gang.order, gang) for gang in heapq.nsmallest(count, gangs, key=lambda gang: gang.order)]

    def in_order(self) -> Iterator[Entry]:
        """All gangs in order, one after another; the class must stay as it is meanwhile."""
        if 2 * self.gone > len(self.line):
            self.line = sorted((gang.order, uid) for uid, gang in self.gangs.items())
            self.gone = 0
        passed = 0
        for order, uid in self.line:
            gang = self.gangs.get(uid)
            if gang is not None and gang.order == order:
                break
            passed += 1
        del self.line[:passed]
        self.gone -= passed
        gangs = self.gangs
        before: str | None = None
        for order, uid in self.line:
            gang = gangs.get(uid)
            if gang is not None and uid != before and gang.order == order:
                before = uid
                yield order, gang
