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
