"""What is found wrong in a backup whose bytes are those that were written."""

import tracemalloc
import zlib
from collections.abc import Sequence
from hashlib import shake_128
from pathlib import Path

import msgspec
import pytest

from berth.core.state.cell import State
from berth.core.state.ledger import dump_of
from berth.formats.recordings.backup import BackupFrames, Stored
from berth.runtime.backups.checks import DamagedError, check_file, whole_snapshots
from berth.schemas.envelope import decode, encode, open_envelope
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.recording import BackupHead, BackupStream, Entry
from berth.schemas.status import KeptFact, SnapshotBody, SnapshotChunk, SnapshotEnd
from tests.support.chained_records import ChainedRecords, broken


def ledger(*knew: int) -> list[Stored]:
    """An epoch, and rounds that knew so many facts each."""
    chain = ChainedRecords()
    encoded = [chain.encoded(Epoch(1, 0, 0, 10, "d", Settings()))]
    encoded += [chain.encoded(Round(1, n, known, 10, n + 1)) for n, known in enumerate(knew, 1)]
    return [Stored("LEDGER", Entry(n, data, "ledger")) for n, data in enumerate(encoded, 1)]


LEDGER = ledger(2, 3, 4, 5)
FACTS = [Stored("FACTS", Entry(n, encode(TimerSeen(n)), "fact.timer")) for n in range(1, 8)]


def snapshot(records: int, facts: int) -> list[Stored]:
    state = State(keeps=True)
    for stored in FACTS[:facts]:
        state.apply_fact("berth.cell.fact.timer", stored.entry.sequence, stored.entry.data)
    for stored in LEDGER[:records]:
        state.apply_record(stored.entry.sequence, stored.entry.data)
    body = state.dump()
    end = SnapshotEnd(records, facts, 1, len(body), zlib.crc32(body))
    subject = f"snapshot.{records}"
    return [
        Stored("SNAPSHOT", Entry(1, encode(SnapshotChunk(body)), f"{subject}.0")),
        Stored("SNAPSHOT", Entry(2, encode(end), f"{subject}.end")),
    ]


def reason_of(folder: Path, messages: Sequence[Stored], **ends: int) -> str:
    """Why a backup with these messages is refused; empty if it is good.

    Args:
        folder: Where the file goes.
        messages: In the order of their streams.
        ends: Last sequence of streams whose messages do not say it.
    """
    streams = []
    for name in ("SNAPSHOT", "LEDGER", "LATEST", "FACTS", "INTAKE"):
        sequences = [stored.entry.sequence for stored in messages if stored.stream == name]
        last = ends.get(name, max(sequences, default=0))
        streams.append(BackupStream(name, min(sequences, default=last + 1), last))
    return refused(folder, BackupHead("0.5", "cell", 1, streams), messages)


def refused(folder: Path, head: BackupHead, messages: Sequence[Stored]) -> str:
    frames = BackupFrames(head)
    pieces = [frames.begin(), *(frames.add(*message) for message in messages), frames.end()]
    (folder / "b").write_bytes(b"".join(pieces))
    try:
        check_file(folder / "b")
    except DamagedError as error:
        return str(error)
    return ""


def test_a_backup_that_is_whole_is_good(tmp_path: Path) -> None:
    assert reason_of(tmp_path, [*LEDGER, *FACTS]) == ""
    assert reason_of(tmp_path, [*snapshot(3, 4), *LEDGER, *FACTS]) == ""
    assert reason_of(tmp_path, [*snapshot(3, 4), *LEDGER[3:], *FACTS[4:]]) == ""
    assert reason_of(tmp_path, []) == ""


def test_a_record_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "message 4 comes where 3 of 5" in reason_of(tmp_path, [*LEDGER[:2], *LEDGER[3:], *FACTS])
    assert "FACTS: message 5 comes where 4 of 7" in reason_of(tmp_path, [*LEDGER, *FACTS[:3], *FACTS[4:]])
    assert "messages 6 to 9 are missing" in reason_of(tmp_path, [*LEDGER, *FACTS], LEDGER=9)
    wanted = "LEDGER begins at 5, but the newest snapshot is at 3"
    assert wanted in reason_of(tmp_path, [*snapshot(3, 4), *LEDGER[4:], *FACTS])
    assert "LEDGER begins at 3, but the newest snapshot is at 0" in reason_of(tmp_path, [*LEDGER[2:], *FACTS])


def test_a_record_that_knew_facts_that_are_not_there_is_named(tmp_path: Path) -> None:
    assert "record 4 knew fact 4, and FACTS ends at 3" in reason_of(tmp_path, [*LEDGER, *FACTS[:3]])


