"""Recordings of a live cell, and their files.

The heads of both streams are taken first, the ledger's before that of the facts, so that what the last record knew is there; the
cell goes on meanwhile. What is read goes into the file a piece at a time, under a temporary name until it is whole.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from berth.core.state.ledger import LedgerDump, dump_of
from berth.formats.recordings.anonymisation import Anonymiser
from berth.formats.recordings.recording import Frames, Reading, frames_of, read
from berth.runtime.bus.port import Bus, Stored, StreamState
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, ShellError
from berth.runtime.feeds import read_snapshot, snapshot_ends
from berth.runtime.release import release
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.ledger import Settings, facts_known
from berth.schemas.recording import BEGINNING, Entry, RecordingEnd, RecordingHead
from berth.schemas.status import SnapshotBody, SnapshotEnd
from berth.schemas.subjects import StreamName

_CHUNK_BYTES: Final = 1 << 20
_LEDGER: Final = "ledger:"
_OLDEST_MS: Final = 10**11
"""A number below is no moment of any cell in milliseconds (it would be in 1973), but rather a sequence, or seconds."""
_SECOND_MS: Final = 1000


class When(msgspec.Struct, frozen=True):
    """A point in the history of a cell: a moment, or a record of the ledger; the other is -1."""

    at_ms: int = -1
    ledger_seq: int = -1

    def __str__(self) -> str:
        return f"{_LEDGER}{self.ledger_seq}" if self.ledger_seq >= 0 else _moment(self.at_ms)


def when_of(text: str) -> When:
    """The point that a person named: ``2026-11-21T10:00:00Z`` (UTC where no zone is said), milliseconds, or ``ledger:123``.

    Raises:
        ValueError: It is none of these; says what would be right.
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
        f"{text!r} is no point in time, expected a time such as 2026-11-21T10:00:00Z, milliseconds since 1970, or a record of"
        f" the ledger such as {_LEDGER}123"
    )


class NoHistoryError(ShellError):
    """What is to be recorded is not there, or no longer."""


class Recorded(msgspec.Struct, frozen=True):
    """What went into a file."""

    path: str
    bytes_total: int
    start: SnapshotBody
    end: RecordingEnd
    first_ms: int
    """When the first entry was stored; 0 without entries."""
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
        clock: Says when it was made.
        path: The file; replaced when everything is written.
        since: What is wanted begins here; the recording begins at the newest snapshot before it. None: the whole history that is
            kept.
        until: Last record, or last moment; facts that the last record knew are in. None: the end at the time of the call.
        anonymise: Replace names. Until that is done, what was recorded lies beside the file under a temporary name.

    Raises:
        NoHistoryError: It is not kept, not there yet, or ``until`` comes before ``since``; says from where on it is kept.
        TransientError: The bus did not answer.
        FatalError: The history of the cell has a break: facts or records are not in order.
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
    start = await _start(bus, since, ledger, facts)
    reach = Reach(bus, start, (ledger.last_seq, facts.last_seq), until)
    frames = Frames(_head(bus, clock, start))
    try:
        with replacing(path) as file:
            file.write(frames.begin())
            async for entry in reach.entries():
                file.write(frames.add(entry))
            await reach.see_something()
            file.write(frames.end())
            size = file.tell()
    except NotKeptError as error:
        raise NoHistoryError(f"{error}: the cell removed it while it was being recorded; try again") from error
    except ValueError as error:
        raise FatalError(f"the history of the cell has a break: {error}") from error
    return Recorded(str(path), size, start, frames.summary, reach.first_ms, reach.last_ms)


