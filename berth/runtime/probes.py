"""Probe server: an HTTP server for liveness, readiness and metrics.

``/livez`` answers 200 while the event loop runs. ``/readyz`` answers 200 if the bus is connected and the service has
caught up, else 503 with the reason. ``/metrics`` is the text format of Prometheus. A service reports its progress
through the readiness of its instruments:

    instruments.readiness.wait("the ledger is folded")
    instruments.readiness.ready()
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from berth.runtime.bus.process_stats import Followed
from berth.runtime.config import ProbeConfig
from berth.runtime.errors import FatalError
from berth.runtime.logs import Logger
from berth.runtime.metrics import CONTENT_TYPE, MetricsRegistry

_GOODBYE_S: Final = 0.5
"""Longest time for unfinished answers at the end."""
_REQUEST_S: Final = 10.0
"""Longest time for one request."""
_HEAD_BYTES_MAX: Final = 16_384
"""Most bytes of a request."""
_OPEN_MAX: Final = 64
"""Most open connections. The oldest is ended for one more: whoever asks at once is answered, whatever others do."""


class Link(Protocol):
    """A connection that a service needs to be ready, such as the bus."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""

    @property
    def followed(self) -> Sequence[Followed]:
        """How far the process is in the streams that it follows."""


class Readiness:
    """Readiness of a service, and the reason if it is not ready."""

    def __init__(self) -> None:
        self._service = "the service has not started"
        self._link: Link | None = None
        self._is_stopping = False

    def ready(self) -> None:
        """Report that the service has caught up and serves, or is a standby without anything to catch up."""
        self._service = ""

    def wait(self, reason: str) -> None:
        """Report that the service is not ready.

        Args:
            reason: What it waits for, as a short phrase.
        """
        self._service = reason

    def attach(self, link: Link) -> None:
        """Add the condition that ``link`` is connected."""
        self._link = link

    def stop(self) -> None:
        """Report that the process is stopping and not ready."""
        self._is_stopping = True

    @property
    def is_connected(self) -> bool:
        """Whether the bus is connected."""
        return self._link is not None and self._link.connected

    def followed(self) -> dict[str, tuple[int, int]]:
        """By stream that the process follows: messages that it has not applied, and foreign ones that it dropped."""
        waiting: Counter[str] = Counter()
        foreign: Counter[str] = Counter()
        for one in self._link.followed if self._link is not None else ():
            waiting[one.stream] += one.waiting
            foreign[one.stream] += one.foreign
        return {stream: (count, foreign[stream]) for stream, count in waiting.items()}

    @property
    def reason(self) -> str:
        """Reason why the process is not ready; empty if it is."""
        if self._is_stopping:
            return "the process is stopping"
        if self._link is None:
            return "the bus has not been connected yet"
        if not self._link.connected:
            return "the bus is not connected"
        return self._service


class Page(NamedTuple):
    """Answer to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Pages(Protocol):
    """What is behind the paths."""

    @property
    def reason(self) -> str:
        """Reason why the process is not ready; empty if it is."""

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus."""


class ServicePages:
    """Pages of one service.

    Args:
        readiness: State behind ``/readyz``.
        registry: Metrics behind ``/metrics``.
    """

    def __init__(self, readiness: Readiness, registry: MetricsRegistry) -> None:
        self._readiness = readiness
        self._registry = registry

    @property
    def reason(self) -> str:
        """Reason why the service is not ready; empty if it is."""
        return self._readiness.reason

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        self.show()
        return self._registry.exposition()

    def show(self) -> None:
        """Set the metrics that are known when they are asked for."""
        registry = self._registry
        registry.measure()
        registry.ready.set(not self.reason)
        registry.connected.set(self._readiness.is_connected)
        registry.waiting.clear()
        registry.foreign.clear()
        for stream, (waiting, foreign) in self._readiness.followed().items():
            registry.waiting.labels(stream).set(waiting)
            registry.foreign.labels(stream).set(foreign)


@asynccontextmanager
async def serving(config: ProbeConfig, pages: Pages, log: Logger) -> AsyncIterator[None]:
    """Run the probe server while the block runs; does nothing if the port is 0.

    Args:
        config: Address to listen on.
        pages: What is behind the paths.
        log: Logger for one line with the address.

    Raises:
        FatalError: The server cannot listen on the address.
    """
    if not config.port:
        yield
        return
    server = await _listen(config, pages)
    log.info("probe server started", host=config.host, port=config.port)
    try:
        yield
    finally:
        await server.stop()


def page_of(path: str, pages: Pages) -> Page:
    """What a path answers."""
    match path:
        case "/livez":
            return Page(HTTPStatus.OK, b"ok\n")
        case "/readyz":
            reason = pages.reason
            status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
            return Page(status, f"{reason or 'ok'}\n".encode())
        case "/metrics":
            return Page(HTTPStatus.OK, pages.exposition(), CONTENT_TYPE)
        case _:
            return Page(HTTPStatus.NOT_FOUND, b"not found\n")


class _Server:
    """An HTTP server for GET and HEAD that answers one request on each connection.

    A library for HTTP would be most of the memory of a service that needs none for anything else.
    """

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._answering: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        """The oldest first."""

    async def start(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_BYTES_MAX)

    async def stop(self) -> None:
        """Accept no more connections, and give those that are open a moment to get their answer."""
        if self._server is not None:
            self._server.close()
        if self._answering:
            _, late = await asyncio.wait(self._answering, timeout=_GOODBYE_S)
            for task in late:
                self._answering[task].transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._answering[task] = writer
            task.add_done_callback(self._answering.pop)
            if len(self._answering) > _OPEN_MAX:
                next(iter(self._answering.values())).transport.abort()
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                writer.close()
                await writer.wait_closed()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            return  # the client went away, is too slow, or does not speak HTTP
        finally:
            writer.transport.abort()  # a client that takes nothing would keep it open otherwise

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            page = Page(HTTPStatus.BAD_REQUEST, b"not a request of HTTP/1.1\n")
        elif method not in {"GET", "HEAD"}:
            page = Page(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")
        else:
            page = page_of(target.partition("?")[0], self._pages)
        lines = [
            f"HTTP/1.1 {page.status} {page.status.phrase}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {len(page.body)}",
            "Connection: close",
        ]
        body = b"" if method == "HEAD" else page.body
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1") + body


async def _listen(config: ProbeConfig, pages: Pages) -> _Server:
    """Start the server.

    Raises:
        FatalError: The server cannot listen on the address.
    """
    server = _Server(pages)
    try:
        await server.start(config.host, config.port)
    except OSError as error:
        raise FatalError(
            f"setting probes.port is {config.port}: cannot listen on {config.host}:{config.port}: {error.strerror}"
        ) from error
    return server
