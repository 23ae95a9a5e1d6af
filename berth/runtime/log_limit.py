"""A bound on lines of a log of which somebody else decides how often there is a reason for one."""

from typing import Final

from berth.runtime.clock import Clock

PERIOD_S: Final = 60.0


class LogLimit:
    """Says which lines of a kind are written: some in each period, with the number of those that were left out.

    Args:
        clock: Of the process.
        lines_max: Most lines in a period of :data:`PERIOD_S` seconds, which begins with a line.
    """

    def __init__(self, clock: Clock, *, lines_max: int = 10) -> None:
        self._clock = clock
        self._lines_max = lines_max
        self._began_s = -PERIOD_S
        self._lines = 0
        self._left_out = 0

    def take(self) -> int:
        """For how many occurrences a line stands, with those that had none since the last line; 0: it is left out."""
        now_s = self._clock.monotonic_s()
        if now_s - self._began_s >= PERIOD_S:
            self._began_s, self._lines = now_s, 0
        if self._lines >= self._lines_max:
            self._left_out += 1
            return 0
        self._lines += 1
        count, self._left_out = 1 + self._left_out, 0
        return count
