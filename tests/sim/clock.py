"""Clocks of simulated machines: they follow the virtual time, and may be set."""

from typing import Final

from tests.sim.loop import SimLoop

START_MS: Final = 1_700_000_000_000


class SimClock:
    """Clock of one machine; see :class:`berth.runtime.clock.Clock`."""

    def __init__(self, loop: SimLoop, *, ahead_ms: int = 0) -> None:
        self._loop = loop
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return START_MS + self.ahead_ms + int(self._loop.now_s * 1000)

    def monotonic_s(self) -> float:
        return self._loop.now_s

    def advance(self, seconds: float) -> None:
        """Set the clock, forwards or backwards; the monotonic time stays."""
        self.ahead_ms += round(seconds * 1000)
