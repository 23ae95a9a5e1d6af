"""Order of gangs, and what wakes a refused one.

A class of request that was refused sleeps: its gangs are not scored again until something on some node changed that
lets the node take one of its pods, a missing shard's wait is over, or a new epoch begins. Sleep is a function of the log, so a
replay sleeps and wakes alike.
"""

import bisect
import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from berth.core.gangs import ClassKey, Gang
from berth.core.ledger import SleeperDump

_Entry = tuple[tuple[int, int, str], Gang]
"""A gang behind its order, which no other gang has."""


class Sleep(NamedTuple):
    """How a class sleeps."""

    retry_at_ms: int
    """When to try again although nothing got better; 0 for never."""


class GangClass(msgspec.Struct, gc=False):
    """Waiting gangs of one class, and whether the class sleeps."""

    key: ClassKey
    gangs: dict[str, Gang] = {}
    line: list[tuple[tuple[int, int, str], str]] = []
    """(order, uid), sorted; entries of gangs that left are passed over, and removed when they are many."""
    gone: int = 0
    """Entries of ``line`` whose gang left, or more."""
    fresh: dict[str, None] = {}
    """Gangs (uid) without a verdict."""
    sleeps: bool = False
    retry_at_ms: int = 0
    """When to try again although nothing got better; 0 for never."""


