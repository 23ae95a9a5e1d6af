"""``berth faults``: what is broken, in groups, since when, and the jobs there."""

from typing import Annotated, Final, Literal

from cyclopts import Parameter

from berth.cli.cell import Common, connected, run
from berth.cli.cluster.cell_lists import NO_FAULTS, lists_of
from berth.cli.cluster.drain_rows import show_drains
from berth.cli.jobs.finding import statuses
from berth.cli.jobs.rows import OVER
from berth.cli.output import WRONG_USE, CommandError, clock_time, emit, listed, print_result
from berth.core.explain.recovery_text import recovery_words
from berth.core.text import numbered, pluralize, ranges
from berth.runtime.clock import SystemClock
from berth.schemas.programs.lists import FaultGroup, JobRanks
from berth.schemas.recovery import DISPLACED
from berth.schemas.status import JobStatus

_NODES: Final = {
    "NodeUnhealthy": "unhealthy",
    "NodeNotReady": "not ready",
    "NodeNoNewWork": "closed to new work",
    "NodeSubHealthy": "sub-healthy",
}
_CHIPS: Final = {
    "CardUnhealthy": "unhealthy",
    "CardRecovering": "recovering",
    "CardNetworkUnhealthy": "network-unhealthy",
    "CardSubHealthy": "sub-healthy",
}
_JOBS_SHOWN: Final = 4


def faults(
    *,
    output: Annotated[Literal["text", "wide", "json"], Parameter(name=["--output", "-o"])] = "text",
    common: Common | None = None,
) -> int:
    """List faults of nodes and chips in groups, since when, the jobs and ranks there, and jobs that recover.

    Args:
        output: Form: text, wide (a row for each node and for each rank, with the labels of the job), json (as with
            --json).
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        if options.json and output == "wide":
            raise CommandError("--output is 'wide', expected 'json' or nothing beside --json", code=WRONG_USE)
        form = "json" if options.json else output
        now_ms = SystemClock().now_ms()
        async with connected(options) as bus:
            if form != "text":
                from berth.cli.cluster.fault_list import list_faults, show  # noqa: PLC0415  # imports numpy

                found = await list_faults(bus, now_ms)
                if form == "json":
                    emit(found)
                else:
                    show(found, now_ms)
                return
            lists = await lists_of(bus)
            show_drains(await lists.drains(), now_ms)
            lines = [group_line(group, now_ms) for group in await lists.faults()]
            lines += [line for status in await statuses(bus) for line in job_lines(status)]
        for line in lines or [NO_FAULTS]:
            print_result(line)

    return run(work)


def group_line(group: FaultGroup, now_ms: int) -> str:
    """A group as a line: ``leaf-05: 32 of 32 nodes not ready since 03:26 UTC: speech/pretrain-015 ranks 0-31``."""
    since = f" since {clock_time(group.since_ms, now_ms)}" if group.since_ms else ""
    if group.changed_ms > group.since_ms:
        since += f", last change {clock_time(group.changed_ms, now_ms)}"
    reason = f" ({group.reason})" if group.reason else ""
    jobs = [_job_words(one) for one in group.jobs]
    if group.more_jobs:
        jobs.append(pluralize(group.more_jobs, "other job"))
    there = f": {listed(jobs, most=_JOBS_SHOWN)}" if jobs else ""
    return f"{group.name}: {_what(group)}{since}{reason}{there}"


def job_lines(status: JobStatus) -> list[str]:
    """What a fault does to a job, or does not do yet: a line each."""
    if status.phase in OVER:
        return []
    name = f"{status.namespace}/{status.name}"
    found = [f"{name}: {status.restart_held}"] if status.restart_held else []
    recovery = status.recovery
    if recovery is None or recovery.kind in DISPLACED:
        return found
    if recovery.open or (recovery.scope == "job" and status.placement is None):
        found.append(f"{name} recovers: {recovery_words(recovery, status.pods)}")
    return found


def _what(group: FaultGroup) -> str:
    """How many nodes or chips have which fault."""
    of_chips = _CHIPS.get(group.kind)
    if group.scope == "node":
        if of_chips is None:
            return _NODES.get(group.kind, group.kind)
        return f"{'chip' if group.chips == 1 else 'chips'} {ranges(group.chip_ids) or group.chips} {of_chips}"
    of = pluralize(group.of, "node")
    some = "" if group.nodes == group.of else f" ({listed(group.names)})"
    if of_chips is None:
        return f"{group.nodes:,} of {of}{some} {_NODES.get(group.kind, group.kind)}"
    return f"{pluralize(group.chips, 'chip')} {of_chips} on {group.nodes:,} of {of}{some}"


def _job_words(job: JobRanks) -> str:
    left = job.pods - len(job.ranks)
    more = f" and {left:,} more" if left > 0 else ""
    return f"{job.namespace}/{job.name} {numbered('rank', job.ranks)}{more}"
