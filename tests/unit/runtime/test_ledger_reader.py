"""Readers of the ledger: skips in place of what is passed over, and an end where messages are missing."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from berth.runtime.bus.port import Gap, GapReason, Stored
from berth.runtime.bus.signatures import Signatures
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.feeds import Feeds
from berth.runtime.fsck.ledger_repair import find
from berth.runtime.ledger_reader import LedgerFollower, Skips, follow_ledger, skip_of
from berth.schemas.chain import encode_record, stored_digest
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.status import Skip
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.signing_keys import Signer, signer
from tests.support.stored_cells import GARBAGE, append, at_rest, remove
from tests.support.waiting import SLACK


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await at_rest()
    yield made
    await made.close()


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
        async with asyncio.timeout(5 * SLACK):
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


async def test_a_skip_that_comes_before_its_message_takes_its_place(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that was paused for long may see the skip first; it then reads what one that starts later reads."""
    bus = cell.user
    first = await append(bus, b"0")
    found: list[Stored] = []
    gaps: list[Gap] = []
    with monkeypatch.context() as patched:
        patched.setattr(LedgerFollower, "start", lambda *_: None)
        follower = await follow_ledger(
            bus, await bus.state(StreamName.LEDGER), on_message=found.append, on_gap=gaps.append, start_seq=first
        )
    await append(bus, GARBAGE, b"2")
    skipped = await skip(bus, Skip(first + 1, first + 1, stored_digest(GARBAGE)))
    await cell.settle()
    follower.start(bus)
    async with asyncio.timeout(5 * SLACK):
        await follower.caught_up.wait()
    await follower.stop()
    assert ([one.data for one in found], gaps) == ([b"0", skipped, b"2"], [])


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


@pytest.mark.parametrize("was_void", [False, True])
async def test_a_reader_ends_if_what_it_has_read_is_skipped_and_was_not_void(cell: Cell, *, was_void: bool) -> None:
    bus = cell.user
    first = await append(bus, b"0", b"1")
    gaps: list[Gap] = []
    follower = await follow_ledger(
        bus, await bus.state(StreamName.LEDGER), on_message=lambda _: None, on_gap=gaps.append, start_seq=first
    )
    async with asyncio.timeout(5 * SLACK):
        await follower.caught_up.wait()
    await skip(bus, Skip(first, first, stored_digest(b"0"), was_void=was_void))
    await cell.settle()
    await follower.stop()
    wanted = [] if was_void else [(GapReason.REPAIRED, first)]
    assert [(gap.reason, gap.wanted) for gap in gaps] == wanted


async def test_nobody_reads_the_ledger_while_skips_do_not_answer(cell: Cell) -> None:
    """After a power loss streams get their leaders one after the other: no answer does not say that there are none."""
    bus = cell.user
    first = await append(bus, GARBAGE)
    skipped = await skip(bus, Skip(first, first, stored_digest(GARBAGE)))
    bus.server.leaderless.add(bus.subjects.stream(StreamName.SKIPS))
    feeds = Feeds(bus, cell.clock, cell.dispatcher.state)
    with pytest.raises(TransientError, match="no leader"):
        await feeds.records.start_ledger(bus, await bus.state(StreamName.LEDGER), start_seq=first)
    with pytest.raises(TransientError, match="no leader"):
        await find(bus, cell.clock, by="me")
    bus.server.leaderless.clear()
    assert await read(bus, first) == ([(first, skipped)], [], first)


async def test_a_reader_of_a_cell_without_skips_sees_those_that_come_later(cell: Cell) -> None:
    """A cell has no stream of them until a process makes it."""
    bus = cell.user
    first = await append(bus, b"0", b"1")
    await bus.delete_stream(StreamName.SKIPS)
    gaps: list[Gap] = []
    follower = await follow_ledger(
        bus, await bus.state(StreamName.LEDGER), on_message=lambda _: None, on_gap=gaps.append, start_seq=first
    )
    async with asyncio.timeout(5 * SLACK):
        await follower.caught_up.wait()
    await follower.reread_skips(bus)
    await bus.ensure_streams()
    await skip(bus, Skip(first, first, stored_digest(b"0")))
    await cell.settle()
    await follower.stop()
    assert [(gap.reason, gap.wanted) for gap in gaps] == [(GapReason.REPAIRED, first)]


async def test_a_process_that_knew_skips_does_not_go_on_without_their_stream(cell: Cell) -> None:
    bus = cell.user
    follower = await follow_ledger(
        bus, await bus.state(StreamName.LEDGER), on_message=lambda _: None, on_gap=lambda _: None, start_seq=1
    )
    await bus.delete_stream(StreamName.SKIPS)
    with pytest.raises(TransientError, match="SKIPS was deleted"):
        await follower.reread_skips(bus)
    await follower.stop()


LEADER, FORGER, READER = signer(1), signer(2), signer(3)


async def signed(by: Signer | None) -> tuple[FakeBus, FakeBus]:
    """A ledger with an epoch of a leader with or without a key, and then three messages of a forger."""
    server = FakeServer(ManualClock())
    leader, forger = FakeBus(server, "cell"), FakeBus(server, "cell")
    await leader.ensure_streams()
    leader.signatures = by.knowing() if by is not None else leader.signatures
    forger.signatures = FORGER.knowing()
    epoch = encode_record(Epoch(1, 0, 0, 1, "a", Settings()), sequence=1)
    await append(leader, epoch)
    await append(forger, *[encode_record(Epoch(9, 1, 0, 1, "f", Settings()), sequence=2)] * 3)
    leader.signatures = READER.alone_knowing(LEADER)
    return leader, forger


@pytest.mark.parametrize("start", [1, 2, 4, 5])
async def test_a_reader_knows_from_what_is_before_its_start_that_records_are_signed(start: int) -> None:
    bus, forger = await signed(LEADER)
    await append(forger, encode_record(Epoch(9, 4, 0, 1, "f", Settings()), sequence=5))
    found, gaps, applied = await read(bus, start)
    assert (gaps, applied) == ([], 5)
    assert [skip_of(data) is not None for sequence, data in found if sequence > 1] == [True] * (6 - max(start, 2))
    await bus.close()
    await forger.close()


async def test_a_reader_starts_although_the_message_before_its_start_was_deleted() -> None:
    bus, forger = await signed(LEADER)
    bus.server.stream(bus.subjects.stream(StreamName.LEDGER)).remove(4)
    found, gaps, _ = await read(bus, 5)
    assert (found, gaps) == ([], [])
    await bus.close()
    await forger.close()


@pytest.mark.parametrize("start", [1, 2, 5])
async def test_a_ledger_that_nobody_signed_is_read_as_it_is(start: int) -> None:
    bus, forger = await signed(None)
    bus.signatures = READER.alone_knowing(LEADER)
    forger.signatures = Signatures()
    await append(forger, encode_record(Epoch(9, 4, 0, 1, "f", Settings()), sequence=5))
    found, _, _ = await read(bus, start)
    assert [sequence for sequence, _ in found] == list(range(start, 6))
    assert all(skip_of(data) is None for _, data in found)
    await bus.close()
    await forger.close()


async def test_a_skip_without_a_signature_is_none() -> None:
    bus, forger = await signed(LEADER)
    skip_ = Skip(1, 1, stored_digest((await bus.read(StreamName.LEDGER))[0].data))
    await forger.publish(forger.subjects.skip(1), encode(skip_))
    found, gaps, _ = await read(bus, 1)
    assert (gaps, skip_of(found[0][1])) == ([], None)
    await bus.close()
    await forger.close()
