"""Backup of a live cell to a file.

Streams are read one after another, in an order that makes the whole consistent while the cell goes on: snapshots before
the ledger, so that none is ahead of it; the ledger before the facts, so that those of its last record are there; facts
before the requests, so that each request without a verdict is there. FACTS and INTAKE may lose their oldest messages
until they are read; what is there then counts, so the head of the file is written last. The file gets a temporary name,
is read again and checked as a restore would do it, and is renamed then.
"""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from berth.formats.recordings.backup import BackupFrames
from berth.runtime.backups.checks import Checked, DamagedError, check_file, whole_snapshots
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import ShellError
from berth.runtime.recording import replacing
from berth.runtime.release import release
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.recording import BackupHead, BackupStream, Entry
from berth.schemas.subjects import StreamName, StreamSpec

_COPY_BYTES: Final = 1 << 20
_FIRST: Final = (
    StreamName.SNAPSHOT,
    StreamName.LEDGER,
    StreamName.LATEST,
    StreamName.FACTS,
    StreamName.INTAKE,
)
"""Streams that must be read in this order; the others follow."""
_MIRROR_S: Final = 30.0
_REMOVED: Final = "the cell removed it during the backup; try again"


class BackupError(ShellError):
    """The cell cannot be backed up, or what was read of it is not consistent."""


class Written(NamedTuple):
    """A backup that was written.

    Attributes:
        path: The file.
        bytes_total: Its size.
        checked: What it holds.
    """

    path: Path
    bytes_total: int
    checked: Checked


def backup_order(specs: tuple[StreamSpec, ...]) -> list[StreamSpec]:
    """Streams that a backup holds, in the order in which they are read."""
    held = {spec.name: spec for spec in specs if spec.backup != "none"}
    names = [*_FIRST, *(name for name in held if name not in _FIRST)]
    return [held[name] for name in names if name in held]


async def backup(bus: NatsBus, clock: Clock, path: Path) -> Written:
    """Write the streams of a cell that cannot be made again to a file, and check the file.

    Args:
        bus: The cell, which may go on.
        clock: Source of the time in the head.
        path: The file; replaced when the backup is complete and checked.

    Raises:
        BackupError: The cell removed something meanwhile, or what is stored is damaged; nothing was written.
        TransientError: The bus did not answer.
        OSError: The file cannot be written.
    """
    unchecked = path.with_name(f".{path.name}.{os.getpid()}.unchecked")
    try:
        await _write(bus, clock, unchecked)
        checked = _checked(unchecked)
        unchecked.replace(path)
    except NotKeptError as error:
        raise BackupError(f"{error}: {_REMOVED}") from error
    except DamagedError as error:
        raise BackupError(f"the cell is damaged: {error}; berth fsck reports what is wrong") from error
    finally:
        unchecked.unlink(missing_ok=True)
    return Written(path, checked.bytes_total, checked)


def _checked(path: Path) -> Checked:
    """Check a backup.

    Raises:
        DamagedError: It is damaged, or its last records do not count.
    """
    checked = check_file(path)
    if checked.uncounted:
        raise DamagedError(checked.uncounted)
    return checked


async def _write(bus: NatsBus, clock: Clock, path: Path) -> None:
    """Write the file: its messages first, beside it, because its head says where each stream begins."""
    messages = path.with_name(f"{path.name}.messages")
    try:
        with messages.open("wb") as file:
            head = await _write_messages(bus, clock, file)
        with replacing(path) as file, messages.open("rb") as written:
            file.write(BackupFrames(head).begin())
            shutil.copyfileobj(written, file, _COPY_BYTES)
    finally:
        messages.unlink(missing_ok=True)


async def _write_messages(bus: NatsBus, clock: Clock, file: BinaryIO) -> BackupHead:
    """Write all that follows the head, and return the head."""
    specs = backup_order(bus.subjects.streams())
    head = BackupHead(release(), bus.subjects.cell, 0, [BackupStream(spec.name.value, 1, 0) for spec in specs])
    frames = BackupFrames(head)
    reader = _Reader(bus)
    await reader.read_latest()
    async for entries in _snapshots(bus):
        file.writelines(frames.add(StreamName.SNAPSHOT, entry) for entry in entries)
    await reader.read_heads(specs)
    made_at_ms = clock.now_ms()
    for spec in specs:
        if spec.name is not StreamName.SNAPSHOT:
            async for stored in reader.messages(spec):
                file.write(frames.add(spec.name, _entry(bus, stored)))
    file.write(frames.end())
    streams = [reader.heads[spec.name] for spec in specs]
    return msgspec.structs.replace(head, made_at_ms=made_at_ms, streams=streams)


