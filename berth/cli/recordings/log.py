"""``berth log``: a recording, or a live cell, as lines."""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.durations import option_ms
from berth.cli.interrupts import interruptible
from berth.cli.output import (
    FAILED,
    OK,
    WRONG_USE,
    CommandError,
    complain,
    json_line,
    moment,
    print_progress,
    write,
)
from berth.cli.recordings.entry_choice import EntryChoice
from berth.cli.recordings.errors import complaints_of
from berth.cli.recordings.log_lines import Lines, tree_of
from berth.core.replay.log_clock import moment_of
from berth.core.text import pluralize
from berth.formats.shown import Shown, shown
from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.ledger_reader import follow_ledger
from berth.runtime.recording import past_since, read_file
from berth.schemas.envelope import DecodeError, VersionError
from berth.schemas.ledger import facts_known
from berth.schemas.recording import Entry
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName

_LINES: Final = 512
"""Maximum number of lines per write."""
_AGAIN_S: Final = 1.0
"""Pause until a server that did not answer is asked again."""


def log(
    file: Path | None = None,
    *,
    follow: Annotated[bool, Parameter(negative=())] = False,
    since: Annotated[str, Parameter(show_default=False)] = "",
    job: Annotated[str, Parameter(show_default=False)] = "",
    node: Annotated[str, Parameter(show_default=False)] = "",
    salvage: Annotated[bool, Parameter(negative=())] = False,
    common: Common | None = None,
) -> int:
    """Print the facts and decisions of a recording, or of a live cell: of the last hour, or as they arrive.

    Args:
        file: A recording, made by: berth record.
        follow: Print new entries of a live cell until Ctrl-C; takes no file.
        since: Print what a live cell stored in this time, such as 1h or 7d; takes no file.
        job: Only what is about this job, namespace/name or a name in the namespace default.
        node: Only what is about this node, and about the jobs there.
        salvage: Print the entries before a damaged part of the file.
        common: Cell and form of the output.
    """
    options = common or Common()
    choice = EntryChoice(job if "/" in job or not job else f"default/{job}", node)
    show = partial(_json_line, choice) if options.json else Lines(choice).line_of

    async def work() -> int:
        if (bool(since) or follow) == (file is not None):
            raise CommandError(
                "name either the file of a recording, or --since 1h or --follow for a live cell", code=WRONG_USE
            )
        since_ms = SystemClock().now_ms() - option_ms("--since", since) if since else 0
        try:
            if file is not None:
                with interruptible():
                    return _print_file(file, show, salvage=salvage)
            async with connected(options) as bus:
                if node:
                    await _learn_places(bus, choice)
                if since:
                    await _print_past(bus, show, since_ms)
                if follow:
                    await Live(bus, show).run()
            return OK
        except BrokenPipeError:  # the reader closed the pipe; buffered output is dropped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK

    return run(work)


def _json_line(choice: EntryChoice, entry: Entry) -> Shown:
    tree = tree_of(entry, choice)
    return json_line(tree) if tree is not None else shown("")


async def _learn_places(bus: Bus, choice: EntryChoice) -> None:
    """Tell where jobs are by now: the record that placed one may be older than what is read."""
    for stored in await bus.read(StreamName.STATUS):
        try:
            status = stored_status(stored.subject, stored.data)
        except DecodeError:
            continue
        choice.learn(status.uid, f"{status.namespace}/{status.name}", status.placement)


async def _print_past(bus: Bus, show: Callable[[Entry], Shown], since_ms: int) -> None:
    """Print what was stored since a time, as far as it is kept."""
    past = await past_since(bus, since_ms)
    if not past.is_whole:
        print_progress(f"what is stored begins after {moment(since_ms)}")
    at_ms = 0
    wanted: list[Entry] = []
    async for entry in past.history.entries():
        at_ms = moment_of(entry) or at_ms
        if at_ms < since_ms:
            show(entry)  # what comes later is told by the names in it
        else:
            wanted.append(entry)
            if len(wanted) >= _LINES:
                _print(wanted, show)
                wanted.clear()
    _print(wanted, show)


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
            line = show(entry)
            if not line:
                continue
            lines.append(line)
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
