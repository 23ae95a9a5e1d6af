"""The clock, as something that is handed in; the only module that reads the time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump when the host's clock is set."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes backwards."""


class SystemClock:
    """Clock of the host."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since the host started or some other fixed moment."""
        return time.monotonic()
