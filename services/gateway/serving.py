"""Wiring of the gateway: what its modules need, their routes, and the server.

A module gives its routes as a list, made from what it needs and nothing else, and is added in :func:`serve_http`.
"""

import asyncio
from contextlib import AsyncExitStack

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.instruments import Instruments
from berth.services.gateway.application import Application
from berth.services.gateway.cell_requests import CellRequests
from berth.services.gateway.cell_routes import CellRoutes
from berth.services.gateway.cell_view import CellView
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.extender.serving import extending
from berth.services.gateway.guard import Guard
from berth.services.gateway.http_protocol import Bounds
from berth.services.gateway.job_routes import JobRoutes
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.page_files import PageRoutes, page_files
from berth.services.gateway.server import Tls, listen, raise_file_limit, serve_until, server_of
from berth.services.gateway.view_routes import ViewRoutes
from berth.services.gateway.view_streams import ViewStreams


async def serve_http(
    bus: Bus, clock: Clock, config: GatewayConfig, instruments: Instruments[GatewayMetrics], stop: asyncio.Event
) -> None:
    """Answer HTTP requests until ``stop`` is set.

    Raises:
        ConfigError: The certificate cannot be used, or the host is not known.
        FatalError: The address is in use.
    """
    log, metrics = instruments.log, instruments.metrics
    async with AsyncExitStack() as stack:
        listening = listen(config.host, config.port)
        stack.callback(listening.close)
        cell = CellRequests(bus, clock, timeout_s=config.answer_timeout_s, at_once=config.requests_at_once)
        guard = Guard(config, clock)
        view = CellView(bus, clock, log)
        streams = ViewStreams(view, metrics, waiting_max=config.stream_events_max)
        routes = [
            *JobRoutes(cell, body_bytes_max=config.body_bytes_max).routes(),
            *ViewRoutes(cell, view, streams, guard, clock, config, metrics).routes(),
            *CellRoutes(cell, bus, clock).routes(),
            *PageRoutes(page_files()).routes(),
        ]
        app = Application(routes, guard, clock, metrics, log)
        bounds = Bounds(
            connections_max=config.connections_max,
            request_timeout_s=config.request_timeout_s,
            write_timeout_s=config.write_timeout_s,
            note=metrics.connections.set,
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
            group.create_task(view.run(stop, streams.publish), name="follow the cell")
            await serve_until(server, listening, stop)
