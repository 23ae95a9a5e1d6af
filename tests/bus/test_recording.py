"""Recordings of a cell on a real server: their content, their range, and the errors when history is not kept."""

import asyncio
import zlib
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.cli.recordings.log import Live
from berth.cli.recordings.log_lines import Lines
from berth.core.state.cell import State
from berth.formats.recordings.recording import interleaved
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.recording import NoHistoryError, Recorded, When, read_file, record
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.recording import Entry
from berth.schemas.status import SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName
from tests.support.chained_records import append
from tests.support.clock import ManualClock
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(60)
SETTINGS = Settings(attempts_max=3)


async def ticks(bus: NatsBus, count: int) -> int:
    """Publish facts; the sequence of the last."""
    futures = [bus.submit(bus.subjects.fact_timer, encode(TimerSeen(number))) for number in range(1, count + 1)]
    return max([await future for future in futures])


async def decided(bus: NatsBus, known: int) -> int:
    """Append a record that knew the facts up to ``known``; its sequence."""
    head = (await bus.state(StreamName.LEDGER)).last_seq
    if head == 0:
        return await append(bus, Epoch(1, 0, known, 1000, "d", SETTINGS))
    return await append(bus, Round(1, head, known, 1000 + head, head))


async def snapshot(bus: NatsBus, at_ms: int = 0) -> SnapshotEnd:
    """Write a snapshot of all that is stored."""
    state = State(keeps=True)
    for fact in await bus.read(StreamName.FACTS):
        state.apply_fact(fact.subject, fact.sequence, fact.data)
    for one in await bus.read(StreamName.LEDGER):
        state.apply_record(one.sequence, one.data)
    body = state.dump()
    end = SnapshotEnd(
        ledger_seq=state.fold.head,
        facts_seq=state.facts_seq,
        chunks=1,
        bytes_total=len(body),
        checksum=zlib.crc32(body),
        at_ms=at_ms,
    )
    await bus.publish(bus.subjects.snapshot_chunk(end.ledger_seq, 0), encode(SnapshotChunk(body)))
    await bus.publish(bus.subjects.snapshot_end(end.ledger_seq), encode(end))
    return end


async def lived(bus: NatsBus, rounds: int = 5) -> None:
    """Some facts and records: record N knew fact 3 N, and three facts more come after the last."""
    for number in range(1, rounds + 1):
        await decided(bus, await ticks(bus, 3) if number else 0)
    await ticks(bus, 3)


async def stored(bus: NatsBus) -> list[Entry]:
    """All that the cell has, in order."""
    facts = [Entry(one.sequence, one.data, one.subject) for one in await bus.read(StreamName.FACTS)]
    return list(interleaved(facts, [Entry(one.sequence, one.data) for one in await bus.read(StreamName.LEDGER)]))


async def recorded(
    bus: NatsBus, path: Path, since: When | None = None, until: When | None = None
) -> tuple[Recorded, list[Entry]]:
    made = await record(bus, ManualClock(), path, since=since, until=until)
    with read_file(path) as reading:
        entries = list(reading)
        assert reading.end == made.end
        assert reading.head.start == made.start
    return made, entries


