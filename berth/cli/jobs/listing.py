"""``berth jobs`` and ``berth cancel``: list jobs, and cancel one."""

from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from rich.markup import escape

from berth.cli.cell import Common, connected, run
from berth.cli.jobs.watching import Watch
from berth.cli.output import (
    CommandError,
    age,
    emit,
    known_jobs,
    listed,
    near_names,
    new_table,
    print_progress,
    print_result,
    results,
)
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.intake import JobCancel
from berth.schemas.placement import Placement
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName

OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
"""Final phases."""
_DONE: Final = frozenset({"succeeded", "failed"})
_STYLES: Final = {
    "waiting": "yellow",
    "placed": "cyan",
    "bound": "cyan",
    "running": "green",
    "ending": "magenta",
    "succeeded": "dim",
    "cancelled": "dim",
    "failed": "red",
    "rejected": "red",
}
_CANCEL_S: Final = 10.0


def phase_words(phase: str) -> str:
    """A job's phase as a phrase after the name of the job."""
    return f"{'has' if phase in _DONE else 'is'} {phase}"


class RankRow(msgspec.Struct, frozen=True):
    """Node and chips of a pod."""

    rank: int
    node: str
    chips: list[int]


class RejectionRow(msgspec.Struct, frozen=True):
    """A request that was rejected because another job has its name."""

    uid: str
    code: str
    field: str
    value: str
    expected: str
    at_ms: int


class JobRow(msgspec.Struct, frozen=True):
    """A job as ``--json`` prints it."""

    namespace: str
    name: str
    uid: str
    phase: str
    since_ms: int
    attempt: int
    pods: int
    chips: int
    queue: str
    priority: int
    sentence: str
    ledger_seq: int
    facts_seq: int
    ranks: list[RankRow] = []
    code: str = ""
    field: str = ""
    value: str = ""
    expected: str = ""
    rejection: RejectionRow | None = None
    warning: str = ""


def ranks_of(placement: Placement | None) -> list[RankRow]:
    """Node and chips of each rank."""
    if placement is None:
        return []
    pairs = zip(placement.names(), placement.chips_by_rank(), strict=True)
    return [RankRow(rank, node, list(chips)) for rank, (node, chips) in enumerate(pairs)]


def row_of(status: JobStatus) -> JobRow:
    """A status in the form of ``--json``."""
    refusal, rejection = status.refusal, status.rejection
    return JobRow(
        namespace=status.namespace,
        name=status.name,
        uid=status.uid,
        phase=status.phase,
        since_ms=status.since_ms,
        attempt=status.attempt,
        pods=status.pods,
        chips=status.chips,
        queue=status.queue,
        priority=status.priority,
        sentence=status.sentence,
        ledger_seq=status.ledger_seq,
        facts_seq=status.facts_seq,
        ranks=ranks_of(status.placement),
        code=refusal.code if refusal is not None else "",
        field=refusal.field if refusal is not None else "",
        value=refusal.value if refusal is not None else "",
        expected=refusal.expected if refusal is not None else "",
        rejection=RejectionRow(
            uid=rejection.uid,
            code=rejection.refusal.code,
            field=rejection.refusal.field,
            value=rejection.refusal.value,
            expected=rejection.refusal.expected,
            at_ms=rejection.at_ms,
        )
        if rejection is not None
        else None,
        warning=status.warning,
    )


async def statuses(bus: Bus) -> list[JobStatus]:
    """Statuses of all jobs, by namespace and name; statuses that cannot be decoded are skipped."""
    found = []
    for stored in await bus.read(StreamName.STATUS):
        try:
            found.append(decode(stored.data, JobStatus))
        except DecodeError as error:
            print_progress(f"status {stored.subject} does not decode: {error.reason}")
    return sorted(found, key=lambda status: (status.namespace, status.name))


async def find_job(bus: Bus, job: str, namespace: str) -> JobStatus:
    """Status of a job, named ``name`` or ``namespace/name``.

    Raises:
        CommandError: No job has the name; the error lists similar names.
    """
    space, _, name = job.rpartition("/")
    space = space or namespace
    stored = await bus.last(StreamName.STATUS, bus.subjects.status(space, name))
    if stored is not None:
        return decode(stored.data, JobStatus)
    known = {f"{status.namespace}/{status.name}" for status in await statuses(bus)}
    near = near_names(f"{space}/{name}", known)
    near += sorted(other for other in known if other.endswith(f"/{name}") and other not in near)
    hint = f"near names: {', '.join(near)}" if near else f"{known_jobs(len(known))}, see: berth jobs --all"
    raise CommandError(f"no job is named {space}/{name}; {hint}")


def jobs(
    *,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
    namespace: str | None = None,
    common: Common | None = None,
) -> int:
    """List jobs: phase, pods, chips, time in the phase, and their nodes or why they wait.

    Args:
        all_: Include jobs that have ended.
        namespace: Only jobs of this namespace.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            found = [status for status in await statuses(bus) if namespace in {None, status.namespace}]
        shown = [status for status in found if all_ or status.phase not in OVER]
        if options.json:
            emit([row_of(status) for status in shown])
            return
        _show(shown, SystemClock().now_ms())
        hidden = len(found) - len(shown)
        if hidden:
            print_progress(f"{'1 job is' if hidden == 1 else f'{hidden} jobs are'} over; list them with --all")

    return run(work)


def _show(shown: list[JobStatus], now_ms: int) -> None:
    table = new_table("JOB", "PHASE", "PODS", "CHIPS", "SINCE", "WHERE, OR WHY NOT")
    for status in shown:
        where = listed(status.placement.names()) if status.placement is not None else status.sentence
        warning = f"; warning: {status.warning}" if status.warning else ""
        table.add_row(
            escape(f"{status.namespace}/{status.name}"),
            f"[{_STYLES[status.phase]}]{status.phase}[/]",
            str(status.pods),
            str(status.chips),
            age(status.since_ms, now_ms),
            escape(f"{where or status.sentence}{warning}"),
        )
    results().print(table)


def cancel(job: str, *, namespace: str = "default", reason: str = "", common: Common | None = None) -> int:
    """Cancel a job, whether it waits or runs.

    Args:
        job: Its name, or namespace/name.
        namespace: Namespace of a name without one.
        reason: The reason; it is stored with the job.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        async with connected(options) as bus:
            status = await find_job(bus, job, namespace)
            label = f"{status.namespace}/{status.name}"
            if status.phase in OVER:
                raise CommandError(f"{label} cannot be cancelled: it {phase_words(status.phase)} already")
            wish = JobCancel(status.namespace, status.name, status.uid, reason, SystemClock().now_ms())
            async with Watch(bus, [(status.namespace, status.name)]) as watch:
                await bus.publish(bus.subjects.intake_cancel(status.namespace, status.name), encode(wish))
                key = (status.namespace, status.name)
                result = await watch.until(lambda: _stopped(watch, key, status.uid), timeout_s=_CANCEL_S)
            if result is None:
                raise CommandError(f"{label}: no answer from the dispatcher within {_CANCEL_S:g} s; is one running?")
        if options.json:
            emit(row_of(result))
        else:
            print_result(f"{label} is {result.phase}{f': {result.sentence}' if result.sentence else ''}")

    return run(work)


def _stopped(watch: Watch, key: tuple[str, str], uid: str) -> JobStatus | None:
    now = watch.statuses.get(key)
    ends = {*OVER, "ending"}
    return now if now is not None and now.uid == uid and now.phase in ends else None
