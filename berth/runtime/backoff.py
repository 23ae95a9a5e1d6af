"""Backoff: how long to wait before the next attempt, after attempts that failed in a row.

The value computes pauses and nothing else: it reads no clock, draws no random number by itself and does not sleep. Its
user counts the failures, because users differ in what counts as success: one message, progress of a stream, a long
watch.

See decision one-backoff.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

RETRY_FIRST_S: Final = 0.25
"""First pause of services after the bus or the API server did not answer."""
_EXPONENT_MAX: Final = 60
"""Keeps ``factor**n`` finite; no pair of bounds in the settings is that far apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses that grow by a factor up to a maximum.

    Attributes:
        first_s: Pause after the first failure, in seconds; more than 0.
        max_s: Longest pause, in seconds, before jitter.
        factor: Ratio of a pause to the one before it.
        jitter: Part of a pause that :meth:`jittered_s` may take away, 0 to 1.
    """

    first_s: float = RETRY_FIRST_S
    max_s: float
    factor: float = 2.0
    jitter: float = 0.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after a number of failures in a row.

        Args:
            failures: At least 1, which gives ``first_s``.

        Returns:
            ``first_s * factor ** (failures - 1)``, at most ``max_s``.
        """
        return min(self.first_s * self.factor ** min(failures - 1, _EXPONENT_MAX), self.max_s)

    def longer_s(self, pause_s: float) -> float:
        """Pause after one of ``pause_s`` seconds, for a user whose pauses do not follow from a count alone."""
        return min(pause_s * self.factor, self.max_s)

    def jittered_s(self, pause_s: float, rng: Random) -> float:
        """A pause with jitter: uniform between ``(1 - jitter) * pause_s`` and ``pause_s``.

        Args:
            pause_s: In seconds.
            rng: Source of the jitter; a seeded one makes the pauses repeatable.
        """
        return pause_s * rng.uniform(1 - self.jitter, 1.0)

    def covering_s(self, least_s: float) -> float:
        """The pause that with any jitter is still at least ``least_s`` seconds, such as those of a ``Retry-After``."""
        return least_s / (1 - self.jitter)