def names_in(folder: Path) -> list[str]:
    """Files of a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


async def test_a_young_cell_is_recorded_from_its_beginning(real_bus: NatsBus, tmp_path: Path) -> None:
    await lived(real_bus)
    await snapshot(real_bus)
    made, entries = await recorded(real_bus, tmp_path / "a.rec")
    assert entries == await stored(real_bus)
    assert (made.start.ledger_seq, made.start.facts_seq, made.start.ledger) == (0, 0, b"")
    assert (made.end.records, made.end.facts) == (5, 18)
    assert made.bytes_total == (tmp_path / "a.rec").stat().st_size
    assert 0 < made.first_ms <= made.last_ms
    assert names_in(tmp_path) == ["a.rec"]


async def test_an_empty_cell_gives_an_empty_recording(real_bus: NatsBus, tmp_path: Path) -> None:
    made, entries = await recorded(real_bus, tmp_path / "a.rec")
    assert entries == []
    assert (made.first_ms, made.end.facts) == (0, 0)


async def test_a_long_history_comes_in_pieces_and_stays_in_order(real_bus: NatsBus, tmp_path: Path) -> None:
    last = await ticks(real_bus, 12_000)
    await decided(real_bus, last - 1)
    _, entries = await recorded(real_bus, tmp_path / "a.rec")
    assert [entry.sequence for entry in entries] == [*range(1, last), 1, last]
    assert not entries[-2].subject


async def test_a_start_is_the_newest_snapshot_before_it(real_bus: NatsBus, tmp_path: Path) -> None:
    await lived(real_bus, rounds=3)
    first = await snapshot(real_bus, at_ms=10_000)
    await lived(real_bus, rounds=2)
    second = await snapshot(real_bus, at_ms=20_000)
    await lived(real_bus, rounds=1)
    path = tmp_path / "a.rec"
    for since, start in (
        (When(ledger_seq=4), first.ledger_seq),
        (When(ledger_seq=5), first.ledger_seq),
        (When(ledger_seq=6), second.ledger_seq),
        (When(ledger_seq=3), 0),
        (When(at_ms=9_999), 0),
        (When(at_ms=10_000), first.ledger_seq),
        (When(at_ms=25_000), second.ledger_seq),
    ):
        made, entries = await recorded(real_bus, path, since)
        assert made.start.ledger_seq == start, since
        assert entries == [
            one
            for one in await stored(real_bus)
            if one.sequence > (made.start.facts_seq if one.subject else made.start.ledger_seq)
        ]
    with read_file(path) as reading:
        assert reading.head.settings == SETTINGS
        state = State()
        state.load(reading.head.start)
        for entry in reading:
            if entry.subject:
                state.apply_fact(entry.subject, entry.sequence, entry.data)
            else:
                state.apply_record(entry.sequence, entry.data)
    assert (state.fold.head, state.fold.epoch) == (6, 1)


async def test_what_is_no_longer_kept_is_told_with_the_oldest_start(real_bus: NatsBus, tmp_path: Path) -> None:
    await lived(real_bus, rounds=3)
    await snapshot(real_bus, at_ms=1_700_000_000_000)
    await lived(real_bus, rounds=2)
    await real_bus.purge(StreamName.LEDGER, keep_from_seq=3)
    made, entries = await recorded(real_bus, tmp_path / "a.rec")
    assert made.start.ledger_seq == 3
    assert sum(not entry.subject for entry in entries) == 2
    with pytest.raises(NoHistoryError, match=r"ledger:2 was removed: the oldest possible start is ledger:4") as said:
        await record(real_bus, ManualClock(), tmp_path / "b.rec", since=When(ledger_seq=2))
    assert "after the snapshot of 2023-11-14T22:13:20.000Z" in str(said.value)
    assert "stored are records 3 to 5" in str(said.value)
    await real_bus.purge(StreamName.LEDGER, keep_from_seq=5)
    with pytest.raises(NoHistoryError, match="no snapshot to start from"):
        await record(real_bus, ManualClock(), tmp_path / "b.rec")
    assert names_in(tmp_path) == ["a.rec"]


async def test_a_damaged_snapshot_is_passed_over(real_bus: NatsBus, tmp_path: Path) -> None:
    await lived(real_bus, rounds=2)
    await snapshot(real_bus, at_ms=1)
    await lived(real_bus, rounds=2)
    end = await snapshot(real_bus, at_ms=2)
    await real_bus.publish(real_bus.subjects.snapshot_chunk(end.ledger_seq, 0), encode(SnapshotChunk(b"x")))
    await lived(real_bus, rounds=1)
    made, _ = await recorded(real_bus, tmp_path / "a.rec", When(ledger_seq=5))
    assert made.start.ledger_seq == 2


async def test_an_end_is_a_record_or_a_moment(real_bus: NatsBus, tmp_path: Path) -> None:
    await lived(real_bus)
    everything = await stored(real_bus)
    made, entries = await recorded(real_bus, tmp_path / "a.rec", until=When(ledger_seq=3))
    assert entries == everything[:12]
    assert (made.end.facts_seq, made.end.ledger_seq) == (9, 3)
    at_ms = (await real_bus.read(StreamName.LEDGER))[-1].at_ms
    made, entries = await recorded(real_bus, tmp_path / "a.rec", until=When(at_ms=at_ms + 60_000))
    assert entries == everything
    for begin, end, words in (
        (None, When(ledger_seq=6), "ledger:6 is not stored yet: the ledger ends at 5"),
        (When(ledger_seq=4), When(ledger_seq=3), "the end is before the start"),
        (None, When(at_ms=at_ms - 3_600_000), "nothing is stored up to 2.*: the history begins at 2"),
    ):
        with pytest.raises(NoHistoryError, match=words):
            await record(real_bus, ManualClock(), tmp_path / "b.rec", since=begin, until=end)


async def test_a_moment_between_two_records_parts_them(real_bus: NatsBus, tmp_path: Path) -> None:
    await lived(real_bus, rounds=2)
    before = (await real_bus.read(StreamName.FACTS))[-1].at_ms

    async def later() -> bool:
        last = await ticks(real_bus, 1)
        return (await real_bus.read(StreamName.FACTS, start_seq=last))[-1].at_ms > before

    await until_true(later, deadline_s=10, what="the server's clock goes on")
    await decided(real_bus, (await real_bus.state(StreamName.FACTS)).last_seq)
    _, entries = await recorded(real_bus, tmp_path / "a.rec", until=When(at_ms=before))
    facts = [one.sequence for one in await real_bus.read(StreamName.FACTS) if one.at_ms <= before]
    assert [entry.sequence for entry in entries if entry.subject] == facts
    assert [entry.sequence for entry in entries if not entry.subject] == [1, 2]


async def test_a_cell_that_goes_on_is_recorded_up_to_the_moment_of_the_call(real_bus: NatsBus, tmp_path: Path) -> None:
    await ticks(real_bus, 6_000)
    await decided(real_bus, 6_000)
    busy = True

    async def go_on() -> None:
        while busy:
            await decided(real_bus, await ticks(real_bus, 50))

    async with asyncio.TaskGroup() as group:
        group.create_task(go_on(), name="the cell goes on")
        try:
            for number in range(5):
                before = (await real_bus.state(StreamName.LEDGER)).last_seq
                made, entries = await recorded(real_bus, tmp_path / f"{number}.rec")
                assert made.end.ledger_seq >= before
                assert made.end.facts == made.end.facts_seq
                assert len(entries) == made.end.facts + made.end.records
        finally:
            busy = False


async def test_the_command_writes_a_file_and_log_prints_it(
    real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await lived(real_bus)
    path = tmp_path / "a.rec"
    words = ["record", str(path), "--url", nats_server, "--cell", cell]
    assert await asyncio.to_thread(call, words) == 0
    said = capsys.readouterr().out
    assert "18 facts: 1 to 18" in said
    assert "5 records: 1 to 5" in said
    assert "from the beginning" in said
    assert await asyncio.to_thread(call, words) == 2
    assert "--force" in capsys.readouterr().err
    assert await asyncio.to_thread(call, [*words, "--force", "--to", "ledger:2", "--anonymise"]) == 0
    assert "2 records: 1 to 2" in capsys.readouterr().out
    with read_file(path) as reading:
        assert reading.head.anonymous
        assert cell not in str(reading.head)
        assert len(list(reading)) == 8
    assert await asyncio.to_thread(call, ["log", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[3].startswith("record        1  1970-01-01 00:00:01.000 UTC  epoch 1 begins: holder-1")
    assert await asyncio.to_thread(call, [*words, "--force", "--from", "ledger:9"]) == 1
    assert "the ledger ends at 5" in capsys.readouterr().err
    assert await asyncio.to_thread(call, [*words, "--force", "--from", "yesterday"]) == 2
    assert "2026-11-21T10:00:00Z" in capsys.readouterr().err
    assert names_in(tmp_path) == ["a.rec"]


async def test_a_live_cell_is_printed_with_each_record_after_the_facts_that_it_knew(
    real_bus: NatsBus, capsys: pytest.CaptureFixture[str]
) -> None:
    await lived(real_bus, rounds=1)
    lines: list[str] = []

    async def printed(count: int) -> None:
        def there() -> bool:
            lines.extend(capsys.readouterr().out.splitlines())
            return len(lines) >= count

        await until(there, deadline_s=10, what=f"{count} lines")

    async with asyncio.TaskGroup() as group:
        live = Live(real_bus, Lines().line_of)
        task = group.create_task(live.run(), name="live")
        await live.began.wait()
        await decided(real_bus, await ticks(real_bus, 4))
        await ticks(real_bus, 1)
        await printed(6)
        task.cancel()
    printed_ones = [" ".join(line.split()[:2]) for line in lines]
    assert [one for one in printed_ones if one != "record 2"] == [f"fact {number}" for number in range(7, 12)]
    assert printed_ones.index("record 2") > printed_ones.index("fact 10")
