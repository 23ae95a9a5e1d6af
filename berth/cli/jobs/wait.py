"""``berth wait``: wait until jobs have a place, or have finished."""

import asyncio
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.durations import option_s
from berth.cli.jobs.finding import Namespace, find_job
from berth.cli.jobs.goals import Goal, Result, interruption_lines, job_line, progress_lines, result_of
from berth.cli.jobs.job_table import where_or_why
from berth.cli.jobs.queue_order import JobKey
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
    print_progress,
    print_result,
)
from berth.cli.progress import Progress
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.schemas.status import JobStatus

_NO_TIMEOUT: Final = ""


class Waited(msgspec.Struct, frozen=True):
    """How waiting for a job ended, as ``--json`` prints it."""

    namespace: str
    name: str
    uid: str
    goal: Goal
    result: Result
    status: JobRow
    """The last that is known of it."""


def wait(
    *names: str,
    for_: Annotated[Goal, Parameter(name="--for")],
    timeout: Annotated[str, Parameter(show_default=False)] = _NO_TIMEOUT,
    namespace: Namespace = "default",
    common: Common | None = None,
) -> int:
    """Wait until jobs are placed, or have finished, and report by the exit code whether they did.

    Exit codes: 0 all did; 1 one ended otherwise, is larger than the cluster, or is unknown; 2 wrong use; 124 not in
    time; 130 Ctrl-C.

    Args:
        names: The jobs, each a name or namespace/name.
        for_: placed: the job has nodes and chips, or has succeeded; finished: it has succeeded.
        timeout: Longest time to wait: seconds, or a duration such as 30s or 1h30m; 0 looks once. Default: no limit.
        namespace: Namespace of names without one.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> int:
        if not names:
            raise CommandError("no job is named, expected one or several", code=WRONG_USE)
        limit_s = option_s("--timeout", timeout) if timeout != _NO_TIMEOUT else None
        async with connected(options, reports_outages=not is_terminal(of_stderr=True)) as bus:
            found = [await find_job(bus, name, namespace) for name in names]
            jobs = {(status.namespace, status.name): status for status in found}
            done = await _waited(bus, jobs, for_, limit_s)
        if options.json:
            emit([_row(status, for_, result) for status, result in done])
        else:
            for status, result in done:
                _show(status, for_, result, timeout)
        results = {result for _, result in done}
        return FAILED if results & {"ended", "never"} else LATE if "late" in results else OK

    return run(work)


async def _waited(
    bus: Bus, jobs: dict[JobKey, JobStatus], goal: Goal, limit_s: float | None
) -> list[tuple[JobStatus, Result]]:
    """The last status of each job and how waiting for it ended, in their order.

    Args:
        bus: The cell.
        jobs: The jobs, with their statuses at first.
        goal: What is waited for.
        limit_s: Longest time; None for no limit.

    Raises:
        CancelledError: Of Ctrl-C; what becomes of the jobs is printed.
    """
    clock = SystemClock()
    own = dict(jobs)

    def open_jobs() -> dict[JobKey, JobStatus | None]:
        return {key: status for key, status in own.items() if _result(watch, status, goal) is None}

    def looked() -> bool | None:
        own.update({key: status for key, status in watch.statuses.items() if status.uid == jobs[key].uid})
        return True if not open_jobs() else None

    async with Watch(bus, list(jobs)) as watch:
        with Progress(clock.monotonic_s) as progress:
            try:
                await watch.until(
                    looked,
                    timeout_s=limit_s,
                    waiting=lambda: progress.draw(
                        lambda: [*progress_lines(open_jobs(), len(jobs), clock.now_ms()), *link_lines(bus)]
                    ),
                )
            except asyncio.CancelledError:
                lines = interruption_lines(open_jobs())
                progress.end()
                for line in lines:
                    print_progress(line)
                raise
        return [(status, _result(watch, status, goal) or "late") for status in own.values()]


def _result(watch: Watch, status: JobStatus, goal: Goal) -> Result | None:
    """Result of a job; one whose name another job has by now has ended."""
    result = result_of(row_of(status), goal)
    newest = watch.statuses.get((status.namespace, status.name))
    return "ended" if result is None and newest is not None and newest.uid != status.uid else result


def _row(status: JobStatus, goal: Goal, result: Result) -> Waited:
    return Waited(status.namespace, status.name, status.uid, goal, result, row_of(status))


def _show(status: JobStatus, goal: Goal, result: Result, timeout: str) -> None:
    name = f"{status.namespace}/{status.name}"
    if result == "reached":
        print_result(job_line(status))
    elif result == "late":
        where = where_or_why(status)
        words = f"it {phase_words(status.phase)}{' on' if status.placement is not None else ':'} {where}".rstrip(" :")
        within = timeout if timeout[-1].isalpha() else f"{timeout} s"
        complain([f"{name} was not {goal} within {within}; {words}"])
    elif result == "ended" and result_of(row_of(status), goal) is None:
        complain([f"{name} has ended, and another job has its name; see: berth explain {name} --uid {status.uid}"])
    else:
        complain([job_line(status)])
