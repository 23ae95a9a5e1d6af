"""Probe server: an HTTP server for liveness, readiness and metrics.

``/livez`` answers 200 while the event loop runs. ``/readyz`` answers 200 if the bus is connected and the service has
caught up, else 503 with the reason. ``/metrics`` is the text format of Prometheus. A service reports its progress
through the readiness of its instruments:

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
"""Longest time for unfinished answers at the end."""


class Link(Protocol):
    """A connection that a service needs to be ready, such as the bus."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""


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
    def reason(self) -> str:
        """Reason why the process is not ready; empty if it is."""
        if self._is_stopping:
            return "the process is stopping"
        if self._link is None:
            return "the bus has not been connected yet"
        if not self._link.connected:
            return "the bus is not connected"
        return self._service


@asynccontextmanager
async def serving(
    config: ProbeConfig, readiness: Readiness, registry: MetricsRegistry, log: Logger
) -> AsyncIterator[None]:
    """Run the probe server while the block runs; does nothing if the port is 0.

    Args:
        config: Address to listen on.
        readiness: State behind ``/readyz``.
        registry: Metrics behind ``/metrics``.
        log: Logger for one line with the address.

    Raises:
        FatalError: The server cannot listen on the address.
    """
    if not config.port:
        yield
        return
    runner = await _listen(config, readiness, registry)
    log.info("probe server started", host=config.host, port=config.port)
    try:
        yield
    finally:
        await runner.cleanup()


async def _listen(config: ProbeConfig, readiness: Readiness, registry: MetricsRegistry) -> "web.AppRunner":
    """Start the server.

    Raises:
        FatalError: The server cannot listen on the address.
    """
    from aiohttp import web  # noqa: PLC0415 - slow to import, and not needed if the server is disabled

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
