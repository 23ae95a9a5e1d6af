"""Bounds of streams: how many may be open, and how much waits for each."""

import msgspec

from berth.services.gateway.errors import RequestError
from berth.services.gateway.metrics import GatewayMetrics


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of each stream."""

    events_max: int
    """Most chunks that wait for one reader."""
    keepalive_s: float
    """Pause after which a stream sends a comment."""


class OpenStreams:
    """Counts the streams of all kinds, and refuses more than the settings permit.

    Args:
        most: Most streams at a time.
        metrics: Of the gateway.
    """

    def __init__(self, most: int, metrics: GatewayMetrics) -> None:
        self._most = most
        self._metrics = metrics
        self._count = 0

    def take(self) -> None:
        """Count one more.

        Raises:
            RequestError: Too many are open.
        """
        if self._count >= self._most:
            self._metrics.refused.inc()
            raise RequestError(
                f"open streams is {self._most}, expected fewer than {self._most}: try again later", "too-many"
            )
        self._count += 1
        self._metrics.streams.set(self._count)

    def give_back(self) -> None:
        """Count one less."""
        self._count -= 1
        self._metrics.streams.set(self._count)
