"""Wiring of a scorer."""

import asyncio

import structlog

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.probes import readiness
from berth.services.scorer.config import ScorerConfig
from berth.services.scorer.loop import Shard


async def serve(bus: Bus, clock: Clock, config: ScorerConfig, stop: asyncio.Event) -> None:
    """Answer score requests of one shard until asked to stop.

    Raises:
        ConfigError: The number of the shard is not below ``shards``, or its name has none.
    """
    number = config.number()
    await bus.ensure_streams(replicas=config.bus.replicas)
    shard = Shard(bus, clock, shard=number, shards=config.shards)
    await shard.start()
    answering = await bus.serve(bus.subjects.score(number), shard.answer, queue=f"shard-{number}")
    advancing = await bus.serve(bus.subjects.advance, shard.advance)
    readiness.ready()
    structlog.get_logger().info("ready", shard=number, shards=config.shards, nodes=len(shard.state.table))
    await stop.wait()
    await answering.stop()
    await advancing.stop()
    await shard.feeds.stop()
