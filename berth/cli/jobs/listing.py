"""``berth jobs``: list jobs."""

from typing import Annotated, Final, Literal

from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.jobs.filters import Condition, conditions_of, matching, names_phase
from berth.cli.jobs.finding import Namespace, statuses
from berth.cli.jobs.job_table import job_table, sharing
from berth.cli.jobs.queue_order import in_order, positions
from berth.cli.jobs.rows import OVER, row_of
from berth.cli.output import (
    WRONG_USE,
    CommandError,
    emit,
    is_terminal,
    known_jobs,
    print_progress,
    print_result,
    print_table,
)
from berth.core.explain.text import pluralize
from berth.runtime.clock import SystemClock
from berth.schemas.status import JobStatus

Output = Literal["text", "wide", "name", "json"]
_NO_CONDITIONS: Final[tuple[str, ...]] = ()


def jobs(
    *,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
    namespace: Namespace | None = None,
    filters: Annotated[
        tuple[str, ...], Parameter(name=["--filter", "-f"], negative=(), show_default=False)
    ] = _NO_CONDITIONS,
    sort: Annotated[str, Parameter(allow_leading_hyphen=True)] = "queue",
    output: Annotated[Output, Parameter(name=["--output", "-o"])] = "text",
    watch: Annotated[bool, Parameter(name=["--watch", "-w"], negative=())] = False,
    common: Common | None = None,
) -> int:
    """List jobs in the order of the queue: phase, position, pods, chips, age, and their nodes or why they wait.

    Args:
        all_: Include jobs that have ended.
        namespace: Only jobs of this namespace.
        filters: Only jobs with this value in a field: phase=waiting, name=train-*, queue!=eval, node=a2-7,
            priority=5,6, reason=no-room. Several conditions must all hold.
        sort: Order: queue, age, chips, name, phase, pods, priority or since, several separated by commas; - before a
            name reverses it.
        output: Form: text, wide (more columns, a row for each job), name (a name per line), json (as with --json).
        watch: Go on until Ctrl-C: draw the table again when a job changes, or without a terminal print each change.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        if options.json and output in {"wide", "name"}:
            raise CommandError(f"--output is {output!r}, expected 'json' or nothing beside --json", code=WRONG_USE)
        form = "json" if options.json else output
        if watch and form == "name":
            raise CommandError("--output is 'name', expected text, wide or json beside --watch", code=WRONG_USE)
        view = View(namespace, conditions_of(filters), sort, includes_over=all_)
        async with connected(options, reports_outages=not (watch and is_drawn(form))) as bus:
            if watch:
                from berth.cli.jobs.live_list import watch_jobs  # noqa: PLC0415  # takes time that a list does not need

                await watch_jobs(bus, view, form)
            else:
                _print(view, await statuses(bus), form)

    return run(work)


def is_drawn(form: Output) -> bool:
    """Whether a list that goes on is drawn on the whole screen."""
    return form != "json" and is_terminal()


class View:
    """Which jobs are shown, and in which order.

    Args:
        namespace: Only these; None for all.
        conditions: All of them must hold.
        sort: The order.
        includes_over: Show jobs that have ended, too; they are also shown if a condition names their phase.

    Raises:
        CommandError: There is no such order.
    """

    def __init__(
        self, namespace: str | None, conditions: list[Condition], sort: str, *, includes_over: bool = False
    ) -> None:
        in_order((), sort)
        self._namespace = namespace
        self._conditions = conditions
        self._sort = sort
        self._includes_over = includes_over or names_phase(conditions, OVER)

    def of(self, known: list[JobStatus]) -> tuple[list[JobStatus], int]:
        """The jobs to show, in order, and how many match that are over and not shown."""
        found = [status for status in known if self._namespace in {None, status.namespace}]
        found = matching(found, self._conditions)
        shown = [status for status in found if self._includes_over or status.phase not in OVER]
        return in_order(shown, self._sort), len(found) - len(shown)


def _print(view: View, known: list[JobStatus], form: Output) -> None:
    shown, hidden = view.of(known)
    places = positions(known)
    if form == "json":
        emit([row_of(status, places.get((status.namespace, status.name), 0)) for status in shown])
        return
    if form == "name":
        for status in shown:
            print_result(f"{status.namespace}/{status.name}")
        return
    is_wide = form == "wide"
    shares = not is_wide and is_terminal()
    if shown:
        print_table(job_table(shown, places, SystemClock().now_ms(), is_wide=is_wide, shares=shares))
    for note in notes_of(shown, hidden, len(known), shares=shares):
        print_progress(note)


def notes_of(shown: list[JobStatus], hidden: int, known: int, *, shares: bool) -> list[str]:
    """What a list leaves out.

    Args:
        shown: Jobs of the list.
        hidden: Number of jobs that match and are over.
        known: Number of all jobs.
        shares: Jobs that wait alike share a row.
    """
    notes = []
    rows, jobs_there = sharing(shown) if shares else (0, 0)
    if rows:
        verb = "stands" if rows == 1 else "stand"
        notes.append(f"{pluralize(rows, 'row')} {verb} for {pluralize(jobs_there, 'job')}; list each with -o wide")
    if not shown and not hidden:
        notes.append("no job matches; " + known_jobs(known) if known else "no job is known")
    if hidden:
        notes.append(f"{'1 job is' if hidden == 1 else f'{hidden} jobs are'} over; list them with --all")
    return notes
