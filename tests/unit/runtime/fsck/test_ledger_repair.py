"""Repair of a ledger: what is skipped, what is not, and who goes on afterwards with which state."""

from collections.abc import AsyncIterator, Iterable

import pytest

from berth.runtime.errors import FatalError, TransientError
from berth.runtime.fsck.ledger_fence import Fence
from berth.runtime.fsck.ledger_repair import RepairError, find, repair
from berth.runtime.history import state_now
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Epoch, Round
from berth.schemas.status import Heartbeat, LeaseHeld, Skip
from berth.schemas.subjects import StreamName
from berth.schemas.versions import encode_record
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.stored_cells import GARBAGE, append, at_rest, remove


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await at_rest()
    yield made
    await made.close()


def remove_snapshots(cell: Cell) -> None:
    stream = cell.server.stream(cell.user.subjects.stream(StreamName.SNAPSHOT))
    for sequence in range(1, stream.last_seq + 1):
        stream.remove(sequence)


async def test_a_repair_finds_what_stops_readers_and_is_done_once(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE, GARBAGE)
    remove(cell, first, first + 1)
    with pytest.raises(FatalError):
        await state_now(bus, cell.clock)
    found = await find(bus, cell.clock, by="me")
    assert [(one.sequence, one.last_seq, one.digest) for one in found.skips] == [(first, first + 1, "")]
    assert (await bus.state(StreamName.SKIPS)).last_seq == 0
    after = await repair(bus, cell.clock, found, by="me")
    assert after.skips == []
    assert (await state_now(bus, cell.clock)).fold.head == first + 2
    await cell.start_dispatcher()
    assert cell.dispatcher.state.fold.head > first + 2


