"""Jobs in the form of ``--json``, and words about them."""

from typing import Final

import msgspec

from berth.schemas.placement import Placement
from berth.schemas.programs.replies import RefusedRequest
from berth.schemas.programs.trace_ids import trace_id
from berth.schemas.status import JobStatus

OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
"""Final phases."""
_DONE: Final = frozenset({"succeeded", "failed"})


def phase_words(phase: str) -> str:
    """A job's phase as a phrase after the name of the job, such as ``is waiting`` or ``was cancelled``."""
    verb = "has" if phase in _DONE else "was" if phase in OVER else "is"
    return f"{verb} {phase}"


class RankRow(msgspec.Struct, frozen=True):
    """Node and chips of a pod."""

    rank: int
    node: str
    chips: list[int]


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
    ranks: list[RankRow]
    code: str
    field: str
    value: str
    expected: str
    rejection: RefusedRequest | None
    """A request that was rejected because another job has its name."""
    warning: str
    submitted_ms: int
    position: int
    """Its position in the queue, from 1 on; 0 if it does not wait, or if the queue was not read."""
    trace_id: str
    """Id of its trace, in 32 hexadecimal digits."""


def ranks_of(placement: Placement | None) -> list[RankRow]:
    """Node and chips of each rank."""
    if placement is None:
        return []
    pairs = zip(placement.names(), placement.chips_by_rank(), strict=True)
    return [RankRow(rank, node, list(chips)) for rank, (node, chips) in enumerate(pairs)]


def row_of(status: JobStatus, position: int = 0) -> JobRow:
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
        rejection=RefusedRequest.of(rejection) if rejection is not None else None,
        warning=status.warning,
        submitted_ms=status.submitted_ms,
        position=position,
        trace_id=trace_id(status.uid),
    )
