"""``berth explain``: a job of a live cell or of a recording, now or at a time in the past."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.interrupts import interruptible
from berth.cli.jobs.explain_text import ExplainResult, describe, describe_past, not_asked, show
from berth.cli.jobs.finding import Namespace, find_job
from berth.cli.output import FAILED, OK, WRONG_USE, CommandError, complain, emit, known_jobs, moment, near_jobs
from berth.cli.recordings.errors import complaints_of
from berth.core.replay.job_history import Point, Trail, View
from berth.core.replay.log_clock import moment_of
from berth.core.state.cell import JobKey
from berth.formats.recordings.recording import Reading
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.history import past_of
from berth.runtime.recording import NoHistoryError, When, read_file, when_of
from berth.runtime.stream_ranges import NotKeptError
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import JobSeen
from berth.schemas.subjects import StreamName, name_parts

_TIME_OF_DAY: Final = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?")
_SECOND_MS: Final = 1000
_DAY_MS: Final = 86_400_000


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Source and time of the explanation.

    Attributes:
        log: Read this recording, made by berth record or berth simulate --record; no cell is needed.
        at: Explain the job at this time (2026-11-21T10:00:00Z, milliseconds since 1970, or 10:00:00 of the last day)
            or after this record of the ledger (ledger:123). Default: now, or the end of the recording.
        uid: Which of several jobs that had the name. Default: the last one.
        salvage: Use the entries before a damaged part of the recording.
    """

    log: Path | None = None
    at: Annotated[str, Parameter(show_default=False)] = ""
    uid: Annotated[str, Parameter(show_default=False)] = ""
    salvage: Annotated[bool, Parameter(negative=())] = False


def explain_job(
    job: str,
    *,
    where: Where | None = None,
    namespace: Namespace = "default",
    settings: Annotated[bool, Parameter(negative=())] = False,
    common: Common | None = None,
) -> int:
    """Explain a decision: request, known state, next-best nodes, or why a job waits and what would help.

    Args:
        job: Its name, or namespace/name.
        where: Cell or file, and the time.
        namespace: Namespace of a name without one.
        settings: Print the settings of the decision, too.
        common: Cell and form of the output.
    """
    options, point = common or Common(), where or Where()
    space, _, name = job.rpartition("/")
    key = (space or namespace, name)

    async def work() -> int:
        damage = ""
        if point.log is not None:
            hint = "" if point.salvage else "uses what comes before it"
            with interruptible(), complaints_of(point.log, hint=hint):
                file = Recorded(point.log, salvage=point.salvage)
                result = file.describe(key, point)
            damage = file.damage
        elif point.salvage:
            raise CommandError("--salvage is for recordings: name one with --log", code=WRONG_USE)
        else:
            async with connected(options) as bus:
                result = await describe_cell(bus, key, point)
        if options.json:
            emit(result)
        else:
            show(result, with_settings=settings)
        if damage:
            complain([f"{point.log}: {damage}; what comes before it was used"])
        return FAILED if damage else OK

    return run(work)


async def describe_cell(bus: Bus, key: JobKey, point: Where) -> ExplainResult:
    """Explanation of a job from a live cell, now or at an earlier time.

    Raises:
        CommandError: No job has or had the name, or that time is no longer stored.
    """
    clock = SystemClock()
    unknown: CommandError | None = None
    if not point.at and not point.uid:
        try:
            return await describe(bus, clock, await find_job(bus, "/".join(key), key[0]))
        except CommandError as error:
            unknown = error  # the status of a job that ended long ago is deleted
    until = point_of(point.at, lambda: (0, clock.now_ms()))
    if until is not None:
        ledger = await bus.state(StreamName.LEDGER)
        if until.ledger_seq > ledger.last_seq:
            raise CommandError(f"{until} does not exist yet: the ledger ends at {ledger.last_seq}")
    try:
        past = await past_of(bus, key, uid=point.uid, until=until)
    except (NotKeptError, NoHistoryError) as error:
        raise CommandError(f"that time cannot be explained: {error}") from error
    if past is None:
        raise unknown or CommandError(f"{until} is no longer stored: all snapshots are newer")
    if past.life is not None and past.look is not None:
        return describe_past(*key, past.trail, past.life, past.look)
    words = await bus.read(StreamName.FACTS, filters=[bus.subjects.fact_job(*key)])
    later = [seen for stored in words if (seen := _job(stored.data)) is not None]
    if unknown is not None or not later or past.trail.lives:
        raise unknown or CommandError(_unknown(key, point.uid, past.trail, []))
    return not_asked(*key, at_ms=past.trail.last_ms, first_ms=later[0].at_ms)