def anonymise_file(source: Path, target: Path) -> int:
    """Write a recording again without its names; returns the bytes of the new file.

    Raises:
        RecordingError: The recording cannot be read to its end.
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
            raise NoHistoryError(f"{point} is not there yet: the ledger ends at {ledger.last_seq}")
    if since is None or until is None:
        return
    if since.at_ms > until.at_ms >= 0 or since.ledger_seq > until.ledger_seq >= 0:
        raise NoHistoryError(f"from {since} to {until} is nothing: the end comes before the start")


def _head(bus: Bus, clock: Clock, start: SnapshotBody) -> RecordingHead:
    dump = dump_of(start.ledger) if start.ledger else None
    return RecordingHead(
        release=release(),
        cell=bus.subjects.cell,
        made_at_ms=clock.now_ms(),
        settings=dump.settings if dump is not None else Settings(),
        start=start,
    )


async def reaching_ends(bus: Bus, ledger: StreamState, facts: StreamState) -> list[SnapshotEnd]:
    """Snapshots from which on all of both streams is kept, the oldest first."""
    return [
        end
        for end in await snapshot_ends(bus)
        if ledger.first_seq - 1 <= end.ledger_seq <= ledger.last_seq
        and facts.first_seq - 1 <= end.facts_seq <= facts.last_seq
    ]


def is_whole(ledger: StreamState, facts: StreamState) -> bool:
    """Whether both streams are kept from their first message on."""
    return ledger.first_seq <= 1 and facts.first_seq <= 1


async def _start(bus: Bus, since: When | None, ledger: StreamState, facts: StreamState) -> SnapshotBody:
    """The state from which on to record.

    Raises:
        NoHistoryError: None is kept that comes before ``since``.
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
    kept = f"kept are records {ledger.first_seq} to {ledger.last_seq} and facts {facts.first_seq} to {facts.last_seq}"
    if not reaching:
        return f"no snapshot from which on history could be told; {kept}"
    oldest = reaching[0]
    wanted = "the beginning" if since is None else str(since)
    return (
        f"{wanted} is no longer kept: the oldest possible start is {_LEDGER}{oldest.ledger_seq + 1}, after the snapshot of"
        f" {_moment(oldest.at_ms)}; {kept}"
    )


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / _SECOND_MS, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Next:
    """Messages of a stretch, one after another, with a look at the next one."""

    def __init__(self, bus: Bus, stream: StreamName, start: int, end: int) -> None:
        self._pieces = pieces(bus, stream, start, end)
        self._piece: deque[Stored] = deque()

    async def look(self) -> Stored | None:
        """The next message; None at the end."""
        while not self._piece:
            piece = await anext(self._pieces, None)
            if piece is None:
                return None
            self._piece.extend(piece)
        return self._piece[0]

    def pass_by(self) -> None:
        """Go on to the one after."""
        self._piece.popleft()


class Reach:
    """What is recorded: from the start up to the heads, or less."""

    def __init__(self, bus: Bus, start: SnapshotBody, heads: tuple[int, int], until: When | None) -> None:
        self.first_ms = 0
        self.last_ms = 0
        ledger_seq, self._facts_seq = heads
        self._until = until
        self._known = start.facts_seq
        if until is not None and until.ledger_seq >= 0:
            ledger_seq = until.ledger_seq
        if ledger_seq < start.ledger_seq:
            raise NoHistoryError(f"{until} comes before the start: the snapshot at record {start.ledger_seq}")
        self._records = _Next(bus, StreamName.LEDGER, start.ledger_seq + 1, ledger_seq)
        self._facts = _Next(bus, StreamName.FACTS, start.facts_seq + 1, self._facts_seq)

    async def entries(self) -> AsyncIterator[Entry]:
        """In the order in which they came to be: before each record the facts that it knew, then the rest.

        Raises:
            NotKeptError: The cell removed something meanwhile.
            ValueError: A record does not decode.
        """
        while (record := await self._records.look()) is not None and not self._is_later(record):
            self._known = max(self._known, facts_known(record.data))
            async for entry in self._facts_up_to(self._known):
                yield entry
            self._note(record)
            yield Entry(record.sequence, record.data)
            self._records.pass_by()
        if self._until is None or self._until.ledger_seq < 0:
            async for entry in self._facts_up_to(self._facts_seq, all_of_them=False):
                yield entry

    async def see_something(self) -> None:
        """See, after the entries, that there were some, or that nothing is there at all.

        Raises:
            NoHistoryError: All that is kept came later than the end that was asked for.
        """
        coming = [one for one in (await self._facts.look(), await self._records.look()) if one is not None]
        if coming and not self.last_ms:
            begin_ms = min(one.at_ms for one in coming)
            raise NoHistoryError(f"nothing is kept up to {self._until}: what is recorded begins at {_moment(begin_ms)}")

    async def _facts_up_to(self, sequence: int, *, all_of_them: bool = True) -> AsyncIterator[Entry]:
        while (fact := await self._facts.look()) is not None and fact.sequence <= sequence:
            if not all_of_them and self._is_later(fact):
                return
            self._note(fact)
            yield Entry(fact.sequence, fact.data, fact.subject)
            self._facts.pass_by()

    def _is_later(self, stored: Stored) -> bool:
        """Whether a message comes after the moment up to which is recorded."""
        return self._until is not None and 0 <= self._until.at_ms < stored.at_ms

    def _note(self, stored: Stored) -> None:
        self.first_ms = self.first_ms or stored.at_ms
        self.last_ms = max(self.last_ms, stored.at_ms)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which has the name ``path`` once it is whole; after an error nothing is left of it."""
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
    """The recording in a file, which is closed at the end.

    Raises:
        RecordingError: See :func:`berth.formats.recordings.recording.read`.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        yield read(iter(lambda: file.read(_CHUNK_BYTES), b""), salvage=salvage)
