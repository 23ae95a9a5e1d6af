"""Feeds: where a start begins, what it refuses, what is waited for, what is written down."""

import asyncio
import zlib

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.core.state.ledger import FOLD_VERSION
from berth.runtime.dead_letters.writing import dead_letter
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.history import state_at, state_now, verdict_on
from berth.runtime.stored_snapshots import newest_snapshot
from berth.schemas.chain import state_digest
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase
from berth.schemas.status import SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_server import PickyServer


async def grown(cell: Cell) -> Cell:
    """A cell with two facts and three records, and a snapshot of all of them."""
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job", chips=8))
    await cell.turns(3)
    await cell.dispatcher.snapshots.write()
    return cell


@pytest.mark.parametrize("stream", [StreamName.FACTS, StreamName.LEDGER])
async def test_a_snapshot_that_is_ahead_of_a_stream_is_no_beginning(stream: StreamName) -> None:
    cell = await grown(await Cell().open())
    await cell.dispatcher.stop()
    cell.server.rewind(cell.user.subjects.stream(stream), 1)
    with pytest.raises(FatalError, match="is ahead of the bus"):
        await cell.start_dispatcher()
    await cell.close()


async def test_a_snapshot_with_a_damaged_chunk_is_passed_over() -> None:
    cell = await grown(await Cell().open())
    newest = await newest_snapshot(cell.user)
    assert newest is not None
    subject = cell.user.subjects.snapshot_chunk(newest.ledger_seq, 0)
    stored = await cell.user.last(StreamName.SNAPSHOT, subject)
    assert stored is not None
    chunk = decode(stored.data, SnapshotChunk)
    damaged = msgspec.structs.replace(chunk, data=chunk.data[:-1] + bytes([chunk.data[-1] ^ 1]))
    await cell.user.publish(subject, encode(damaged))
    found = await newest_snapshot(cell.user)
    assert found is None or found.ledger_seq < newest.ledger_seq
    await cell.close()


async def test_a_snapshot_that_is_not_what_its_digest_says_is_passed_over() -> None:
    cell = await grown(await Cell().open())
    newest = await newest_snapshot(cell.user)
    assert newest is not None
    assert newest.digest == state_digest(newest.facts, newest.ledger)
    assert newest.fold_version == FOLD_VERSION
    data = encode(msgspec.structs.replace(newest, facts=newest.facts[:-1]))
    await cell.user.publish(cell.user.subjects.snapshot_chunk(newest.ledger_seq, 0), encode(SnapshotChunk(data)))
    end = SnapshotEnd(newest.ledger_seq, newest.facts_seq, 1, len(data), zlib.crc32(data), 0)
    await cell.user.publish(cell.user.subjects.snapshot_end(newest.ledger_seq), encode(end))
    found = await newest_snapshot(cell.user)
    assert found is None or found.ledger_seq < newest.ledger_seq
    await cell.close()


async def test_a_start_where_one_fact_is_no_longer_kept_takes_the_latest_of_each_subject() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("old", leaf="one")])
    ages = {spec.name: spec.max_age_s for spec in cell.user.subjects.streams()}
    cell.clock.advance(ages[StreamName.FACTS] + 1)
    await cell.nodes([a_node("new", leaf="two")])
    assert (await cell.user.state(StreamName.FACTS)).first_seq == 2
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    assert sorted(cell.dispatcher.state.table.names) == ["new", "old"]
    await cell.close()


async def test_what_has_not_been_received_is_waited_for() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("a")])
    await cell.settle()
    feeds = cell.dispatcher.feeds
    await feeds.reach_fact(1, timeout_s=5)
    with pytest.raises(TransientError, match="sequence 2 not received"):
        await feeds.reach_fact(2, timeout_s=0.01)
    await cell.close()


