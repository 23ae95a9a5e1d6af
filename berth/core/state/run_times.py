"""Run times of jobs that have ended, as an estimate for the next of their like.

Jobs are alike when they have the same namespace and the same number of chips. The estimate is the mean of the last two, as
in the field: users repeat themselves, and nothing older tells more. It follows from the records alone.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

LIKES_MAX: Final = 10_000
"""Kinds of jobs that are remembered; beyond it the one that ended longest ago goes."""
_NONE: Final = -1


class RunTime(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How long the last jobs of a namespace with so many chips ran, in milliseconds; ``before_ms`` -1 when there was one only."""

    namespace: str
    chips: int
    last_ms: int
    before_ms: int = _NONE

    @property
    def mean_ms(self) -> int:
        """What the next one is taken to run."""
        return self.last_ms if self.before_ms == _NONE else (self.last_ms + self.before_ms) // 2


class RunTimes:
    """Estimates by namespace and number of chips."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], RunTime] = {}
        """The one that ended last is last."""

    def note(self, namespace: str, chips: int, run_ms: int) -> None:
        """A job has run to its end."""
        key = (namespace, chips)
        before = self._known.pop(key, None)
        self._known[key] = RunTime(namespace, chips, max(0, run_ms), _NONE if before is None else before.last_ms)
        if len(self._known) > LIKES_MAX:
            del self._known[next(iter(self._known))]

    def estimate_ms(self, namespace: str, chips: int) -> int | None:
        """What a job is taken to run; None when none of its like has ended."""
        known = self._known.get((namespace, chips))
        return None if known is None else known.mean_ms

    def dump(self) -> list[RunTime]:
        """What is known, the one that ended last at the end."""
        return list(self._known.values())

    def load(self, known: Iterable[RunTime]) -> None:
        """Become what :meth:`dump` gave."""
        self._known = {(one.namespace, one.chips): one for one in known}