async def _snapshots(bus: NatsBus) -> AsyncIterator[list[Entry]]:
    """Messages of each snapshot that is whole; one that was written while another was is left out."""
    written = 0
    for end in await bus.read(StreamName.SNAPSHOT, filters=[f"{bus.subjects.root}snapshot.*.end"]):
        own = f"{end.subject.removesuffix('end')}>"
        entries = whole_snapshots(_entry(bus, stored) for stored in await bus.read(StreamName.SNAPSHOT, filters=[own]))
        if entries and entries[0].sequence > written:
            yield entries
            written = entries[-1].sequence


class _Reader:
    """Reads the streams of a cell that goes on.

    Attributes:
        heads: Each stream from its first message that belongs to the backup to its last.
    """

    def __init__(self, bus: NatsBus) -> None:
        self.heads: dict[StreamName, BackupStream] = {}
        self._bus = bus
        self._latest: list[Stored] = []
        self._known = 0
        """Last fact that LATEST had when it was read."""
        self._begun: dict[StreamName, AsyncIterator[list[Stored]]] = {}

    async def read_latest(self) -> None:
        """Read LATEST, before the heads: what is stored again meanwhile is in FACTS then."""
        self._known = (await self._bus.state(StreamName.FACTS)).last_seq
        await self._bus.wait_mirror(StreamName.LATEST, at_least=self._known, timeout_s=_MIRROR_S)
        self._latest = await self._bus.read(StreamName.LATEST)

    async def read_heads(self, specs: list[StreamSpec]) -> None:
        """Read where the streams begin and end.

        Raises:
            BackupError: One is missing.
        """
        for spec in specs:
            self.heads[spec.name] = await _stream(self._bus, spec.name)

    async def messages(self, spec: StreamSpec) -> AsyncIterator[Stored]:
        """Messages of a stream that belong to the backup, ascending; called in the order of the file.

        Raises:
            BackupError: Facts are gone that LATEST did not have yet.
            NotKeptError: The cell removed messages meanwhile.
        """
        if spec.backup == "all":
            async for piece in self._begun.pop(spec.name, None) or await self._begin(spec.name):
                for stored in piece:
                    yield stored
        elif spec.mirror_of is None:
            for stored in await self._bus.read(spec.name):
                yield stored
        else:
            self._begun[spec.mirror_of] = await self._begin(spec.mirror_of)
            first = self.heads[spec.mirror_of].first_seq
            if first > self._known + 1:
                raise BackupError(f"{spec.mirror_of} {self._known + 1} is not kept: {_REMOVED}")
            for stored in self._latest:
                if stored.sequence < first:
                    yield stored

    async def _begin(self, name: StreamName) -> AsyncIterator[list[Stored]]:
        """Read the first piece of a stream, and note where it begins; returns all pieces.

        What the cell has removed of FACTS and INTAKE since the heads were read is left out: it is too old, or beyond
        the limit of bytes, and the oldest messages go first. From then on reading is faster.

        Raises:
            NotKeptError: The cell removed something else, or the stream was made anew.
        """
        created = (await self._bus.state(name)).created
        while True:
            head = self.heads[name]
            others = pieces(self._bus, name, head.first_seq, head.last_seq)
            try:
                return _joined(await anext(others, []), others)
            except NotKeptError:
                state = await self._bus.state(name)
                if name is StreamName.LEDGER or state.created != created or state.first_seq <= head.first_seq:
                    raise
                first = min(state.first_seq, head.last_seq + 1)
                self.heads[name] = BackupStream(head.name, first, head.last_seq, head.replicas, head.max_bytes)


async def _joined(first: list[Stored], others: AsyncIterator[list[Stored]]) -> AsyncIterator[list[Stored]]:
    yield first
    async for piece in others:
        yield piece


async def _stream(bus: NatsBus, name: StreamName) -> BackupStream:
    kept = await bus.keeping(name)
    if kept is None:
        raise BackupError(f"the cell has no stream {name.value}: it is made when a service starts")
    return BackupStream(name.value, kept.state.first_seq, kept.state.last_seq, kept.replicas, kept.max_bytes)


def _entry(bus: NatsBus, stored: Stored) -> Entry:
    return Entry(stored.sequence, stored.data, stored.subject.removeprefix(bus.subjects.root))
