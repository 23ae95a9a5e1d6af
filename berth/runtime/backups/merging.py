"""A recording as a backup: alone, or after a backup that it continues."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from berth.core.state.ledger import dump_of
from berth.formats.recordings.backup import MAGIC, BackupFrames, BackupReading
from berth.formats.recordings.backup import Stored as Message
from berth.formats.recordings.recording import RecordingError
from berth.runtime.backups.checks import DamagedError, check_file
from berth.runtime.ledger_reader import skips_void
from berth.runtime.recording import read_file, replacing
from berth.runtime.stored_snapshots import chunks_of
from berth.schemas.chain import position_of
from berth.schemas.envelope import DecodeError, encode
from berth.schemas.recording import BackupHead, BackupStream, Entry, RecordingHead
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName, Subjects

_CHUNK_BYTES: Final = 1 << 20
_SNAPSHOT_CHUNK: Final = 500_000


class OtherHistoryError(DamagedError):
    """A recording that is not of the history of a backup; names what differs."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the recording has another {what} than the backup: the cell was restored between them, and their histories"
            " differ; use a recording that was begun after that restore, or none"
        )


def is_backup(path: Path) -> bool:
    """Whether a file begins as a backup does.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@contextmanager
def merged(path: Path, recording: Path | None) -> Iterator[Path]:
    """A backup out of a backup or recording, and a recording that continues it; a temporary file, unless it is one.

    Args:
        path: A backup or a recording.
        recording: What comes after the backup; None for nothing.

    Raises:
        DamagedError: As :func:`merge`.
        OSError: As :func:`merge`.
    """
    if recording is None and is_backup(path):
        yield path
        return
    with TemporaryDirectory(prefix="berth-restore-") as folder:
        target = Path(folder) / "backup"
        if recording is not None:
            merge(path, recording, target)
        else:
            merge(None, path, target)
        yield target


def merge(base: Path | None, recording: Path, target: Path) -> None:
    """Write a backup that also has what a recording has after it, or one out of a recording alone.

    A recording that was cut off counts up to its last whole frame.

    Args:
        base: A backup; None for none. Without one the requests (INTAKE) and statuses are missing: all that matters of
            them is in the facts, but for requests that had no verdict yet.
        recording: Facts and records.
        target: The file.

    Raises:
        DamagedError: A file is damaged, or the recording begins after the end of the backup.
        OtherHistoryError: The cell was restored between the backup and the recording.
        OSError: A file cannot be read or written.
    """
    try:
        head, facts_to, ledger_to = _reach_of(recording)
        if head.anonymous:
            raise DamagedError("the recording is anonymous: the names of its jobs and nodes were replaced")
        if base is None:
            _write(target, _head_alone(head, facts_to, ledger_to), _Alone(head, recording))
            return
        with base.open("rb") as file:
            before = BackupReading(_chunks(file)).head
        _check_joined(before, head)
        if before.cell != head.cell:
            raise DamagedError(f"the backup is one of the cell {before.cell!r}, the recording of {head.cell!r}")
        _check_same_end(base, before, head)
        _write(target, _head_joined(before, facts_to, ledger_to), _Joined(before, base, head, recording))
    except RecordingError as error:
        raise DamagedError(str(error)) from error
    except ValueError as error:
        raise DamagedError(f"the recording does not fit: {error}") from error


def _chunks(file: object) -> Iterator[bytes]:
    return iter(lambda: file.read(_CHUNK_BYTES), b"")  # type: ignore[attr-defined]  # an open file


def _reach_of(recording: Path) -> tuple[RecordingHead, int, int]:
    with read_file(recording, salvage=True) as reading:
        for _ in reading:
            pass
        return reading.head, reading.order.facts_seq, reading.order.ledger_seq


def _check_joined(before: BackupHead, head: RecordingHead) -> None:
    """Check that a recording begins before the end of a backup.

    Raises:
        DamagedError: The recording begins after the end of the backup.
    """
    last = {stream.name: stream.last_seq for stream in before.streams}
    for name, start in ((StreamName.LEDGER, head.start.ledger_seq), (StreamName.FACTS, head.start.facts_seq)):
        if start > last.get(name.value, 0):
            raise DamagedError(
                f"the recording begins after {name.value} {start}, and the backup ends at {last.get(name.value, 0)}:"
                " what is between is missing"
            )


def _check_same_end(base: Path, before: BackupHead, head: RecordingHead) -> None:
    """Check that a recording that begins right after the last record of a backup goes on with the same ledger.

    Raises:
        OtherHistoryError: The recording goes on with another ledger.
        DamagedError: The backup or the start of the recording is damaged.
    """
    start = head.start
    if not start.ledger or start.ledger_seq < {one.name: one.last_seq for one in before.streams}[StreamName.LEDGER]:
        return  # records of both are compared
    try:
        position = position_of(start)
    except DecodeError as error:
        raise DamagedError(f"the start of the recording: {error}") from error
    fold = check_file(base).state.fold
    if (fold.epoch, fold.chain) != (position.epoch, position.digest):
        raise OtherHistoryError(f"record {start.ledger_seq}")


def _write(target: Path, head: BackupHead, messages: "_Alone | _Joined") -> None:
    frames = BackupFrames(head)
    with replacing(target) as file:
        file.write(frames.begin())
        for stream, entry in messages:
            file.write(frames.add(stream, entry))
        file.write(frames.end())


def _head_joined(before: BackupHead, facts_to: int, ledger_to: int) -> BackupHead:
    ends = {StreamName.FACTS.value: facts_to, StreamName.LEDGER.value: ledger_to}
    streams = [
        BackupStream(one.name, one.first_seq, max(one.last_seq, ends.get(one.name, 0)), one.replicas, one.max_bytes)
        for one in before.streams
    ]
    return BackupHead(before.release, before.cell, before.made_at_ms, streams)


def _head_alone(head: RecordingHead, facts_to: int, ledger_to: int) -> BackupHead:
    start = head.start
    streams = [
        BackupStream(StreamName.SNAPSHOT, 1, 0),
        BackupStream(StreamName.LEDGER, start.ledger_seq + 1, ledger_to),
        BackupStream(StreamName.LATEST, 1, start.facts_seq),
        BackupStream(StreamName.FACTS, start.facts_seq + 1, facts_to),
        BackupStream(StreamName.INTAKE, 1, 0),
    ]
    return BackupHead(head.release, head.cell, head.made_at_ms, streams)


class _Alone:
    """Messages of a backup out of a recording alone."""

    def __init__(self, head: RecordingHead, recording: Path) -> None:
        self._head = head
        self._root = Subjects(head.cell).root
        self._recording = recording

    def __iter__(self) -> Iterator[Message]:
        start = self._head.start
        for number, (subject, data) in enumerate(_snapshot(start), start=1):
            yield Message(StreamName.SNAPSHOT, Entry(number, data, subject))
        for entry in _entries(self._recording, are_facts=False):
            yield Message(StreamName.LEDGER, Entry(entry.sequence, entry.data, "ledger"))
        for fact in sorted(start.facts, key=lambda kept: kept.sequence):
            yield Message(StreamName.LATEST, Entry(fact.sequence, fact.data, fact.subject.removeprefix(self._root)))
        for entry in _entries(self._recording, are_facts=True):
            yield Message(StreamName.FACTS, Entry(entry.sequence, entry.data, entry.subject.removeprefix(self._root)))


class _Tail:
    """Facts or records of a recording, in their order."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._next = next(entries, None)

    def at(self, sequence: int) -> Entry | None:
        """The entry of a sequence, which is not below that of the last call; None if it has none."""
        while self._next is not None and self._next.sequence < sequence:
            self._next = next(self._entries, None)
        return self._next if self._next is not None and self._next.sequence == sequence else None

    def after(self, sequence: int) -> Iterator[Entry]:
        """All later entries."""
        self.at(sequence + 1)
        if self._next is not None:
            yield self._next
            yield from self._entries


