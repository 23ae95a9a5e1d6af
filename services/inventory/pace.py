"""Pace of work: at once after a pause, and not again before some time has passed."""

from typing import Final

from berth.runtime.clock import Clock

_PODS: Final = 1_000
"""Pods of a gang that is looked at once in the settle time; it is more for a larger gang and less for a smaller one."""
LONGEST: Final = 5
"""Settle times between two looks at the largest gangs; nothing waits longer."""


def apart_ms(settle_ms: int, pods: int) -> int:
    """Least time between two looks at a gang.

    What a look costs grows with the pods. So a lone pod is looked at after each change, and a gang of any size takes a
    bounded part of the time.
    """
    return settle_ms * min(pods, LONGEST * _PODS) // _PODS


class Pace:
    """Least time between two runs of the same work.

    Args:
        clock: Source of time; only durations count, so that a clock that is set back delays nothing.
        apart_s: Time from the end of a run to the next one.
    """

    def __init__(self, clock: Clock, apart_s: float) -> None:
        self._clock = clock
        self._apart_s = apart_s
        self._next_s = clock.monotonic_s()
        self._is_wanted = False

    def may_run(self) -> bool:
        """Whether the work may be done now. Where it may not, it is wanted as soon as it may."""
        self._is_wanted = self._clock.monotonic_s() < self._next_s
        return not self._is_wanted

    def begin_turn(self) -> None:
        """Forget whether the work is wanted: if it still is, :meth:`may_run` is called again in this turn."""
        self._is_wanted = False

    def note_run(self) -> None:
        """Note that the work was done."""
        self._is_wanted = False
        self._next_s = self._clock.monotonic_s() + self._apart_s

    def due_in_s(self) -> float | None:
        """Seconds until the work that is wanted may be done; None when none is wanted."""
        return max(self._next_s - self._clock.monotonic_s(), 0.0) if self._is_wanted else None
