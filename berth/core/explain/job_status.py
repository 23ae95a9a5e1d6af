"""Status of a job, derived from facts and ledger."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from berth.core.explain.recovery_status import recovery_of, waiting_backups
from berth.core.explain.recovery_text import (
    POD_FAILED,
    PODS_GONE,
    backup_words,
    ending_words,
    open_words,
    waiting_words,
)
from berth.core.explain.refusal_text import sentence, without_past
from berth.core.requests.gangs import accepted_of, is_fragile, priority_of
from berth.core.state.cell import JobKey, State
from berth.core.state.ledger import GangRecord, Holding
from berth.schemas.facts import JobSeen, PodPhase
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus, Phase

_OVER: dict[str, Phase] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "vanished": "failed",
}
_NONE: Final[Mapping[str, str]] = {}
_RUNS: frozenset[Phase] = frozenset({"placed", "bound", "running"})


class Reason(NamedTuple):
    """Why a gang waits."""

    refusal: Refusal
    sentence: str


def status_of(
    state: State,
    key: JobKey,
    *,
    at_ms: int,
    restart_held: str = "",
    unplaced: Mapping[str, str] = _NONE,
    reason: Reason | None = None,
) -> JobStatus | None:
    """Status of the job with a name; None without such a job.

    Args:
        state: The cell.
        key: The job.
        at_ms: The time.
        restart_held: Why it does not restart although it is faulty; it counts only while the job has a place.
        unplaced: Why backup pods (uid), and ranks that recover (the empty name), have no place, as far as it is known.
        reason: Why it waits, as of now, if it was refused; None: what its last refusal in the ledger says.
    """
    job = state.jobs.get(key)
    if job is None:
        return None
    gang = state.fold.gangs.get(job.uid) if job.state != "rejected" else None
    holding = state.fold.holdings.get((job.uid, gang.attempt)) if gang is not None else None
    recovery = recovery_of(state, gang, holding, unplaced.get("", "")) if gang is not None else None
    backups = waiting_backups(state, holding, unplaced)
    refusal = job.refusal if job.refusal is not None else gang.refusal if gang is not None else None
    phase, words = _phase(state, key, job)
    said = ""
    is_held = phase == "waiting" and job.hold is not None
    if is_held:
        refusal = None  # it would say what else is in its way
    if phase == "waiting" and reason is not None and refusal is not None:
        refusal, said = reason
    elif refusal is not None and phase in {"waiting", "rejected", "failed"}:
        refusal = without_past(refusal, at_ms)
        said = sentence(refusal)
    since_ms = max(job.at_ms, gang.at_ms if gang is not None else 0)
    if phase == "waiting":
        since_ms = _queued_ms(state, key, job, gang)
    request = job.request
    pods = chips = 0
    for task in request.tasks if request is not None else ():
        pods += task.replicas
        chips += task.replicas * task.chips
    return JobStatus(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        phase=phase,
        since_ms=since_ms,
        at_ms=at_ms,
        attempt=gang.attempt if gang is not None else 0,
        sentence=words
        or ((open_words(recovery) or restart_held or backup_words(backups)) if phase in _RUNS else "")
        or said,
        refusal=refusal,
        placement=holding.placement if holding is not None else None,
        ledger_seq=gang.ledger_seq if gang is not None else 0,
        facts_seq=gang.facts_seq if gang is not None else 0,
        intake_seq=job.intake_seq,
        pods=pods,
        chips=chips,
        queue=request.queue if request is not None else "",
        priority=priority_of(job, request) if request is not None else 0,
        rejection=job.rejection,
        warning=_warning(job, holding),
        recovery=recovery,
        restart_held=restart_held if phase in _RUNS else "",
        backups=backups,
        submitted_ms=(request.created_at_ms if request is not None else 0) or job.at_ms,
        accepted_seq=accepted_of(job, request) if request is not None else job.accepted_seq,
        is_plain=not chips,
        is_fragile=request is not None and is_fragile(request),
        is_held=is_held,
    )


def _warning(job: JobSeen, holding: Holding | None) -> str:
    """Warnings of its placement, then those of its verdict; empty for most jobs."""
    groups = holding.placement.groups if holding is not None else ()
    named, charged = job.request.queue if job.request is not None else "", holding.queue if holding is not None else ""
    is_moved = bool(charged) and charged != named
    moved = f"it is charged to queue {charged}; queue {named} counts from its next attempt on" if is_moved else ""
    return "; ".join(filter(None, [*(part.warning for part in groups), moved, *job.warnings]))


def _phase(state: State, key: JobKey, job: JobSeen) -> tuple[Phase, str]:
    """Phase, and a sentence where no refusal provides one."""
    if job.state == "rejected":
        return "rejected", ""
    gang = state.fold.gangs.get(job.uid)
    if gang is None or gang.phase == "waiting":
        if job.state == "cancelled":
            return "cancelled", job.reason
        return "waiting", job.hold.words if job.hold is not None else _anew(state, key, gang)
    if gang.is_over:
        failed = "" if gang.refusal else POD_FAILED
        words = {"vanished": PODS_GONE, "failed": failed, "cancelled": job.reason}
        return _OVER.get(gang.phase, "failed"), words.get(gang.phase, "")
    if gang.phase == "ending":
        return "ending", job.reason if job.inferred else ending_words(gang)
    return _placed_phase(state, key, job.uid, gang.attempt), ""


def _queued_ms(state: State, key: JobKey, job: JobSeen, gang: GangRecord | None) -> int:
    """Since when a job waits: its acceptance, or the end of its last attempt. A refusal does not count."""
    if gang is None or gang.attempt == 1:
        return job.at_ms
    outcome = state.outcomes.get(key)
    is_last = outcome is not None and (outcome.uid, outcome.attempt) == (gang.uid, gang.attempt - 1)
    return max(job.at_ms, outcome.at_ms if outcome is not None and is_last else gang.at_ms)


def _anew(state: State, key: JobKey, gang: GangRecord | None) -> str:
    """Why a job waits again after its last attempt ended; empty if it has none."""
    if gang is None or gang.attempt == 1 or gang.refusal is not None:
        return ""
    outcome = state.outcomes.get(key)
    is_own = outcome is not None and outcome.uid == gang.uid
    failure = outcome.failures[0].reason if outcome is not None and is_own and outcome.failures else ""
    why = f" ({failure})" if failure else ""
    return waiting_words(gang) or f"its pods could not be bound{why}; it is placed again"


def _placed_phase(state: State, key: JobKey, uid: str, attempt: int) -> Phase:
    seen = state.pods.get(key)
    if seen is not None and (seen.uid, seen.attempt) == (uid, attempt) and PodPhase.RUNNING in seen.phase:
        return "running"
    outcome = state.outcomes.get(key)
    if outcome is not None and (outcome.uid, outcome.attempt) == (uid, attempt) and outcome.state == "bound":
        return "bound"
    return "placed"


def digest(status: JobStatus) -> tuple[object, ...]:
    """Fields of a status that cause a new write when they differ."""
    rejected = status.rejection.intake_seq if status.rejection is not None else 0
    recovery = status.recovery
    steps: tuple[object, ...] = ()
    if recovery is not None:
        open_ranks = (*recovery.open, -1, *recovery.unplaced)
        steps = (recovery.attempt, recovery.step, recovery.placed, open_ranks, recovery.refusal)
    about = (status.uid, status.phase, status.attempt, status.ledger_seq, rejected, status.restart_held)
    rank = (status.queue, status.priority, status.pods, status.chips, status.submitted_ms, status.accepted_seq)
    return (
        *about,
        *rank,
        status.is_plain,
        status.is_fragile,
        status.sentence if status.is_held else None,
        status.warning,
        *steps,
        *((one.rank, one.uid, one.refusal) for one in status.backups),
    )
