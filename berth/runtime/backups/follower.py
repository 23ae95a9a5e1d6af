"""Continuous recording: a file that grows with a cell, on another machine, and goes on after an interruption.

The file is a recording without its end as long as it grows. Only whole frames count, so an interruption costs what was
not written yet, at most what came in :data:`FLUSH_S`. Facts are written with the first record that knew them.
"""

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import BinaryIO, Final

from berth.formats.recordings.recording import Frames, Order, RecordingError
from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError
from berth.runtime.ledger_reader import follow_ledger
from berth.runtime.recording import NoHistoryError, head_of, read_file, replacing, start_of
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.chain import Position, link_of
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
        began: Set once the file is there and later entries are received.
    """

    def __init__(self, bus: Bus, clock: Clock, path: Path) -> None:
        self._bus = bus
        self._clock = clock
        self._path = path
        self._facts: deque[Stored] = deque()
        self._records: deque[Stored] = deque()
        self._received = 0
        self._position = Position()
        self._gap: Gap | None = None
        self._moved = asyncio.Event()
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
        order, bus = place.order, self._bus
        ledger, facts = await bus.state(StreamName.LEDGER), await bus.state(StreamName.FACTS)
        await self._see_same(place)
        self._received, self._position = order.facts_seq, order.position
        records = await follow_ledger(
            bus, ledger, on_message=self._records.append, on_gap=self._on_gap, start_seq=order.ledger_seq + 1
        )
        start = order.facts_seq + 1
        followers = (
            bus.follow(
                StreamName.FACTS, on_message=self._on_fact, on_gap=self._on_gap, start_seq=start, created=facts.created
            ),
            records,
        )
        frames = Frames(place.head, order)
        try:
            with self._path.open("r+b") as file:
                file.truncate(place.bytes_total)
                file.seek(place.bytes_total)
                self.began.set()
                await self._write(file, frames, stop)
                file.write(frames.end())
                _sync(file)
        finally:
            for follower in followers:
                await follower.stop()
        return frames.summary

    async def _write(self, file: BinaryIO, frames: Frames, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                ready = b"".join(frames.add(entry) for entry in self._ready()) + frames.flush()
            except ValueError as error:
                raise FatalError(f"the history of the cell is broken: {error}") from error
            if ready:
                file.write(ready)
                _sync(file)
            if self._gap is not None:
                raise FatalError(f"{self._gap.stream}: {self._gap.reason.value}; begin a new file")
            try:
                async with asyncio.timeout(FLUSH_S):
                    await stop.wait()
            except TimeoutError:
                continue

    def _ready(self) -> list[Entry]:
        """Records whose facts have arrived, each after those.

        Raises:
            FatalError: A record does not decode.
        """
        found: list[Entry] = []
        while self._records:
            record = self._records[0]
            try:
                link = link_of(self._position, record.sequence, record.data)
            except DecodeError as error:
                raise FatalError(
                    f"record {record.sequence} does not decode: {error}; berth fsck reports more"
                ) from error
            if link.facts_seq > self._received:
                break
            while self._facts and self._facts[0].sequence <= link.facts_seq:
                fact = self._facts.popleft()
                found.append(Entry(fact.sequence, fact.data, fact.subject))
            found.append(Entry(record.sequence, record.data))
            self._records.popleft()
            self._position = self._position.after(link)
        return found

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

    def _on_fact(self, stored: Stored) -> None:
        self._facts.append(stored)
        self._received = stored.sequence

    def _on_gap(self, gap: Gap) -> None:
        self._gap = gap


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


__all__ = ["FLUSH_S", "ContinuousRecording", "RecordingError"]