class Recorded:
    """A recording as the source of explanations.

    Args:
        path: The file.
        salvage: Use the entries before a damaged part.
    """

    def __init__(self, path: Path, *, salvage: bool) -> None:
        self._path = path
        self._salvage = salvage
        self.damage = ""
        """Error that ended the reading early."""

    def describe(self, key: JobKey, point: Where) -> ExplainResult:
        """Explanation of a job.

        Raises:
            CommandError: No job had the name.
            RecordingError: The file is damaged.
            OSError: It cannot be read.
            HistoryError: Records are missing, or the history is impossible in another way.
        """
        until = point_of(point.at, self._span_ms)
        with self._reading() as reading:
            start = reading.head.start
            trail = Trail(key, start, _limit(until))
            for entry in reading:
                trail.add(entry)
            trail.close()
        if until is not None and until.ledger_seq > trail.ledger_seq:
            raise CommandError(f"{self._path}: {until} does not exist: the recording ends at record {trail.ledger_seq}")
        life = trail.life(point.uid)
        if life is None:
            if not trail.lives and trail.later_ms:
                return not_asked(*key, at_ms=trail.last_ms, first_ms=trail.later_ms)
            raise CommandError(_unknown(key, point.uid, trail, self._names()))
        with self._reading() as reading:
            view = View(key, life, trail, start)
            for entry in reading:
                if not view.add(entry):
                    break
        return describe_past(*key, trail, life, view.end())

    def _span_ms(self) -> tuple[int, int]:
        """Times of the first and the last record."""
        with self._reading() as reading:
            first_ms = last_ms = 0
            for at_ms in (moment_of(entry) for entry in reading if not entry.subject):
                first_ms, last_ms = first_ms or at_ms, max(last_ms, at_ms)
            return first_ms, last_ms or reading.head.made_at_ms

    def _names(self) -> list[str]:
        """Names of all jobs in it."""
        names: dict[str, None] = {}
        with self._reading() as reading:
            subjects = [fact.subject for fact in reading.head.start.facts]
            for subject in subjects:
                names[_name_in(subject)] = None
            for entry in reading:
                names[_name_in(entry.subject)] = None
        return sorted(name for name in names if name)

    @contextmanager
    def _reading(self) -> Iterator[Reading]:
        with read_file(self._path, salvage=self._salvage) as reading:
            yield reading
            if reading.damage is not None:
                self.damage = str(reading.damage)


def point_of(text: str, span_ms: Callable[[], tuple[int, int]]) -> When | None:
    """The point that the user named; None for none.

    Args:
        text: A time, a time of day, milliseconds, or a record of the ledger.
        span_ms: Start and end of the explained history; a time of day means its last occurrence in it.

    Raises:
        CommandError: The text names no point.
    """
    if not text:
        return None
    try:
        return _time_of_day(text, *span_ms()) if _TIME_OF_DAY.fullmatch(text) else when_of(text)
    except ValueError as error:
        raise CommandError(f"--at: {error}, or a time of day such as 10:00:00", code=WRONG_USE) from error


def _time_of_day(text: str, first_ms: int, last_ms: int) -> When:
    """The last occurrence of a time of day; the end if there is none.

    Raises:
        ValueError: There is no such time.
    """
    try:
        at_time = time.fromisoformat(text)
    except ValueError:
        return when_of(text)
    last = datetime.fromtimestamp(last_ms / _SECOND_MS, UTC)
    at_ms = round(datetime.combine(last.date(), at_time, UTC).timestamp() * _SECOND_MS)
    return When(at_ms=at_ms - _DAY_MS if at_ms > last_ms and at_ms - _DAY_MS >= first_ms else at_ms)


def _limit(until: When | None) -> Point:
    if until is None:
        return Point()
    return Point(ledger_seq=until.ledger_seq) if until.ledger_seq >= 0 else Point(at_ms=until.at_ms)


def _unknown(key: JobKey, uid: str, trail: Trail, names: list[str]) -> str:
    """Error: no job had the name, or none with that uid."""
    name = "/".join(key)
    if uid and trail.lives:
        known = ", ".join(f"{life.uid} (since {moment(life.since_ms)})" for life in trail.lives.values())
        return f"no job {name} had the uid {uid}; those with this name: {known}"
    near = near_jobs(name, names)
    hint = f"near names: {', '.join(near)}" if near else known_jobs(len(names))
    if not trail.ledger_seq:
        return f"no job was named {name}; {hint}"
    span = f"from {moment(trail.first_ms)} to {moment(trail.last_ms)}, up to record {trail.ledger_seq} of the ledger"
    return f"no job was named {name} {span}; {hint}"


def _job(data: bytes) -> JobSeen | None:
    try:
        return decode(data, JobSeen)
    except DecodeError:
        return None


def _name_in(subject: str) -> str:
    """Name of the job of which a fact is the verdict, as ``namespace/name``; empty for other facts."""
    if ".fact.job." not in subject:
        return ""
    return "/".join(name_parts(subject, 2))
