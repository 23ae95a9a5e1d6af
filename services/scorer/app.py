"""Wiring of a scorer."""

import asyncio

from berth.runtime.bus.port import Bus, Endpoint
from berth.runtime.clock import Clock
from berth.runtime.inboxes import CALLERS
from berth.runtime.instruments import Instruments
from berth.services.scorer.config import ScorerConfig
from berth.services.scorer.loop import REQUESTS_MAX, Shard
from berth.services.scorer.metrics import ScorerMetrics


async def serve(
    bus: Bus, clock: Clock, config: ScorerConfig, instruments: Instruments[ScorerMetrics], stop: asyncio.Event
) -> None:
    """Answer score requests of one shard until asked to stop.

    Raises:
        ConfigError: The number of the shard is not below ``shards``, or its name has none.
    """
    number = config.number()
    await bus.ensure_streams(replicas=config.bus.replicas, waits_for=config.bus.waits_for)
    shard = Shard(bus, clock, shard=number, shards=config.shards, instruments=instruments)
    await shard.start()
    subject, queue, callers = bus.subjects.score(number), f"shard-{number}", CALLERS["scorer"]
    endpoint = Endpoint(subject.rpartition(".")[2], subject, queue, "", "", at_once=REQUESTS_MAX, callers=callers)
    answering = await bus.offer(endpoint, lambda _, data: shard.answer(data))
    advancing = await bus.serve(bus.subjects.advance, shard.advance, callers=callers)
    instruments.readiness.ready()
    instruments.log.info("ready", shard=number, shards=config.shards, nodes=len(shard.state.table))
    await stop.wait()
    await answering.stop()
    await advancing.stop()
    await shard.feeds.stop()
