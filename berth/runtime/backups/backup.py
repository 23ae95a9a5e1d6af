"""Backup of a live cell to a file.

Streams are read one after another, in an order that makes the whole consistent while the cell goes on: snapshots before
the ledger, so that none is ahead of it; the ledger before the facts, so that those of its last record are there; facts
before the requests, so that each request without a verdict is there. The file gets a temporary name, is read again and
checked as a restore would do it, and is renamed then.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

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

_FIRST: Final = (
    StreamName.SNAPSHOT,
    StreamName.LEDGER,
    StreamName.LATEST,
    StreamName.FACTS,
    StreamName.INTAKE,
)
"""Streams that must be read in this order; the others follow."""
_MIRROR_S: Final = 30.0


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
        with replacing(unchecked) as file:
            async for piece in _frames(bus, clock):
                file.write(piece)
        checked = check_file(unchecked)
        unchecked.replace(path)
    except NotKeptError as error:
        raise BackupError(f"{error}: the cell removed it during the backup; try again") from error
    except DamagedError as error:
        raise BackupError(f"the cell is damaged: {error}; berth fsck reports what is wrong") from error
    finally:
        unchecked.unlink(missing_ok=True)
    return Written(path, checked.bytes_total, checked)


async def _frames(bus: NatsBus, clock: Clock) -> AsyncIterator[bytes]:
    """The bytes of the file."""
    await bus.wait_mirror(StreamName.LATEST, at_least=(await bus.state(StreamName.FACTS)).last_seq, timeout_s=_MIRROR_S)
    latest = await bus.read(StreamName.LATEST)  # before the heads: what is stored again meanwhile is in FACTS then
    specs = backup_order(bus.subjects.streams())
    snapshots = whole_snapshots([_entry(bus, stored) for stored in await bus.read(StreamName.SNAPSHOT)])
    found = {spec.name: await _stream(bus, spec.name) for spec in specs}
    frames = BackupFrames(
        BackupHead(
            release=release(),
            cell=bus.subjects.cell,
            made_at_ms=clock.now_ms(),
            streams=[found[spec.name] for spec in specs],
        )
    )
    yield frames.begin()
    for spec in specs:
        if spec.name is StreamName.SNAPSHOT:
            for entry in snapshots:
                yield frames.add(spec.name, entry)
            continue
        async for entry in _entries(bus, spec, found, latest):
            yield frames.add(spec.name, entry)
    yield frames.end()


async def _stream(bus: NatsBus, name: StreamName) -> BackupStream:
    kept = await bus.keeping(name)
    if kept is None:
        raise BackupError(f"the cell has no stream {name.value}: it is made when a service starts")
    return BackupStream(name.value, kept.state.first_seq, kept.state.last_seq, kept.replicas, kept.max_bytes)


async def _entries(
    bus: NatsBus, spec: StreamSpec, found: dict[StreamName, BackupStream], latest: list[Stored]
) -> AsyncIterator[Entry]:
    """Messages of a stream that belong to the backup, ascending."""
    if spec.backup == "all":
        head = found[spec.name]
        async for piece in pieces(bus, spec.name, head.first_seq, head.last_seq):
            for stored in piece:
                yield _entry(bus, stored)
        return
    if spec.mirror_of is None:
        for stored in await bus.read(spec.name):
            yield _entry(bus, stored)
        return
    first = found[spec.mirror_of].first_seq
    for stored in latest:
        if stored.sequence < first:
            yield _entry(bus, stored)


def _entry(bus: NatsBus, stored: Stored) -> Entry:
    return Entry(stored.sequence, stored.data, stored.subject.removeprefix(bus.subjects.root))
