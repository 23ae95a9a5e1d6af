"""Probes: a small HTTP server that says whether the process lives, whether it is ready, and what it has counted.

``/livez`` answers 200 while the event loop turns. ``/readyz`` answers 200 when the bus is connected and the service has
caught up, else 503 with the reason. ``/metrics`` is the text form of Prometheus. A service says how far it is with the
readiness among its instruments:

    instruments.readiness.wait("the ledger is folded")
    instruments.readiness.ready()
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from berth.runtime.config import ProbeConfig
from berth.runtime.errors import FatalError
from berth.runtime.logs import Logger
from berth.runtime.metrics import CONTENT_TYPE, MetricsRegistry

if TYPE_CHECKING:
    from aiohttp import web

_GOODBYE_S: Final = 0.5
"""How long an answer under way may take at the end."""


class Link(Protocol):
    """A connection without which nothing can be served; the bus is one."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""


class Readiness:
    """What a service waits for before it can serve."""

    def __init__(self) -> None:
        self._service = "the service has not begun"
        self._link: Link | None = None
        self._is_stopping = False

    def ready(self) -> None:
        """The service has caught up and serves, or stands by with nothing to catch up."""
        self._service = ""

    def wait(self, reason: str) -> None:
        """The service cannot serve now.

        Args:
            reason: What it waits for, in a few words.
        """
        self._service = reason

    def attach(self, link: Link) -> None:
        """Count as ready only while ``link`` is connected."""
        self._link = link

    def stop(self) -> None:
        """The process was asked to end: it is not ready any more."""
        self._is_stopping = True

    @property
    def reason(self) -> str:
        """Why the process is not ready; empty when it is."""
        if self._is_stopping:
            return "the process was asked to stop"
        if self._link is None:
            return "the bus has not been reached yet"
        if not self._link.connected:
            return "the bus is not connected"
        return self._service


@asynccontextmanager
async def serving(
    config: ProbeConfig, readiness: Readiness, registry: MetricsRegistry, log: Logger
) -> AsyncIterator[None]:
    """Answer probes while the block runs; does nothing when the port is 0.

    Args:
        config: Where to listen.
        readiness: What ``/readyz`` answers.
        registry: What ``/metrics`` shows.
        log: Takes one line with the address.

    Raises:
        FatalError: The address cannot be listened on.
    """
    if not config.port:
        yield
        return
    runner = await _listen(config, readiness, registry)
    log.info("probes answer", host=config.host, port=config.port)
    try:
        yield
    finally:
        await runner.cleanup()


async def _listen(config: ProbeConfig, readiness: Readiness, registry: MetricsRegistry) -> "web.AppRunner":
    """A server that listens.

    Raises:
        FatalError: The address cannot be listened on.
    """
    from aiohttp import web  # noqa: PLC0415 - it takes longer to import than the rest; not where probes are off

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = readiness.reason
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def exposition(_: web.Request) -> web.Response:
        registry.ready.set(not readiness.reason)
        return web.Response(body=registry.exposition(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GOODBYE_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as error:
        await runner.cleanup()
        raise FatalError(
            f"setting probes.port is {config.port}: cannot listen on {config.host}:{config.port}: {error.strerror}"
        ) from error
    return runner
