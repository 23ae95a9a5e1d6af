"""Run times of ended jobs, as estimates for similar jobs.

Jobs are similar if they have the same namespace and the same number of chips. The estimate is the mean of the last two:
users repeat their jobs, and older ones add nothing. It follows from the records alone.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

LIKES_MAX: Final = 10_000
"""Most kinds of jobs in the table; beyond it the kind whose last job ended first is removed."""
_NONE: Final = -1


class RunTime(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Run times of the last two similar jobs in milliseconds; ``before_ms`` is -1 if there was only one."""

    namespace: str
    chips: int
    last_ms: int
    before_ms: int = _NONE

    @property
    def mean_ms(self) -> int:
        """Estimate for the next job."""
        return self.last_ms if self.before_ms == _NONE else (self.last_ms + self.before_ms) // 2


class RunTimes:
    """Estimates by namespace and number of chips."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], RunTime] = {}
        """The kind whose last job ended last is the last one."""

    def note(self, namespace: str, chips: int, run_ms: int) -> None:
        """Record the run time of a job that ended."""
        key = (namespace, chips)
        before = self._known.pop(key, None)
        self._known[key] = RunTime(namespace, chips, max(0, run_ms), _NONE if before is None else before.last_ms)
        if len(self._known) > LIKES_MAX:
            del self._known[next(iter(self._known))]

    def estimate_ms(self, namespace: str, chips: int) -> int | None:
        """Estimated run time of a job; None if no similar job has ended."""
        known = self._known.get((namespace, chips))
        return None if known is None else known.mean_ms

    def dump(self) -> list[RunTime]:
        """All kinds, the one whose last job ended last at the end."""
        return list(self._known.values())

    def load(self, known: Iterable[RunTime]) -> None:
        """Restore the result of :meth:`dump`."""
        self._known = {(one.namespace, one.chips): one for one in known}
