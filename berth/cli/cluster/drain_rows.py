"""Drains as commands show them: what is drained, and the jobs there."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from berth.cli.output import listed, moment, print_table
from berth.cli.tables import Table
from berth.core.text import DRAINED, numbered
from berth.schemas.fault_facts import DrainKind
from berth.schemas.programs.lists import Drain, JobRanks

_JOBS_SHOWN: Final = 4
KINDS: tuple[DrainKind, ...] = ("node", "leaf", "superpod")


class HeldRow(msgspec.Struct, frozen=True):
    """A pod that a disruption budget holds back, as ``--json`` prints it."""

    rank: int
    reason: str


class DrainedJobRow(msgspec.Struct, frozen=True):
    """A job on nodes that are drained, as ``--json`` prints it."""

    namespace: str
    name: str
    uid: str
    attempt: int
    ranks: list[int]
    """Its ranks on these nodes, ascending."""
    nodes: list[str]
    """These nodes, sorted."""
    moves: bool
    """Pods of it leave: it moves, or starts anew as a whole."""
    held: list[HeldRow]
    """Its pods that disruption budgets hold back, by rank."""
    unowned: bool
    """A pod of it has no controller that makes it anew: only a drain with ``--force`` moves it."""


class DrainRow(msgspec.Struct, frozen=True):
    """A drain, as ``--json`` prints it."""

    kind: DrainKind
    name: str
    since_ms: int
    """From when on it counts."""
    grace_ms: int
    """0 for the default."""
    by: str
    reason: str
    asked_ms: int
    nodes: list[str]
    """Known nodes that it concerns, sorted."""
    jobs: list[DrainedJobRow]
    """Jobs with pods on them, by name."""
    force: bool = False
    """Jobs leave too with pods that have no controller."""


def since_words(since_ms: int, now_ms: int) -> str:
    """From when on a drain counts, as the end of a sentence."""
    return f"{'since' if since_ms <= now_ms else 'from'} {moment(since_ms)}{'' if since_ms <= now_ms else ' on'}"


def ranks_words(job: DrainedJobRow) -> str:
    """A job with its ranks on drained nodes."""
    ranks = listed(map(str, job.ranks), most=8)
    words = f"{job.namespace}/{job.name} ({'rank' if len(job.ranks) == 1 else 'ranks'} {ranks})"
    if job.held:
        words += f", rank {job.held[0].rank} is held back: {job.held[0].reason}"
    return f"{words}, leaves" if job.moves and not job.held else words


class DrainLine(NamedTuple):
    """A row of the table of drains."""

    kind: DrainKind
    name: str
    since_ms: int
    by: str
    nodes: int
    jobs: str
    reason: str


def line_of(drain: DrainRow) -> DrainLine:
    """A drain as a row of the table."""
    jobs = listed((ranks_words(job) for job in drain.jobs), most=_JOBS_SHOWN)
    return DrainLine(drain.kind, drain.name, drain.since_ms, drain.by, len(drain.nodes), jobs, drain.reason)


def line_from(drain: Drain) -> DrainLine:
    """A drain as the service ``api`` lists it, as a row of the table."""
    jobs = [job_words(one) for one in drain.jobs] + [f"{drain.more_jobs:,} others"] * bool(drain.more_jobs)
    return DrainLine(
        drain.kind, drain.name, drain.since_ms, drain.by, drain.nodes, listed(jobs, most=_JOBS_SHOWN), drain.reason
    )


def job_words(job: JobRanks) -> str:
    """A job with its ranks: ``speech/pretrain (ranks 0-31)``."""
    return f"{job.namespace}/{job.name} ({numbered('rank', job.ranks)})"


def show_drains(drains: Iterable[DrainLine], now_ms: int) -> None:
    """Print drains as a table; nothing without any."""
    lines = list(drains)
    if not lines:
        return
    table = Table("DRAINED", "NAME", "SINCE", "BY", "NODES", "JOBS THERE", "REASON")
    for one in lines:
        table.add_row(
            DRAINED[one.kind],
            one.name,
            since_words(one.since_ms, now_ms).removeprefix("since "),
            one.by,
            f"{one.nodes:,}",
            one.jobs or "none",
            one.reason,
        )
    print_table(table)
