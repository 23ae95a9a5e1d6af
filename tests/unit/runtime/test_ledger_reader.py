"""Readers of the ledger: skips in place of what is passed over, and an end where messages are missing."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from berth.runtime.bus.port import Gap, GapReason, Stored
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.feeds import Feeds
from berth.runtime.history import state_now
from berth.runtime.ledger_reader import Skips, follow_ledger, stored_digest
from berth.runtime.ledger_repair import RepairError, find, repair
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Round, Settings
from berth.schemas.status import LeaseHeld, Skip
from berth.schemas.subjects import StreamName
from berth.schemas.versions import encode_record
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus

GARBAGE = b"\xff no message"


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await Cell().open()
    await made.nodes([a_node("a")])
    await made.submit(a_job("job", chips=4))
    await made.turns(3)
    await made.dispatcher.stop()
    yield made
    await made.close()


def remove(cell: Cell, *sequences: int) -> None:
    stream = cell.server.stream(cell.user.subjects.stream(StreamName.LEDGER))
    for sequence in sequences:
        stream.remove(sequence)


def remove_snapshots(cell: Cell) -> None:
    stream = cell.server.stream(cell.user.subjects.stream(StreamName.SNAPSHOT))
    for sequence in range(1, stream.last_seq + 1):
        stream.remove(sequence)


async def append(bus: FakeBus, *messages: bytes) -> int:
    """Append messages; returns the sequence of the first."""
    head = (await bus.state(StreamName.LEDGER)).last_seq
    for number, message in enumerate(messages):
        await bus.append(message, expected_seq=head + number)
    return head + 1


async def skip(bus: FakeBus, one: Skip) -> bytes:
    await bus.publish(bus.subjects.skip(one.sequence), encode(one))
    return encode(one)


async def read(bus: FakeBus, start: int) -> tuple[list[tuple[int, bytes]], list[Gap], int]:
    """What a follower delivers from a sequence on, its gaps, and how far it is."""
    found: list[Stored] = []
    gaps: list[Gap] = []
    follower = await follow_ledger(
        bus, await bus.state(StreamName.LEDGER), on_message=found.append, on_gap=gaps.append, start_seq=start
    )
    if not gaps:
        async with asyncio.timeout(5):
            await follower.caught_up.wait()
    await follower.stop()
    return [(one.sequence, one.data) for one in found], gaps, follower.applied


async def test_a_skip_takes_the_place_of_the_bytes_that_it_names(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE, b"other")
    skipped = await skip(bus, Skip(first, first, stored_digest(GARBAGE)))
    assert await read(bus, first) == ([(first, skipped), (first + 1, b"other")], [], first + 1)


async def test_a_skip_of_other_bytes_counts_for_nothing() -> None:
    skips = Skips([Skip(7, 7, stored_digest(GARBAGE)), Skip(9, 9)])
    assert skips.over(7, b"what the stream that was made anew has there") is None
    assert skips.over(9, b"as before") is None
    assert skips.over(7, GARBAGE) is not None
    assert skips.over(8, None) is None


@pytest.mark.parametrize("gone", [(0,), (1,), (0, 1), (2,), (1, 2), (0, 1, 2)])
async def test_deleted_messages_are_read_through_their_skip_alone(cell: Cell, gone: Sequence[int]) -> None:
    bus = cell.user
    first = await append(bus, b"0", b"1", b"2")
    sequences = [first + one for one in gone]
    remove(cell, *sequences)
    _, gaps, applied = await read(bus, first)
    assert [(gap.reason, gap.wanted) for gap in gaps] == [(GapReason.DELETED, sequences[0])]
    assert applied == sequences[0] - 1
    skipped = await skip(bus, Skip(sequences[0], sequences[-1]))
    found, gaps, applied = await read(bus, first)
    wanted = [(first + one, skipped if one in gone else b"%d" % one) for one in range(3)]
    assert (found, gaps, applied) == (wanted, [], first + 2)


async def test_a_wait_for_a_deleted_message_ends_with_the_command(cell: Cell) -> None:
    bus = cell.user
    feeds = Feeds(bus, cell.clock, cell.dispatcher.state)
    head = cell.dispatcher.state.fold.head
    await feeds.records.start_ledger(bus, await bus.state(StreamName.LEDGER), start_seq=head + 1)
    with pytest.raises(TransientError, match=f"sequence {head + 1} not received"):
        await feeds.reach_record(head + 1, timeout_s=0.01)
    bus.server.stream(bus.subjects.stream(StreamName.LEDGER)).last_seq += 1  # stored and deleted before it was read
    with pytest.raises(FatalError, match=f"sequence {head + 1} was next.*") as caught:
        await feeds.reach_record(head + 1, timeout_s=0.01)
    assert "berth repair" in str(caught.value)
    await feeds.stop()


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
    assert (await state_now(bus, cell.clock)).fold.head == first + 1
    await cell.start_dispatcher()
    assert cell.dispatcher.state.fold.head > first + 1


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
    assert lease is not None
    assert decode(lease.data, LeaseHeld).holder == ""


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


async def two_epochs(**decisions: object) -> tuple[Cell, int]:
    """A cell whose second leader placed a job; and the record of its epoch, behind the only snapshot."""
    cell = await Cell(**decisions).open()
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
    """Without the chain these rounds are void as those of a past epoch are, and their chips would be given again."""
    cell, epoch = await two_epochs(chain=0)
    remove(cell, epoch)
    with pytest.raises(RepairError, match=f"record {epoch + 1} does not follow without record {epoch}: .*restore"):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_a_deleted_epoch_that_enables_the_chain_is_not_skipped_if_rounds_are_of_it() -> None:
    cell, epoch = await two_epochs(chain=1)
    remove_snapshots(cell)
    remove(cell, *range(1, epoch + 1))
    with pytest.raises(
        RepairError, match=f"record {epoch + 1} does not follow without records 1 to {epoch}: .*restore"
    ):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


@pytest.mark.parametrize("chain", [0, 1])
async def test_a_ledger_without_its_beginning_and_without_a_snapshot_is_not_skipped(chain: int) -> None:
    cell, epoch = await two_epochs(chain=chain)
    remove_snapshots(cell)
    remove(cell, *range(1, epoch))
    with pytest.raises(RepairError, match=f"record {epoch} does not follow without .*restore"):
        await find(cell.user, cell.clock, by="me")
    await cell.close()


async def test_a_deleted_message_that_a_later_leader_passed_over_is_skipped_whatever_else_was_void(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    foreign = await append(bus, encode_record(Round(1, first, 0, 0, 9), Settings(chain=1), sequence=first + 1))
    await cell.start_dispatcher()  # it passes over both
    await cell.dispatcher.stop()
    remove(cell, first)
    await append(bus, encode_record(Round(1, first, 0, 0, 9), Settings(chain=1), sequence=foreign + 1))
    found = await find(bus, cell.clock, by="me")
    assert [(one.sequence, one.last_seq) for one in found.skips] == [(first, first)]


async def test_a_deleted_message_before_one_that_may_follow_it_is_not_skipped(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    await append(bus, encode_record(Round(1, first, 0, 0, 9), Settings(chain=1), sequence=first + 1))
    remove(cell, first)
    with pytest.raises(RepairError, match=f"record {first + 1} does not follow without record {first}"):
        await find(bus, cell.clock, by="me")
