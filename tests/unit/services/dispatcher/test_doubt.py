"""What the dispatcher does about messages that may or may not be stored, and about those of others between its own."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.stored_snapshots import snapshot_ends
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, PodPhase, TimerSeen
from berth.schemas.subjects import StreamName
from berth.services.dispatcher import snapshots as snapshots_module
from berth.services.dispatcher.config import DecisionConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.standby import FencedError
from berth.services.dispatcher.views import Views
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import PickyServer

VOID = encode(TimerSeen(0))
"""A message that is no record of the ledger."""


async def phase(cell: Cell, name: str) -> str:
    status = await cell.status(name)
    return status.phase if status is not None else ""


async def judged(cell: Cell) -> list[int]:
    """INTAKE sequences of the verdicts in the facts."""
    prefix = cell.user.subjects.facts("job").removesuffix(">")
    facts = await cell.user.read(StreamName.FACTS)
    return [decode(stored.data, JobSeen).intake_seq for stored in facts if stored.subject.startswith(prefix)]


async def snapshots(cell: Cell) -> list[tuple[int, int]]:
    return [(end.ledger_seq, end.facts_seq) for end in await snapshot_ends(cell.user)]


async def accepted(cell: Cell, name: str) -> None:
    """A job whose verdict has been received, and of which no round has been decided."""
    await cell.submit(a_job(name, chips=8))
    await cell.settle()
    await cell.dispatcher.intake.step(cell.dispatcher.state.fold.settings, batch_max=10)
    await cell.settle()


# Records.


async def test_a_record_that_another_one_kept_out_is_decided_again() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await accepted(cell, "job")
    await cell.user.publish(cell.user.subjects.ledger, VOID)  # stored, and not received yet
    assert not await cell.dispatcher.turn()
    assert not cell.dispatcher.state.fold.holdings
    await cell.settle()
    assert await cell.dispatcher.turn()
    assert list(cell.dispatcher.state.fold.holdings) == [("uid-job", 1)]
    await cell.close()


async def test_a_record_that_was_not_stored_is_sent_again_in_the_same_turn() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await accepted(cell, "job")
    cell.server.lose_messages = 1
    assert await cell.dispatcher.turn()
    assert list(cell.dispatcher.state.fold.holdings) == [("uid-job", 1)]
    await cell.close()


async def test_a_dispatcher_decides_nothing_once_another_has_begun_an_epoch() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    first = cell.dispatcher
    await cell.start_dispatcher()
    await accepted(cell, "job")
    head = len(await cell.ledger())
    with pytest.raises(FencedError):
        await first.turn()
    assert len(await cell.ledger()) == head
    await first.stop()
    await cell.close()


async def test_gangs_whose_offers_could_not_be_asked_for_are_decided_later() -> None:
    cell = await Cell(shards=1).open()
    await cell.nodes([a_node("a")])
    await accepted(cell, "job")
    cell.server.is_down = True
    with pytest.raises(TransientError):
        await cell.dispatcher.turn()
    cell.server.is_down = False
    await cell.turns(2)
    assert await phase(cell, "job") == "placed"
    await cell.close()


# Verdicts.


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(
            "lose_messages", [2, 1, 2, 3, 4], id="lost"
        ),  # the next verdict was on its way before the loss showed
        pytest.param(
            "lose_answers", [1, 2, 3, 4], id="unanswered"
        ),  # that the second is stored shows before the restart
    ],
)
async def test_after_a_doubt_the_requests_behind_it_are_judged_once_it_is_over(fault: str, expected: list[int]) -> None:
    cell = await Cell().open()
    await cell.submit(*(a_job(f"job{number}") for number in range(4)))
    await cell.settle()
    setattr(cell.server, fault, 1)
    await cell.dispatcher.turn()
    await cell.turns(4)
    assert await judged(cell) == expected
    await cell.close()


async def test_a_cancelling_whose_verdict_was_lost_is_judged_again_as_if_nothing_had_been_said() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("job"))
    await cell.turns(2)
    await cell.cancel("job")
    await cell.settle()
    cell.server.lose_messages = 1
    await cell.dispatcher.turn()
    await cell.turns(4)
    assert await phase(cell, "job") == "cancelled"
    await cell.close()


async def test_a_cancelling_whose_verdict_no_message_can_hold_stops_nobody() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    await cell.cancel("job")
    await cell.settle()
    limit, cell.server.payload_limit_bytes = cell.server.payload_limit_bytes, 10
    await cell.dispatcher.intake.step(cell.dispatcher.state.fold.settings, batch_max=10)
    cell.server.payload_limit_bytes = limit
    await cell.nodes([a_node("a")])
    await cell.turns(3)
    assert await cell.dead() == [cell.user.subjects.dead(StreamName.INTAKE, 2)]
    assert await phase(cell, "job") == "placed"
    await cell.close()


async def test_requests_that_went_by_age_before_they_were_judged_stop_nobody() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("first"))
    await cell.turns(2)
    await cell.dispatcher.stop()
    await cell.submit(a_job("went"))
    ages = {spec.name: spec.max_age_s for spec in cell.user.subjects.streams()}
    cell.clock.advance(ages[StreamName.INTAKE] + 1)
    await cell.submit(a_job("late"))
    await cell.start_dispatcher()
    await cell.turns(2)
    assert (await phase(cell, "late"), await phase(cell, "went")) == ("waiting", "")
    await cell.close()


async def test_the_first_of_two_verdicts_on_a_name_does_not_hide_the_second() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("job"))
    await cell.cancel("job")
    await cell.settle()
    await cell.dispatcher.turn()  # judges both, and has received the first verdict only
    assert cell.dispatcher.state.intake_seq == 1
    assert cell.dispatcher.intake.has_sent(("default", "job"))
    await cell.submit(a_job("job", uid="uid-second"))
    await cell.turns(3)
    assert cell.dispatcher.state.jobs["default", "job"].uid == "uid-second"
    assert await phase(cell, "job") == "waiting"
    await cell.close()


# Statuses and tombstones.


async def over(cell: Cell) -> None:
    """A job that has succeeded."""
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    await cell.pods("job", PodPhase.SUCCEEDED)
    await cell.turns(2)
    assert await phase(cell, "job") == "succeeded"


async def test_a_job_that_is_over_keeps_its_name_until_the_time_has_passed() -> None:
    cell = await Cell(tombstone_after_ms=10_000).open()
    await over(cell)
    cell.clock.advance(9.999)
    await cell.turns(2)
    assert ("default", "job") in cell.dispatcher.state.jobs
    cell.clock.advance(1)
    await cell.turns(2)
    assert ("default", "job") not in cell.dispatcher.state.jobs
    await cell.close()


async def test_a_name_is_not_given_up_while_a_verdict_on_it_is_on_its_way() -> None:
    cell = await Cell(tombstone_after_ms=10_000).open()
    await over(cell)
    cell.clock.advance(20)
    await cell.submit(a_job("job", chips=8, uid="uid-second"))
    await cell.turns(4)
    stored = await cell.user.last(StreamName.LATEST, cell.user.subjects.fact_job("default", "job"))
    assert stored is not None
    assert decode(stored.data, JobSeen).state == "accepted"
    assert await phase(cell, "job") == "placed"
    await cell.close()


async def test_a_status_that_was_lost_is_written_again() -> None:
    server = PickyServer()
    cell = await Cell(server=server).open()
    await cell.nodes([a_node("a")])
    server.loses = ".status."
    await cell.submit(a_job("job", chips=8))
    await cell.turns(3)
    assert await phase(cell, "job") == ""
    server.loses = ""
    await cell.turns()
    assert await phase(cell, "job") == "placed"
    await cell.close()


class NoBatches(FakeBus):
    """Refuses every batch of more than one message, as a server does when one of them is too large."""

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        if len(messages) == 1:
            return await super().submit_batch(messages)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(PoisonError("one of them is too large"))
        return future


async def test_statuses_that_cannot_be_written_together_are_written_one_by_one() -> None:
    cell = await Cell().open()
    names = ("first", "second", "third")
    for name in names:
        await accepted(cell, name)
    cell.dispatcher._apply_facts()
    bus = NoBatches(cell.server, cell.cell)
    cell.buses.append(bus)
    views = Views(bus, cell.clock, cell.dispatcher.state, Instruments.make(DispatcherMetrics))
    views.all_jobs()
    await views.publish()
    await cell.settle()
    written = [await phase(cell, name) for name in names]
    assert written == ["waiting", "waiting", "waiting"]
    await cell.close()


# Snapshots.


async def a_cell_of_many_snapshots() -> Cell:
    cell = Cell()
    cell.config = msgspec.structs.replace(cell.config, snapshot_records=10)
    return await cell.open()


async def void_records(cell: Cell, count: int) -> None:
    for _ in range(count):
        await cell.user.publish(cell.user.subjects.ledger, VOID)


async def test_a_snapshot_is_written_after_so_many_records_and_not_before() -> None:
    cell = await a_cell_of_many_snapshots()
    assert await snapshots(cell) == [(1, 0)]
    await void_records(cell, 9)
    await cell.turns()
    assert await snapshots(cell) == [(1, 0)]
    await void_records(cell, 1)
    await cell.turns()
    assert await snapshots(cell) == [(1, 0), (11, 0)]
    await cell.close()


async def test_facts_alone_do_not_write_over_the_snapshot_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots_module, "FACTS_MAX", 10)
    cell = await a_cell_of_many_snapshots()
    for number in range(12):
        await cell.nodes([a_node(f"n{number}", leaf=f"leaf{number}")])
    await cell.turns()
    assert await snapshots(cell) == [(1, 0)]
    await void_records(cell, 1)
    await cell.turns()
    assert await snapshots(cell) == [(1, 0), (2, 12)]
    await cell.close()


async def test_the_ledger_is_kept_from_the_oldest_kept_snapshot_on() -> None:
    cell = await a_cell_of_many_snapshots()
    for number in range(3):
        await void_records(cell, 10)
        await cell.turns()
        await cell.nodes([a_node(f"n{number}", leaf=f"leaf{number}")])
    assert await snapshots(cell) == [(1, 0), (11, 0), (21, 1), (31, 2)]
    assert (await cell.user.state(StreamName.LEDGER)).first_seq == 1  # the server may not have synced the snapshots
    await cell.user.purge(StreamName.SNAPSHOT, subject=cell.user.subjects.snapshot_all(1))  # as after a power loss
    await void_records(cell, 10)
    await cell.turns()
    assert (await cell.user.state(StreamName.LEDGER)).first_seq == 1
    cell.clock.advance(cell.config.snapshot_synced_s)
    await void_records(cell, 10)
    await cell.turns()
    assert (await cell.user.state(StreamName.LEDGER)).first_seq == 11
    await cell.close()


async def test_a_snapshot_of_which_a_chunk_was_lost_has_no_end() -> None:
    server = PickyServer()
    cell = await Cell(server=server).open()
    await void_records(cell, 3)
    await cell.turns()
    before = await snapshots(cell)
    head = cell.dispatcher.state.fold.head
    server.loses = cell.user.subjects.snapshot_chunk(head, 0)
    await cell.dispatcher.snapshots.write()
    assert await snapshots(cell) == before
    server.loses = ""
    await cell.dispatcher.snapshots.write()
    assert (await snapshots(cell))[-1] == (head, 0)
    await cell.close()


async def chunks_of(cell: Cell, record: int) -> int:
    return len(await cell.user.read(StreamName.SNAPSHOT, filters=[cell.user.subjects.snapshot_all(record)]))


async def next_snapshot(cell: Cell) -> None:
    await void_records(cell, 10)
    await cell.turns()


async def test_chunks_of_snapshots_that_never_got_an_end_are_removed_once_nobody_can_be_writing_them() -> None:
    cell = await a_cell_of_many_snapshots()
    subjects = cell.user.subjects
    for number in range(2):  # an earlier leader was killed
        await cell.user.publish(subjects.snapshot_chunk(5, number), b"x")
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await next_snapshot(cell)
    assert await chunks_of(cell, 5) == 2, "its leader may live"
    cell.clock.advance(cell.config.snapshot_synced_s)
    await cell.user.publish(subjects.snapshot_chunk(8, 0), b"x")  # a rival begins now
    await next_snapshot(cell)
    assert (await chunks_of(cell, 5), await chunks_of(cell, 8)) == (0, 1)
    assert [await chunks_of(cell, record) for record, _ in await snapshots(cell)] == [2, 2]
    await cell.close()


async def test_chunks_of_an_own_snapshot_that_failed_are_removed() -> None:
    server = PickyServer()
    cell = Cell(server=server)
    cell.config = msgspec.structs.replace(cell.config, snapshot_records=10)
    await cell.open()
    await next_snapshot(cell)
    server.loses = ".end"
    await next_snapshot(cell)
    failed = cell.dispatcher.state.fold.head
    assert await chunks_of(cell, failed) == 1
    server.loses = ""
    for expected in (1, 0):
        await next_snapshot(cell)
        assert await chunks_of(cell, failed) == expected
        cell.clock.advance(cell.config.snapshot_synced_s)
    await cell.close()


def test_not_all_nodes_of_a_superpod_can_be_kept_in_reserve() -> None:
    with pytest.raises(ValueError, match="expected fewer than super_pod_size"):
        DecisionConfig(super_pod_size=8, reserve_nodes=8)
    assert DecisionConfig(super_pod_size=8, reserve_nodes=7).to_settings().reserve_nodes == 7
