"""``berth jobs``: list jobs."""

from collections.abc import Mapping
from typing import Annotated, Final

from cyclopts import Parameter

from berth.cli.api import NoApiError, ask
from berth.cli.cell import Common, connected, run
from berth.cli.jobs.filters import conditions_of
from berth.cli.jobs.finding import Namespace, statuses
from berth.cli.jobs.job_table import job_table, totals_line
from berth.cli.jobs.job_view import Output, View, is_drawn, notes_of
from berth.cli.jobs.queue_order import JobKey, positions
from berth.cli.jobs.rows import row_of
from berth.cli.jobs.starts import Start, expected_starts
from berth.cli.output import (
    WRONG_USE,
    CommandError,
    emit,
    is_terminal,
    print_progress,
    print_result,
    print_table,
    write,
)
from berth.formats.shown import shown as as_shown
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.schemas.programs.lists import PlaceUse, UsageReply, UsageRequest
from berth.schemas.status import JobStatus

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
                known = await statuses(bus)
                starts = await expected_starts(bus) if form == "wide" and _waits(known) else None
                is_cell = form in {"text", "wide"} and not filters and namespace is None
                _print(view, known, form, await _use(bus) if is_cell else None, starts)

    return run(work)


def _waits(known: list[JobStatus]) -> bool:
    return any(status.phase == "waiting" for status in known)


async def _use(bus: Bus) -> PlaceUse | None:
    """Chips of the cell; None if the service ``api`` does not answer."""
    try:
        return (await ask(bus, "usage", UsageRequest(), UsageReply)).total
    except NoApiError:
        return None


def _print(
    view: View, known: list[JobStatus], form: Output, use: PlaceUse | None, starts: Mapping[JobKey, Start] | None
) -> None:
    shown, hidden = view.of(known)
    places = positions(known)
    if form == "json":
        emit([row_of(status, places.get((status.namespace, status.name), 0)) for status in shown])
        return
    if form == "name":
        write(as_shown(f"{status.namespace}/{status.name}") for status in shown)
        return
    is_wide = form == "wide"
    shares = not is_wide and is_terminal()
    if shown:
        print_table(job_table(shown, places, SystemClock().now_ms(), is_wide=is_wide, shares=shares, starts=starts))
        print_result(totals_line(shown, use))
    for note in notes_of(shown, hidden, len(known), shares=shares):
        print_progress(note)
