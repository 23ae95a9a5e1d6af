"""Recordings of a live cell, and their files.

The heads of both streams are read first, the ledger's before that of the facts, so that the facts of the last record
are included. The cell continues meanwhile. Messages are written in pieces to a file with a temporary name, which is
renamed when it is complete.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from berth.core.state.ledger import LedgerDump, dump_of
from berth.formats.recordings.anonymisation import Anonymiser
from berth.formats.recordings.recording import Frames, Reading, frames_of, read
from berth.runtime.bus.port import Bus, Stored, StreamState
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, ShellError
from berth.runtime.release import release
from berth.runtime.stored_snapshots import read_snapshot, snapshot_ends
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.chain import ChainReader, position_of
from berth.schemas.ledger import Settings
from berth.schemas.recording import BEGINNING, Entry, RecordingEnd, RecordingHead
from berth.schemas.status import SnapshotBody, SnapshotEnd
from berth.schemas.subjects import StreamName

_CHUNK_BYTES: Final = 1 << 20
_LEDGER: Final = "ledger:"
_OLDEST_MS: Final = 10**11
"""A smaller number is not a time in milliseconds (it would be in 1973), but probably a sequence, or seconds."""
_SECOND_MS: Final = 1000


class When(msgspec.Struct, frozen=True):
    """A point in the history of a cell: a time, or a record of the ledger; the other field is -1."""

    at_ms: int = -1
    ledger_seq: int = -1

    def __str__(self) -> str:
        return f"{_LEDGER}{self.ledger_seq}" if self.ledger_seq >= 0 else _moment(self.at_ms)


def when_of(text: str) -> When:
    """Parse a point: ``2026-11-21T10:00:00Z`` (UTC if no zone is given), milliseconds since 1970, or ``ledger:123``.

    Raises:
        ValueError: The text is none of these; the message names the expected forms.
    """
    sequence = text.removeprefix(_LEDGER)
    if sequence != text and sequence.isascii() and sequence.isdecimal():
        return When(ledger_seq=int(sequence))
    if text.isascii() and text.isdecimal():
        if int(text) >= _OLDEST_MS:
            return When(at_ms=int(text))
    elif sequence == text:
        try:
            at = datetime.fromisoformat(text.removesuffix(" UTC"))
            return When(at_ms=round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * _SECOND_MS))
        except (ValueError, OverflowError):
            pass
    raise ValueError(
        f"{text!r} is not a point in time: expected a time such as 2026-11-21T10:00:00Z, milliseconds since 1970, or a"
        f" record of the ledger such as {_LEDGER}123"
    )


class NoHistoryError(ShellError):
    """The requested history is not stored, or was removed."""


class Recorded(msgspec.Struct, frozen=True):
    """Content of a written recording."""

    path: str
    bytes_total: int
    start: SnapshotBody
    end: RecordingEnd
    first_ms: int
    """Time at which the first entry was stored, in milliseconds since 1970; 0 without entries."""
    last_ms: int


async def record(
    bus: Bus,
    clock: Clock,
    path: Path,
    *,
    since: When | None = None,
    until: When | None = None,
    anonymise: bool = False,
) -> Recorded:
    """Write the history of a cell to a file.

    Args:
        bus: The cell.
        clock: Source of the time in the head.
        path: The file; replaced when the recording is complete.
        since: Start of the requested history; the recording begins at the newest snapshot before it. None: the whole
            stored history.
        until: Last record, or last time; facts that the last record used are included. None: the end at the time of
            the call.
        anonymise: Whether to replace names. Meanwhile a file with a temporary name beside ``path`` holds the original.

    Raises:
        NoHistoryError: It was removed, is not stored yet, or ``until`` is before ``since``; names the oldest start.
        TransientError: The bus did not answer.
        FatalError: Facts or records of the cell are not in order.
        OSError: The file cannot be written.
    """
    if not anonymise:
        return await _record(bus, clock, path, since, until)
    named = path.with_name(f".{path.name}.{os.getpid()}.named")
    try:
        recorded = await _record(bus, clock, named, since, until)
        size = anonymise_file(named, path)
    finally:
        named.unlink(missing_ok=True)
    return msgspec.structs.replace(recorded, path=str(path), bytes_total=size)


async def _record(bus: Bus, clock: Clock, path: Path, since: When | None, until: When | None) -> Recorded:
    ledger = await bus.state(StreamName.LEDGER)
    facts = await bus.state(StreamName.FACTS)
    _check(since, until, ledger)
    start = await start_of(bus, since, ledger, facts)
    history = HistoryRange(bus, start, (ledger.last_seq, facts.last_seq), until)
    frames = Frames(head_of(bus, clock, start))
    try:
        with replacing(path) as file:
            file.write(frames.begin())
            async for entry in history.entries():
                file.write(frames.add(entry))
            await history.check_has_entries()
            file.write(frames.end())
            size = file.tell()
    except NotKeptError as error:
        raise NoHistoryError(f"{error}: the cell removed it during the recording; try again") from error
    except ValueError as error:
        raise FatalError(f"the history of the cell is broken: {error}") from error
    return Recorded(str(path), size, start, frames.summary, history.first_ms, history.last_ms)


def anonymise_file(source: Path, target: Path) -> int:
    """Write a copy of a recording without its names; returns the size of the new file in bytes.

    Raises:
        RecordingError: The recording is damaged.
        OSError: A file cannot be read or written.
    """
    with read_file(source) as reading:
        anonymiser = Anonymiser(reading.head, LedgerDump)
        for entry in reading:
            anonymiser.learn(entry)
    anonymiser.settle()
    with read_file(source) as reading, replacing(target) as file:
        for piece in frames_of(anonymiser.head(), map(anonymiser.entry, reading)):
            file.write(piece)
        return file.tell()


def _check(since: When | None, until: When | None, ledger: StreamState) -> None:
    for point in (since, until):
        if point is not None and point.ledger_seq > ledger.last_seq:
            raise NoHistoryError(f"{point} is not stored yet: the ledger ends at {ledger.last_seq}")
    if since is None or until is None:
        return
    if since.at_ms > until.at_ms >= 0 or since.ledger_seq > until.ledger_seq >= 0:
        raise NoHistoryError(f"from {since} to {until} is empty: the end is before the start")


def head_of(bus: Bus, clock: Clock, start: SnapshotBody) -> RecordingHead:
    """First message of a recording that begins after a snapshot."""
    dump = dump_of(start.ledger) if start.ledger else None
    return RecordingHead(
        release=release(),
        cell=bus.subjects.cell,
        made_at_ms=clock.now_ms(),
        settings=dump.settings if dump is not None else Settings(),
        start=start,
    )


async def reaching_ends(bus: Bus, ledger: StreamState, facts: StreamState) -> list[SnapshotEnd]:
    """Snapshots after which both streams are complete, oldest first."""
    return [
        end
        for end in await snapshot_ends(bus)
        if ledger.first_seq - 1 <= end.ledger_seq <= ledger.last_seq
        and facts.first_seq - 1 <= end.facts_seq <= facts.last_seq
    ]


def is_whole(ledger: StreamState, facts: StreamState) -> bool:
    """Whether both streams still hold their first message."""
    return ledger.first_seq <= 1 and facts.first_seq <= 1


async def start_of(bus: Bus, since: When | None, ledger: StreamState, facts: StreamState) -> SnapshotBody:
    """Start of the recording: a snapshot, or the beginning.

    Raises:
        NoHistoryError: None before ``since`` is kept.
    """
    reaching = await reaching_ends(bus, ledger, facts)
    from_beginning = is_whole(ledger, facts)
    if since is None:
        fitting = [] if from_beginning else reaching
    else:
        fitting = [end for end in reversed(reaching) if _before(end, since)]
    for end in fitting:
        body = await read_snapshot(bus, end)
        if body is not None:
            return body
    if from_beginning:
        return BEGINNING
    raise NoHistoryError(_gone(since, reaching, ledger, facts))


def _before(end: SnapshotEnd, since: When) -> bool:
    return end.ledger_seq < since.ledger_seq if since.ledger_seq >= 0 else end.at_ms <= since.at_ms


def _gone(since: When | None, reaching: list[SnapshotEnd], ledger: StreamState, facts: StreamState) -> str:
    kept = f"stored are records {ledger.first_seq} to {ledger.last_seq} and facts {facts.first_seq} to {facts.last_seq}"
    if not reaching:
        return f"no snapshot to start from; {kept}"
    oldest = reaching[0]
    wanted = "the beginning" if since is None else str(since)
    return (
        f"{wanted} was removed: the oldest possible start is {_LEDGER}{oldest.ledger_seq + 1}, after the snapshot of"
        f" {_moment(oldest.at_ms)}; {kept}"
    )


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / _SECOND_MS, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Next:
    """Iterator over the messages of a range that can look at the next one."""

    def __init__(self, bus: Bus, stream: StreamName, start: int, end: int) -> None:
        self._pieces = pieces(bus, stream, start, end)
        self._piece: deque[Stored] = deque()

    async def peek(self) -> Stored | None:
        """Look at the next message; None at the end."""
        while not self._piece:
            piece = await anext(self._pieces, None)
            if piece is None:
                return None
            self._piece.extend(piece)
        return self._piece[0]

    def advance(self) -> None:
        """Advance by one message."""
        self._piece.popleft()


class HistoryRange:
    """Entries of a recording: from the start to the heads, or to an earlier end."""

    def __init__(self, bus: Bus, start: SnapshotBody, heads: tuple[int, int], until: When | None) -> None:
        self.first_ms = 0
        self.last_ms = 0
        ledger_seq, self._facts_seq = heads
        self._until = until
        self._known = start.facts_seq
        self._chain = ChainReader(position_of(start))
        if until is not None and until.ledger_seq >= 0:
            ledger_seq = until.ledger_seq
        if ledger_seq < start.ledger_seq:
            raise NoHistoryError(f"{until} is before the start: the snapshot at record {start.ledger_seq}")
        self._records = _Next(bus, StreamName.LEDGER, start.ledger_seq + 1, ledger_seq)
        self._facts = _Next(bus, StreamName.FACTS, start.facts_seq + 1, self._facts_seq)

    async def entries(self) -> AsyncIterator[Entry]:
        """Entries in order: before each record the facts that it used, at the end the remaining facts.

        Raises:
            NotKeptError: The cell removed something meanwhile.
            ValueError: A record does not decode.
        """
        while (record := await self._records.peek()) is not None and not self._is_later(record):
            self._known = max(self._known, self._chain.read(record.sequence, record.data).facts_seq)
            async for entry in self._facts_up_to(self._known):
                yield entry
            self._note(record)
            yield Entry(record.sequence, record.data)
            self._records.advance()
        if self._until is None or self._until.ledger_seq < 0:
            async for entry in self._facts_up_to(self._facts_seq, all_of_them=False):
                yield entry

    async def check_has_entries(self) -> None:
        """Check, after the entries, that the range is not empty while the streams are not.

        Raises:
            NoHistoryError: Everything that is stored is later than the requested end.
        """
        coming = [one for one in (await self._facts.peek(), await self._records.peek()) if one is not None]
        if coming and not self.last_ms:
            begin_ms = min(one.at_ms for one in coming)
            raise NoHistoryError(f"nothing is stored up to {self._until}: the history begins at {_moment(begin_ms)}")

    async def _facts_up_to(self, sequence: int, *, all_of_them: bool = True) -> AsyncIterator[Entry]:
        while (fact := await self._facts.peek()) is not None and fact.sequence <= sequence:
            if not all_of_them and self._is_later(fact):
                return
            self._note(fact)
            yield Entry(fact.sequence, fact.data, fact.subject)
            self._facts.advance()

    def _is_later(self, stored: Stored) -> bool:
        """Whether a message is later than the requested end."""
        return self._until is not None and 0 <= self._until.at_ms < stored.at_ms

    def _note(self, stored: Stored) -> None:
        self.first_ms = self.first_ms or stored.at_ms
        self.last_ms = max(self.last_ms, stored.at_ms)


class Past(NamedTuple):
    """Stored history up to now.

    Attributes:
        start: Where it begins: at the newest snapshot before the time that was asked for, or at the beginning.
        history: What comes after that.
        is_whole: Whether what was stored at that time is kept; otherwise it begins with the oldest that is.
    """

    start: SnapshotBody
    history: HistoryRange
    is_whole: bool


async def past_since(bus: Bus, at_ms: int) -> Past:
    """History of a cell since a time, as far as it is kept.

    Raises:
        NoHistoryError: No snapshot and no beginning is kept.
        TransientError: The bus did not answer.
    """
    ledger, facts = await bus.state(StreamName.LEDGER), await bus.state(StreamName.FACTS)
    has_all = True
    try:
        start = await start_of(bus, When(at_ms=at_ms), ledger, facts)
    except NoHistoryError:
        start, has_all = await start_of(bus, None, ledger, facts), False
    return Past(start, HistoryRange(bus, start, (ledger.last_seq, facts.last_seq), None), has_all)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes ``path`` when the block ends, and is removed after an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def read_file(path: Path, *, salvage: bool = False) -> Iterator[Reading]:
    """Open a recording; the file is closed when the block ends.

    Raises:
        RecordingError: See :func:`berth.formats.recordings.recording.read`.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        yield read(iter(lambda: file.read(_CHUNK_BYTES), b""), salvage=salvage)
