"""Check of snapshots: which of them services pass over, at which they end, and what the check keeps in memory."""

import tracemalloc
from collections.abc import AsyncIterator

import msgspec
import pytest

from berth.core.verification.findings import REPAIR, RESTORE
from berth.runtime.fsck.cell_repair import carry_out, plan_of
from berth.runtime.fsck.ledger_check import read_snapshots
from berth.runtime.stored_snapshots import chunks_of, newest_snapshot
from berth.schemas.chain import state_digest
from berth.schemas.envelope import DecodeError, encode
from berth.schemas.status import KeptFact, SnapshotBody
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.stored_cells import GARBAGE, change, checked, grown, heads, placed, stream

MIB = 1 << 20


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await grown("one", "two")
    await placed(made, a_job("three", chips=2))
    yield made
    await made.close()


async def store(cell: Cell, body: bytes, *, at: int) -> None:
    """Store a snapshot whose checksum is right."""
    bus = cell.user
    pieces, end = chunks_of(body, ledger_seq=at, facts_seq=1, size=MIB // 2, at_ms=0)
    for number, piece in enumerate(pieces):
        await bus.publish(bus.subjects.snapshot_chunk(at, number), piece)
    await bus.publish(bus.subjects.snapshot_end(at), encode(end))


def body_of(cell: Cell, *, at: int, ledger: bytes = b"") -> SnapshotBody:
    ledger = ledger or msgspec.msgpack.encode(cell.dispatcher.state.fold.dump())
    return SnapshotBody(at, 1, [], ledger, digest=state_digest([], ledger), fold_version=1)


@pytest.mark.parametrize("shift", [None, -1, 1], ids=["does not decode", "of another record", "of a later record"])
async def test_services_pass_over_a_snapshot_with_the_right_checksum_that_is_wrong(
    cell: Cell, shift: int | None
) -> None:
    head, newest = cell.dispatcher.state.fold.head, heads(cell)[-1]
    assert newest < head
    await store(cell, GARBAGE if shift is None else encode(body_of(cell, at=head + shift)), at=head)
    found = await newest_snapshot(cell.user)
    assert found is not None
    assert found.ledger_seq == newest
    (finding,) = (await checked(cell)).findings
    assert (finding.code, finding.sequence, finding.repair) == ("damaged-snapshot", head, REPAIR)
    assert finding.text.endswith("services start from an older one")
    await cell.dispatcher.stop()
    await cell.start_dispatcher()


async def test_a_snapshot_at_which_services_end_is_said_to_be_one_and_is_removed(cell: Cell) -> None:
    head, before = cell.dispatcher.state.fold.head, heads(cell)
    await store(cell, encode(body_of(cell, at=head, ledger=b"junk")), at=head)
    await cell.dispatcher.stop()
    with pytest.raises(DecodeError, match="the folded ledger does not decode"):
        await cell.start_dispatcher()
    (finding,) = (await checked(cell)).findings
    assert (finding.code, finding.sequence, finding.repair) == ("damaged-snapshot", head, REPAIR)
    assert finding.text.endswith("services end at it")
    await carry_out(cell.user, cell.clock, await plan_of(cell.user, cell.clock, by="me"), by="me")
    assert heads(cell) == before
    await cell.start_dispatcher()
    assert cell.dispatcher.state.fold.head == head + 1


async def test_a_cell_with_no_other_start_than_a_snapshot_that_does_not_decode_needs_a_restore(cell: Cell) -> None:
    head = cell.dispatcher.state.fold.head
    await cell.dispatcher.stop()
    snapshots, ledger = stream(cell, StreamName.SNAPSHOT), stream(cell, StreamName.LEDGER)
    for sequence in list(snapshots.messages):
        snapshots.remove(sequence)
    await store(cell, encode(body_of(cell, at=head, ledger=b"junk")), at=head)
    ledger.purge(head + 1, None)
    found = [(one.code, one.repair) for one in (await checked(cell)).findings]
    assert ("damaged-snapshot", RESTORE) in found
    assert ("no-start", RESTORE) in found


async def test_one_snapshot_at_a_time_is_in_memory(cell: Cell) -> None:
    number, first = 24, cell.dispatcher.state.fold.head + 1
    for at in range(first, first + number):
        one = body_of(cell, at=at)
        facts = [KeptFact(cell.user.subjects.fact_node("a"), 1, bytes(MIB))]
        body = msgspec.structs.replace(one, facts=facts, digest=state_digest(facts, one.ledger))
        await store(cell, encode(body), at=at)
    tracemalloc.start()
    try:
        found = await read_snapshots(cell.user)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len([one for one in found.whole if one.ledger_seq >= first]) == number
    assert (kept < 3 * MIB, most < 12 * MIB) == (True, True), (kept, most)


async def test_a_check_that_needs_two_snapshots_begins_with_each_as_it_is_stored() -> None:
    """A record that places a gang which waits in the first one is folded twice."""
    cell = await Cell().open()
    nodes = [a_node(name) for name in "abc"]
    await cell.nodes(nodes[:1])
    await placed(cell, a_job("one", chips=8))
    await placed(cell, a_job("two", chips=8))
    await cell.dispatcher.snapshots.write()
    first = cell.dispatcher.state.fold.head
    await cell.nodes(nodes[:2])
    await cell.turns(3)
    await cell.nodes(nodes)
    await placed(cell, a_job("three", chips=8))
    await cell.dispatcher.snapshots.write()
    last = cell.dispatcher.state.fold.head
    assert len(cell.dispatcher.state.fold.holdings) == 3
    await cell.nodes([*nodes, a_node("d")])
    await placed(cell, a_job("four", chips=8))
    stream(cell, StreamName.LEDGER).purge(first + 1, None)
    change(cell, StreamName.LEDGER, last, GARBAGE)
    assert [
        (one.code, one.where, one.sequence, one.last_seq, one.repair) for one in (await checked(cell)).findings
    ] == [
        ("foreign-message", "LEDGER", last, last, ""),
        ("changed-records", "LEDGER", first + 1, last, ""),
    ]
    await cell.close()
