"""``api`` as a part of a cell: explanations are computed on the loop of all services."""

import asyncio
from functools import partial
from typing import Final

from berth.cell.part import Part
from berth.runtime.beside import on_same_loop
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.identity import process_identity
from berth.runtime.instruments import Instruments
from berth.runtime.tracing.spans import spans_to
from berth.services.api.app import serve_beside
from berth.services.api.config import ApiConfig
from berth.services.api.metrics import ApiMetrics


async def _serve(
    bus: Bus, clock: Clock, config: ApiConfig, instruments: Instruments[ApiMetrics], stop: asyncio.Event
) -> None:
    spans = spans_to(config.tracing, cell=config.bus.cell, instance=process_identity())
    await serve_beside(partial(on_same_loop, "api", bus), bus, clock, config, instruments, stop, spans=spans)


PART: Final = Part(ApiConfig, ApiMetrics, _serve)