async def test_a_repair_that_finds_something_else_than_was_agreed_to_changes_nothing(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    remove(cell, first)
    found = await find(bus, cell.clock, by="me")
    remove(cell, await append(bus, GARBAGE))
    with pytest.raises(RepairError, match="not as it was found"):
        await repair(bus, cell.clock, found, by="me")
    assert (await bus.state(StreamName.SKIPS)).last_seq == 0
    lease = await bus.last(StreamName.LEASE, bus.subjects.lease("dispatcher"))
    assert lease is None or decode(lease.data, LeaseHeld).holder == ""


async def test_a_deleted_record_on_which_another_was_decided_is_not_skipped() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    heads = []
    for name in ("one", "two"):
        await cell.submit(a_job(name, chips=2))
        await cell.turns(3)
        heads.append(cell.dispatcher.state.fold.head)
    await cell.dispatcher.stop()
    remove(cell, heads[0])
    with pytest.raises(RepairError, match=f"does not follow without record {heads[0]}: .* berth restore"):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_a_deleted_record_of_which_a_job_has_its_status_is_not_skipped(cell: Cell) -> None:
    head = cell.dispatcher.state.fold.head
    remove(cell, head)
    with pytest.raises(RepairError, match=f"job default/job has a status by record {head}, which was deleted"):
        await find(cell.user, cell.clock, by="me")


async def two_epochs() -> tuple[Cell, int]:
    """A cell whose second leader placed a job; and the record of its epoch, behind the only snapshot."""
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.dispatcher.stop()
    epoch = (await cell.user.state(StreamName.LEDGER)).last_seq + 1
    await cell.start_dispatcher()
    await cell.submit(a_job("job", chips=2))
    await cell.turns(3)
    await cell.dispatcher.stop()
    assert cell.dispatcher.state.fold.head > epoch
    return cell, epoch


async def test_a_deleted_epoch_is_not_skipped_if_rounds_are_of_it() -> None:
    cell, epoch = await two_epochs()
    remove(cell, epoch)
    with pytest.raises(RepairError, match=f"record {epoch + 1} does not follow without record {epoch}: .*restore"):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_deleted_records_up_to_an_epoch_are_not_skipped_if_rounds_are_of_it() -> None:
    cell, epoch = await two_epochs()
    remove_snapshots(cell)
    remove(cell, *range(1, epoch + 1))
    with pytest.raises(
        RepairError, match=f"record {epoch + 1} does not follow without records 1 to {epoch}: .*restore"
    ):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_a_deleted_round_is_not_skipped_if_an_epoch_and_the_next_round_follow() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("one", chips=2))
    await cell.turns(3)
    await cell.dispatcher.stop()
    head = cell.dispatcher.state.fold.head
    await cell.start_dispatcher()
    await cell.submit(a_job("two", chips=2))
    await cell.turns(3)
    await cell.dispatcher.stop()
    assert cell.dispatcher.state.fold.head >= head + 2
    remove(cell, head)
    with pytest.raises(RepairError, match=f"does not follow without record {head}: .*restore"):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_a_ledger_without_its_beginning_and_without_a_snapshot_is_not_skipped() -> None:
    cell, epoch = await two_epochs()
    remove_snapshots(cell)
    remove(cell, *range(1, epoch))
    with pytest.raises(RepairError, match=f"record {epoch} does not follow without .*restore"):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_a_deleted_message_that_a_later_leader_passed_over_is_skipped_whatever_else_was_void(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    foreign = await append(bus, encode_record(Round(1, first, 0, 0, 9), sequence=first + 1))
    await cell.start_dispatcher()  # it passes over both
    await cell.dispatcher.stop()
    remove(cell, first)
    await append(bus, encode_record(Round(1, first, 0, 0, 9), sequence=foreign + 1))
    found = await find(bus, cell.clock, by="me")
    assert [(one.sequence, one.last_seq) for one in found.skips] == [(first, first)]


async def test_a_deleted_message_before_one_that_may_follow_it_is_not_skipped(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    await append(bus, encode_record(Round(1, first, 0, 0, 9), sequence=first + 1))
    remove(cell, first)
    with pytest.raises(RepairError, match=f"record {first + 1} does not follow without record {first}"):
        await find(bus, cell.clock, by="me")


async def unseen_epoch() -> tuple[Cell, int]:
    """A cell whose last record is an epoch that left no other trace and was deleted; its dispatcher has folded it."""
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job", chips=2))
    await cell.turns(3)
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    head = cell.dispatcher.state.fold.head
    assert cell.dispatcher.epoch == 2
    remove(cell, head)
    return cell, head


async def repaired(cell: Cell) -> list[tuple[int, int, bool]]:
    """Repair the ledger; returns what is skipped, and whether it was void."""
    found = await find(cell.user, cell.clock, by="me")
    assert (await repair(cell.user, cell.clock, found, by="me")).skips == []
    skips = [decode(stored.data, Skip) for stored in await cell.user.read(StreamName.SKIPS)]
    return [(skip.sequence, skip.last_seq, skip.was_void) for skip in skips]


async def see_one_state(cell: Cell) -> None:
    """A dispatcher that starts now goes on, and whoever reads the ledger comes to its state."""
    await cell.start_dispatcher()
    await cell.submit(a_job("next", chips=2))
    await cell.turns(3)
    now = await state_now(cell.user, cell.clock)
    assert {uid for uid, _ in now.fold.holdings} == {"uid-job", "uid-next"}
    assert now.fold.dump() == cell.dispatcher.state.fold.dump()
    assert (await find(cell.user, cell.clock, by="me")).skips == []


async def test_a_repair_begins_an_epoch_before_its_skips_that_is_greater_than_a_deleted_one() -> None:
    cell, head = await unseen_epoch()
    await cell.dispatcher.stop()
    assert await repaired(cell) == [(head, head, False)]
    stored = await cell.user.message(StreamName.LEDGER, head + 1)
    assert stored is not None
    epoch = decode(stored.data, Epoch)
    assert (epoch.epoch, epoch.base_seq, epoch.holder) == (3, head, "berth repair")
    await see_one_state(cell)
    assert cell.dispatcher.epoch == 4
    await cell.close()


async def test_a_leader_that_has_read_what_is_skipped_ends_and_appends_nothing_more() -> None:
    """It did not look at the lease, and on its ledger the epoch of the repair is void."""
    cell, head = await unseen_epoch()
    await repaired(cell)
    await cell.submit(a_job("late", chips=2))
    with pytest.raises(FatalError, match=f"berth repair passes over .*: sequence {head}$"):
        await cell.turns(3)
    assert (await cell.user.state(StreamName.LEDGER)).last_seq == head + 1
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns(3)
    assert {uid for uid, _ in cell.dispatcher.state.fold.holdings} == {"uid-job", "uid-late"}
    await cell.close()


async def test_a_standby_that_has_read_what_is_skipped_does_not_lead() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job", chips=2))
    await cell.turns(3)
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    head = cell.dispatcher.state.fold.head
    bus = FakeBus(cell.server, cell.cell)
    cell.buses.append(bus)
    standby = Dispatcher(
        bus, cell.clock, cell.config, holder="standby", instruments=Instruments.make(DispatcherMetrics)
    )
    await standby.load()
    await cell.settle()
    await cell.dispatcher.stop()
    remove(cell, head)
    await repaired(cell)
    with pytest.raises(FatalError, match=f"berth repair passes over .*: sequence {head}$"):
        await standby.lead()
    assert (await cell.user.state(StreamName.LEDGER)).last_seq == head + 1
    await standby.stop()
    await see_one_state(cell)
    await cell.close()


async def interrupted(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that ends between its epoch and its skips."""

    async def fail(_: FakeBus, __: Fence, skips: Iterable[Skip]) -> None:
        if list(skips):
            raise TransientError("away")

    head = (await cell.user.state(StreamName.LEDGER)).last_seq
    with monkeypatch.context() as patched:
        patched.setattr("berth.runtime.fsck.ledger_repair._store", fail)
        with pytest.raises(TransientError, match="away"):
            await repaired(cell)
    assert (await cell.user.state(StreamName.LEDGER)).last_seq == head + 1


async def test_a_repair_that_is_interrupted_before_its_skips_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, head = await unseen_epoch()
    await cell.dispatcher.stop()
    await interrupted(cell, monkeypatch)
    with pytest.raises(FatalError, match="berth repair"):
        await state_now(cell.user, cell.clock)
    assert await repaired(cell) == [(head, head, False)]
    await see_one_state(cell)
    await cell.close()


async def test_what_was_decided_after_an_interrupted_repair_on_what_it_skips_is_not_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dispatcher that has read the deleted epoch may lead again once the lease of the repair is free."""
    cell, head = await unseen_epoch()
    await interrupted(cell, monkeypatch)
    await cell.submit(a_job("late", chips=2))
    await cell.turns(3)
    assert {uid for uid, _ in cell.dispatcher.state.fold.holdings} == {"uid-job", "uid-late"}
    with pytest.raises(RepairError, match=f"does not follow without record {head}: .*restore"):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_a_repair_waits_until_the_leader_gives_way(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    await cell.start_dispatcher()  # it passes over it
    await append(bus, GARBAGE)
    remove(cell, first, first + 2)
    asked: list[tuple[str, int]] = []

    async def answer(_: bytes) -> bytes | None:
        lease = await bus.last(StreamName.LEASE, bus.subjects.lease("dispatcher"))
        assert lease is not None
        asked.append((decode(lease.data, LeaseHeld).holder, (await bus.state(StreamName.SKIPS)).last_seq))
        if len(asked) == 3:
            await served.stop()
        return encode(Heartbeat("leader"))

    served = await bus.serve(bus.subjects.heartbeat_question("dispatcher"), answer)
    assert await repaired(cell) == [(first, first, True), (first + 2, first + 2, False)]
    assert asked == [("berth repair", 1)] * 3, "what was void is skipped before, the rest after it"


async def test_a_repair_does_nothing_while_a_dispatcher_leads(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = cell.user
    remove(cell, await append(bus, GARBAGE))
    head = (await bus.state(StreamName.LEDGER)).last_seq

    async def answer(_: bytes) -> bytes | None:
        return encode(Heartbeat("the-leader"))

    served = await bus.serve(bus.subjects.heartbeat_question("dispatcher"), answer)
    monkeypatch.setattr("berth.runtime.fsck.ledger_fence._WAIT_S", 0.5)
    with pytest.raises(RepairError, match=r"a dispatcher, the-leader, still leads after 0\.5 s .* stop it"):
        await repaired(cell)
    await served.stop()
    assert (await bus.state(StreamName.SKIPS)).last_seq == 0
    assert (await bus.state(StreamName.LEDGER)).last_seq == head
    lease = await bus.last(StreamName.LEASE, bus.subjects.lease("dispatcher"))
    assert lease is not None
    assert decode(lease.data, LeaseHeld).holder == ""


async def test_a_record_that_is_appended_during_a_repair_prevents_it(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    remove(cell, first)
    added = bus.append

    async def later(data: bytes, *, expected_seq: int) -> int:
        await added(b"of a leader", expected_seq=expected_seq)
        return await added(data, expected_seq=expected_seq)

    with monkeypatch.context() as patched:
        patched.setattr(bus, "append", later)
        with pytest.raises(RepairError, match="another process wrote meanwhile"):
            await repaired(cell)
    assert (await bus.state(StreamName.SKIPS)).last_seq == 0
    assert (await bus.state(StreamName.LEDGER)).last_seq == first + 1
