"""What the dispatcher measures: waits of jobs, rounds, snapshots, epochs, missing shards, and refusing to lead."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from berth.runtime.instruments import Instruments
from berth.runtime.metrics import MetricsRegistry
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import LedgerSeen
from berth.schemas.ledger import Round
from berth.schemas.subjects import StreamName
from berth.services.binder.metrics import BinderMetrics
from berth.services.dispatcher.app import _Term
from berth.services.dispatcher.leadership import Standing
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.waiting import until


def value(cell: Cell, name: str, **labels: str) -> float:
    found = cell.instruments.registry.collectors.get_sample_value(f"berth_dispatcher_{name}", labels)
    assert found is not None, name
    return found


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await Cell().open()
    await made.nodes([a_node("node-0")])
    yield made
    await made.close()


async def test_the_wait_of_a_job_is_measured_once_from_its_acceptance(cell: Cell) -> None:
    await cell.submit(a_job("first", chips=8), a_job("second", chips=8))
    await cell.turns(3)
    assert value(cell, "admission_wait_time_seconds_count") == 1
    assert value(cell, "admission_wait_time_seconds_sum") == 0
    assert value(cell, "round_seconds_count") == value(cell, "rounds_total") >= 1
    cell.clock.advance(100)
    await cell.nodes([a_node("node-0"), a_node("node-1")])
    await cell.turns(3)
    assert value(cell, "admission_wait_time_seconds_count") == 2
    assert value(cell, "admission_wait_time_seconds_sum") == 100


async def test_the_age_of_the_oldest_waiting_job_follows_the_queue(cell: Cell) -> None:
    await cell.turns()
    assert value(cell, "oldest_waiting_seconds") == 0
    await cell.submit(a_job("large", chips=8, replicas=3))
    await cell.turns(2)
    cell.clock.advance(30)
    await cell.submit(a_job("late", chips=8, replicas=3))
    await cell.turns(2)
    cell.clock.advance(12)
    await cell.turns()
    assert value(cell, "oldest_waiting_seconds") == 42
    await cell.cancel("large")
    cell.clock.advance(15)
    await cell.turns(3)
    cell.clock.advance(15)
    await cell.turns()
    assert value(cell, "oldest_waiting_seconds") == 42


async def test_snapshots_are_counted_and_the_newest_is_known(cell: Cell) -> None:
    assert value(cell, "snapshots_total", result="written") == 1
    await cell.submit(a_job("first", chips=8))
    await cell.turns(2)
    await cell.dispatcher.snapshots.write()
    assert value(cell, "snapshots_total", result="written") == 2
    head = cell.dispatcher.state.fold.head
    assert value(cell, "snapshot_sequence") == head == value(cell, "ledger_sequence")

    cell.server.is_down = True
    await cell.dispatcher.snapshots.write()
    cell.server.is_down = False
    assert value(cell, "snapshots_total", result="failed") == 1
    assert value(cell, "snapshots_total", result="written") == 2


async def test_the_epoch_is_that_of_the_ledger(cell: Cell) -> None:
    assert value(cell, "epoch") == cell.dispatcher.epoch == 1
    first = cell.dispatcher
    await cell.start_dispatcher()
    assert value(cell, "epoch") == cell.dispatcher.epoch == 2
    await first.stop()


async def test_answers_of_shards_that_are_missing_are_counted() -> None:
    cell = Cell(shards=2)
    await cell.user.ensure_streams()
    await cell.start_dispatcher()
    await cell.start_shard(0)
    await cell.nodes([a_node("node-0")])
    await cell.submit(a_job("first", chips=8))
    await cell.turns(2)
    rounds = [one for one in map(open_envelope, await cell.ledger()) if one.kind == Round.KIND]
    missing = sum(len(body_of(one, Round).missing) for one in rounds)
    assert value(cell, "missing_offers_total") == missing >= 1
    await cell.close()


async def test_a_dispatcher_that_must_not_lead_says_so_until_it_may(cell: Cell) -> None:
    bus, ledger = FakeBus(cell.server, cell.cell), await cell.user.state(StreamName.LEDGER)
    cell.buses.append(bus)
    subject = cell.user.subjects.fact_ledger
    await cell.user.publish(subject, encode(LedgerSeen(ledger.created, 1, ledger.last_seq + 1)))
    await cell.settle()
    instruments, stop = Instruments.make(DispatcherMetrics), asyncio.Event()
    heir = Dispatcher(bus, cell.clock, cell.config, holder="heir", instruments=instruments)
    term = _Term(heir, Standing(cell.clock), instruments, asyncio.Event(), stop)

    def refuses() -> float | None:
        return instruments.registry.collectors.get_sample_value("berth_dispatcher_refuses_to_lead")

    async with asyncio.TaskGroup() as group:
        group.create_task(term.run())
        await until(lambda: refuses() == 1, deadline_s=10, what="it refuses")
        assert "newest records were lost" in instruments.readiness._service
        await cell.user.publish(subject, encode(LedgerSeen(ledger.created, 1, ledger.last_seq)))
        await until(lambda: refuses() == 0, deadline_s=10, what="it may lead")
        stop.set()
        heir.feeds.arrived.set()


def test_a_counter_begins_with_its_known_labels() -> None:
    registry = MetricsRegistry()
    BinderMetrics(registry)
    for outcome in ("bound", "failed", "evicted"):
        assert registry.collectors.get_sample_value("berth_binder_gangs_total", {"outcome": outcome}) == 0
