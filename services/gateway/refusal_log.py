"""Lines about refused requests: the first of a kind at once, then one for all of a time, with their number.

Whoever sends requests that are refused does not decide how much is logged.
"""

from typing import Final

from berth.runtime.clock import Clock
from berth.runtime.logs import Logger, LogLimit

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
        self._log = log
        self._limits = {code: LogLimit(clock, lines_max=1) for code in KINDS}

    def count(self, code: str, error: str, exc_info: BaseException | None = None) -> None:
        """Count a refused request.

        Args:
            code: Of its error; those that are not in :data:`KINDS` are not logged.
            error: The error, of which the line is an example.
            exc_info: What went wrong, if it is a fault of Berth.
        """
        limit = self._limits.get(code)
        count = limit.take() if limit is not None else 0
        if not count:
            return
        if exc_info is not None:
            self._log.error("request could not be carried out", code=code, count=count, last=error, exc_info=exc_info)
        else:
            self._log.warning("requests refused", code=code, count=count, last=error)
