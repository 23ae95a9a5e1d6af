"""``berth page``: recordings as one HTML file, the page of a cell with a time slider."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Form
from berth.cli.interrupts import compute
from berth.cli.output import (
    FAILED,
    OK,
    WRONG_USE,
    CommandError,
    complain,
    emit,
    moment,
    print_progress,
    print_result,
)
from berth.cli.recordings.errors import complaints_of
from berth.core.overview.recorder import PageLimits, PageRecorder
from berth.core.text import pluralize
from berth.page.files import recording_page
from berth.runtime.recording import read_file, replacing
from berth.schemas.page.recording import RecordedTimeline

_REASONS: Final = 200
_SUFFIX: Final = ".html"


class PageResult(msgspec.Struct, frozen=True):
    """Result of ``berth page --json``."""

    file: str
    """The page."""
    bytes: int
    timelines: list["TimelineRow"]
    damage: str
    """Damage that ended the reading early; only with ``salvage``."""


class TimelineRow(msgspec.Struct, frozen=True):
    """A recording in the page."""

    recording: str
    from_ms: int
    to_ms: int
    changes: int
    stories: int
    """Jobs with their events."""
    notes: list[str]
    """What was merged or left out."""


def page(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    out: Annotated[Path | None, Parameter(name=["--out", "-o"], show_default=False)] = None,
    reasons: int = _REASONS,
    salvage: Annotated[bool, Parameter(negative=())] = False,
    force: Annotated[bool, Parameter(negative=())] = False,
    form: Form | None = None,
) -> int:
    """Write recordings as one HTML file: the map of the cell, queue, jobs and faults over time, with a slider.

    The file needs no server and no network. Several recordings are several timelines of one page.

    Args:
        files: Recordings, made by: berth record, or berth simulate --record.
        out: The page to write. Default: beside the first recording, with the ending .html.
        reasons: Explain at most this many decisions of each recording; each repeats its round. 0 for none.
        salvage: Use the entries before a damaged part of a file; the exit code is 1.
        force: Overwrite an existing page.
        form: Form of the output.
    """
    options = form or Form()

    async def work() -> int:
        if not files:
            raise CommandError("no recording is named, expected one or several", code=WRONG_USE)
        if reasons < 0:
            raise CommandError(f"--reasons is {reasons}, expected 0 or more", code=WRONG_USE)
        target = out or files[0].with_suffix(_SUFFIX)
        _check_target(target, files, force=force)
        limits = limits_for(len(files), reasons)
        timelines, damage = [], []
        for file in files:
            with complaints_of(file, hint="" if salvage else "uses what comes before it"):
                timeline, wrong = timeline_of(file, limits, salvage=salvage)
            timelines.append(timeline)
            damage += [f"{file}: {wrong}; what comes before it was used"] * bool(wrong)
        size = write_page(target, timelines)
        result = PageResult(
            str(target),
            size,
            [_row(file, timeline) for file, timeline in zip(files, timelines, strict=True)],
            damage="; ".join(damage),
        )
        if options.json:
            emit(result)
        else:
            _show(result)
            complain(damage)
        return FAILED if damage else OK

    return compute(work)


def limits_for(timelines: int, reasons: int) -> PageLimits:
    """Limits of each timeline, so that a page of several is not larger than that of one."""
    whole = PageLimits()
    return PageLimits(whole.changes_bytes // timelines, whole.stories_bytes // timelines, reasons)


def timeline_of(file: Path, limits: PageLimits, *, salvage: bool) -> tuple[RecordedTimeline, str]:
    """Timeline of a recording, and the damage that ended the reading early.

    Raises:
        RecordingError: The file is damaged, or no recording.
        OSError: It cannot be read.
        CoreError: The history is impossible.
        DecodeError: The start does not decode.
    """
    with read_file(file, salvage=salvage) as reading:
        head = reading.head
        recorder = PageRecorder(head.start, cell=head.cell, title=file.name, limits=limits, clock=moment)
        for entry in reading:
            recorder.feed(entry)
        return recorder.finish(), str(reading.damage) if reading.damage is not None else ""


def write_page(target: Path, timelines: list[RecordedTimeline]) -> int:
    """Write a page of timelines; returns its size in bytes.

    Raises:
        CommandError: It cannot be written.
    """
    content = recording_page(msgspec.json.encode(timelines))
    try:
        with replacing(target) as file:
            file.write(content)
    except OSError as error:
        raise CommandError(f"{target} cannot be written: {error.strerror or error}") from error
    return len(content)


def _check_target(target: Path, files: tuple[Path, ...], *, force: bool) -> None:
    """Check that the page can be written, before any other work.

    Raises:
        CommandError: The page cannot be written there.
    """
    if target.is_dir() or not target.parent.is_dir():
        why = "it is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise CommandError(f"{target} cannot be written: {why}", code=WRONG_USE)
    if target in files:
        raise CommandError(f"--out is {target}, expected another file than the recording", code=WRONG_USE)
    if target.exists() and not force:
        raise CommandError(f"{target} exists; name another file, or overwrite it with --force", code=WRONG_USE)


def _row(file: Path, timeline: RecordedTimeline) -> TimelineRow:
    return TimelineRow(
        str(file), timeline.begin_ms, timeline.end_ms, len(timeline.changes), len(timeline.stories), timeline.notes
    )


def _show(result: PageResult) -> None:
    print_result(f"{result.file}: {max(1, result.bytes >> 10)} KiB, open it in a browser")
    for one in result.timelines:
        changes, jobs = pluralize(one.changes, "change"), pluralize(one.stories, "job")
        print_result(f"  {one.recording}: from {moment(one.from_ms)} to {moment(one.to_ms)}, {changes}, {jobs}")
        for note in one.notes:
            print_progress(f"  {note}")
