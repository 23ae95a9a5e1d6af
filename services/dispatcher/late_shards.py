"""Shards that are late: a round waited its whole deadline for them in vain, as for a process that stands still. Pure.

A shard whose process has ended is known to be missing at once. One that is connected and does not answer would cost
each round the whole deadline. So it is asked briefly until it answers, and now and then for the whole deadline, because
it may be slow rather than stuck.
"""

from collections.abc import Iterable
from typing import Final

BRIEF_SHARE: Final = 0.1
"""Part of the deadline that a round waits for a late shard."""
_AGAIN: Final = 5.0
"""After so many deadlines a late shard gets a whole one again."""


class LateShards:
    """Which shards are late.

    Args:
        timeout_s: Deadline of a round.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._again_s: dict[int, float] = {}
        """When a late shard gets a whole deadline again."""

    def brief(self, now_s: float) -> frozenset[int]:
        """Shards to be asked briefly."""
        return frozenset(shard for shard, again_s in self._again_s.items() if now_s < again_s)

    def note(self, missing: Iterable[int], *, now_s: float) -> None:
        """Take the shards for which a round waited its whole deadline in vain."""
        for shard in missing:
            self._again_s[shard] = now_s + _AGAIN * self._timeout_s

    def answered(self, shards: Iterable[int]) -> None:
        """Take the shards that answered: they are late no more."""
        for shard in shards:
            self._again_s.pop(shard, None)
