"""Continuous recording: a file that grows with a cell, on another machine, and goes on after an interruption.

The file is a recording without its end as long as it grows. Only whole frames count, so an interruption costs what was
not written yet, at most what came in :data:`FLUSH_S`. Facts are written with the first record that knew them, and read
when it is there: until then the cell keeps them, and not this process.
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
from berth.runtime.recording import NoHistoryError, head_of, read_file, replacing, start_of
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.chain import link_of
from berth.schemas.envelope import DecodeError
from berth.schemas.recording import Entry, RecordingEnd, RecordingHead
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
            FatalError: The history of the cell broke.
            NewerVersionError: Only a newer release reads a record.
            OSError: The file cannot be written.
        """
        place = self._found() if self._path.exists() else await self._made()
        for stream in (StreamName.LEDGER, StreamName.FACTS):
            self._created[stream] = (await self._bus.state(stream)).created
        await self._see_same(place)
        frames = Frames(place.head, place.order)
        with self._path.open("r+b") as file:
            file.truncate(place.bytes_total)
            file.seek(place.bytes_total)
            self.began.set()
            await self._write(file, frames, place.order, stop)
            file.write(frames.end())
            _sync(file)
        return frames.summary

    async def _write(self, file: BinaryIO, frames: Frames, order: Order, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with aclosing(self._new(order)) as entries:
                    async for entry in entries:
                        file.write(frames.add(entry))
                        if stop.is_set():
                            break
            except TransientError as error:  # the bus is away: it is asked again
                if self._bus.lost.done():
                    raise self._bus.lost.result() from error
            except NotKeptError as error:
                raise FatalError(f"{error}; begin a new file") from error
            except ValueError as error:
                raise FatalError(f"the history of the cell is broken: {error}") from error
            ready = frames.flush()
            if ready:
                file.write(ready)
                _sync(file)
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

    async def _see_same(self, place: _Place) -> None:
        """See that the cell goes on where the file ends.

        Raises:
            NoHistoryError: It does not.
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
                if piece[0].data != place.last.data:
                    raise NoHistoryError(
                        f"{self._path} ends with another record {place.last.sequence} than the cell has: the cell was"
                        " restored since; begin a new file"
                    )
        except NotKeptError:
            return  # the cell removed it since, and what comes after it is there


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
