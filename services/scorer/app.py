"""Wiring of a scorer."""

import asyncio

import structlog

from berth.runtime.clock import Clock
from berth.runtime.config import ConfigError
from berth.runtime.port import Bus
from berth.runtime.probes import readiness
from services.scorer.config import ScorerConfig
from services.scorer.loop import Shard


async def serve(bus: Bus, clock: Clock, config: ScorerConfig, stop: asyncio.Event) -> None:
    """Answer score requests of one shard until asked to stop.

    Raises:
        ConfigError: ``shard`` is not below ``shards``.
    """
    if config.shard >= config.shards:
        raise ConfigError(field="shard", value=str(config.shard), expected=f"below shards, which is {config.shards}")
    await bus.ensure_streams(replicas=config.bus.replicas)
    shard = Shard(bus, clock, shard=config.shard, shards=config.shards)
    await shard.start()
    answering = await bus.serve(bus.subjects.score(config.shard), shard.answer, queue=f"shard-{config.shard}")
    advancing = await bus.serve(bus.subjects.advance, shard.advance)
    readiness.ready()
    structlog.get_logger().info("ready", shard=config.shard, shards=config.shards, nodes=len(shard.state.table))
    await stop.wait()
    await answering.stop()
    await advancing.stop()
    await shard.feeds.stop()
