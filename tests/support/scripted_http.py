"""An HTTP server that answers what a test tells it, in order, and keeps what it was asked."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self

from aiohttp import web

_END = web.RequestKey("end", asyncio.Event)
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class ScriptedHttp:
    """Listens on the loopback interface while it is entered. Who asks after the last answer waits until it is left.

    Attributes:
        asked: Requests so far.
        answers: Answers to come; more may be added at any time.
        url: Where it listens.
    """

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.url = ""
        self._tls = tls
        self._end = asyncio.Event()
        self._runner = web.ServerRunner(web.Server(self._answer), handler_cancellation=True, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(Asked(request.method, request.path, dict(request.query), dict(request.headers), body))
        request[_END] = self._end
        if not self.answers:
            await self._end.wait()
            return web.Response(status=503)
        return await self.answers.pop(0)(request)  # type: ignore[arg-type]  # the request of a bare server has all we use


def reply(body: str | bytes = "{}", *, status: int = 200, **headers: str) -> Answer:
    """A whole answer; ``Retry_After="3"`` is a header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(_: web.Request) -> web.StreamResponse:
        content = body if isinstance(body, bytes) else body.encode()
        return web.Response(body=content, status=status, headers=named, content_type="application/json")

    return answer


def stream(*parts: str | bytes, breaks: bool = False, lasts: bool = False) -> Answer:
    """An answer in parts, which then ends, breaks off in the middle, or lasts until the server ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        response.force_close()  # the next request comes on a connection of its own
        await response.prepare(request)
        for part in parts:
            await response.write(part if isinstance(part, bytes) else part.encode())
        if lasts:
            await request[_END].wait()
        if breaks and request.transport is not None:
            request.transport.abort()
        return response

    return answer


def hang_up() -> Answer:
    """No answer: the connection ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    return answer
