"""Check of a backup: its bytes, the order of its messages, its snapshots, and that its ledger folds."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from berth.core.errors import HistoryError, InvariantError
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.formats.recordings.backup import BackupReading, RecordingError, Stored
from berth.runtime.errors import ShellError
from berth.runtime.stored_snapshots import body_of_chunks
from berth.schemas.chain import UNCHAINED, Link
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.ledger import Epoch, Round
from berth.schemas.recording import BackupHead, BackupStream, Entry
from berth.schemas.status import SnapshotBody, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName, StreamSpec, Subjects

_CHUNK_BYTES: Final = 1 << 20
_SEQUENCE_MAX: Final = (1 << 63) - 1
_REPLICAS_MAX: Final = 5
_NO_SUBJECT: Final = re.compile(r"[\s\x00-\x1f\x7f]|\.\.|\.$")
"""What no subject of a server has; wildcards may be stored."""
_RECORDS: Final = frozenset({Epoch.KIND, Round.KIND})


class DamagedError(ShellError):
    """A backup that is damaged, or that does not fit together; names what is wrong."""


class Checked(msgspec.Struct, frozen=True):
    """What a backup holds.

    Attributes:
        head: Its first message.
        counts: Messages of each stream, by name.
        bytes_total: Size of the file.
        state: Facts and ledger at the end of the backup.
        has_history: Whether all facts since the newest snapshot are there; otherwise the newest of each subject.
        unchained_seq: First of the records at the end of the ledger whose chain values are not right; 0 without.
    """

    head: BackupHead
    counts: dict[str, int]
    bytes_total: int
    state: State
    has_history: bool
    unchained_seq: int = 0

    @property
    def uncounted(self) -> str:
        """Why its last records do not count; empty if they do."""
        if not self.unchained_seq:
            return ""
        return (
            f"LEDGER: the chain values of the records from {self.unchained_seq} on are not right, and no record follows:"
            " services pass over them"
        )

    def stream(self, name: StreamName) -> BackupStream:
        """A stream of the backup; an empty one if it has none of that name."""
        return next((one for one in self.head.streams if one.name == name.value), BackupStream(name.value, 1, 0))


def check_file(path: Path) -> Checked:
    """Read a backup whole and fold its ledger.

    Raises:
        DamagedError: It is damaged or cut off, is no backup, or does not fit together.
        VersionError: Only another release reads a record.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        try:
            reading = BackupReading(iter(lambda: file.read(_CHUNK_BYTES), b""))
            checks = _Checks(reading.head)
            for stored in reading:
                checks.add(stored)
            return checks.result(file.tell())
        except RecordingError as error:
            raise DamagedError(str(error)) from error


def whole_snapshots(entries: Iterable[Entry]) -> list[Entry]:
    """Messages of the snapshots that are whole; those of others, or of one that is being written, are left out."""
    ends: dict[int, SnapshotEnd] = {}
    chunks: dict[int, dict[str, bytes]] = {}
    of: dict[int, list[Entry]] = {}
    for entry in entries:
        try:
            seq = _take(entry, ends, chunks)
        except (DecodeError, ValueError, IndexError):
            continue
        of.setdefault(seq, []).append(entry)
    whole = [seq for seq, end in ends.items() if body_of_chunks(end, chunks.get(seq, {})) is not None]
    return sorted((entry for seq in whole for entry in of[seq]), key=lambda entry: entry.sequence)


def _take(entry: Entry, ends: dict[int, SnapshotEnd], chunks: dict[int, dict[str, bytes]]) -> int:
    """Sort in a message of a snapshot; returns the record at which the snapshot is.

    Raises:
        DecodeError: It does not decode.
        ValueError: Its subject is none of a snapshot.
        IndexError: Likewise.
    """
    parts = entry.subject.split(".")
    seq = int(parts[1])
    if parts[2] == "end":
        ends[seq] = decode(entry.data, SnapshotEnd)
    else:
        chunks.setdefault(seq, {})[parts[2]] = decode(entry.data, SnapshotChunk).data
    return seq


