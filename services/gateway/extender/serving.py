"""Wiring of the extender: a server of its own, on a port of its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.instruments import Instruments
from berth.services.gateway.application import Application
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.extender.decisions import Decisions
from berth.services.gateway.extender.endpoint import ExtenderRoutes
from berth.services.gateway.http_protocol import Bounds
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.refusal_log import RefusalLog
from berth.services.gateway.server import Tls, listen, serve_until, server_of
from berth.services.gateway.shares import Shares
from berth.services.gateway.tokens import Caller

_SECTION = "extender."
_CONNECTIONS_MAX = 256
"""Most open connections; more are refused with 503."""


class _NoTokens:
    """kube-scheduler has no token: TLS has checked its certificate, or the network policy admits no other client."""

    def caller(self, path: str, query: bytes, headers: Mapping[str, str]) -> Caller:
        """No identity: the extender has no tokens."""
        del path, query, headers
        return Caller()


@asynccontextmanager
async def extending(
    bus: Bus, clock: Clock, config: GatewayConfig, instruments: Instruments[GatewayMetrics], stop: asyncio.Event
) -> AsyncIterator[None]:
    """Answer kube-scheduler while the block runs, until ``stop`` is set; do nothing if the port is 0.

    Raises:
        ConfigError: A certificate cannot be used, or the host is not known.
        FatalError: The address is in use.
    """
    own, log, metrics = config.extender, instruments.log, instruments.metrics.extender
    if not own.port:
        yield
        return
    with closing(listen(own.host, own.port, section=_SECTION)) as listening:
        decisions = Decisions(bus, log)
        refusals = RefusalLog(clock, log)
        routes = ExtenderRoutes(decisions, clock, own, metrics, log).routes()
        bounds = Bounds(
            connections_max=_CONNECTIONS_MAX,
            request_timeout_s=config.request_timeout_s,
            write_timeout_s=config.write_timeout_s,
            note=lambda _: None,
            shares=Shares("open connections", _CONNECTIONS_MAX),
            refused=refusals.count,
        )
        tls = Tls(own.tls_cert_file, own.tls_key_file, own.client_ca_file)
        server = server_of(Application(routes, _NoTokens(), clock, metrics, refusals), bounds, tls, section=_SECTION)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(decisions.run(), name="follow pods")
            answering = group.create_task(serve_until(server, listening, stop), name="answer kube-scheduler")
            log.info("extender listens", host=own.host, port=own.port, access=own.access)
            try:
                yield
                await answering
            finally:
                answering.cancel()
                following.cancel()
