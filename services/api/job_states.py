"""Jobs and nodes in the form for programs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from berth.core.chips.picking import ids_of
from berth.core.explain.refusal_text import within
from berth.core.state.cell import State
from berth.schemas.facts import NodeHealth
from berth.schemas.placement import Placement
from berth.schemas.programs.replies import JobState, NodeState, Rank, RefusedRequest
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


def node_states(state: State, *, names: Sequence[str], after: str) -> Iterator[NodeState]:
    """Nodes by name.

    Args:
        state: The cell.
        names: Only these; empty: all.
        after: Only names after this one.
    """
    table = state.table
    rows = {table.names[row]: row for row in range(len(table)) if table.present[row]}
    wanted = (name for name in names if name in rows) if names else rows
    for name in sorted(set(wanted)):
        if name > after:
            yield _node_state(state, rows[name])


def _node_state(state: State, row: int) -> NodeState:
    table = state.table
    key = table.classes[int(table.node_class[row])]
    shares = state.shares.nodes.get(row)
    leaf, superpod, own = int(table.leaf[row]), int(table.superpod[row]), int(table.chips[row])
    return NodeState(
        name=table.names[row],
        product=key.product,
        resource=key.resource,
        domain=table.domains[int(table.domain[row])],
        leaf=table.leaves[leaf] if leaf >= 0 else "",
        superpod=table.superpods[superpod] if superpod >= 0 else "",
        level=NodeHealth(int(table.level[row])).name.lower().replace("_", "-"),
        ready=key.ready,
        cordoned=key.cordoned,
        chips=list(ids_of(own)),
        free=list(ids_of(int(table.free[row]))),
        used=list(ids_of(int(table.used[row]))),
        shared=list(ids_of(shares.mask)) if shares is not None else [],
        releasing=list(ids_of(int(table.releasing[row]))),
        unhealthy=list(ids_of(int(table.unhealthy[row]) & own)),
        network_unhealthy=list(ids_of(int(table.network[row]) & own)),
        withheld=list(ids_of(int(table.withheld[row]) & own)),
        drained_ms=table.drained_ms.get(row, 0),
    )