async def test_what_comes_slowly_is_waited_for_as_long_as_it_comes() -> None:
    """On a busy machine a start has more to read than arrives within the deadline."""
    cell = await Cell().open()
    loop = asyncio.get_running_loop()
    feeds = cell.dispatcher.feeds
    timeout_s, count = 0.2, 12
    last = (await cell.user.state(StreamName.FACTS)).last_seq + count
    sent: list[asyncio.Future[int]] = []

    def send() -> None:
        fact = pack_nodes(f"leaf{len(sent)}", [a_node(f"n{len(sent)}")], at_ms=0)
        sent.append(cell.user.submit(cell.user.subjects.fact_node(f"leaf{len(sent)}"), encode(fact)))
        if len(sent) < count:
            loop.call_later(timeout_s / 4, send)

    began_s = loop.time()
    send()
    await feeds.reach_fact(last, timeout_s=timeout_s)
    assert loop.time() - began_s > timeout_s
    await cell.close()


async def test_a_dead_letter_that_was_not_stored_is_written_later() -> None:
    server = PickyServer()
    cell = await Cell(server=server).open()
    server.loses = ".dead."
    await cell.user.publish(cell.user.subjects.fact_node("bucket-all"), b"damaged")
    await cell.turns(2)
    assert await cell.dead() == []
    server.loses = ""
    await cell.turns(2)
    assert await cell.dead() == [cell.user.subjects.dead(StreamName.FACTS, 1)]
    await cell.close()


async def test_a_dead_letter_that_another_reader_has_written_is_done() -> None:
    cell = await Cell().open()
    await cell.user.publish(cell.user.subjects.fact_node("bucket-all"), b"damaged")
    (stored,) = await cell.user.read(StreamName.FACTS)
    await dead_letter(cell.user, cell.clock, StreamName.FACTS, stored, "another reader was first", code="")
    await cell.turns(2)
    assert cell.dispatcher.feeds.dead == {}
    assert await cell.dead() == [cell.user.subjects.dead(StreamName.FACTS, 1)]
    await cell.close()


async def test_a_past_state_knows_no_later_facts_though_a_snapshot_does() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("first", leaf="one")])
    await cell.nodes([a_node("second", leaf="two")])
    await cell.turns()
    await cell.dispatcher.snapshots.write()  # of the same ledger as the one before, and two facts
    then = await state_at(cell.user, ledger_seq=1, facts_seq=1)
    assert then is not None
    assert list(then.table.names) == ["first"]
    now = await state_at(cell.user, ledger_seq=1, facts_seq=2)
    assert now is not None
    assert sorted(now.table.names) == ["first", "second"]
    await cell.close()


async def reused(cell: Cell) -> Cell:
    """A cell with a job that has the uid of two former ones, and no snapshot after its start.

    The uid must not be taken for one of its former lives.
    """
    await cell.nodes([a_node("a")])
    for _ in range(2):
        await cell.submit(a_job("job", chips=8))
        await cell.turns(3)
        await cell.pods("job", PodPhase.SUCCEEDED)
        await cell.turns(3)
        cell.clock.advance(5)
        await cell.turns(3)
    await cell.submit(a_job("job", chips=8))
    await cell.turns(3)
    return cell


@pytest.mark.parametrize("when", ["now", "then"])
async def test_a_read_state_has_applied_each_record_after_the_last_fact_that_it_knew(when: str) -> None:
    cell = await reused(await Cell(tombstone_after_ms=1_000).open())
    live = cell.dispatcher.state
    if when == "now":
        read = await state_now(cell.user, cell.clock)
    else:
        found = await state_at(cell.user, ledger_seq=live.fold.head, facts_seq=live.facts_seq)
        assert found is not None
        read = found
    assert list(read.fold.holdings) == list(live.fold.holdings) == [("uid-job", 1)]
    assert [(gang.phase, gang.attempt) for gang in read.fold.gangs.values()] == [("placed", 1)]
    await cell.close()


async def test_the_verdict_of_a_point_in_the_past_is_none_from_after_it() -> None:
    cell = await Cell().open()
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    refused = (await cell.user.state(StreamName.LEDGER)).last_seq
    await cell.nodes([a_node("a")])
    await cell.turns(2)
    found = await verdict_on(cell.user, "uid-job", hint_seq=0, up_to=refused)
    assert found is not None
    assert (found.sequence, found.verdict.placement) == (refused, None)
    last = await verdict_on(cell.user, "uid-job", hint_seq=0)
    assert last is not None
    assert last.verdict.placement is not None
    await cell.close()
