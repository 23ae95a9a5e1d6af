"""Gangs that have changed, and when each is processed: at once when it is known to be complete, otherwise later.

See decision act-at-once.
"""

from collections.abc import Callable
from typing import Final

from berth.formats.kubernetes.workloads.port import GangKey
from berth.runtime.bus.fair_queue import FairQueue
from berth.services.inventory.gangs.completeness import Completeness
from berth.services.inventory.gangs.model import Gang, is_past
from berth.services.inventory.pace import LONGEST, apart_ms

_PATIENCE: Final = 4
"""Settle times after which a gang that lacks pods is processed though more of them keep coming."""
_PODS_AT_ONCE: Final = 128
"""Pods of gangs that are looked at before others may come between them: some 30 ms."""
_SURPLUS: Final = 10
"""Settle times in which pods go that are more than the owner has: their deletion may be seen late."""


class Settling:
    """Gangs that have changed since they were processed.

    They take turns by namespace, few at a time: however many gangs of one namespace have changed, one of another waits
    for few of them.

    Args:
        settle_ms: Time that a gang waits for more changes unless it is known to be complete. A large gang that is
            complete is processed at once, but not again before a time that grows with it. With 0 nothing waits.
        find: Gang of a key; None if there is none any more.
        completeness: What is known of the pods of a gang, at a time.
    """

    def __init__(
        self,
        settle_ms: int,
        find: Callable[[GangKey], Gang | None],
        completeness: Callable[[Gang, int], Completeness],
    ) -> None:
        self._settle_ms = settle_ms
        self._find = find
        self._completeness = completeness
        self._later: dict[GangKey, int] = {}
        """Time at which each that waits is processed."""
        self._in_line: dict[GangKey, bool] = {}
        """Those that are looked at when their turn comes, and whether it is not known that they are ready."""
        self._past: FairQueue[GangKey] = FairQueue()
        self._others: FairQueue[GangKey] = FairQueue()

    def touch(self, key: GangKey) -> None:
        """Note a change of a gang."""
        self._put(key, is_new=True)

    def hurry(self, key: GangKey) -> None:
        """Note that a gang is to be processed now."""
        self._put(key, is_new=False)

    def drop(self, key: GangKey) -> None:
        """Take out a gang that has another key now."""
        self._later.pop(key, None)
        self._in_line.pop(key, None)

    def next_ms(self) -> int | None:
        """Time at which :meth:`take` must be called even if nothing changes, 0 for at once; None for never."""
        return 0 if self._in_line else min(self._later.values(), default=None)

    def take(self, now_ms: int, *, past: bool) -> list[GangKey]:
        """Take out what is to be processed now, in order: gangs of PodGroups that are gone, or all others.

        The rest is for the next call. No other gang comes before those of its namespace that are gone.
        """
        if past:
            furthest_ms = now_ms + LONGEST * self._settle_ms
            for key, at_ms in list(self._later.items()):
                if not now_ms < at_ms <= furthest_ms:
                    self._put(key, is_new=at_ms > now_ms)
            taken = self._in_turn(self._past, now_ms)
            for namespace in self._past.callers:
                self._others.hold(namespace)
            return taken
        taken = self._in_turn(self._others, now_ms)
        for namespace in list(self._others.held):
            self._others.release(namespace)
        return taken

    def _put(self, key: GangKey, *, is_new: bool) -> None:
        self._later.pop(key, None)
        if key not in self._in_line:
            (self._past if is_past(key) else self._others).append(key.namespace, key)
        self._in_line[key] = is_new

    def _in_turn(self, queue: FairQueue[GangKey], now_ms: int) -> list[GangKey]:
        """Look at gangs in turn until they have enough pods; returns those that are ready, in order."""
        ready: list[GangKey] = []
        pods = 0
        while queue.callers and pods < _PODS_AT_ONCE:
            key = queue.popleft()
            is_new = self._in_line.pop(key, None)
            if is_new is None:
                continue  # it has another key now
            gang = self._find(key)
            pods += max(len(gang.members), 1) if gang is not None else 1
            at_ms = self._ready_ms(key, now_ms) if is_new else now_ms
            if at_ms <= now_ms:
                ready.append(key)
            else:
                self._later[key] = at_ms
        return sorted(ready)

    def note_processed(self, gang: Gang, now_ms: int) -> None:
        """Note that a gang is processed now."""
        if self._settle_ms:
            gang.changed_ms = None
            gang.whole_ms = now_ms if self._completeness(gang, now_ms) is Completeness.COMPLETE else None

    def _ready_ms(self, key: GangKey, now_ms: int) -> int:
        """Time at which a gang that has just changed is processed."""
        gang = self._find(key)
        if gang is None or not self._settle_ms:
            return now_ms
        since_ms = gang.changed_ms = min(now_ms if gang.changed_ms is None else gang.changed_ms, now_ms)
        if gang.whole_ms is not None:
            next_ms = min(gang.whole_ms, now_ms) + apart_ms(self._settle_ms, len(gang.members))
            if next_ms > now_ms:
                return next_ms
        match self._completeness(gang, now_ms):
            case Completeness.COMPLETE:
                return now_ms
            case Completeness.SHORT:
                return min(now_ms + self._settle_ms, since_ms + _PATIENCE * self._settle_ms)
            case Completeness.LARGE:
                return since_ms + _SURPLUS * self._settle_ms
            case Completeness.OPEN:
                return since_ms + self._settle_ms
