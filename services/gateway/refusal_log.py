"""Lines about refused requests: the first of a kind at once, then one for all of a time, with their number.

Whoever sends requests that are refused does not decide how much is logged.
"""

from collections import Counter
from typing import Final

from berth.runtime.clock import Clock
from berth.runtime.logs import Logger

PAUSE_S: Final = 60.0
"""Shortest time between two lines of a kind."""
KINDS: Final = frozenset(
    {
        *("no-token", "token-in-url", "denied", "cross-site", "wrong-host", "invalid-request", "too-large", "too-many"),
        *("request-timeout", "internal"),
    }
)
"""Codes that say something of the sender or of the gateway; others are mistakes in single requests."""


class RefusalLog:
    """Counts refused requests by code, and logs them now and then.

    Args:
        clock: Of the process.
        log: Of the process.
    """

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._counts: Counter[str] = Counter()
        self._logged_s: dict[str, float] = {}

    def note(self, code: str, error: str, exc_info: BaseException | None = None) -> None:
        """Count a refused request.

        Args:
            code: Of its error; those that are not in :data:`KINDS` are not logged.
            error: The error, of which the line is an example.
            exc_info: What went wrong, if it is a fault of Berth.
        """
        if code not in KINDS:
            return
        self._counts[code] += 1
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s.get(code, -PAUSE_S) < PAUSE_S:
            return
        self._logged_s[code] = now_s
        count = self._counts.pop(code)
        if exc_info is not None:
            self._log.error("request could not be carried out", code=code, count=count, last=error, exc_info=exc_info)
        else:
            self._log.warning("requests refused", code=code, count=count, last=error)
