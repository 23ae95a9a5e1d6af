"""Wiring of the binder: learn the outcomes, fold the ledger, then bind what has none."""

import asyncio

import msgspec

from berth.core.ledger import LedgerDump
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError
from berth.runtime.feeds import newest_snapshot
from berth.runtime.logs import logger
from berth.runtime.port import Bus, Gap, Stored
from berth.runtime.probes import readiness
from schemas.envelope import DecodeError, decode
from schemas.facts import OutcomeSeen
from schemas.subjects import StreamName
from services.binder.cluster import Cluster, SimCluster
from services.binder.config import BinderConfig
from services.binder.loop import Loop
from services.binder.work import Work


async def serve(bus: Bus, clock: Clock, config: BinderConfig, stop: asyncio.Event) -> None:
    """Bind and evict on a simulated cluster until ``stop`` is set.

    Raises:
        TransientError: The bus did not answer at the start.
        ExceptionGroup: As :func:`bind_on`.
    """
    await bus.ensure_streams(replicas=config.bus.replicas)
    await bind_on(SimCluster(bus, answer_timeout_s=config.answer_timeout_s), bus, clock, config, stop)


async def bind_on(cluster: Cluster, bus: Bus, clock: Clock, config: BinderConfig, stop: asyncio.Event) -> None:
    """Bind and evict on ``cluster`` until ``stop`` is set.

    Raises:
        TransientError: The bus did not answer at the start.
        ExceptionGroup: Holds a :class:`FatalError` when a followed history broke; the next start folds it anew.
    """
    loop = Loop(bus, cluster, clock, config, Work())
    intake = _Intake(loop)
    facts = await bus.state(StreamName.FACTS)
    await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=config.mirror_wait_s)
    filters = (bus.subjects.facts("outcome"),)
    for stored in await bus.read(StreamName.LATEST, filters=filters):
        intake.take_outcome(stored)
    outcomes = bus.follow(
        StreamName.FACTS,
        on_message=intake.take_outcome,
        on_gap=intake.take_gap,
        start_seq=facts.last_seq + 1,
        filters=filters,
        created=facts.created,
    )
    ledger = await bus.state(StreamName.LEDGER)
    snapshot = await newest_snapshot(bus)
    if snapshot is not None:
        loop.work.restore(msgspec.msgpack.decode(snapshot.ledger, type=LedgerDump))
    records = bus.follow(
        StreamName.LEDGER,
        on_message=intake.take_record,
        on_gap=intake.take_gap,
        start_seq=loop.work.head + 1,
        created=ledger.created,
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(intake.fail_on_gap(), name="watch for gaps")
            working = group.create_task(_work(loop, intake, records.caught_up, stop), name="work")
            working.add_done_callback(lambda _: intake.end())
    finally:
        await records.stop()
        await outcomes.stop()


async def _work(loop: Loop, intake: "_Intake", caught_up: asyncio.Event, stop: asyncio.Event) -> None:
    """Wait until the ledger is folded, then work."""
    async with asyncio.TaskGroup() as group:
        folded = group.create_task(caught_up.wait(), name="fold the ledger")
        asked = group.create_task(stop.wait(), name="wait for stop")
        await asyncio.wait({folded, asked}, return_when=asyncio.FIRST_COMPLETED)
        folded.cancel()
        asked.cancel()
    if stop.is_set():
        return
    loop.work.settle()
    pending = loop.work.pending()
    logger().info("ledger folded", head=loop.work.head, live=len(loop.work.attempts), pending=len(pending))
    intake.is_folded = True
    loop.wake(pending)
    readiness.ready()
    await loop.run(stop)


class _Intake:
    """Messages on their way into the work."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.is_folded = False
        self._ended: asyncio.Future[Gap | None] = asyncio.get_running_loop().create_future()

    def take_record(self, stored: Stored) -> None:
        """Fold a record; one that cannot be read binds nothing and ends nothing."""
        try:
            touched = self._loop.work.apply_record(stored.sequence, stored.data)
        except DecodeError as error:
            logger().error("record unreadable", sequence=stored.sequence, reason=error.reason)
            return
        if self.is_folded:
            self._loop.wake(touched)

    def take_outcome(self, stored: Stored) -> None:
        """Take an outcome, own or of an earlier run."""
        try:
            key = self._loop.work.apply_outcome(decode(stored.data, OutcomeSeen))
        except DecodeError as error:
            logger().error("outcome unreadable", sequence=stored.sequence, reason=error.reason)
            return
        if self.is_folded:
            self._loop.wake([key])

    def take_gap(self, gap: Gap) -> None:
        """Note that a history broke."""
        if not self._ended.done():
            self._ended.set_result(gap)

    def end(self) -> None:
        """Stop watching."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def fail_on_gap(self) -> None:
        """Wait until the end.

        Raises:
            FatalError: A history broke before it.
        """
        gap = await self._ended
        if gap is not None:
            raise FatalError(f"{gap.stream}: {gap.reason.value}, sequence {gap.wanted} was wanted")
