"""Wiring of the gateway: what its modules need, their routes, and the server.

A module gives its routes as a list, made from what it needs and nothing else, and is added in :func:`routes_of`.
"""

import asyncio
from contextlib import AsyncExitStack

from starlette.routing import Route

from berth.page.files import page_files
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.instruments import Instruments
from berth.runtime.logs import Logger
from berth.services.gateway.application import Application
from berth.services.gateway.cell_requests import CellRequests
from berth.services.gateway.cell_routes import CellRoutes
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.document_routes import DocumentRoutes
from berth.services.gateway.event_hub import EventHub
from berth.services.gateway.event_routes import EventRoutes
from berth.services.gateway.event_streams import Streams
from berth.services.gateway.extender.serving import extending
from berth.services.gateway.guard import Guard
from berth.services.gateway.http_protocol import Bounds
from berth.services.gateway.job_routes import JobRoutes
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.page_files import PageRoutes
from berth.services.gateway.refusal_log import RefusalLog
from berth.services.gateway.server import Tls, listen, raise_file_limit, serve_until, server_of
from berth.services.gateway.shares import Shares
from berth.services.gateway.stream_limits import OpenStreams, StreamLimits
from berth.services.gateway.view.cell_view import CellView
from berth.services.gateway.view.view_routes import ViewRoutes
from berth.services.gateway.view.view_streams import ViewStreams


class Parts:
    """What the routes need beside the bus.

    Args:
        bus: The cell.
        clock: Of the process.
        config: Settings.
        metrics: Of the gateway.
        log: Of the process.

    Attributes:
        guard: Knows the callers.
        cell: Asks the service ``api``.
        hub: Hands out events of jobs.
        streams: Streams of events of jobs.
        view: The picture of the cell.
        view_streams: Streams of its changes.
    """

    def __init__(self, bus: Bus, clock: Clock, config: GatewayConfig, metrics: GatewayMetrics, log: Logger) -> None:
        limits = StreamLimits(events_max=config.stream_events_max, keepalive_s=config.keepalive_s)
        opened = OpenStreams(config.streams_max, config.streams_per_identity, metrics)
        self.guard = Guard(config, clock)
        self.cell = CellRequests(
            bus,
            clock,
            timeout_s=config.answer_timeout_s,
            at_once=config.requests_at_once,
            each=config.requests_per_identity,
        )
        self.hub = EventHub(bus, log)
        self.streams = Streams(limits, opened, clock, metrics)
        self.view = CellView(bus, clock, log)
        self.view_streams = ViewStreams(self.view, metrics, waiting_max=config.stream_events_max, opened=opened)


async def serve_http(
    bus: Bus, clock: Clock, config: GatewayConfig, instruments: Instruments[GatewayMetrics], stop: asyncio.Event
) -> None:
    """Answer HTTP requests until ``stop`` is set.

    The streams of the cell are made by its other services: until they are there, what is read from them is unavailable.

    Raises:
        ConfigError: The certificate cannot be used, or the host is not known.
        FatalError: The address is in use.
    """
    log, metrics = instruments.log, instruments.metrics
    async with AsyncExitStack() as stack:
        listening = listen(config.host, config.port)
        stack.callback(listening.close)
        parts = Parts(bus, clock, config, metrics, log)
        refusals = RefusalLog(clock, log)
        app = Application(routes_of(bus, clock, config, parts), parts.guard, clock, metrics, refusals)
        bounds = Bounds(
            connections_max=config.connections_max,
            request_timeout_s=config.request_timeout_s,
            write_timeout_s=config.write_timeout_s,
            note=metrics.connections.set,
            shares=Shares("open connections", config.connections_per_identity),
            refused=refusals.count,
        )
        server = server_of(app, bounds, Tls(config.tls_cert_file, config.tls_key_file))
        connections = raise_file_limit(config.connections_max)
        if connections < config.connections_max:
            log.warning("fewer files than connections_max", connections=connections, wanted=config.connections_max)
        if config.access == "token" and not config.tokens:
            log.warning("all requests are refused: no token is set, berth token makes one")
        await stack.enter_async_context(extending(bus, clock, config, instruments, stop))
        instruments.readiness.ready()
        host, port = listening.getsockname()[:2]
        log.info("ready", host=host, port=port, tls=config.has_tls, access=config.access, tokens=len(config.tokens))
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.hub.run(stop), name="follow the events")
            group.create_task(parts.view.run(stop, parts.view_streams.publish), name="follow the cell")
            group.create_task(_end_streams(parts, stop), name="end the streams")
            await serve_until(server, listening, stop)


def routes_of(bus: Bus, clock: Clock, config: GatewayConfig, parts: Parts) -> list[Route]:
    """All routes.

    Args:
        bus: The cell.
        clock: Of the process.
        config: Settings.
        parts: What the routes need.
    """
    cell, guard = parts.cell, parts.guard
    return [
        *JobRoutes(cell, body_bytes_max=config.body_bytes_max).routes(),
        *EventRoutes(bus, cell, parts.hub, parts.streams, guard).routes(),
        *ViewRoutes(cell, parts.view, parts.view_streams, guard, clock, config).routes(),
        *CellRoutes(cell, bus, clock).routes(),
        *DocumentRoutes().routes(),
        *PageRoutes(page_files(), config.links).routes(),
    ]


async def _end_streams(parts: Parts, stop: asyncio.Event) -> None:
    """Let all streams end when the process stops, so that the server need not wait for their readers."""
    await stop.wait()
    parts.streams.end_all("unavailable", "gateway is stopping, expected to go on: connect again, with the last id")
    parts.view_streams.publish(None)
