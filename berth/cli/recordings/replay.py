"""``berth replay``: repeats the decisions of a recording and compares them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Form
from berth.cli.interrupts import compute
from berth.cli.output import (
    FAILED,
    OK,
    complain,
    emit,
    listed,
    moment,
    print_progress,
    print_result,
    progress_console,
)
from berth.cli.recordings.errors import complaints_of
from berth.cli.recordings.log_lines import line_of, tree_of
from berth.core.replay.divergence import Difference, NodeDetails
from berth.core.replay.replay import Replay, Replayed, ReplayError
from berth.core.text import ranges
from berth.formats.recordings.recording import Reading
from berth.formats.shown import shown
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.recording import read_file
from berth.runtime.release import release
from berth.schemas.recording import Entry

_SHOW_EVERY: Final = 4096
"""Entries between two updates of the progress."""
_DIGEST_SHOWN: Final = 16
_JOBS_SHOWN: Final = 6


class ReplayResult(msgspec.Struct, frozen=True):
    """Result of ``berth replay --json``."""

    file: str
    release: str
    """Release that wrote the recording."""
    identical: bool
    """No decision differs, the file is whole, and nothing in it is impossible."""
    took_s: float
    replayed: dict[str, Any]
    """See :class:`berth.core.replay.replay.Replayed`; without the differences."""
    differences: list[dict[str, Any]]
    """See :class:`berth.core.replay.divergence.Difference`."""
    damage: str
    impossible: str


class Outcome(msgspec.Struct):
    """Outcome of a replay."""

    file: str
    release: str
    replayed: Replayed
    took_s: float
    damage: str = ""
    """Damage that ended the reading early; only with ``salvage``."""
    impossible: str = ""
    """Why the history is impossible."""
    stopped: bool = False
    """The replay stopped at the first difference."""

    @property
    def is_identical(self) -> bool:
        """Whether the file is complete, and the replay reproduced every decision."""
        return self.replayed.is_identical and not self.damage and not self.impossible

    @property
    def lines(self) -> list[str]:
        """The outcome as text, printable whatever the recording contains."""
        wrong = [line for line in (self.damage, self.impossible) if line]
        return [shown(line) for line in (*words_of(self), *(f"{self.file}: {line}" for line in wrong))]


def replay_file(
    file: Path, clock: Clock, *, salvage: bool = False, to_end: bool = False, watches: bool = False
) -> Outcome:
    """Repeat the decisions of a recorded file.

    Args:
        file: The recording.
        clock: To measure how long it takes.
        salvage: Replay the entries before a damaged part.
        to_end: Continue after differences.
        watches: Show the progress on a terminal.

    Raises:
        RecordingError: The file is damaged, or no recording.
        OSError: It cannot be read.
        VersionError: Another release wrote it.
    """
    began_s = clock.monotonic_s()
    with read_file(file, salvage=salvage) as reading:
        impossible, stopped = "", False
        again = None
        try:
            again = Replay(reading.head.start)
            with _watched(file, reading, is_shown=watches) as entries:
                stopped = _fed(again, entries, to_end=to_end)
        except ReplayError as error:
            impossible = str(error)
        return Outcome(
            file=str(file),
            release=reading.head.release,
            replayed=again.result if again is not None else Replayed(),
            took_s=clock.monotonic_s() - began_s,
            damage=str(reading.damage) if reading.damage is not None else "",
            impossible=impossible,
            stopped=stopped,
        )


def _fed(again: Replay, entries: Iterable[Entry], *, to_end: bool) -> bool:
    """Feed all entries; returns whether it stopped at a difference."""
    feed = again.feed
    return any(feed(entry) is not None and not to_end for entry in entries)


@contextmanager
def _watched(file: Path, reading: Reading, *, is_shown: bool) -> Iterator[Iterable[Entry]]:
    """Entries of a recording; on a terminal with a progress bar."""
    console = progress_console()
    if not is_shown or not console.file.isatty():
        yield reading
        return
    from rich.progress import (  # noqa: PLC0415  # not needed elsewhere
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[events]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(shown(file.name), total=file.stat().st_size, events="")

        def counted() -> Iterator[Entry]:
            for number, entry in enumerate(reading):
                if not number % _SHOW_EVERY:
                    order = reading.order
                    events = f"{order.facts + order.records:,} events"
                    progress.update(task, completed=reading.position, events=events)
                yield entry

        yield counted()


def replay(
    file: Path,
    *,
    salvage: Annotated[bool, Parameter(negative=())] = False,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
    form: Form | None = None,
) -> int:
    """Repeat the decisions of a recording, from its facts, times and settings alone, and compare them.

    The exit code is 1 if a decision differs or the file is damaged.

    Args:
        file: A recording, made by: berth record.
        salvage: Replay the entries before a damaged part of the file.
        all_: Continue after the first difference, and count all of them.
        form: Form of the output.
    """
    options = form or Form()

    async def work() -> int:
        with complaints_of(file, hint="" if salvage else "replays up to there"):
            outcome = replay_file(file, SystemClock(), salvage=salvage, to_end=all_, watches=True)
        if options.json:
            emit(describe(outcome))
        else:
            _show(outcome)
        return OK if outcome.is_identical else FAILED

    return compute(work)


def describe(outcome: Outcome) -> ReplayResult:
    """An outcome as JSON."""
    plain = msgspec.to_builtins(msgspec.structs.replace(outcome.replayed, found=[]))
    del plain["found"]
    return ReplayResult(
        file=outcome.file,
        release=outcome.release,
        identical=outcome.is_identical,
        took_s=round(outcome.took_s, 6),
        replayed=plain,
        differences=[_tree(found) for found in outcome.replayed.found],
        damage=outcome.damage,
        impossible=outcome.impossible,
    )


def _tree(found: Difference) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(found, before=[]))
    plain["settings"] = msgspec.structs.asdict(found.settings)
    plain["before"] = [tree_of(entry) for entry in found.before]
    return plain


def _show(outcome: Outcome) -> None:
    for line in words_of(outcome):
        print_result(line)
    wrong = [line for line in (outcome.damage, outcome.impossible) if line]
    complain(f"{outcome.file}: {line}" for line in wrong)
    if outcome.stopped:
        print_progress("stopped at the first difference; continue with --all")


def words_of(outcome: Outcome) -> list[str]:
    """An outcome as lines of text."""
    found = outcome.replayed
    lines = [line for difference in found.found for line in [*lines_of(difference), ""]]
    events, decisions = found.events, found.decisions
    took_s = max(outcome.took_s, 1e-9)
    speed = f"{events / took_s:,.0f} events/s, {decisions / took_s:,.0f} decisions/s"
    head = (
        f"replayed {counted_large(events, 'event')} and {counted_large(decisions, 'decision')} of"
        f" {counted_large(found.rounds, 'round')} ({speed})"
    )
    if found.differences:
        result = f"{counted_large(found.differences, 'round')} {'differs' if found.differences == 1 else 'differ'}"
        sums = f"ledger sha256 {found.digest[:_DIGEST_SHOWN]} here, {found.recorded_digest[:_DIGEST_SHOWN]} recorded"
        lines.append(f"{head}: {result}; {sums}")
    elif found.rounds:
        lines.append(f"{head}: every decision is the recorded one; ledger sha256 {found.digest[:_DIGEST_SHOWN]}")
    else:
        lines.append(f"{head}: nothing was compared")
    return [*lines, *_beside(outcome)]


def _beside(outcome: Outcome) -> list[str]:
    """Additional notes."""
    found, here = outcome.replayed, release()
    lines = []
    if outcome.release != here and not outcome.is_identical:
        lines.append(f"release {outcome.release} wrote the recording, this is release {here}")
    if found.void:
        lines.append(
            f"{counted_large(found.void, 'record')} void: of a dispatcher that was no longer leader, of another kind, or without the right chain value"
        )
    if found.undecodable:
        lines.append(f"{counted_large(found.undecodable, 'fact')} that cannot be decoded")
    return lines


def counted_large(count: int, noun: str) -> str:
    """A number with its noun; digits in groups of three."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def lines_of(found: Difference) -> list[str]:
    """A difference as lines of text."""
    lines = [
        f"difference at record {found.sequence}: round {found.round} of epoch {found.epoch}, {moment(found.at_ms)},"
        f" knowing facts up to {found.facts_seq}",
        f"  {found.subject}",
        f"    recorded: {found.recorded}",
        f"    replayed: {found.replayed}",
    ]
    if found.facts_given != found.facts_seq:
        lines.append(
            f"  the recording gives facts up to {found.facts_given} before it, the record knew {found.facts_seq}"
        )
    lines += [f"  node {_node_words(node)}" for node in found.nodes]
    if found.queue:
        lines.append(f"  taken by the round, in order: {', '.join(found.queue)}; {found.queue_length} waited in all")
    if found.asleep:
        lines.append(f"  asleep: {listed(found.asleep, _JOBS_SHOWN)}")
    if found.missing:
        lines.append(f"  scorers that did not answer: {', '.join(map(str, found.missing))}")
    settings = ", ".join(f"{name}={value!r}" for name, value in _set(found))
    lines.append(f"  settings: {settings or 'the defaults'}")
    lines.append("  before it:")
    lines += [f"    {line_of(entry)}" for entry in found.before]
    return lines


def _set(found: Difference) -> Iterator[tuple[str, object]]:
    """Settings that are not the defaults."""
    defaults = type(found.settings)()
    for name, value in msgspec.structs.asdict(found.settings).items():
        if value != getattr(defaults, name):
            yield name, value


def _node_words(node: NodeDetails) -> str:
    free = f"chips {ranges(node.free)} free" if node.free else "no chip free"
    fit = f"score {node.score}" if node.score is not None else node.unfit
    held = f"held by {listed(node.held_by, _JOBS_SHOWN)}" if node.held_by else ""
    return "; ".join(part for part in (f"{node.node}: {free}", node.health, held, fit) if part)
