"""``berth backup`` and ``berth restore``: the streams of a cell as a file, and a file as the streams of a cell."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import WRONG_USE, CommandError, emit, print_result
from berth.cli.recordings.record import may_write
from berth.core.text import pluralize
from berth.runtime.backups.backup import backup
from berth.runtime.backups.checks import Checked, DamagedError
from berth.runtime.backups.merging import merged
from berth.runtime.backups.object_store import ObjectUrl, download, exists, object_url, upload
from berth.runtime.backups.restore import restore
from berth.runtime.clock import SystemClock


class BackupResult(msgspec.Struct, frozen=True):
    """Result of ``berth backup --json`` and ``berth restore --json``."""

    file: str
    bytes: int
    cell: str
    records_to: int
    """Last record of the ledger."""
    facts_to: int
    jobs: int
    """Jobs in the facts at the end, also finished ones that have their names still."""
    attempts: int
    """Attempts that own chips then."""
    messages: dict[str, int]
    """Messages of each stream."""


def backup_cell(
    file: str, *, force: Annotated[bool, Parameter(negative=())] = False, common: Common | None = None
) -> int:
    """Write everything of a cell that cannot be made again to a file or an object store, and check it.

    Args:
        file: The file to write, or an object such as s3://bucket/cell.backup. The cell may go on meanwhile.
        force: Overwrite what exists.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        url = _url(file)
        with TemporaryDirectory(prefix="berth-backup-") if url is not None else nullcontext("") as folder:
            path = Path(folder) / "backup" if url is not None else Path(file)
            if url is None:
                may_write(path, force=force)
            elif not force and exists(url):
                raise CommandError(f"{url} exists; name another object, or overwrite it with --force", code=WRONG_USE)
            async with connected(options) as bus:
                try:
                    written = await backup(bus, SystemClock(), path)
                except OSError as error:
                    raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
            if url is not None:
                upload(path, url)
        _show(_result(file, written.bytes_total, written.checked), options, "backup of")

    return run(work)


def restore_cell(
    file: str,
    *,
    recording: Annotated[str, Parameter(show_default=False)] = "",
    replace: Annotated[bool, Parameter(negative=())] = False,
    replicas: Annotated[int, Parameter(show_default=False)] = 0,
    common: Common | None = None,
) -> int:
    """Make the streams of a cell anew from a backup. Its services must not run.

    Args:
        file: A backup, made by: berth backup; or a recording, made by: berth record; or an object such as
            s3://bucket/cell.backup with one of them. It is checked before any change.
        recording: A recording that goes on after the backup, such as one made by: berth record --follow.
        replace: Delete what the cell holds. Without it a cell that holds anything is left alone.
        replicas: Replicas of each stream, 1 or 3. Default: as in the backup.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        if replicas not in {0, 1, 3}:
            raise CommandError(f"--replicas is {replicas}, expected 1 or 3", code=WRONG_USE)
        async with connected(options, needs_cell=False) as bus:
            try:
                with _fetched(file) as base, _continued(recording) as more, merged(base, more) as source:
                    checked = await restore(bus, SystemClock(), source, replace=replace, replicas=replicas or None)
            except OSError as error:
                name = error.filename or file
                raise CommandError(f"{name} cannot be read: {error.strerror or error}", code=WRONG_USE) from error
            except DamagedError as error:
                raise CommandError(f"{file}: {error}; nothing was changed") from error
        _show(_result(file, checked.bytes_total, checked), options, "restored:")

    return run(work)


def _url(file: str) -> ObjectUrl | None:
    """The object that is named; None for a file.

    Raises:
        CommandError: The URL names no object.
    """
    try:
        return object_url(file)
    except ValueError as error:
        raise CommandError(str(error), code=WRONG_USE) from error


@contextmanager
def _fetched(file: str) -> Iterator[Path]:
    """A file, or a copy of an object that lasts as long as the block.

    Raises:
        CommandError: The URL names no object.
        ObjectStoreError: See :func:`berth.runtime.backups.object_store.download`.
    """
    url = _url(file)
    if url is None:
        yield Path(file)
        return
    with TemporaryDirectory(prefix="berth-restore-") as folder:
        path = Path(folder) / "object"
        download(url, path)
        yield path


@contextmanager
def _continued(recording: str) -> Iterator[Path | None]:
    """As :func:`_fetched`; None without a recording."""
    if not recording:
        yield None
        return
    with _fetched(recording) as path:
        yield path


def _result(file: str, size: int, checked: Checked) -> BackupResult:
    state = checked.state
    return BackupResult(
        file=file,
        bytes=size,
        cell=checked.head.cell,
        records_to=state.fold.head,
        facts_to=state.facts_seq,
        jobs=len(state.jobs),
        attempts=len(state.fold.holdings),
        messages=checked.counts,
    )


def _show(result: BackupResult, options: Common, what: str) -> None:
    if options.json:
        emit(result)
        return
    print_result(f"{result.file}: {math.ceil(result.bytes / 1024)} KiB, {what} the cell {result.cell!r}")
    print_result(f"  up to record {result.records_to} and fact {result.facts_to}")
    print_result(f"  {pluralize(result.jobs, 'job')}, {pluralize(result.attempts, 'attempt')} with chips")
