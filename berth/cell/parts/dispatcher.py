"""``dispatcher`` as a part of a cell: it scores by itself, and leads without a lease."""

import asyncio
from functools import partial
from typing import Final

from berth.cell.part import Part
from berth.runtime.beside import on_same_loop
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.garbage import SharedGarbage
from berth.runtime.identity import process_identity
from berth.runtime.instruments import Instruments
from berth.services.dispatcher.app import serve_beside
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics


async def _serve(
    bus: Bus, clock: Clock, config: DispatcherConfig, instruments: Instruments[DispatcherMetrics], stop: asyncio.Event
) -> None:
    await serve_beside(
        partial(on_same_loop, "dispatcher", bus),
        bus,
        clock,
        config,
        instruments,
        stop,
        process=process_identity(),
        garbage=SharedGarbage(),
    )


PART: Final = Part(
    DispatcherConfig,
    DispatcherMetrics,
    _serve,
    fixed={
        "lease": (False, "a cell in one process has no standby; for one, run the services as processes"),
        "shards": (0, "a cell in one process has no scorers; for them, run the services as processes"),
    },
)
