"""``berth submit``: sends job requests from files, validated before anything is sent, and prints the verdicts."""

import asyncio
from functools import partial
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.durations import option_s
from berth.cli.interrupts import interruptible
from berth.cli.jobs.goals import Result, interruption_lines, progress_lines, result_of
from berth.cli.jobs.requests import Fault, Request, fault_of, faults_of, read_requests, refusals_of
from berth.cli.jobs.rows import JobRow, phase_words, row_of
from berth.cli.jobs.watching import Watch
from berth.cli.link import link_lines
from berth.cli.output import (
    FAILED,
    LATE,
    OK,
    WRONG_USE,
    CommandError,
    complain,
    emit,
    is_terminal,
    listed,
    print_progress,
    print_result,
    warn,
)
from berth.cli.progress import Progress
from berth.core.requests.job_validation import validate
from berth.core.requests.key_spelling import request_warnings
from berth.formats.yaml_tree import is_dns_name
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.stored_snapshots import settings_now
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus

_VERDICT_S: Final = 10.0


class Submitted(msgspec.Struct, frozen=True):
    """Result of a request, as ``--json`` prints it."""

    namespace: str
    name: str
    uid: str
    intake_seq: int
    verdict: str
    """accepted, rejected, or unknown if no verdict came in time."""
    refusal: Fault | None
    status: JobRow | None


class Outcome(msgspec.Struct, frozen=True):
    """Result of ``berth submit --json``: faults, and then nothing was sent; or the result of each request."""

    faults: list[Fault] = []
    jobs: list[Submitted] = []
    skipped: list[str] = []
    """A sentence about each object that is no job."""


