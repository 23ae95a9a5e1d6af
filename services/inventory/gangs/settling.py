"""Gangs that have changed, and when each is processed: at once when it is known to be complete, otherwise later.

See decision act-at-once.
"""

from collections.abc import Callable
from typing import Final

from berth.formats.kubernetes.workloads import GangKey
from berth.services.inventory.gangs.completeness import Completeness
from berth.services.inventory.gangs.model import Gang, is_past
from berth.services.inventory.pace import LONGEST, apart_ms

_PATIENCE: Final = 4
"""Settle times after which a gang that lacks pods is processed though more of them keep coming."""
_SURPLUS: Final = 10
"""Settle times in which pods go that are more than the owner has: their deletion may be seen late."""


class Settling:
    """Gangs that have changed since they were processed.

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
        self._changed: dict[GangKey, int] = {}
        """Time at which each is processed; 0 until that is known."""

    def touch(self, key: GangKey) -> None:
        """Note a change of a gang."""
        self._changed[key] = 0

    def hurry(self, key: GangKey, now_ms: int) -> None:
        """Note that a gang is to be processed now."""
        self._changed[key] = now_ms

    def drop(self, key: GangKey) -> None:
        """Take out a gang that has another key now."""
        self._changed.pop(key, None)

    def next_ms(self) -> int | None:
        """Time at which :meth:`take` must be called even if nothing changes; None for never."""
        return min(self._changed.values(), default=None)

    def take(self, now_ms: int, *, past: bool) -> list[GangKey]:
        """Take out what is to be processed now, in order: gangs of PodGroups that are gone, or all others."""
        ready: list[GangKey] = []
        for key, known_ms in list(self._changed.items()):
            if is_past(key) != past:
                continue
            at_ms = known_ms if 0 < known_ms <= now_ms + LONGEST * self._settle_ms else self._ready_ms(key, now_ms)
            if at_ms <= now_ms:
                del self._changed[key]
                ready.append(key)
            else:
                self._changed[key] = at_ms
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
