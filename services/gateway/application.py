"""The ASGI application: guard, route, count, and give every error the same form.

It is no stack of middleware: one function surrounds the router, as each layer costs time in each request.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import Final, Protocol

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router
from starlette.types import Message, Receive, Scope, Send

from berth.page.files import CONTENT_POLICY
from berth.runtime.clock import Clock
from berth.services.gateway.errors import INTERNAL, RequestError
from berth.services.gateway.guard import API, check_headers
from berth.services.gateway.http_protocol import CONNECTION, BoundedProtocol
from berth.services.gateway.metrics import ExtenderMetrics, GatewayMetrics
from berth.services.gateway.refusal_log import RefusalLog
from berth.services.gateway.tokens import Caller

JSON: Final = "application/json"
HELD: Final = "berth.held"
"""Key of a scope with the stack of what a request holds until its answer is sent."""
OTHER: Final = "other"
"""Label of requests for paths that do not exist."""
_NO_STORE: Final = (b"cache-control", b"no-store")
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (
        b"content-security-policy",
        CONTENT_POLICY.encode(),
    ),
)
"""Of every answer. No header permits other sites to read anything."""


class Guards(Protocol):
    """Refuses requests of strangers."""

    def caller(self, path: str, query: bytes, headers: Mapping[str, str]) -> Caller:
        """See :meth:`berth.services.gateway.guard.Guard.caller`."""


class Application:
    """Answers requests.

    Args:
        routes: What it answers.
        guard: Refuses strangers.
        clock: Of the process.
        metrics: What it counts.
        refusals: Logs requests that are refused.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        guard: Guards,
        clock: Clock,
        metrics: GatewayMetrics | ExtenderMetrics,
        refusals: RefusalLog,
    ) -> None:
        self.routes = list(routes)
        self._guard = guard
        self._clock = clock
        self._metrics = metrics
        self._refusals = refusals
        self._router = Router(self.routes, redirect_slashes=False)
        self._labels: Mapping[object, str] = {route.endpoint: route.path for route in self.routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began_s = self._clock.monotonic_s()
        status = 0
        is_api = scope["path"].startswith(API)

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS, *([_NO_STORE] if is_api else [])]
                self._metrics.took.observe(self._clock.monotonic_s() - began_s)
            await send(message)

        scope["app"] = self  # makes the router raise errors instead of answering in a form of its own
        scope[HELD] = held = ExitStack()
        try:
            headers = Headers(scope=scope)
            check_headers(headers)
            scope["caller"] = caller = self._guard.caller(scope["path"], scope["query_string"], headers)
            if (connection := scope.get(CONNECTION)) is not None:
                connection.belong_to(caller.identity)
            await self._router(scope, receive, send_on)
        except RequestError as error:
            await self._refuse(error, status, scope, receive, send_on)
        except HTTPException as error:
            await self._refuse(self._of_router(error, scope), status, scope, receive, send_on)
        except ClientDisconnect:
            pass  # nobody waits for an answer
        except Exception as error:  # noqa: BLE001  # whatever it is, the next request must be answered
            broken = RequestError("request is set aside by an error of Berth, expected none", INTERNAL)
            broken.__cause__ = error
            await self._refuse(broken, status, scope, receive, send_on)
        finally:
            held.close()
            label = self._labels.get(scope.get("endpoint"), OTHER)
            self._metrics.requests.labels(label, str(status)).inc()

    async def _refuse(self, error: RequestError, begun: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with an error, unless an answer has begun; the connection is then cut."""
        fault = error.__cause__ if error.code == INTERNAL else None
        self._refusals.count(error.code, f"{scope['path'][:200]}: {error.error}", fault)
        if begun:
            connection: BoundedProtocol | None = scope.get(CONNECTION)
            if connection is None:
                raise error
            connection.cut()
            return
        response = Response(error.body, error.status, error.all_headers(), JSON)
        await response(scope, receive, send)

    def _of_router(self, error: HTTPException, scope: Scope) -> RequestError:
        """The form of Berth of an error of the router, which knows one route of a path with several."""
        method, path = scope["method"], scope["path"][:200]
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            there = [route.methods or () for route in self.routes if route.matches(scope)[0] is not Match.NONE]
            allowed = ", ".join(sorted({one for methods in there for one in methods}))
            text = f"method is {method}, expected {allowed} for {path!r}"
            return RequestError(text, "wrong-method", {"Allow": allowed})
        if error.status_code == HTTPStatus.NOT_FOUND:
            return RequestError(f"path is {path!r}, expected one of /api/v1/openapi.json", "not-found")
        return RequestError(f"request is {method} {path!r}, expected another ({error.detail})")


def identity_of(request: Request) -> str:
    """Identity of the caller of a request; empty if the gateway is open."""
    return caller_of(request).identity


def caller_of(request: Request) -> Caller:
    """Who a request comes from."""
    found: Caller = request.scope["caller"]
    return found
