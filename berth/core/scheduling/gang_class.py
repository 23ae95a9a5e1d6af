"""Waiting gangs of one class and line, which sleep and wake together, but for those that a rule holds."""

import heapq
import operator
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from berth.core.changes import Changes
from berth.core.gangs import Gang, WaitKey
from berth.core.state.waiting_dump import SleeperDump
from berth.schemas.queues.queue import KEY_SIGN

Entry = tuple[tuple[int, int, str], Gang]
ORDER: Final = operator.itemgetter(0)
"""Sort key of an entry; it is unique for each gang."""
LINE: Final = operator.attrgetter("key.line")
"""Line of a class."""


class Sleep(NamedTuple):
    """How a class sleeps."""

    retry_at_ms: int
    """When to try again without an improvement; 0 for never."""
    never: bool = False
    """It is larger than the cluster: it waits for more nodes, and does not block other gangs."""
    by_any_change: bool = False
    """Any change of a node may help it, also one for the worse."""


class GangClass(msgspec.Struct, gc=False):
    """Waiting gangs of one class and line, and whether the class sleeps."""

    key: WaitKey
    is_plain: bool
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
    held: dict[str, None] = {}
    """Gangs (uid) that a rule keeps back, each alone; while the class sleeps, under keys alone."""

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

    def asleep(self) -> Iterator[Entry]:
        """Gangs in order whose refusal put the class to sleep, or that sleep with it."""
        known = self.known()
        return (entry for entry in known if entry[1].uid not in self.held) if self.held else known

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


class Hold(NamedTuple):
    """A gang that is held."""

    members: GangClass
    retry_at_ms: int
    """When to try again although nothing has released it; 0 for never."""
    keys: tuple[str, ...] = ()
    """Keys that release it; without any, any news does."""


class Released(NamedTuple):
    """A gang that was held, and how."""

    gang: Gang
    retry_at_ms: int
    keys: tuple[str, ...]


class HeldGangs:
    """Gangs of a queue that rules keep back, each alone, and what releases them.

    Gangs that are blocked by a reservation are released together, by any news: any improvement, and a node that lost
    capacity too, because reservations may change. Others have keys of their rule, and are released by these.
    """

    def __init__(self) -> None:
        self._held: dict[str, Hold] = {}
        self._under: dict[str, dict[str, None]] = {}
        """Gangs (uid) that each key releases."""
        self._by_news: dict[str, None] = {}
        """Gangs that any news releases."""
        self._timed: dict[str, None] = {}
        """Gangs that are held until a moment at most."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def put(self, uid: str, hold: Hold) -> None:
        """Hold a gang."""
        self.pop(uid)
        self._held[uid] = hold
        for key in hold.keys:
            self._under.setdefault(key, {})[uid] = None
        if not hold.keys:
            self._by_news[uid] = None
        if hold.retry_at_ms:
            self._timed[uid] = None
        hold.members.held[uid] = None

    def pop(self, uid: str) -> Hold | None:
        """Hold a gang no longer; returns how it was held."""
        hold = self._held.pop(uid, None)
        if hold is not None:
            for key in hold.keys:
                gangs = self._under[key]
                del gangs[uid]
                if not gangs:
                    del self._under[key]
            self._by_news.pop(uid, None)
            self._timed.pop(uid, None)
            del hold.members.held[uid]
        return hold

    def let_go(self, members: GangClass, refused: str) -> None:
        """Hold gangs of a class no longer that falls asleep: the one that was refused, and those without keys."""
        for uid in list(members.held):
            if uid == refused or not self._held[uid].keys:
                self.pop(uid)

    def release(self, woken: Mapping[str, None], *, is_news: bool, time_ms: int) -> list[Released]:
        """Release gangs; returns which, in order of uid, and how they were held.

        Args:
            woken: Keys that release gangs.
            is_news: Gangs without keys are released, as all of them are once one is due.
            time_ms: The moment.
        """
        due = [uid for uid in self._timed if self._held[uid].retry_at_ms <= time_ms]
        is_news = is_news or any(uid in self._by_news for uid in due)
        found = {*due, *(uid for key in woken for uid in self._under.get(key, ()))}
        if is_news:
            found.update(self._by_news)
        released: list[Released] = []
        for uid in sorted(found):
            hold = self._held[uid]
            self.pop(uid)
            released.append(Released(hold.members.gangs[uid], hold.retry_at_ms, hold.keys))
        return released

    def may_release(self, changes: Changes) -> bool:
        """Whether changes release gangs, besides those that wake classes."""
        if self._by_news and (changes.queue_unblocked or has_queues(changes)):
            return True
        return any(key in self._under for key in changes.woken)

    def dump(self) -> list[SleeperDump]:
        """Gangs and how they are held, in order of uid."""
        return [self._dumped(uid) for uid in sorted(self._held)]

    def _dumped(self, uid: str) -> SleeperDump:
        hold = self._held[uid]
        return SleeperDump(uid, hold.retry_at_ms, keys=hold.keys)

    def for_room(self) -> Iterator[Gang]:
        """Gangs with chips that any news releases."""
        for uid in self._by_news:
            members = self._held[uid].members
            if not members.is_plain:
                yield members.gangs[uid]

    def moments(self) -> Iterator[int]:
        """When to try again although nothing has released a gang; 0 for never."""
        return (self._held[uid].retry_at_ms for uid in self._timed)


def has_queues(changes: Changes) -> bool:
    """Whether queues are declared otherwise, or hold less."""
    return any(key.startswith(KEY_SIGN) for key in changes.woken)
