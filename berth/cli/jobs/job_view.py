"""Which jobs ``berth jobs`` shows, in which order and form, and what its list leaves out."""

from typing import Literal

from berth.cli.jobs.filters import matching, names_phase
from berth.cli.jobs.job_table import sharing
from berth.cli.jobs.queue_order import in_order
from berth.cli.jobs.rows import OVER
from berth.cli.output import is_terminal, known_jobs
from berth.cli.selection import Condition
from berth.core.text import pluralize
from berth.schemas.status import JobStatus

Output = Literal["text", "wide", "name", "json"]


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
        self, namespace: str | None, conditions: list[Condition[JobStatus]], sort: str, *, includes_over: bool = False
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
        notes.append(f"{'1 job is' if hidden == 1 else f'{hidden:,} jobs are'} over; list them with --all")
    return notes
