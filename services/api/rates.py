"""How often each program may ask: a bucket of tokens for each identity, which fills steadily."""

import math
from typing import Final

import msgspec

from berth.runtime.clock import Clock
from berth.schemas.intake import JobRequest
from berth.services.api.request_errors import RequestError

_BYTES_A_TOKEN: Final = 4_096
_OBJECTS_A_TOKEN: Final = 8
"""A request costs one token, and one more for each of so many bytes and of so many objects in it: about a millisecond
of work each."""
_TASKS_A_TOKEN: Final = 2
_WRONG_TIMES: Final = 10
"""A request that is wrong or too large costs so many times what another of its length does: it was read for nothing."""
_KEPT_MAX: Final = 10_000
"""Identities whose buckets are kept; those that are full are forgotten first."""


class _Bucket(msgspec.Struct, gc=False):
    """Tokens of an identity, as of a moment."""

    tokens: float
    at_s: float


class Rates:
    """Takes a token for each request, and refuses it when there is none.

    Args:
        clock: Of the process.
        per_s: Tokens that a bucket gets in a second.
        burst: Tokens of a full bucket.
    """

    def __init__(self, clock: Clock, *, per_s: float, burst: int) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def take(self, identity: str, data: bytes) -> None:
        """Take the tokens of a request; one that costs more than a full bucket takes all of it.

        Args:
            identity: The caller; those without one share a bucket.
            data: The request.

        Raises:
            RequestError: They are not there yet; the error says when they will be.
        """
        cost = min(_cost(data), self._burst)
        bucket = self._filled(identity)
        if bucket.tokens < cost:
            wait_s = (cost - bucket.tokens) / self._per_s
            raise RequestError(
                "identity",
                f"{identity!r} with more than {self._per_s:g} requests a second",
                f"fewer: try again in {wait_s:.3g} s",
                code="too-many",
                retry_after_ms=math.ceil(wait_s * 1000),
            )
        bucket.tokens -= cost

    def charge(self, identity: str, tokens: int) -> None:
        """Take the tokens of a long reply, which was made before its length was known.

        Args:
            identity: The caller.
            tokens: What it costs.
        """
        self._filled(identity).tokens -= tokens

    def charge_job(self, identity: str, request: JobRequest) -> None:
        """Take the tokens of a job for the work of placing it, which grows with its tasks; one costs nothing more.

        Args:
            identity: The caller.
            request: The job, which will be stored.
        """
        self._filled(identity).tokens -= len(request.tasks) // _TASKS_A_TOKEN

    def charge_wrong(self, identity: str, data: bytes, *, wrong: int = 1, of: int = 1) -> None:
        """Take more tokens for a request that is refused for what is in it: nobody sends many long ones by mistake.

        Args:
            identity: The caller.
            data: The request.
            wrong: So many of its jobs are wrong ...
            of: ... of so many.
        """
        self._filled(identity).tokens -= (_WRONG_TIMES - 1) * _cost(data) * wrong // of

    def _filled(self, identity: str) -> _Bucket:
        """The bucket of an identity, as of now."""
        now_s = self._clock.monotonic_s()
        bucket = self._buckets.get(identity)
        if bucket is None:
            if len(self._buckets) >= _KEPT_MAX:
                self._forget_full(now_s)
            bucket = self._buckets[identity] = _Bucket(self._burst, now_s)
        bucket.tokens, bucket.at_s = self._tokens(bucket, now_s), now_s
        return bucket

    def _tokens(self, bucket: _Bucket, now_s: float) -> float:
        return min(bucket.tokens + (now_s - bucket.at_s) * self._per_s, self._burst)

    def _forget_full(self, now_s: float) -> None:
        """Forget full buckets, which say nothing; without one the fullest half."""
        kept = sorted(self._buckets.items(), key=lambda item: self._tokens(item[1], now_s))
        self._buckets = {
            name: bucket for name, bucket in kept[: _KEPT_MAX // 2] if self._tokens(bucket, now_s) < self._burst
        }


def _cost(data: bytes) -> int:
    """Tokens of a request by its length and the number of its objects."""
    return 1 + len(data) // _BYTES_A_TOKEN + data.count(b"{") // _OBJECTS_A_TOKEN
