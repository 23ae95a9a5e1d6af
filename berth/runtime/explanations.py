"""Explanations of jobs of a living cell: the record of the decision, and the state that it was made in."""

from berth.core.explain.explainer import explain, explain_now, explain_rejection
from berth.core.explain.model import Basis, Explanation
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.history import Kept, state_at, state_now, verdict_on
from berth.schemas.ledger import Verdict
from berth.schemas.status import JobStatus


async def explanation_of(bus: Bus, clock: Clock, status: JobStatus) -> Explanation | None:
    """Explanation of a job as it is now, from the state of its decision.

    Where that state is no longer stored, it is explained from the state of now.

    Returns:
        The explanation; None before a decision, or if neither is possible.

    Raises:
        TransientError: The bus did not answer.
    """
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
    """Record of the verdict in force: the placement if the job ever had one and does not wait again."""
    if status.phase != "waiting":
        kept = await verdict_on(bus, status.uid, hint_seq=status.ledger_seq, placed=True)
        if kept is not None:
            return kept
    return await verdict_on(bus, status.uid, hint_seq=status.ledger_seq)
