"""A clock that moves, and is set, when told."""


class ManualClock:
    """Clock whose two faces move together by :meth:`advance`; :meth:`set` moves the one that people read."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._now_ms = now_ms
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return self._now_ms + self._ahead_ms

    def monotonic_s(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds}")
        self._now_ms += round(seconds * 1000)

    def set(self, ahead_s: float) -> None:
        """Set the clock so far ahead of the time that has passed; negative for the past."""
        self._ahead_ms = round(ahead_s * 1000)
