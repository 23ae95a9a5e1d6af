"""Routes of the extender: every call is answered from what Berth has decided.

kube-scheduler takes any status but 200 as a failure of the extender and tries the pod again later. A pod that must not
be scheduled by it is therefore answered with 200, no node and the reason, which it shows at the pod.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from berth.formats.kubernetes.extender import (
    ExtenderError,
    bind_answer,
    bind_call,
    filter_answer,
    filter_call,
    preempt_answer,
    preempt_call,
)
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.logs import Logger, LogLimit
from berth.services.gateway.application import HELD, JSON
from berth.services.gateway.bodies import json_body, stated_length
from berth.services.gateway.errors import RequestError
from berth.services.gateway.extender.decisions import Decisions
from berth.services.gateway.extender.places import Place, bind_error
from berth.services.gateway.extender_config import ExtenderConfig
from berth.services.gateway.metrics import ExtenderMetrics
from berth.services.gateway.shares import Shares

BODY_BYTES_MAX: Final = 33_554_432
"""Longest body of a call; it has all candidates."""
_CALLER: Final = "kube-scheduler"
_AT_ONCE: Final = 4
"""So many of the longest bodies are in memory at once, those that arrive and answers that are not sent included."""
_SHORT_BYTES: Final = 16_384
"""A body that is not counted: all connections together hold few of them, and a binding never waits for a filter."""
_BESIDE_REASON_BYTES: Final = 8
"""Of each node in an answer, beside its name and the reason."""


class _Taken(Response):
    """An answer that is sent once the client has taken most of it: until then it is in memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; the server waits for the client before the part after a part."""
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class ExtenderRoutes:
    """Answers kube-scheduler.

    Args:
        decisions: Decisions of Berth.
        clock: Of the process.
        config: Settings.
        metrics: Of the extender.
        log: Of the process.
    """

    def __init__(
        self, decisions: Decisions, clock: Clock, config: ExtenderConfig, metrics: ExtenderMetrics, log: Logger
    ) -> None:
        self._decisions = decisions
        self._config = config
        self._metrics = metrics
        self._log = log
        self._unknown = LogLimit(clock)
        self._bytes = Shares("bytes in flight", _AT_ONCE * BODY_BYTES_MAX)

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/filter", self.filter, methods=["POST"]),
            Route("/bind", self.bind, methods=["POST"]),
            Route("/preempt", self.preempt, methods=["POST"]),
        ]

    async def filter(self, request: Request) -> Response:
        """Leave the node that Berth has chosen.

        Raises:
            RequestError: The call is wrong, or the decision is not known now.
        """
        body = await self._body(request)
        try:
            call = filter_call(body)
            place = await self._decisions.place_of(call.namespace, call.uid)
        except (ExtenderError, TransientError, FatalError) as error:
            raise self._failed("filter", error) from error
        reason = place.reason
        if place.node and place.node not in call.nodes:
            reason = f"{reason}, which kube-scheduler does not offer"
        self._count("filter", place)
        self._hold(request, len(body) + len(call.nodes) * (len(reason) + _BESIDE_REASON_BYTES))
        return _Taken(filter_answer(call, place.node, reason), media_type=JSON)

    async def bind(self, request: Request) -> Response:
        """Confirm what the binder has bound; nothing is bound here.

        Raises:
            RequestError: The call is wrong, or the decision is not known now.
        """
        body = await self._body(request)
        try:
            call = bind_call(body)
            place = await self._decisions.bound(call.namespace, call.uid, call.node, timeout_s=self._config.bind_wait_s)
        except (ExtenderError, TransientError, FatalError) as error:
            raise self._failed("bind", error) from error
        why_not = bind_error(place, call.node)
        self._count("bind", place)
        if why_not:
            self._log.info("binding not confirmed", namespace=call.namespace, pod=call.name, reason=why_not)
        return Response(bind_answer(why_not), media_type=JSON)

    async def preempt(self, request: Request) -> Response:
        """Permit no victim.

        Raises:
            RequestError: The call is wrong.
        """
        body = await self._body(request)
        try:
            preempt_call(body)
        except ExtenderError as error:
            raise self._failed("preempt", error) from error
        return Response(preempt_answer(), media_type=JSON)

    async def _body(self, request: Request) -> bytes:
        most = BODY_BYTES_MAX
        self._hold(request, stated_length(request, most))
        return await json_body(request, most)

    def _hold(self, request: Request, count: int) -> None:
        """Count bytes until the answer is sent.

        Raises:
            RequestError: All requests together would have too many.
        """
        if count > _SHORT_BYTES:
            request.scope[HELD].enter_context(self._bytes.taken(_CALLER, count))

    def _count(self, verb: str, place: Place) -> None:
        self._metrics.answers.labels(verb, place.result).inc()

    def _failed(self, verb: str, error: ExtenderError | TransientError | FatalError) -> RequestError:
        """The answer to a call that has none."""
        if isinstance(error, ExtenderError):
            return RequestError(str(error))
        if count := self._unknown.take():
            self._log.warning("extender call failed: decisions unknown", verb=verb, reason=error.reason, count=count)
        return RequestError(f"decision is unavailable ({error.reason}), expected it; ask again", "unavailable")
