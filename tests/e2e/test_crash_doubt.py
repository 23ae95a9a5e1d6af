"""Writes that fail or end in doubt at the worst moment, on a bus in memory where that moment can be chosen."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from berth.core.state.cell import State
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.clock import SystemClock
from berth.runtime.config import BusConfig
from berth.runtime.errors import DEFAULT_RETRY_AFTER_S, TransientError
from berth.runtime.feeds import Feeds
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen, PodPhase
from berth.schemas.subjects import StreamName
from berth.services.binder.app import bind_on
from berth.services.binder.cluster import BindResult, FactlessCluster, Gang, Manner
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.dispatcher.app import serve
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.waiting import until, until_true

TOMBSTONE_MS = 1_000


@pytest.fixture
async def inside() -> AsyncIterator[Cell]:
    """A cell with one node, where names are free again after a second."""
    cell = Cell(tombstone_after_ms=TOMBSTONE_MS)
    cell.config = msgspec.structs.replace(cell.config, snapshot_synced_s=0)
    await cell.open()
    await cell.nodes([a_node("node-0")])
    await cell.turns(2)
    yield cell
    cell.server.is_down = False
    await cell.close()


async def latest(cell: Cell, name: str) -> JobSeen:
    found = await cell.user.last(StreamName.LATEST, cell.user.subjects.fact_job("default", name))
    assert found is not None
    return decode(found.data, JobSeen)


async def finish(cell: Cell, name: str) -> None:
    await cell.pods(name, PodPhase.SUCCEEDED)
    await cell.turns(2)


async def started(cell: Cell) -> State:
    """State of a reader that starts now."""
    state = State(keeps=True)
    feeds = Feeds(cell.user, cell.clock, state)
    await feeds.start()
    await feeds.stop()
    return state


async def forget_history(cell: Cell, *, snapshots: bool) -> None:
    """Drop all facts, as their age does; LATEST keeps one a subject."""
    for name in [StreamName.FACTS, *([StreamName.SNAPSHOT] if snapshots else [])]:
        stream = cell.server.stream(cell.user.subjects.stream(name))
        for sequence in list(stream.messages):
            stream.remove(sequence)


async def test_requests_are_judged_though_the_server_goes_while_the_intake_starts_anew(inside: Cell) -> None:
    await inside.submit(a_job("lost"))
    await inside.settle()
    inside.server.lose_messages = 1
    await inside.dispatcher.turn()
    await inside.settle()
    assert inside.dispatcher.intake.needs_restart
    restart, states = inside.dispatcher.intake.start, []

    async def start_without_server() -> None:
        states.append("down")
        inside.server.is_down = len(states) == 1
        await restart()

    inside.dispatcher.intake.start = start_without_server  # type: ignore[method-assign]  # the moment that is meant
    with pytest.raises(TransientError):
        await inside.dispatcher.turn()
    inside.server.is_down = False
    inside.clock.advance(DEFAULT_RETRY_AFTER_S)  # the intake starts anew after this pause
    await inside.turns(4)
    status = await inside.status("lost")
    assert status is not None
    assert status.phase == "placed"


@pytest.mark.parametrize("fault", ["lose_messages", "lose_answers"])
async def test_a_dead_letter_in_doubt_is_written_in_the_end_and_once(inside: Cell, fault: str) -> None:
    await inside.user.publish(inside.user.subjects.intake_request("default", "bad"), b"no request")
    await inside.submit(a_job("good"))
    await inside.settle()
    setattr(inside.server, fault, 1)
    await inside.turns(4)
    assert await inside.dead() == [inside.user.subjects.dead(StreamName.INTAKE, 1)]
    assert (await inside.user.state(StreamName.DEAD)).last_seq == 1
    status = await inside.status("good")
    assert status is not None
    assert status.phase == "placed"


async def test_a_dead_fact_in_doubt_is_written_in_the_end(inside: Cell) -> None:
    await inside.user.publish(inside.user.subjects.fact_node("bucket-1"), b"no fact")
    await inside.settle()
    inside.server.lose_messages = 1
    await inside.turns(3)
    assert len(await inside.dead()) == 1


async def test_a_tombstone_is_never_stored_over_the_next_job_of_the_name(inside: Cell) -> None:
    await inside.submit(a_job("again", uid="one"))
    await inside.turns(3)
    await finish(inside, "again")
    inside.clock.advance(TOMBSTONE_MS / 1000 + 1)
    # In one turn the request is judged and the tombstone of its forerunner is due.
    await inside.submit(a_job("again", uid="two"))
    await inside.turns(3)
    assert (await latest(inside, "again")).uid == "two"
    status = await inside.status("again")
    assert status is not None
    assert (status.uid, status.phase) == ("two", "placed")


@pytest.mark.parametrize("fault", ["lose_messages", "lose_answers"])
async def test_a_tombstone_in_doubt_is_stored_in_the_end(inside: Cell, fault: str) -> None:
    await inside.submit(a_job("over"))
    await inside.turns(3)
    await finish(inside, "over")
    inside.clock.advance(TOMBSTONE_MS / 1000 + 1)
    await inside.settle()
    setattr(inside.server, fault, 1)
    await inside.turns(2)
    inside.clock.advance(TOMBSTONE_MS / 1000 + 1)
    await inside.turns(2)
    assert (await latest(inside, "over")).state == "tombstone"
    assert inside.dispatcher.state.jobs == {}


@pytest.mark.parametrize("snapshots", [True, False], ids=["without snapshot", "with old snapshot"])
async def test_a_cancelled_job_stays_so_when_only_the_latest_facts_are_kept(inside: Cell, *, snapshots: bool) -> None:
    await inside.submit(a_job("full", chips=8), a_job("waits", chips=8, uid="one"))
    await inside.turns(3)
    await inside.dispatcher.snapshots.write()  # holds the job that waits
    await inside.cancel("waits")
    await inside.turns(3)
    inside.clock.advance(TOMBSTONE_MS / 1000 + 1)
    await inside.turns(3)
    await inside.submit(a_job("waits", chips=8, uid="two"))
    await inside.turns(3)
    await inside.cancel("waits")
    await inside.turns(3)
    inside.clock.advance(TOMBSTONE_MS / 1000 + 1)
    await inside.turns(3)
    assert (await latest(inside, "waits")).state == "tombstone"
    alive = inside.dispatcher.state
    await forget_history(inside, snapshots=snapshots)
    state = await started(inside)
    assert state.intake_seq == alive.intake_seq
    assert set(state.jobs) == set(alive.jobs) == {("default", "full")}
    await inside.dispatcher.stop()
    await inside.start_dispatcher()
    await inside.turns(3)
    assert set(inside.dispatcher.state.fold.holdings) == {("uid-full", 1)}
    assert set(inside.dispatcher.state.jobs) == {("default", "full")}


async def test_gangs_are_forgotten_alike_whichever_comes_first_facts_or_records(inside: Cell) -> None:
    await inside.submit(*(a_job(f"job-{number}") for number in range(3)))
    await inside.turns(3)
    for number in range(3):
        await finish(inside, f"job-{number}")
    inside.clock.advance(TOMBSTONE_MS / 1000 + 1)
    await inside.turns(3)
    alive = inside.dispatcher.state
    assert alive.fold.gangs == {}
    stream = inside.server.stream(inside.user.subjects.stream(StreamName.SNAPSHOT))
    for sequence in list(stream.messages):
        stream.remove(sequence)
    assert (await started(inside)).fold.gangs == {}


class FirstAppendFails(NatsBus):
    """A connection that is lost just as the first epoch is to begin."""

    refused = 0

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        if not self.refused:
            self.refused += 1
            raise TransientError("not connected; nothing was sent")
        return await super().append(data, expected_seq=expected_seq, timeout_s=timeout_s)


async def test_a_reign_that_cannot_begin_is_begun_later_by_the_same_process(nats_server: str, cell: str) -> None:
    stop = asyncio.Event()
    config = DispatcherConfig(lease_s=1, tick_s=0.05, bus=BusConfig(url=nats_server, cell=cell))
    async with await FirstAppendFails.connect(nats_server, cell, name="dispatcher") as bus:
        assert isinstance(bus, FirstAppendFails)
        async with asyncio.TaskGroup() as group:
            group.create_task(serve(bus, SystemClock(), config, Instruments.make(DispatcherMetrics), stop))

            async def has_begun() -> bool:
                with contextlib.suppress(TransientError):  # a busy server may answer late
                    return bool(bus.refused) and (await bus.state(StreamName.LEDGER)).last_seq > 0
                return False

            await until_true(has_begun, deadline_s=20, what="a first record")
            stop.set()
        assert bus.refused == 1


class SnapshotMeanwhile(FakeBus):
    """A bus of a reader who starts just as the dispatcher writes a snapshot."""

    cell: Cell

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        if stream is StreamName.SNAPSHOT:
            await self.cell.submit(a_job(f"job-{len(self.cell.dispatcher.state.jobs)}"))
            await self.cell.turns(3)
            await self.cell.dispatcher.snapshots.write()
        return await super().read(stream, start_seq=start_seq, filters=filters)


async def test_a_snapshot_written_while_a_reader_starts_is_not_ahead_of_the_bus(inside: Cell) -> None:
    bus = SnapshotMeanwhile(inside.server, inside.cell)
    bus.cell = inside
    state = State()
    feeds = Feeds(bus, inside.clock, state)
    await feeds.start()
    assert state.jobs
    await feeds.stop()


class Bindings(FactlessCluster):
    """A cluster that notes what is asked of it."""

    def __init__(self) -> None:
        self.bound: list[str] = []
        self.evicted: list[str] = []

    async def bind(self, gang: Gang) -> BindResult:
        self.bound.append(gang.name)
        return BindResult(gang.placement.pods())

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        assert manner == "plain"
        del reason
        self.evicted.append(gang.name)


async def test_a_binder_that_starts_late_knows_placements_whose_records_are_pruned(inside: Cell) -> None:
    await inside.submit(a_job("new"), a_job("unwanted"))
    await inside.turns(3)
    await inside.cancel("unwanted")
    await inside.turns(3)
    await forget_history(inside, snapshots=False)
    await inside.dispatcher.snapshots.write()
    placed = [holding.ledger_seq for holding in inside.dispatcher.state.fold.holdings.values()]
    assert (await inside.user.state(StreamName.LEDGER)).first_seq > max(placed)
    cluster, stop = Bindings(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            bind_on(cluster, inside.user, inside.clock, BinderConfig(), Instruments.make(BinderMetrics), stop)
        )
        await until(lambda: cluster.bound and cluster.evicted, deadline_s=5, what="a binding and an eviction")
        await inside.turns(3)
        stop.set()
    assert (cluster.bound, cluster.evicted) == (["new"], ["unwanted"])
