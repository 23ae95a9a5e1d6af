"""The clock port. Only this module reads the time; everything else takes a clock as an argument."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump when the host's clock is set."""

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary fixed moment; never goes backwards."""


class SystemClock:
    """Clock of the host."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary fixed moment, such as the start of the host."""
        return time.monotonic()


class SlewedClock:
    """A clock that follows another one without its jumps, for work that waits until moments of it.

    After the host's clock is set, it runs at half or at one and a half of its speed until it agrees again: a step of
    an hour takes two hours. So a wait lasts between two thirds and twice as long as it should, whatever the step.

    Args:
        clock: The other one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_s = clock.monotonic_s()
        self._now_ms = float(clock.now_ms())

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; never goes backwards."""
        seen_s = self._clock.monotonic_s()
        elapsed_ms = (seen_s - self._seen_s) * 1000
        self._seen_s = seen_s
        slowest_ms, fastest_ms = self._now_ms + elapsed_ms / 2, self._now_ms + elapsed_ms * 3 / 2
        self._now_ms = min(max(self._clock.now_ms(), slowest_ms), fastest_ms)
        return int(self._now_ms)

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary fixed moment; never goes backwards."""
        return self._clock.monotonic_s()

    def ahead_ms(self) -> int:
        """How far it is ahead of the other clock; below 0 if it is behind, 0 unless that was set lately."""
        return self.now_ms() - self._clock.now_ms()
