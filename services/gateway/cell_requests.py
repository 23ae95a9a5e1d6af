"""Requests to the service ``api`` under the identity of a caller, and what the caller may do."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, OversizeError, PoisonError, TransientError
from berth.schemas.programs.replies import RightsReply
from berth.schemas.programs.shape import Request
from berth.services.gateway.errors import RequestError
from berth.services.gateway.shares import Shares

EVERY: Final = "*"
_RIGHTS_KEPT_S: Final = 5.0
_KEPT_MAX: Final = 10_000
LONG_BYTES: Final = 8_192
"""A body that is longer is not read while ``api`` refuses the caller's long requests."""


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    """What every reply says."""

    ok: bool
    error: str = ""
    code: str = ""
    retry_after_ms: int = 0


class CellRequests:
    """Asks the service ``api``.

    Args:
        bus: The cell.
        clock: Of the process.
        timeout_s: Longest wait for an answer.
        at_once: Most requests that wait at the same time.
        each: Most of them from one identity.
    """

    def __init__(self, bus: Bus, clock: Clock, *, timeout_s: float, at_once: int, each: int) -> None:
        self._bus = bus
        self._clock = clock
        self._timeout_s = timeout_s
        self._at_once = at_once
        self._shares = Shares("requests at once", each)
        self._waiting = 0
        self._pauses: dict[str, float] = {}
        """By caller: until when ``api`` would refuse a long request for the requests before it."""
        self._rights: dict[str, tuple[float, RightsReply]] = {}
        """What callers may do, and until when that counts."""
        self._asked: dict[str, asyncio.Future[RightsReply]] = {}
        """Answers about rights that are on their way, by caller: whoever asks meanwhile gets the same."""

    async def ask(self, verb: str, identity: str, request: Request | bytes) -> bytes:
        """Reply to a request, as JSON.

        Args:
            verb: Name of the operation.
            identity: The caller; empty for none.
            request: The request, or its JSON.

        Raises:
            RequestError: The request was not carried out.
        """
        subject = self._bus.subjects.gate(verb, identity)
        data = request if isinstance(request, bytes) else msgspec.json.encode(request)
        try:
            with self.waiting(identity):
                reply = await self._bus.request(subject, data, timeout_s=self._timeout_s)
        except OversizeError as error:
            raise RequestError(
                f"request is {error.size_bytes} bytes, expected at most {error.limit_bytes}", "too-large"
            ) from error
        except TransientError as error:
            raise RequestError(_unavailable(error.reason), "unavailable") from error
        except (PoisonError, FatalError) as error:
            raise RequestError(_unavailable(str(error)), "unavailable") from error
        outcome = msgspec.json.decode(reply, type=_Outcome)
        if not outcome.ok:
            if outcome.code == "too-many" and len(data) > LONG_BYTES:
                self._note_pause(identity, outcome.retry_after_ms / 1000)
            raise RequestError(outcome.error, outcome.code, _retry_after(outcome.retry_after_ms / 1000))
        return reply

    def check_long_request(self, identity: str) -> None:
        """Check that a long request need not be read in vain: ``api`` has just said until when it refuses such ones.

        Args:
            identity: The caller.

        Raises:
            RequestError: ``api`` still refuses long requests of the caller.
        """
        left_s = self._pauses.get(identity, 0.0) - self._clock.monotonic_s()
        if left_s > 0:
            raise RequestError(
                f"requests of {identity!r} are too many or too long, expected fewer: try again in {left_s:.3g} s",
                "too-many",
                _retry_after(left_s),
            )

    def _note_pause(self, identity: str, wait_s: float) -> None:
        now_s = self._clock.monotonic_s()
        if len(self._pauses) >= _KEPT_MAX:
            self._pauses = {name: until_s for name, until_s in self._pauses.items() if until_s > now_s}
        if len(self._pauses) < _KEPT_MAX:
            self._pauses[identity] = now_s + wait_s

    @contextmanager
    def waiting(self, identity: str) -> Iterator[None]:
        """Count a request as one that waits, as long as the block runs.

        Raises:
            RequestError: Too many wait, or too many of this identity.
        """
        if self._waiting >= self._at_once:
            raise RequestError(
                f"requests at once is {self._waiting}, expected fewer than {self._at_once}: try again", "too-many"
            )
        with self._shares.taken(identity):
            self._waiting += 1
            try:
                yield
            finally:
                self._waiting -= 1

    async def rights(self, identity: str) -> RightsReply:
        """What a caller may do, as ``api`` said in the last seconds.

        Raises:
            RequestError: It is not known: ``api`` does not answer.
        """
        while True:
            kept = self._rights.get(identity)
            if kept is not None and kept[0] > self._clock.monotonic_s():
                return kept[1]
            asked = self._asked.get(identity)
            if asked is None:
                return await self._ask_rights(identity)
            await asyncio.wait([asked])
            if not asked.cancelled():
                return asked.result()

    async def _ask_rights(self, identity: str) -> RightsReply:
        """What a caller may do, as ``api`` says; others wait for the same answer.

        Raises:
            RequestError: The rights of the caller are not known.
        """
        now_s = self._clock.monotonic_s()
        asked = self._asked[identity] = asyncio.get_running_loop().create_future()
        try:
            found = msgspec.json.decode(await self.ask("rights", identity, b"{}"), type=RightsReply)
        except RequestError as error:
            asked.set_exception(error)
            asked.exception()  # nobody else may wait for it
            raise
        else:
            asked.set_result(found)
        finally:
            del self._asked[identity]
            asked.cancel()  # as when this caller has gone: another one asks again
        if len(self._rights) >= _KEPT_MAX:
            self._rights.clear()
        self._rights[identity] = (now_s + _RIGHTS_KEPT_S, found)
        return found

    async def check_reader(self, identity: str, namespace: str = "") -> RightsReply:
        """Check that a caller may see the jobs of a namespace, or of any if it is empty; returns its rights.

        Raises:
            RequestError: The caller may not read these jobs.
        """
        rights = await self.rights(identity)
        if not rights.read or (namespace and not has(rights.read, namespace)):
            where = f" in namespace {namespace}" if namespace else ""
            shown = repr(identity) if identity else "missing"
            raise RequestError(f"identity is {shown}, expected one that may read{where}", "denied")
        return rights


def has(namespaces: Sequence[str], namespace: str) -> bool:
    """Whether a list of namespaces of a caller covers one."""
    return EVERY in namespaces or namespace in namespaces


def _unavailable(reason: str) -> str:
    return f"service api is unavailable ({reason}), expected its answer; ask again"


def _retry_after(wait_s: float) -> dict[str, str] | None:
    """Header of a refusal that passes; None if nobody knows when."""
    return {"Retry-After": str(math.ceil(wait_s))} if wait_s > 0 else None
