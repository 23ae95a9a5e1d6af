"""``berth explain``: what was decided on a job, on what, and what came second."""

import msgspec
from rich.markup import escape

from berth.cli.cell import Common, connected, run
from berth.cli.jobs import OVER, find_job, phase_words
from berth.cli.output import emit, moment, results, tell
from berth.core.explain import explain, explain_now, explain_rejection
from berth.core.explanation import Basis, Explanation, sentences
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.history import Kept, state_at, state_now, verdict_on
from berth.runtime.port import Bus
from schemas.ledger import Verdict
from schemas.status import JobStatus


class Told(msgspec.Struct, frozen=True):
    """Result of ``berth explain --json``. ``explanation`` is null while nothing was decided or when nothing is kept."""

    namespace: str
    name: str
    uid: str
    phase: str
    since_ms: int
    attempt: int
    sentences: list[str]
    explanation: Explanation | None = None


async def told_of(bus: Bus, clock: Clock, status: JobStatus) -> Told:
    """What there is to tell of a job."""
    found = await _explanation(bus, clock, status)
    if found is not None:
        lines = sentences(found, is_over=status.phase in OVER)
    elif status.ledger_seq:
        lines = ["The decision and its history are no longer kept.", *([status.sentence] if status.sentence else [])]
    else:
        lines = [status.sentence or "Nothing was decided yet."]
    beside = status.rejection
    if beside is not None:
        wrong = beside.refusal
        lines.append(
            f"Another request for this name was turned away at {moment(beside.at_ms)}:"
            f" {wrong.field} is {wrong.value}, expected {wrong.expected}."
        )
    return Told(
        namespace=status.namespace,
        name=status.name,
        uid=status.uid,
        phase=status.phase,
        since_ms=status.since_ms,
        attempt=status.attempt,
        sentences=lines,
        explanation=found,
    )


async def _explanation(bus: Bus, clock: Clock, status: JobStatus) -> Explanation | None:
    if status.phase == "rejected" and status.refusal is not None:
        basis = Basis(facts_seq=status.facts_seq, at_ms=status.since_ms)
        return explain_rejection(status.namespace, status.name, status.uid, status.refusal, basis=basis)
    if not status.ledger_seq:
        return None
    kept = await _kept(bus, status)
    if kept is not None:
        then = await state_at(bus, ledger_seq=kept.sequence - 1, facts_seq=kept.record.facts_seq)
        found = explain(then, kept.record, status.uid, ledger_seq=kept.sequence) if then is not None else None
        if found is not None:
            return found
        verdict = kept.verdict
    elif status.placement is None and status.refusal is None:
        return None
    else:
        verdict = Verdict(status.namespace, status.name, status.uid, status.attempt, status.placement, status.refusal)
    now = await state_now(bus, clock)
    return explain_now(now, verdict, ledger_seq=kept.sequence if kept is not None else status.ledger_seq)


async def _kept(bus: Bus, status: JobStatus) -> Kept | None:
    """Record of the verdict that the job stands on: the placement if it ever had one and does not wait again."""
    if status.phase != "waiting":
        kept = await verdict_on(bus, status.uid, hint_seq=status.ledger_seq, placed=True)
        if kept is not None:
            return kept
    return await verdict_on(bus, status.uid, hint_seq=status.ledger_seq)


def explain_job(job: str, *, namespace: str = "default", common: Common | None = None) -> int:
    """Explain a decision: nodes and chips of each rank and what came second, or why a job waits or was turned away.

    Args:
        job: Its name, or namespace/name.
        namespace: Namespace of a name without one.
        common: Cell and form of the output.
    """
    options = common or Common()

    async def work() -> None:
        clock = SystemClock()
        async with connected(options) as bus:
            told = await told_of(bus, clock, await find_job(bus, job, namespace))
        if options.json:
            emit(told)
        else:
            show(told)

    return run(work)


def show(told: Told) -> None:
    """Print an explanation."""
    console = results()
    attempt = f" (attempt {told.attempt})" if told.attempt > 1 else ""
    since = "; it ended at" if told.phase in {"succeeded", "failed"} else " since"
    console.print(
        f"[bold]{escape(f'{told.namespace}/{told.name}')}[/] {phase_words(told.phase)}{attempt}{since}"
        f" {moment(told.since_ms)}"
    )
    if told.explanation is not None:
        tell(_basis_words(told.explanation.basis))
    for line in told.sentences:
        tell(f"  {line}")


def _basis_words(basis: Basis) -> str:
    settings = ", ".join(f"{name} {'on' if value else 'off'}" for name, value in basis.settings.items())
    if not basis.ledger_seq:
        return f"Judged at {moment(basis.at_ms)}, when the request came in."
    if basis.is_current:
        return (
            f"Decided by record {basis.ledger_seq} of the ledger; told from the state at facts {basis.facts_seq},"
            f" {moment(basis.at_ms)}, epoch {basis.epoch}; {settings}."
        )
    return (
        f"Decided at {moment(basis.at_ms)} by record {basis.ledger_seq} of the ledger (round {basis.round} of epoch"
        f" {basis.epoch}), knowing facts up to {basis.facts_seq}; {settings}."
    )
