"""``berth record`` and ``berth log``: the history of a cell as a file, and a file or a live cell as lines."""

import asyncio
import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.interrupts import interruptible
from berth.cli.output import FAILED, OK, WRONG_USE, CommandError, complain, emit, json_line, moment, print_result, write
from berth.cli.recordings.errors import complaints_of
from berth.cli.recordings.following import follow_cell
from berth.cli.recordings.log_lines import Lines, tree_of
from berth.core.explain.text import pluralize
from berth.formats.shown import Shown
from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.ledger_reader import follow_ledger
from berth.runtime.recording import Recorded, When, read_file, record, when_of
from berth.schemas.envelope import DecodeError, VersionError
from berth.schemas.ledger import facts_known
from berth.schemas.recording import Entry
from berth.schemas.subjects import StreamName

_LINES: Final = 512
"""Maximum number of lines per write."""
_AGAIN_S: Final = 1.0
"""Pause until a server that did not answer is asked again."""


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


def log(
    file: Path | None = None,
    *,
    follow: Annotated[bool, Parameter(negative=())] = False,
    salvage: Annotated[bool, Parameter(negative=())] = False,
    common: Common | None = None,
) -> int:
    """Print the facts and decisions of a recording, or of a live cell as they arrive.

    Args:
        file: A recording, made by: berth record.
        follow: Print new entries of a live cell until Ctrl-C; takes no file.
        salvage: Print the entries before a damaged part of the file.
        common: Cell and form of the output.
    """
    options = common or Common()
    show = _json_line if options.json else Lines().line_of

    async def work() -> int:
        if follow == (file is not None):
            raise CommandError("name either the file of a recording, or --follow for a live cell", code=WRONG_USE)
        try:
            if file is not None:
                with interruptible():
                    return _print_file(file, show, salvage=salvage)
            async with connected(options) as bus:
                await Live(bus, show).run()
            return OK
        except BrokenPipeError:  # the reader closed the pipe; buffered output is dropped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK

    return run(work)


def _json_line(entry: Entry) -> Shown:
    return json_line(tree_of(entry))


def _print_file(file: Path, show: Callable[[Entry], Shown], *, salvage: bool) -> int:
    hint = "" if salvage else "reads up to there"
    with complaints_of(file, hint=hint), read_file(file, salvage=salvage) as reading:
        _print(reading, show)
        if reading.damage is None:
            return OK
        result = reading.order.end()
        complain(
            [
                f"{file}: {reading.damage}; before it come {pluralize(result.facts, 'fact')} up to {result.facts_seq} and"
                f" {pluralize(result.records, 'record')} up to {result.ledger_seq}"
            ]
        )
        return FAILED


def _print(entries: Iterable[Entry], show: Callable[[Entry], Shown]) -> None:
    """Print lines in batches; also those before an error."""
    lines: list[Shown] = []
    try:
        for entry in entries:
            lines.append(show(entry))
            if len(lines) >= _LINES:
                _write(lines)
    finally:
        _write(lines)


def _write(lines: list[Shown]) -> None:
    taken = lines[:]
    lines.clear()
    write(taken)


class Live:
    """Prints new entries of a cell: a record after the facts that it knew.

    Attributes:
        began: Set once all later entries are printed.
    """

    def __init__(self, bus: Bus, show: Callable[[Entry], Shown]) -> None:
        self._bus = bus
        self._show = show
        self._facts: deque[Stored] = deque()
        self._received: list[Stored] = []
        """Records that are not taken yet."""
        self._records: deque[tuple[int, Stored]] = deque()
        """The last fact that each record waits for, and the record."""
        self._facts_seq = 0
        self._stored_seq = 0
        """Last sequence of the facts when they were looked at last."""
        self._gaps: list[Gap] = []
        self._moved = asyncio.Event()
        self.began = asyncio.Event()

    async def run(self) -> None:
        """Print until it is cancelled.

        Raises:
            CommandError: The history has a gap.
        """
        bus = self._bus
        ledger = await bus.state(StreamName.LEDGER)
        facts = await bus.state(StreamName.FACTS)
        self._facts_seq = self._stored_seq = facts.last_seq
        self.began.set()
        start = facts.last_seq + 1
        records = await follow_ledger(
            bus, ledger, on_message=self._on_record, on_gap=self._on_gap, start_seq=ledger.last_seq + 1
        )
        followers = (
            records,
            bus.follow(
                StreamName.FACTS, on_message=self._on_fact, on_gap=self._on_gap, start_seq=start, created=facts.created
            ),
        )
        try:
            while not self._gaps:
                self._moved.clear()
                await self._take_records()
                _print(self._ready(), self._show)
                await self._moved.wait()
        finally:
            for follower in followers:
                await follower.stop()
        raise CommandError(f"{self._gaps[0].stream}: {self._gaps[0].reason.value}")

    async def _take_records(self) -> None:
        """Take records that were received; one that claims to know facts which are not stored waits for none of them.

        A dispatcher knows only what is stored before its record, so something else wrote that one.
        """
        received, self._received = [(_known(one), one) for one in self._received], []
        if any(known > self._stored_seq for known, _ in received):
            self._stored_seq = await self._last_fact()
        self._records += [(known if known <= self._stored_seq else 0, one) for known, one in received]

    async def _last_fact(self) -> int:
        while True:
            try:
                return (await self._bus.state(StreamName.FACTS)).last_seq
            except TransientError:
                await asyncio.sleep(_AGAIN_S)  # the followers wait for the server, too

    def _ready(self) -> Iterable[Entry]:
        """Entries that can be printed: records whose facts have arrived, each after those, then all other facts."""
        while self._records:
            known, record = self._records[0]
            yield from self._facts_up_to(known)
            if known > self._facts_seq:
                return
            self._records.popleft()
            yield Entry(record.sequence, record.data)
        yield from self._facts_up_to(None)

    def _facts_up_to(self, sequence: int | None) -> Iterable[Entry]:
        while self._facts and (sequence is None or self._facts[0].sequence <= sequence):
            fact = self._facts.popleft()
            self._facts_seq = fact.sequence
            yield Entry(fact.sequence, fact.data, fact.subject)

    def _on_fact(self, stored: Stored) -> None:
        self._facts.append(stored)
        self._moved.set()

    def _on_record(self, stored: Stored) -> None:
        self._received.append(stored)
        self._moved.set()

    def _on_gap(self, gap: Gap) -> None:
        self._gaps.append(gap)
        self._moved.set()


def _known(record: Stored) -> int:
    try:
        return facts_known(record.data)
    except (DecodeError, VersionError):
        return 0  # the printed line reports it
