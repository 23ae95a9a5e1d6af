"""``berth record``: the history of a cell as a file."""

import math
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.output import (
    WRONG_USE,
    CommandError,
    emit,
    moment,
    print_result,
)
from berth.cli.recordings.following import follow_cell
from berth.core.text import pluralize
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.recording import Recorded, When, record, when_of


class RecordResult(msgspec.Struct, frozen=True):
    """Result of ``berth record --json``."""

    file: str
    bytes: int
    cell: str
    facts: int
    facts_from: int
    facts_to: int
    records: int
    records_from: int
    records_to: int
    from_ms: int
    """When the first entry was stored; 0 without entries."""
    to_ms: int


def record_cell(
    file: Path,
    *,
    since: Annotated[str, Parameter(name="--from", show_default=False)] = "",
    until: Annotated[str, Parameter(name="--to", show_default=False)] = "",
    anonymise: Annotated[bool, Parameter(negative=())] = False,
    force: Annotated[bool, Parameter(negative=())] = False,
    follow: Annotated[bool, Parameter(negative=())] = False,
    common: Common | None = None,
) -> int:
    """Write the history of a cell to a file: its facts and its decisions.

    Args:
        file: The file to write.
        since: Start at the newest snapshot before this time (2026-11-21T10:00:00Z, or milliseconds since 1970) or
            record of the ledger (ledger:123). Default: the oldest stored history.
        until: End at this time, or with this record. Default: now.
        anonymise: Replace all names; their order and all decisions stay the same.
        force: Overwrite an existing file.
        follow: Go on until Ctrl-C; a file that exists is continued. Takes no other option.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        if follow:
            if since or until or anonymise or force:
                raise CommandError("--follow takes no other option: the file grows with the cell", code=WRONG_USE)
            await follow_cell(file, options)
            return
        begin, end = _point("--from", since), _point("--to", until)
        if begin is not None and begin.at_ms > SystemClock().now_ms():
            raise CommandError(f"--from is {begin}, which is in the future", code=WRONG_USE)
        may_write(file, force=force)
        async with connected(options) as bus:
            recorded = await write_recording(bus, file, since=begin, until=end, anonymise=anonymise)
        result = _result_of(recorded, options.cell)
        if options.json:
            emit(result)
        else:
            _print_result(result)

    return run(work)


async def write_recording(
    bus: Bus, file: Path, *, since: When | None = None, until: When | None = None, anonymise: bool = False
) -> Recorded:
    """As :func:`berth.runtime.recording.record`, with errors of writing the file as errors of commands.

    Raises:
        CommandError: The file cannot be written.
    """
    try:
        return await record(bus, SystemClock(), file, since=since, until=until, anonymise=anonymise)
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror or error}") from error


def _point(option: str, text: str) -> When | None:
    if not text:
        return None
    try:
        return when_of(text)
    except ValueError as error:
        raise CommandError(f"{option}: {error}", code=WRONG_USE) from error


def may_write(file: Path, *, force: bool | None = None) -> None:
    """Check that a recording can be written, before any other work.

    Args:
        file: The file.
        force: An existing file may be overwritten; None if there is no such option.

    Raises:
        CommandError: It cannot be written, or the file exists and must not be overwritten.
    """
    if file.is_dir() or not file.parent.is_dir():
        why = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise CommandError(f"{file} cannot be written: {why}", code=WRONG_USE)
    if file.exists() and not force:
        hint = "" if force is None else ", or overwrite it with --force"
        raise CommandError(f"{file} exists; name another file{hint}", code=WRONG_USE)


def _result_of(recorded: Recorded, cell: str) -> RecordResult:
    start, end = recorded.start, recorded.end
    return RecordResult(
        file=recorded.path,
        bytes=recorded.bytes_total,
        cell=cell,
        facts=end.facts,
        facts_from=start.facts_seq + 1,
        facts_to=end.facts_seq,
        records=end.records,
        records_from=start.ledger_seq + 1,
        records_to=end.ledger_seq,
        from_ms=recorded.first_ms,
        to_ms=recorded.last_ms,
    )


def _print_result(result: RecordResult) -> None:
    print_result(f"{result.file}: {math.ceil(result.bytes / 1024)} KiB, the history of cell {result.cell!r}")
    print_result(f"  {_span('fact', result.facts, result.facts_from, result.facts_to)}")
    print_result(f"  {_span('record', result.records, result.records_from, result.records_to)}")
    before = "the beginning" if result.records_from == result.facts_from == 1 else "a snapshot"
    when = f", then from {moment(result.from_ms)} to {moment(result.to_ms)}" if result.from_ms else ""
    print_result(f"  from {before}{when}")


def _span(what: str, count: int, first: int, last: int) -> str:
    return f"{pluralize(count, what)}: {first} to {last}" if count else f"no {what}s"
