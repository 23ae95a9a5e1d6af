"""Small recordings: entries that are in order, and the bytes of a file of them."""

from collections.abc import Sequence

from berth.formats.recordings.recording import Reading, frames_of, read
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.recording import Entry, RecordingHead
from berth.schemas.status import SnapshotBody
from tests.support.chained_records import rechained


def head_at(ledger_seq: int = 0, facts_seq: int = 0) -> RecordingHead:
    """Head of a recording that starts at these sequences."""
    start = SnapshotBody(ledger_seq=ledger_seq, facts_seq=facts_seq, facts=[], ledger=b"")
    return RecordingHead(release="0.4.0", cell="c", made_at_ms=1, settings=Settings(), start=start)


def tick(sequence: int, at_ms: int = 0) -> Entry:
    """A fact."""
    return Entry(sequence, encode(TimerSeen(at_ms)), "berth.c.fact.timer")


def decision(sequence: int, known: int, at_ms: int = 0) -> Entry:
    """A record that knew the facts up to ``known``: an epoch at first, then empty rounds."""
    if sequence == 1:
        return Entry(1, encode(Epoch(1, 0, known, at_ms, "d-1", Settings())))
    return Entry(sequence, encode(Round(1, sequence - 1, known, at_ms, sequence - 1)))


def history(knew: Sequence[int], facts: int) -> list[Entry]:
    """Entries from the beginning: records that knew so many facts each, ascending, of ``facts`` in all."""
    entries: list[Entry] = []
    fact = 0
    for number, known in enumerate(knew, 1):
        entries += [tick(sequence) for sequence in range(fact + 1, known + 1)]
        fact = max(fact, known)
        entries.append(decision(number, known))
    return rechained([*entries, *(tick(sequence) for sequence in range(fact + 1, facts + 1))])


def file_of(entries: Sequence[Entry], head: RecordingHead | None = None) -> bytes:
    """Bytes of a recording whose records are chained."""
    head = head or head_at()
    return b"".join(frames_of(head, rechained(entries, head.start)))


def reading_of(data: bytes, *, salvage: bool = False, piece: int = 1000) -> Reading:
    """A reading of bytes that come in pieces."""
    return read((data[start : start + piece] for start in range(0, len(data), piece)), salvage=salvage)