class _Joined:
    """Messages of a backup, and what a recording has after it; those that both have must be the same."""

    def __init__(self, before: BackupHead, base: Path, head: RecordingHead, recording: Path) -> None:
        self._last = {stream.name: stream.last_seq for stream in before.streams}
        self._names = [stream.name for stream in before.streams]
        self._root = Subjects(before.cell).root
        self._base = base
        self._kept = {fact.sequence: Entry(fact.sequence, fact.data, fact.subject) for fact in head.start.facts}
        self._tails = {
            name.value: _Tail(_entries(recording, are_facts=name is StreamName.FACTS))
            for name in (StreamName.LEDGER, StreamName.FACTS)
        }

    def __iter__(self) -> Iterator[Message]:
        with self._base.open("rb") as file:
            at = 0
            for stored in BackupReading(_chunks(file)):
                while self._names[at] != stored.stream:
                    yield from self._more(self._names[at])
                    at += 1
                self._check_same_message(stored)
                yield stored
            for name in self._names[at:]:
                yield from self._more(name)

    def _check_same_message(self, stored: Message) -> None:
        """Check that the recording has the same message, if it has one.

        Raises:
            OtherHistoryError: The recording has another message at this sequence.
        """
        tail = self._tails.get(stored.stream)
        if tail is None:
            return
        entry, is_fact = stored.entry, stored.stream == StreamName.FACTS
        known = tail.at(entry.sequence) or (self._kept.get(entry.sequence) if is_fact else None)
        if known is None or (
            not is_fact and (skips_void(known.data, entry.data) or skips_void(entry.data, known.data))
        ):
            return
        if (self._subject(known), known.data) != (entry.subject, entry.data):
            raise OtherHistoryError(f"{'fact' if is_fact else 'record'} {entry.sequence}")

    def _subject(self, entry: Entry) -> str:
        return entry.subject.removeprefix(self._root) or "ledger"

    def _more(self, name: str) -> Iterator[Message]:
        if name in self._tails:
            for entry in self._tails[name].after(self._last[name]):
                yield Message(name, Entry(entry.sequence, entry.data, self._subject(entry)))


def _entries(recording: Path, *, are_facts: bool) -> Iterator[Entry]:
    with read_file(recording, salvage=True) as reading:
        for entry in reading:
            if bool(entry.subject) is are_facts:
                yield entry


def _snapshot(start: SnapshotBody) -> list[tuple[str, bytes]]:
    """Messages of the snapshot at which a recording starts; none for the beginning of a cell.

    Raises:
        DamagedError: It does not decode.
    """
    if not start.ledger:
        return []
    try:
        dump_of(start.ledger)
    except DecodeError as error:
        raise DamagedError(f"the start of the recording: {error}") from error
    chunks, end = chunks_of(
        encode(start),
        ledger_seq=start.ledger_seq,
        facts_seq=start.facts_seq,
        size=_SNAPSHOT_CHUNK,
        at_ms=0,
    )
    root = f"snapshot.{start.ledger_seq}"
    return [*((f"{root}.{number}", chunk) for number, chunk in enumerate(chunks)), (f"{root}.end", encode(end))]
