"""Bounds of streams: how many may be open, and how much waits for each."""

import msgspec

from berth.services.gateway.errors import RequestError
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.shares import Shares


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
        each: Most streams of one identity.
        metrics: Of the gateway.
    """

    def __init__(self, most: int, each: int, metrics: GatewayMetrics) -> None:
        self._most = most
        self._shares = Shares("open streams", each)
        self._metrics = metrics
        self._count = 0

    def take(self, identity: str) -> None:
        """Count one more.

        Raises:
            RequestError: Too many are open, or too many of this identity.
        """
        if self._count >= self._most:
            self._metrics.refused.inc()
            raise RequestError(
                f"open streams is {self._most}, expected fewer than {self._most}: try again later", "too-many"
            )
        try:
            self._shares.take(identity)
        except RequestError:
            self._metrics.refused.inc()
            raise
        self._count += 1
        self._metrics.streams.set(self._count)

    def give_back(self, identity: str) -> None:
        """Count one less."""
        self._shares.give_back(identity)
        self._count -= 1
        self._metrics.streams.set(self._count)
