"""Jobs in the form for programs."""

from datetime import UTC, datetime
from typing import Final

from berth.core.explain.refusal_text import within
from berth.schemas.placement import Placement
from berth.schemas.programs.replies import JobState, Rank, RefusedRequest
from berth.schemas.programs.trace_ids import trace_id
from berth.schemas.status import JobStatus

SUBMITTED: Final = "submitted"
"""Phase of a job whose request is stored and has no verdict yet."""


def job_state(status: JobStatus) -> JobState:
    """A job as its status has it."""
    refusal, rejection, recovery = status.refusal, status.rejection, status.recovery
    is_own = recovery is not None and recovery.attempt == status.attempt
    return JobState(
        namespace=status.namespace,
        name=status.name,
        uid=status.uid,
        phase=status.phase,
        since_ms=status.since_ms,
        attempt=status.attempt,
        step=recovery.step if recovery is not None and is_own else 0,
        pods=status.pods,
        chips=status.chips,
        queue=status.queue,
        priority=status.priority,
        held=status.is_held,
        sentence=within(status.sentence, refusal, status.namespace),
        code=refusal.code if refusal is not None else "",
        ranks=ranks_of(status.placement),
        open_ranks=list(recovery.open) if recovery is not None else [],
        warning=status.warning,
        restart_held=status.restart_held,
        refused=RefusedRequest.of(rejection) if rejection is not None else None,
        sequence=status.intake_seq,
        ledger_seq=status.ledger_seq,
        trace_id=trace_id(status.uid),
    )


def utc_text(at_ms: int) -> str:
    """A time in UTC, for sentences."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def ranks_of(placement: Placement | None) -> list[Rank]:
    """Node and chips of each rank."""
    if placement is None:
        return []
    pairs = zip(placement.names(), placement.chips_by_rank(), strict=True)
    return [Rank(rank=rank, node=node, chips=list(chips)) for rank, (node, chips) in enumerate(pairs)]