class Queue:
    """Waiting gangs by class."""

    def __init__(self) -> None:
        self._classes: dict[ClassKey, GangClass] = {}
        self._class_of: dict[str, ClassKey] = {}
        self._uid_of: dict[tuple[str, str], str] = {}
        """Gang (uid) that waits under a name."""
        self.awake: dict[ClassKey, None] = {}
        self.eager: dict[ClassKey, None] = {}
        """Sleeping classes with fresh gangs."""
        self.woken = 0
        """Classes woken so far."""

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._class_of

    @property
    def has_work(self) -> bool:
        """Whether a round could decide something."""
        return bool(self.awake or self.eager)

    def put(self, gang: Gang) -> None:
        """Add a gang, or take its new form for the old one; its place follows from its order alone."""
        old = self._class_of.get(gang.uid)
        if old is not None:
            self.remove(gang.uid)
        members = self._classes.get(gang.klass)
        if members is None:
            members = self._classes[gang.klass] = GangClass(gang.klass)
            self.awake[gang.klass] = None
        members.gangs[gang.uid] = gang
        entry = (gang.order, gang.uid)
        if not members.line or members.line[-1] < entry:
            members.line.append(entry)
        else:
            bisect.insort(members.line, entry)
        self._class_of[gang.uid] = gang.klass
        self._uid_of[gang.namespace, gang.name] = gang.uid
        if gang.fresh:
            members.fresh[gang.uid] = None
            if members.sleeps:
                self.eager[gang.klass] = None

    def remove(self, uid: str) -> None:
        """Take a gang out, wherever it is."""
        key = self._class_of.pop(uid, None)
        if key is None:
            return
        members = self._classes[key]
        gang = members.gangs.pop(uid)
        self._uid_of.pop((gang.namespace, gang.name), None)
        members.gone += 1
        members.fresh.pop(uid, None)
        if not members.fresh:
            self.eager.pop(key, None)
        if not members.gangs:
            del self._classes[key]
            self.awake.pop(key, None)

    def keep_only(self, name: tuple[str, str], uid: str) -> None:
        """Take out the gang that waits under a name, unless it is ``uid``."""
        waits = self._uid_of.get(name)
        if waits is not None and waits != uid:
            self.remove(waits)

    def take(self, *, gangs_max: int, bytes_max: int) -> list[Gang]:
        """Gangs for a round, in queue order; they stay in the queue. At least one if there is any.

        Of a sleeping class only the gangs that never had a verdict are taken.
        """
        taken: list[Gang] = []
        size = 0
        for _, gang in heapq.merge(*self._lines(gangs_max)):
            size += gang.bytes_in_record
            if taken and (len(taken) == gangs_max or size > bytes_max):
                break
            taken.append(gang)
        return taken

    def refused(self, uid: str, *, retry_at_ms: int) -> None:
        """Put the class of a refused gang to sleep."""
        key = self._class_of.get(uid)
        if key is None:
            return
        members = self._classes[key]
        members.sleeps = True
        members.retry_at_ms = retry_at_ms
        members.gangs[uid].fresh = False
        members.fresh.pop(uid, None)
        self.awake.pop(key, None)
        if members.fresh:
            self.eager[key] = None
        else:
            self.eager.pop(key, None)

    def wake(self, helps: Callable[[ClassKey], bool], *, time_ms: int) -> list[tuple[ClassKey, Sleep]]:
        """Wake every sleeping class that ``helps`` says an event can help, or whose wait is over; say which, and how they slept."""
        woken: list[tuple[ClassKey, Sleep]] = []
        for key in self.sleeping():
            members = self._classes[key]
            if (members.retry_at_ms and time_ms >= members.retry_at_ms) or helps(key):
                woken.append((key, Sleep(members.retry_at_ms)))
                self._wake(members)
        self.woken += len(woken)
        return woken

    def lull(self, key: ClassKey, sleep: Sleep) -> None:
        """Put a class back to sleep, as if it had not been woken; one that is gone stays gone."""
        members = self._classes.get(key)
        if members is None:
            return
        members.sleeps = True
        members.retry_at_ms = sleep.retry_at_ms
        self.awake.pop(key, None)
        if members.fresh:
            self.eager[key] = None

    def dump(self) -> tuple[list[str], list[SleeperDump]]:
        """Gangs (uid) that had a verdict, and the classes that sleep, each by its first gang that had one; in order of uid."""
        known = sorted(
            uid for members in self._classes.values() for uid, gang in members.gangs.items() if not gang.fresh
        )
        sleeping = [self._classes[key] for key in self.sleeping()]
        return known, sorted(
            SleeperDump(min(uid for uid in members.gangs if uid not in members.fresh), members.retry_at_ms)
            for members in sleeping
            if len(members.fresh) < len(members.gangs)
        )

    def load(self, known: Iterable[str], sleeping: Iterable[SleeperDump]) -> None:
        """Become what :meth:`dump` gave; the gangs themselves must have been put before."""
        for uid in known:
            key = self._class_of.get(uid)
            if key is not None:
                self._classes[key].gangs[uid].fresh = False
                self._classes[key].fresh.pop(uid, None)
        for sleeper in sleeping:
            key = self._class_of.get(sleeper.uid)
            if key is not None:
                self.lull(key, Sleep(sleeper.retry_at_ms))

    @property
    def waits_for_time(self) -> bool:
        """Whether some class sleeps until a time."""
        return any(members.retry_at_ms for members in self._classes.values() if members.sleeps)

    @property
    def retry_at_ms(self) -> int:
        """First moment until which some class sleeps; 0 when none waits for time."""
        return min(
            (members.retry_at_ms for members in self._classes.values() if members.sleeps and members.retry_at_ms),
            default=0,
        )

    def sleeping(self) -> list[ClassKey]:
        """Classes that sleep."""
        return [key for key, members in self._classes.items() if members.sleeps]

    def _wake(self, members: GangClass) -> None:
        members.sleeps = False
        members.retry_at_ms = 0
        self.awake[members.key] = None
        self.eager.pop(members.key, None)

    def _lines(self, count: int) -> Iterator[Iterable[_Entry]]:
        for key in self.awake:
            yield self._first(self._classes[key])
        for key in self.eager:
            members = self._classes[key]
            gangs = [members.gangs[uid] for uid in members.fresh]
            yield [(gang.order, gang) for gang in heapq.nsmallest(count, gangs, key=lambda gang: gang.order)]

    @staticmethod
    def _first(members: GangClass) -> Iterator[_Entry]:
        """The gangs of a class in order, one after another; the class stays as it is meanwhile."""
        if 2 * members.gone > len(members.line):
            members.line = sorted((gang.order, uid) for uid, gang in members.gangs.items())
            members.gone = 0
        passed = 0
        before = ""
        for order, uid in members.line:
            gang = members.gangs.get(uid)
            if gang is not None and uid != before and gang.order == order:
                break
            passed += 1
        del members.line[:passed]
        members.gone -= passed
        for order, uid in members.line:
            gang = members.gangs.get(uid)
            if gang is None or uid == before or gang.order != order:
                continue
            before = uid
            yield order, gang