def _check_streams(head: BackupHead, kept: Mapping[str, StreamSpec]) -> None:
    """Check that streams can be made as the head says: a restore first deletes those that are there.

    Raises:
        DamagedError: A stream cannot be made as the head says.
    """
    names = [stream.name for stream in head.streams]
    for stream in head.streams:
        if stream.name not in kept:
            raise DamagedError(f"it holds a stream {stream.name}, which this release does not know in backups")
        if names.count(stream.name) > 1:
            raise DamagedError(f"it holds the stream {stream.name} twice")
        is_range = 1 <= stream.first_seq <= stream.last_seq + 1 <= _SEQUENCE_MAX
        if not is_range or not 1 <= stream.replicas <= _REPLICAS_MAX or not 0 <= stream.max_bytes <= _SEQUENCE_MAX:
            raise DamagedError(
                f"{stream.name}: messages {stream.first_seq} to {stream.last_seq}, {stream.replicas} replicas and"
                f" {stream.max_bytes} bytes at most are no stream that a server can make"
            )


class _Checks:
    """Checks of one backup, message by message."""

    def __init__(self, head: BackupHead) -> None:
        self._head = head
        self._subjects = Subjects(head.cell)
        self._streams = {stream.name: stream for stream in head.streams}
        self._counts = dict.fromkeys(self._streams, 0)
        self._next: dict[str, int] = {stream.name: stream.first_seq for stream in head.streams}
        specs = self._subjects.streams()
        self._kept = {spec.name.value: spec for spec in specs if spec.backup != "none"}
        self._all = {spec.name.value for spec in specs if spec.backup == "all"}
        self._chunks: dict[int, dict[str, bytes]] = {}
        self._whole: dict[int, SnapshotEnd] = {}
        self._broken: set[int] = set()
        self._newest: SnapshotBody | None = None
        self._has_start = False
        self._state = State(keeps=True)
        self._records: deque[Entry] = deque()
        self._old: list[Entry] = []
        self._has_history = True
        self._unchained_seq = 0
        _check_streams(head, self._kept)
        for name in (StreamName.LEDGER, StreamName.FACTS, StreamName.INTAKE):
            if name.value not in self._streams:
                raise DamagedError(f"it does not hold the stream {name.value}")

    def add(self, stored: Stored) -> None:
        """Check the next message.

        Raises:
            DamagedError: It does not fit.
        """
        name, entry = stored
        self._check_subject(name, entry)
        self._counts[name] += 1
        if name in self._all:
            self._check_order(name, entry)
        match name:
            case StreamName.SNAPSHOT:
                self._take_snapshot(entry)
            case StreamName.LEDGER:
                self._begin()
                if entry.sequence > self._state.fold.head:
                    self._records.append(entry)
            case StreamName.LATEST:
                self._old.append(entry)
            case StreamName.FACTS:
                self._begin()
                self._take_fact(entry)
            case _:
                pass  # nothing depends on its content

    def result(self, size: int) -> Checked:
        """What the backup of so many bytes holds, after its last message.

        Raises:
            DamagedError: Something is missing, or the ledger does not fold.
        """
        self._begin()
        for name in sorted(self._all.intersection(self._streams)):
            last = self._streams[name].last_seq
            if self._next[name] <= last:
                raise DamagedError(f"{name}: messages {self._next[name]} to {last} are missing")
        self._fold(self._streams[StreamName.FACTS.value].last_seq, is_end=True)
        if not self._has_history:
            self._state.forget_unnamed()
        return Checked(self._head, self._counts, size, self._state, self._has_history, self._unchained_seq)

    def _check_subject(self, name: str, entry: Entry) -> None:
        """Check that a message can only go to its own stream.

        Raises:
            DamagedError: It would go elsewhere.
        """
        spec = self._kept[name]
        origin = self._kept[spec.mirror_of.value] if spec.mirror_of is not None else spec
        patterns = [one.removeprefix(self._subjects.root) for one in origin.subjects]
        subject = entry.subject
        is_own = any(subject == one or (one[-1] == ">" and subject.startswith(one[:-1])) for one in patterns)
        if not is_own or _NO_SUBJECT.search(subject):
            raise DamagedError(f"{name}: message {entry.sequence} has the subject {subject!r}, which is none of it")

    def _check_order(self, name: str, entry: Entry) -> None:
        wanted, last = self._next[name], self._streams[name].last_seq
        if entry.sequence != wanted or entry.sequence > last:
            raise DamagedError(f"{name}: message {entry.sequence} comes where {wanted} of {last} is expected")
        self._next[name] = wanted + 1

    def _take_snapshot(self, entry: Entry) -> None:
        """Take a message of a snapshot; with its end it is decoded, and of all only the newest stays in memory.

        One at the same record may be written twice, by two dispatchers at a time: what is whole in the end counts.

        Raises:
            DamagedError: It does not decode.
        """
        ends: dict[int, SnapshotEnd] = {}
        try:
            seq = _take(entry, ends, self._chunks)
        except (DecodeError, ValueError, IndexError) as error:
            raise DamagedError(f"SNAPSHOT {entry.sequence} ({entry.subject}): {error}") from error
        end = ends.get(seq)
        if end is None:
            return
        body = body_of_chunks(end, self._chunks.get(seq, {}))
        known = self._whole.get(seq)
        if body is not None:
            del self._chunks[seq]
            self._whole[seq] = end
            self._broken.discard(seq)
            if self._newest is None or seq >= self._newest.ledger_seq:
                self._newest = body
        elif known is None or (known.checksum, known.bytes_total) != (end.checksum, end.bytes_total):
            self._broken.add(seq)

    def _begin(self) -> None:
        """Start the fold from the newest snapshot, once all of them are there.

        Raises:
            DamagedError: One is not whole, or the ledger begins after the newest.
        """
        if self._has_start:
            return
        self._has_start = True
        if self._broken:
            raise DamagedError(f"SNAPSHOT: the snapshot at record {min(self._broken)} is not whole")
        self._chunks.clear()
        body, self._newest = self._newest, None
        ledger, facts = self._streams[StreamName.LEDGER.value], self._streams[StreamName.FACTS.value]
        if body is not None:
            if body.ledger_seq > ledger.last_seq or body.facts_seq > facts.last_seq:
                raise DamagedError(
                    f"SNAPSHOT: the newest is at record {body.ledger_seq} and fact {body.facts_seq}, which is ahead of"
                    f" LEDGER ({ledger.last_seq}) and FACTS ({facts.last_seq})"
                )
            self._state.load(body)
        if ledger.first_seq > self._state.fold.head + 1:
            raise DamagedError(
                f"LEDGER begins at {ledger.first_seq}, but the newest snapshot is at {self._state.fold.head}:"
                " records between them are missing"
            )
        self._has_history = facts.first_seq <= self._state.facts_seq + 1

    def _take_fact(self, entry: Entry) -> None:
        """Fold a fact, after the records that knew only earlier ones."""
        if self._old:
            self._load_old()
        if entry.sequence <= self._state.facts_seq:
            return
        self._fold(entry.sequence - 1)
        self._apply(entry)

    def _load_old(self) -> None:
        """Fold the newest facts of their subjects, where those after the snapshot are not all there."""
        if not self._has_history:
            for entry in self._old:
                if entry.sequence > self._state.facts_seq:
                    self._apply(entry, latest=True)
        self._old = []

    def _apply(self, entry: Entry, *, latest: bool = False) -> None:
        subject = self._subjects.root + entry.subject
        self._state.apply_fact(subject, entry.sequence, entry.data, latest=latest)

    def _fold(self, known: int, *, is_end: bool = False) -> None:
        """Fold the records that knew no fact after ``known``.

        Raises:
            DamagedError: One does not fold.
        """
        self._load_old()
        while self._records:
            record = self._records[0]
            try:
                link = self._state.fold.link(record.sequence, record.data)
                knew = link.facts_seq
                if knew > known and not is_end:
                    return
                if knew > known:
                    raise DamagedError(f"LEDGER: record {record.sequence} knew fact {knew}, and FACTS ends at {known}")
                self._note(link, self._state.apply_link(link))
            except (DecodeError, HistoryError, InvariantError) as error:
                raise DamagedError(f"LEDGER: record {record.sequence} does not fold: {error}") from error
            self._records.popleft()

    def _note(self, link: Link, folded: Folded) -> None:
        """Note records without a right chain value until others have followed without them."""
        if not folded.void:
            self._unchained_seq = 0
        elif folded.void == UNCHAINED and link.envelope is not None and link.envelope.kind in _RECORDS:
            self._unchained_seq = self._unchained_seq or link.sequence