def submit(
    *files: Annotated[str, Parameter(allow_leading_hyphen=True)],
    wait: Annotated[bool, Parameter(negative=())] = False,
    timeout: Annotated[str, Parameter(show_default=False)] = "",
    queue: str = "",
    common: Common | None = None,
) -> int:
    """Send job requests and print the verdicts. Nothing is sent if any of them is invalid.

    Args:
        files: Manifests in YAML: Berth's own, Volcano, Ascend and batch/v1 jobs; several documents; - for stdin. Other
            kinds are skipped with a note.
        wait: Wait until each job is placed or cannot be placed.
        timeout: Longest time to wait: seconds, or a duration such as 5m. Default: 10 s for the verdicts, no limit with
            --wait.
        queue: Queue of all jobs of the files, whatever queue they name.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        if not files:
            raise CommandError("no file is named; give one, or - for stdin", code=WRONG_USE)
        if queue and not is_dns_name(queue):
            raise CommandError(f"--queue is {queue!r}, expected the name of a queue", code=WRONG_USE)
        limit_s = option_s("--timeout", timeout) if timeout else None
        with interruptible():
            requests, faults, skipped = read_requests(files, queue)
        warn(skipped)
        warn(
            f"{sent.file}: {'/'.join(sent.key)}: {words}"
            for sent in requests
            for words in request_warnings(sent.request)
        )
        if faults:
            return _refuse(faults, skipped, options)
        async with connected(options, reports_outages=not is_terminal(of_stderr=True)) as bus:
            faults = await cell_faults(bus, requests)
            if faults:
                return _refuse(faults, skipped, options)
            done = await _send(bus, requests, wait=wait, timeout_s=limit_s)
        if options.json:
            emit(Outcome(jobs=done, skipped=skipped))
        else:
            for job in done:
                _show(job, wait=wait)
        return _code(done, wait=wait)

    return run(work)


async def cell_faults(bus: Bus, requests: list[Request]) -> list[Fault]:
    """Errors under the settings of the cell, which are read only if they matter."""
    # A cell may accept more than the release's settings do, but no less.
    doubtful = [sent for sent in requests if isinstance(validate(sent.request, Settings()), Refusal)]
    if not doubtful:
        return []
    settings = await settings_now(bus) or Settings()
    return [fault for sent in doubtful for fault in faults_of(sent, refusals_of(sent.request, settings))]


def _refuse(faults: list[Fault], skipped: list[str], options: Common) -> int:
    if options.json:
        emit(Outcome(faults=faults, skipped=skipped))
    else:
        complain(fault.line() for fault in faults)
        print_progress("nothing was sent")
    return FAILED


async def _send(bus: Bus, requests: list[Request], *, wait: bool, timeout_s: float | None) -> list[Submitted]:
    clock = SystemClock()
    patience_s = timeout_s if timeout_s is not None or wait else _VERDICT_S
    done: dict[tuple[str, str], Submitted] = {}
    async with Watch(bus, [sent.key for sent in requests]) as watch:

        def open_jobs() -> dict[tuple[str, str], JobStatus | None]:
            return {sent.key: _own(watch, sent) for sent in requests if sent.is_sent and sent.key not in done}

        with Progress(clock.monotonic_s) as progress:
            try:
                await _publish(bus, requests)
                end_s = None if patience_s is None else clock.monotonic_s() + patience_s
                for sent in requests:
                    left_s = None if end_s is None else max(end_s - clock.monotonic_s(), 0.001)
                    found = await watch.until(
                        partial(_judged, watch, sent, wait=wait),
                        timeout_s=left_s,
                        waiting=lambda: progress.draw(
                            lambda: [*progress_lines(open_jobs(), len(requests), clock.now_ms()), *link_lines(bus)]
                        ),
                    )
                    done[sent.key] = found or _unknown(watch, sent)
            except asyncio.CancelledError:
                progress.end()
                for line in [*interruption_lines(open_jobs()), *_not_sent(requests)]:
                    print_progress(line)
                raise
    return list(done.values())


async def _publish(bus: Bus, requests: list[Request]) -> None:
    """Send the requests.

    Raises:
        CommandError: One could not be sent; the error says which were.
    """
    for sent in requests:
        try:
            subject = bus.subjects.intake_request(*sent.key)
            sent.is_sent = True  # also if it is interrupted: nobody knows then
            sent.intake_seq = await bus.publish(subject, encode(sent.request))
        except (TransientError, PoisonError) as error:
            stored = [one for one in requests if one.intake_seq]
            names = listed(("/".join(one.key) for one in stored), most=len(requests)) or "none"
            raise CommandError(f"{'/'.join(sent.key)} could not be sent: {error}", f"sent were: {names}") from error


def _not_sent(requests: list[Request]) -> list[str]:
    """A line about the requests that were not sent, if there are any."""
    names = listed("/".join(sent.key) for sent in requests if not sent.is_sent)
    return [f"not sent: {names}"] if names else []


def _verdict(watch: Watch, sent: Request) -> JobSeen | None:
    return next((seen for seen in watch.verdicts[sent.key] if seen.intake_seq >= sent.intake_seq), None)


def _judged(watch: Watch, sent: Request, *, wait: bool) -> Submitted | None:
    """Result of a request, once it is complete."""
    verdict = _verdict(watch, sent)
    if verdict is None:
        return None
    refusal = None
    if verdict.rejection is not None and verdict.rejection.intake_seq == sent.intake_seq:
        refusal = verdict.rejection.refusal
    elif verdict.uid == sent.request.uid:
        refusal = verdict.refusal
    if refusal is not None:
        return _submitted(sent, "rejected", refusal, None)
    status = _own(watch, sent)
    if status is None or (wait and result_of(row_of(status), "placed") is None):
        return None
    return _submitted(sent, "accepted", None, status)


def _own(watch: Watch, sent: Request) -> JobStatus | None:
    status = watch.statuses.get(sent.key)
    return status if status is not None and status.uid == sent.request.uid else None


def _unknown(watch: Watch, sent: Request) -> Submitted:
    """Result of a request after the timeout."""
    status = _own(watch, sent)
    return _submitted(sent, "unknown" if status is None else "accepted", None, status)


def _submitted(sent: Request, verdict: str, refusal: Refusal | None, status: JobStatus | None) -> Submitted:
    namespace, name = sent.key
    return Submitted(
        namespace=namespace,
        name=name,
        uid=sent.request.uid,
        intake_seq=sent.intake_seq,
        verdict=verdict,
        refusal=fault_of(refusal, job="/".join(sent.key), name_of=sent.name_of) if refusal is not None else None,
        status=row_of(status) if status is not None else None,
    )


def _code(done: list[Submitted], *, wait: bool) -> int:
    """Code: 0 if all is well, 1 if a job was rejected or ended, with ``wait`` 124 if one was not placed in time."""
    if not wait:
        return (
            OK
            if all(job.status is not None and job.status.phase not in {"rejected", "failed"} for job in done)
            else FAILED
        )
    results = {_result(job) for job in done}
    return FAILED if results & {"ended", "never"} else LATE if "late" in results else OK


def _result(job: Submitted) -> Result:
    """How waiting for the place of a job ended."""
    if job.refusal is not None:
        return "ended"
    return (result_of(job.status, "placed") if job.status is not None else None) or "late"


def _show(job: Submitted, *, wait: bool) -> None:
    label = f"{job.namespace}/{job.name}"
    if job.verdict == "unknown":
        complain([f"{label}: stored as request {job.intake_seq}, but no verdict came; is a dispatcher running?"])
    elif job.refusal is not None:
        complain([job.refusal.line()])
    elif job.status is not None:
        where = listed(rank.node for rank in job.status.ranks)
        tail = f" on {where}" if where else f": {job.status.sentence}" if job.status.sentence else ""
        line = f"{label} {phase_words(job.status.phase)}{tail}"
        result = _result(job) if wait else "reached"
        if result == "late":
            complain([f"{label} is not placed in time and stays queued{tail}"])
        elif result != "reached":
            complain([line])
        else:
            print_result(line)
