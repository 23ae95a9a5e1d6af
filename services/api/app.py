"""Wiring of the service for programs: load the state, store missing events, then answer."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TypeAlias

import msgspec

from berth.runtime.beside import BesideWork, beside
from berth.runtime.bus.port import Bus, Endpoint
from berth.runtime.clock import Clock
from berth.runtime.identity import process_identity
from berth.runtime.inboxes import ANYBODY, NAMED
from berth.runtime.instruments import Instruments
from berth.runtime.tracing.spans import Spans, spans_to
from berth.schemas.programs.documents import shape_schema
from berth.schemas.subjects import StreamName
from berth.services.api.access import Access
from berth.services.api.cell_counts import CellCounts
from berth.services.api.config import ApiConfig
from berth.services.api.event_pages import AT_ONCE, EventPages
from berth.services.api.explanations import Explanations
from berth.services.api.loop import Loop
from berth.services.api.metrics import ApiMetrics
from berth.services.api.operations import Operations
from berth.services.api.rates import Rates

QUEUE = "api"
"""Queue group: each request goes to one instance."""
Beside: TypeAlias = Callable[[BesideWork], AbstractAsyncContextManager[None]]
"""Runs work beside the loop that answers while a block runs; see :func:`berth.runtime.beside.beside`."""


async def serve(
    bus: Bus, clock: Clock, config: ApiConfig, instruments: Instruments[ApiMetrics], stop: asyncio.Event
) -> None:
    """Answer programs and store events until ``stop`` is set.

    Raises:
        ConfigError: A receiver of traces is named, and the library is not installed.
    """
    spans = spans_to(config.tracing, cell=config.bus.cell, instance=process_identity())
    on_a_thread = partial(beside, "api", config.bus, log=instruments.log)
    await serve_beside(on_a_thread, bus, clock, config, instruments, stop, spans=spans)


async def serve_beside(
    beside_work: Beside,
    bus: Bus,
    clock: Clock,
    config: ApiConfig,
    instruments: Instruments[ApiMetrics],
    stop: asyncio.Event,
    *,
    spans: Spans,
) -> None:
    """Answer programs and store events until ``stop`` is set.

    Args:
        beside_work: Runs what computes for long, with a connection of its own.
        bus: The cell.
        clock: Of the process.
        config: Settings.
        instruments: Of the process.
        stop: Set to end the service.
        spans: Takes the spans of jobs.

    Raises:
        TransientError: The bus did not answer at the start.
        FatalError: The history has a gap; the next start reads it anew.
    """
    await bus.ensure_streams(
        replicas=config.bus.replicas,
        max_age_s={StreamName.EVENTS: config.events_kept_s},
        waits_for=config.bus.waits_for,
    )
    loop = Loop(bus, clock, config, instruments, spans)
    instruments.registry.measure_by(CellCounts(clock, loop, config, instruments.metrics).measure)
    instruments.readiness.wait("the events of what is stored are stored")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(spans.close)
        stack.push_async_callback(loop.stop)
        await loop.start(stop)
        explanations = Explanations(clock)
        await stack.enter_async_context(beside_work(explanations.work))
        pages = EventPages(bus, config, instruments.log)
        rates = Rates(clock, per_s=config.requests_per_s, burst=config.requests_burst)
        operations = Operations(bus, clock, loop, Access(config), rates, explanations, pages, instruments)
        for one, handler in operations.handlers():
            request, reply = (_text(shape_schema(each)) for each in (one.request, one.reply))
            subjects = bus.subjects
            at_once = pages.at_once if one.verb == "events" else AT_ONCE
            for name, subject, callers in (
                (one.verb, subjects.api(one.verb), ANYBODY),
                (f"{one.verb}-as", subjects.api_as_any(one.verb), (NAMED,)),
                (f"{one.verb}-for", subjects.gate_any(one.verb), ("gateway",)),
            ):
                served = await bus.offer(Endpoint(name, subject, QUEUE, request, reply, at_once, callers), handler)
                stack.push_async_callback(served.stop)
        stack.push_async_callback(pages.close)  # first, as the others end when all requests are answered
        instruments.readiness.ready()
        instruments.log.info("ready", open=config.is_open, grants=len(config.grants))
        await loop.run(stop)


def _text(schema: object) -> str:
    return msgspec.json.encode(schema).decode()
