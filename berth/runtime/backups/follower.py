"""Continuous recording: a file that grows with a cell, on another machine, and goes on after an interruption.

The file is a recording without its end as long as it grows. Only whole frames count, so an interruption costs what was
not written yet, at most what came in :data:`FLUSH_S`. Facts are written with the first record that knew them, and read
when it is there: until then the cell keeps them, and not this process.

A record that is in the file may be skipped later. What follows it in the ledger is void for a reader of the file, so
the recording ends then, as services do.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Final

from berth.formats.recordings.recording import Frames, Order, RecordingError
from berth.runtime.bus.port import Bus, GapReason, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.ledger_reader import Skips, read_skips, skip_of, skips_void
from berth.runtime.recording import NoHistoryError, head_of, read_file, replacing, start_of
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.chain import link_of, stored_digest
from berth.schemas.envelope import DecodeError
from berth.schemas.recording import Entry, RecordingEnd, RecordingHead
from berth.schemas.status import Skip
from berth.schemas.subjects import StreamName

FLUSH_S: Final = 1.0
"""Longest time until an entry that can be written is on the disk."""


class _Place:
    """Where a file ends.

    Attributes:
        head: Its first message.
        order: Its entries.
        bytes_total: Bytes of its whole frames, without an end.
        last: Its last record; None without one.
    """

    def __init__(self, head: RecordingHead, order: Order, bytes_total: int, last: Entry | None) -> None:
        self.head = head
        self.order = order
        self.bytes_total = bytes_total
        self.last = last


class ContinuousRecording:
    """Writes the history of a cell to a file as it happens.

    Args:
        bus: The cell.
        clock: Source of the time in the head.
        path: The file; one that exists is continued.

    Attributes:
        began: Set once the file is there.
    """

    def __init__(self, bus: Bus, clock: Clock, path: Path) -> None:
        self._bus = bus
        self._clock = clock
        self._path = path
        self._created: dict[StreamName, str] = {}
        self.began = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> RecordingEnd:
        """Write until asked to stop; then end the file. Returns what it holds.

        Raises:
            NoHistoryError: The cell does not have any more what comes after the end of the file, or the file is of
                another cell or of one that was restored since.
            RecordingError: The file cannot be continued: its head is damaged.
            FatalError: The history of the cell broke, or a repair passes over a record that the file has.
            VersionError: Only another release reads a record.
            OSError: The file cannot be written.
            TransientError: The bus did not answer at the start.
        """
        place = self._found() if self._path.exists() else await self._made()
        for stream in (StreamName.LEDGER, StreamName.FACTS):
            self._created[stream] = (await self._bus.state(stream)).created
        skipped = _Skipped(self._bus, self._path, start_seq=place.head.start.ledger_seq)
        await skipped.begin(place.order)
        await self._check_same_history(place)
        frames = Frames(place.head, place.order)
        with self._path.open("r+b") as file:
            file.truncate(place.bytes_total)
            file.seek(place.bytes_total)
            self.began.set()
            await self._write(file, frames, place.order, skipped, stop)
            file.write(frames.end())
            _sync(file)
        return frames.summary

    async def _write(
        self, file: BinaryIO, frames: Frames, order: Order, skipped: "_Skipped", stop: asyncio.Event
    ) -> None:
        synced = file.tell()
        while not stop.is_set():
            try:
                async with aclosing(self._new(order)) as entries:
                    async for entry in entries:
                        file.write(frames.add(entry))
                        if stop.is_set():
                            break
                file.write(frames.flush())
                file.flush()
                # After the records: what a leader appended behind a repair is never left in the file without its skip.
                await skipped.see(order)
            except TransientError as error:  # the bus is away: it is asked again
                if self._bus.lost.done():
                    raise self._bus.lost.result() from error
            except NotKeptError as error:
                raise FatalError(f"{error}; begin a new file") from error
            except ValueError as error:
                raise FatalError(f"the history of the cell is broken: {error}") from error
            file.write(frames.flush())
            if file.tell() > synced:
                _sync(file)
                synced = file.tell()
            try:
                async with asyncio.timeout(FLUSH_S):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _new(self, order: Order) -> AsyncGenerator[Entry, None]:
        """Records that came since, each after the facts that it was the first to know.

        Args:
            order: Where the file ends; each entry is added to it before the next one is taken.

        Raises:
            FatalError: A stream was made anew or lost its end, or a record does not decode.
            NotKeptError: The cell removed an entry before it was read.
            TransientError: The bus did not answer.
        """
        ledger_to = await self._head(StreamName.LEDGER, order.ledger_seq)
        facts_to = await self._head(StreamName.FACTS, order.facts_seq)
        facts = _Facts(self._bus, order.facts_seq + 1, facts_to)
        async for piece in pieces(self._bus, StreamName.LEDGER, order.ledger_seq + 1, ledger_to):
            for record in piece:
                try:
                    known = link_of(order.position, record.sequence, record.data).facts_seq
                except DecodeError as error:
                    raise FatalError(
                        f"record {record.sequence} does not decode: {error}; berth fsck reports more"
                    ) from error
                while order.facts_seq < known:
                    fact = await facts.next()
                    yield Entry(fact.sequence, fact.data, fact.subject)
                yield Entry(record.sequence, record.data)

    async def _head(self, stream: StreamName, reached: int) -> int:
        """Last sequence of a stream that has been read up to a sequence.

        Raises:
            FatalError: It is another stream, or ends before that.
            TransientError: The bus did not answer.
        """
        state = await self._bus.state(stream)
        if state.created != self._created[stream]:
            raise FatalError(f"{stream}: {GapReason.RECREATED.value}; begin a new file")
        if state.last_seq < reached:
            raise FatalError(f"{stream}: {GapReason.BACKWARDS.value}; begin a new file")
        return state.last_seq

    def _found(self) -> _Place:
        """The end of the file that is there."""
        last: Entry | None = None
        with read_file(self._path, salvage=True) as reading:
            size = reading.position
            for entry in reading:
                size = reading.position
                last = last if entry.subject else entry
            return _Place(reading.head, reading.order, size, last)

    async def _made(self) -> _Place:
        """A new file with its head."""
        bus = self._bus
        start = await start_of(bus, None, await bus.state(StreamName.LEDGER), await bus.state(StreamName.FACTS))
        head = head_of(bus, self._clock, start)
        with replacing(self._path) as file:
            file.write(Frames(head).begin())
            size = file.tell()
        return _Place(head, Order(start), size, None)

    async def _check_same_history(self, place: _Place) -> None:
        """Check that the cell goes on where the file ends.

        Raises:
            NoHistoryError: The cell goes on elsewhere, or is another one.
        """
        cell = self._bus.subjects.cell
        if place.head.cell != cell:
            raise NoHistoryError(f"{self._path} is a recording of the cell {place.head.cell!r}, not of {cell!r}")
        order = place.order
        for stream, last in ((StreamName.FACTS, order.facts_seq), (StreamName.LEDGER, order.ledger_seq)):
            state = await self._bus.state(stream)
            if not state.first_seq - 1 <= last <= state.last_seq:
                raise NoHistoryError(
                    f"{self._path} ends at {stream.value} {last}, and the cell has {state.first_seq} to"
                    f" {state.last_seq}: begin a new file"
                )
        if place.last is None:
            return
        try:
            async for piece in pieces(self._bus, StreamName.LEDGER, place.last.sequence, place.last.sequence):
                if piece[0].data != place.last.data and not skips_void(piece[0].data, place.last.data):
                    raise NoHistoryError(
                        f"{self._path} ends with another record {place.last.sequence} than the cell has: the cell was"
                        " restored since; begin a new file"
                    )
        except NotKeptError:
            return  # the cell removed it since, and what comes after it is there


class _Skipped:
    """Sees that no record of the file is skipped.

    The file has a skip itself where one was there before the record was read. One of another message at the same
    sequence counts for nothing, as for all readers.

    Args:
        bus: The cell.
        path: The file.
        start_seq: End of the ledger in its snapshot.
    """

    def __init__(self, bus: Bus, path: Path, *, start_seq: int) -> None:
        self._bus = bus
        self._path = path
        self._start_seq = start_seq
        self._skips: Skips | None = None
        self._seen: set[Skip] = set()
        """Those that pass over nothing of the file."""

    async def begin(self, order: Order) -> None:
        """See what the file has at the start. Skips of what lies before its first record are in its snapshot.

        Args:
            order: Where it ends.

        Raises:
            FatalError: As :meth:`see`.
            TransientError: The bus did not answer.
        """
        self._skips = await read_skips(self._bus)
        self._seen.update(skip for skip in self._skips.known if skip.sequence <= self._start_seq)
        await self.see(order)

    async def see(self, order: Order) -> None:
        """Check that no record up to the end of the file is skipped; called after they are written.

        Raises:
            FatalError: One is, and was not void.
            TransientError: The bus did not answer.
        """
        skips = self._skips = await read_skips(self._bus, before=self._skips)
        found = [
            skip
            for skip in skips.known
            if not skip.was_void and skip.sequence <= order.ledger_seq and skip not in self._seen
        ]
        if not found:
            return
        wrong = next((one.sequence for one in found if one.sequence <= self._start_seq), 0) or self._find(found)
        if wrong:
            raise FatalError(
                f"berth repair passes over record {wrong}, which {self._path} has: the ledger goes on without it, and"
                " not where the file ends; begin a new file"
            )
        self._seen.update(skip for skip in found if skip.last_seq <= order.ledger_seq)

    def _find(self, skips: list[Skip]) -> int:
        """First record of the file that one of the skips passes over; 0 without one."""
        last = max(skip.last_seq for skip in skips)
        with read_file(self._path, salvage=True) as reading:
            for entry in reading:
                if entry.subject:
                    continue
                if entry.sequence > last:
                    break
                over = {skip.digest for skip in skips if skip.sequence <= entry.sequence <= skip.last_seq}
                if over and skip_of(entry.data) is None and over & {"", stored_digest(entry.data)}:
                    return entry.sequence
        return 0


class _Facts:
    """Facts from a sequence on, read in pieces when they are asked for."""

    def __init__(self, bus: Bus, start: int, end: int) -> None:
        self._end = end
        self._bus = bus
        self._pieces = pieces(bus, StreamName.FACTS, start, end)
        self._piece: deque[Stored] = deque()

    async def next(self) -> Stored:
        """The next fact.

        Raises:
            NotKeptError: The cell has removed it, or does not have it.
            TransientError: The bus did not answer.
        """
        if not self._piece:
            piece = await anext(self._pieces, None)
            if piece is None:
                raise NotKeptError(StreamName.FACTS, self._end + 1, await self._bus.state(StreamName.FACTS))
            self._piece.extend(piece)
        return self._piece.popleft()


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


__all__ = ["FLUSH_S", "ContinuousRecording", "RecordingError"]
