"""Histories that are decided again: what a cell stored comes out the same, from the beginning and from any snapshot."""

from collections.abc import Iterable, Sequence

from berth.cli.recordings.replay import lines_of
from berth.core.replay.replay import Replay, Replayed
from berth.formats.recordings.recording import interleaved
from berth.runtime.bus.port import Stored
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.status import SnapshotBody


def entries_of(facts: Iterable[Stored], records: Iterable[Stored]) -> list[Entry]:
    """What a cell stored, in the order of recordings."""
    return list(
        interleaved(
            (Entry(fact.sequence, fact.data, fact.subject) for fact in facts),
            (Entry(record.sequence, record.data) for record in records),
        )
    )


def entries_after(entries: Sequence[Entry], start: SnapshotBody) -> list[Entry]:
    """Those that come after a snapshot."""
    return [entry for entry in entries if entry.sequence > (start.facts_seq if entry.subject else start.ledger_seq)]


def see_same(entries: Sequence[Entry], start: SnapshotBody = BEGINNING) -> Replayed:
    """Decide a history again; every decision must be the recorded one."""
    replay = Replay(start)
    for entry in entries_after(entries, start):
        found = replay.feed(entry)
        assert found is None, "\n".join(lines_of(found))
    result = replay.result
    assert result.is_identical
    assert result.digest == result.recorded_digest
    return result
