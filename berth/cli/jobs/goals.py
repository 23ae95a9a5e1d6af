"""What commands wait for, when a job has got there or never will, and words about jobs that still wait."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from berth.cli.jobs.job_table import where_or_why
from berth.cli.jobs.queue_order import JobKey
from berth.cli.jobs.rows import OVER, JobRow, phase_words
from berth.cli.output import age, listed
from berth.schemas.refusal import Code
from berth.schemas.status import JobStatus

Goal: TypeAlias = Literal["placed", "finished"]
"""``placed``: the job has nodes and chips, or had them and has succeeded. ``finished``: it has succeeded."""
Result: TypeAlias = Literal["reached", "ended", "never", "late"]
"""``reached``: the goal. ``ended``: the job ended otherwise. ``never``: it is larger than the cluster, or its queue can
never let it in as it is. ``late``: none of these in time."""
_PLACED: Final = frozenset({"placed", "bound", "running", "ending", "succeeded"})
_GOALS: Final = {"placed": _PLACED, "finished": frozenset({"succeeded"})}
_NEVER: Final[frozenset[Code]] = frozenset(
    {
        "larger-than-cluster",
        "larger-than-capability",
        "no-such-queue",
        "queue-has-children",
        "queue-not-for-namespace",
    }
)
"""Refusals that only nodes, or queues that are declared otherwise, can change."""
_NAMES_SHOWN: Final = 3


def result_of(job: JobRow, goal: Goal) -> Result | None:
    """How waiting for a job ends; None while it goes on."""
    if job.phase in _GOALS[goal]:
        return "reached"
    if job.phase in OVER:
        return "ended"
    return "never" if job.code in _NEVER else None


def job_line(status: JobStatus) -> str:
    """A job with its phase, and its nodes or the reason."""
    name = f"{status.namespace}/{status.name}"
    where = where_or_why(status)
    if status.placement is not None:
        return f"{name} {phase_words(status.phase)} on {where}"
    return f"{name} {phase_words(status.phase)}{f': {where}' if where else ''}"


def progress_lines(open_jobs: Mapping[JobKey, JobStatus | None], of: int, now_ms: int) -> list[str]:
    """Lines about the jobs that a command still waits for.

    Args:
        open_jobs: These jobs, with the status of each; None without a verdict.
        of: Number of all jobs that the command waits for.
        now_ms: The time.
    """
    lines = []
    for key, status in list(open_jobs.items())[:_NAMES_SHOWN]:
        if status is None:
            lines.append(f"{'/'.join(key)} was sent; no verdict yet")
            continue
        since_ms = status.submitted_ms or status.since_ms
        lines.append(f"{job_line(status)} ({age(since_ms, now_ms)} since it was submitted)")
    more = len(open_jobs) - len(lines)
    if more or of > 1:
        lines.append(
            f"{of - len(open_jobs):,} of {of:,} jobs are done{f'; {more:,} more are not shown' if more else ''}"
        )
    return lines


def interruption_lines(open_jobs: Mapping[JobKey, JobStatus | None]) -> list[str]:
    """What becomes of jobs for which a command was waiting when Ctrl-C ended it."""
    queued = [key for key, status in open_jobs.items() if status is not None and status.phase == "waiting"]
    sent = [key for key, status in open_jobs.items() if status is None]
    placed = [key for key, status in open_jobs.items() if status is not None and status.phase != "waiting"]
    lines = []
    if queued:
        lines.append(f"{_stay(queued)} queued; {_cancel(queued)}")
    if placed:
        verb = "goes on" if len(placed) == 1 else "go on"
        lines.append(f"{_names(placed)} {verb}; {_cancel(placed)}")
    if sent:
        verb = "was sent and stays" if len(sent) == 1 else "were sent and stay"
        lines.append(f"{_names(sent)} {verb} queued, without a verdict yet; see: berth jobs --all")
    return lines


def _stay(keys: Iterable[JobKey]) -> str:
    found = list(keys)
    return f"{_names(found)} {'stays' if len(found) == 1 else 'stay'}"


def _cancel(keys: list[JobKey]) -> str:
    return f"cancel it with: berth cancel {'/'.join(keys[0])}" if len(keys) == 1 else "see: berth cancel"


def _names(keys: Iterable[JobKey]) -> str:
    return listed("/".join(key) for key in keys)