def test_a_ledger_that_does_not_fold_is_named(tmp_path: Path) -> None:
    junk = Stored("LEDGER", Entry(6, broken(6, open_envelope(LEDGER[-1].entry.data).chain), "ledger"))
    assert "LEDGER: record 6 does not fold" in reason_of(tmp_path, [*LEDGER, junk, *FACTS])


def test_a_snapshot_that_is_not_whole_or_ahead_is_named(tmp_path: Path) -> None:
    chunk, end = snapshot(3, 4)
    assert "the snapshot at record 3 is not whole" in reason_of(tmp_path, [end, *LEDGER, *FACTS])
    other = Stored("SNAPSHOT", Entry(1, encode(SnapshotChunk(b"other")), "snapshot.3.0"))
    assert "is not whole" in reason_of(tmp_path, [other, end, *LEDGER, *FACTS])
    assert "is ahead of LEDGER (2)" in reason_of(tmp_path, [chunk, end, *LEDGER[:2], *FACTS])
    bad = Stored("SNAPSHOT", Entry(1, b"junk", "snapshot.3.0"))
    assert "SNAPSHOT 1 (snapshot.3.0)" in reason_of(tmp_path, [bad, *LEDGER, *FACTS])


def test_a_snapshot_that_was_written_twice_counts_if_it_is_whole_in_the_end(tmp_path: Path) -> None:
    chunk, end = snapshot(3, 4)
    other = encode(SnapshotChunk(b"other"))

    def refused_with(*messages: tuple[Stored, bytes | None]) -> str:
        stored = [
            Stored("SNAPSHOT", Entry(at, data or one.entry.data, one.entry.subject))
            for at, (one, data) in enumerate(messages, start=1)
        ]
        return reason_of(tmp_path, [*stored, *LEDGER, *FACTS])

    assert refused_with((chunk, None), (chunk, None), (end, None), (end, None)) == ""
    assert refused_with((chunk, other), (end, None), (chunk, None), (end, None)) == ""
    assert refused_with((chunk, None), (end, None), (chunk, other)) == ""
    assert "is not whole" in refused_with((chunk, None), (chunk, other), (end, None))


def test_one_snapshot_at_a_time_is_in_memory(tmp_path: Path) -> None:
    size, count = 400_000, 40
    ledger = dump_of(decode(State().dump(), SnapshotBody).ledger)
    messages: list[Stored] = []
    for at in range(count):
        facts = [KeptFact("berth.cell.fact.timer", 1, shake_128(bytes([at])).digest(size))]
        ledger.head = at
        body = encode(SnapshotBody(at, 1, facts, msgspec.msgpack.encode(ledger)))
        end = SnapshotEnd(at, 1, 1, len(body), zlib.crc32(body))
        messages.append(Stored("SNAPSHOT", Entry(2 * at + 1, encode(SnapshotChunk(body)), f"snapshot.{at}.0")))
        messages.append(Stored("SNAPSHOT", Entry(2 * at + 2, encode(end), f"snapshot.{at}.end")))
    streams = [BackupStream("SNAPSHOT", 1, 2 * count), BackupStream("LEDGER", count, count - 1)]
    head = BackupHead("0.5", "cell", 1, [*streams, BackupStream("FACTS", 2, 1), BackupStream("INTAKE", 1, 0)])
    frames = BackupFrames(head)
    pieces = [frames.begin(), *(frames.add(*message) for message in messages), frames.end()]
    (tmp_path / "b").write_bytes(b"".join(pieces))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        check_file(tmp_path / "b")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < count * size / 2


def test_streams_are_known_and_the_needed_ones_are_there(tmp_path: Path) -> None:
    streams = [BackupStream("LEDGER", 1, 0), BackupStream("FACTS", 1, 0), BackupStream("INTAKE", 1, 0)]
    assert refused(tmp_path, BackupHead("0.5", "cell", 1, streams), []) == ""
    assert "does not hold the stream INTAKE" in refused(tmp_path, BackupHead("0.5", "cell", 1, streams[:2]), [])
    more = [*streams, BackupStream("WEATHER", 1, 0)]
    assert "a stream WEATHER, which this release" in refused(tmp_path, BackupHead("0.5", "cell", 1, more), [])


def test_snapshots_that_are_being_written_are_left_out() -> None:
    chunk, end = (stored.entry for stored in snapshot(3, 4))
    begun = msgspec.structs.replace(chunk, sequence=7, subject="snapshot.5.0")
    lone = msgspec.structs.replace(end, sequence=8, subject="snapshot.4.end")
    strange = Entry(9, b"junk", "snapshot.x")
    assert whole_snapshots([begun, chunk, end, strange]) == [chunk, end]
    assert whole_snapshots([chunk, lone]) == []


@pytest.mark.parametrize("known", [0, 2, 4])
def test_records_are_folded_after_the_facts_that_they_knew(known: int, tmp_path: Path) -> None:
    assert reason_of(tmp_path, [*ledger(known), *FACTS]) == ""
