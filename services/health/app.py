"""Wiring of the health service: read the published facts, fold nodes and pods, read the sources, then judge."""

import asyncio
from collections.abc import Sequence

from berth.core.cluster.node_packing import unpack_health
from berth.runtime.bus.port import MIRROR_WAIT_S, Bus, Endpoint, Gap
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError
from berth.runtime.inboxes import NAMED
from berth.runtime.instruments import Instruments
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.port import Api, Reflection
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import HealthSeen
from berth.schemas.subjects import StreamName
from berth.services.health.config import HealthConfig
from berth.services.health.loop import Loop
from berth.services.health.metrics import HealthMetrics
from berth.services.health.sources import Clusterd, Direct, ReportIntake


async def serve(
    bus: Bus, clock: Clock, config: HealthConfig, instruments: Instruments[HealthMetrics], stop: asyncio.Event
) -> None:
    """Judge the health of nodes until ``stop`` is set.

    Raises:
        ConfigError: There is no way to an API server.
        TransientError: The bus did not answer at the start.
        ExceptionGroup: As :func:`serve_on`.
    """
    await bus.ensure_streams(replicas=config.bus.replicas, waits_for=config.bus.waits_for)
    if config.source == "none":
        await serve_on(None, bus, clock, config, instruments, stop)
        return
    api = await KubeApi.connect(config.kube, clock=clock, user_agent="berth-health", log=instruments.log)
    instruments.metrics.watches.measure(api.silence_s)
    async with api:
        await serve_on(api, bus, clock, config, instruments, stop)


async def serve_on(
    api: Api | None,
    bus: Bus,
    clock: Clock,
    config: HealthConfig,
    instruments: Instruments[HealthMetrics],
    stop: asyncio.Event,
) -> None:
    """Judge the health of nodes of the cluster behind ``api`` until ``stop`` is set; None: only agents report.

    Raises:
        TransientError: The bus did not answer at the start.
        ExceptionGroup: Holds a :class:`FatalError` when the facts broke; the next start folds them again.
    """
    loop = Loop(bus, clock, config, instruments)
    intake = ReportIntake(loop.report_store, loop.cluster, clock, loop.touch, instruments)
    facts = await bus.state(StreamName.FACTS)
    await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=MIRROR_WAIT_S)
    subjects = bus.subjects
    filters = (subjects.facts("node"), subjects.facts("pod"))
    for stored in await bus.read(StreamName.LATEST, filters=filters):
        loop.take(stored)
    await _restore(bus, loop, instruments.log)
    broken: asyncio.Future[Gap] = asyncio.get_running_loop().create_future()
    follower = bus.follow(
        StreamName.FACTS,
        on_message=loop.take,
        on_gap=lambda gap: None if broken.done() else broken.set_result(gap),
        start_seq=facts.last_seq + 1,
        filters=filters,
        created=facts.created,
    )
    endpoint = Endpoint("report", subjects.reports_health, "", "", "", callers=(f"agent.{NAMED}",))
    reports = await bus.offer(endpoint, loop.take_report)
    source = Clusterd(intake) if config.source == "clusterd" else Direct(intake)
    reflections = source.reflections(api) if api is not None else []
    try:
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(_fail(broken), name="watch for gaps"),
                group.create_task(_open(loop, reflections, instruments), name="wait for sources"),
                *(group.create_task(one.run(), name="reflect ConfigMaps") for one in reflections),
            ]
            if isinstance(source, Clusterd):
                helpers.append(group.create_task(_forget(source, loop, config), name="forget"))
            helpers.append(group.create_task(_wake_at(stop, loop), name="wait for stop"))
            await loop.run(stop)
            for helper in helpers:
                helper.cancel()
    finally:
        await reports.stop()
        await follower.stop()


async def _restore(bus: Bus, loop: Loop, log: Logger) -> None:
    """Learn what earlier runs published last."""
    for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),)):
        try:
            fact = decode(stored.data, HealthSeen)
            loop.restore(fact, unpack_health(fact))
        except (DecodeError, ValueError, IndexError) as error:
            log.warning("health fact unreadable", subject=stored.subject, reason=str(error))


async def _open(loop: Loop, reflections: Sequence[Reflection], instruments: Instruments[HealthMetrics]) -> None:
    """Begin to judge once everything was listed."""
    instruments.readiness.wait("the ConfigMaps are listed")
    for one in reflections:
        await one.synced.wait()
    loop.open()
    instruments.readiness.ready()
    instruments.log.info("sources read", reflections=len(reflections), nodes=len(loop.cluster.nodes))


async def _forget(source: Clusterd, loop: Loop, config: HealthConfig) -> None:
    """Periodically forget entries that no chunk contains."""
    while True:
        await asyncio.sleep(config.tick_s)
        source.forget(after_ms=loop.rules.stale_ms)


async def _wake_at(stop: asyncio.Event, loop: Loop) -> None:
    await stop.wait()
    loop.wake()


async def _fail(broken: "asyncio.Future[Gap]") -> None:
    """Wait for a gap.

    Raises:
        FatalError: The stream has a gap.
    """
    gap = await broken
    raise FatalError(f"{gap.stream}: {gap.reason.value}, sequence {gap.wanted} was wanted")
