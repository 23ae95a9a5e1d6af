"""Attempts in the form of the cluster port. Pure."""

from collections.abc import Sequence

from berth.core.state.holdings.moves import merged_placement
from berth.services.binder.cluster import Gang
from berth.services.binder.work import Attempt


def gang_of(attempt: Attempt, run_ms: int = 0, *, to_bind: Sequence[int] | None = None) -> Gang:
    """An attempt in the form of the cluster port.

    A backup pod that is to be bound has the place that is reserved for it, beside the pod that its rank has.

    Args:
        attempt: The attempt.
        run_ms: Declared run time; 0 when unknown.
        to_bind: Ranks that are to be bound; None for all that were not released, and their backup pods.
    """
    placement, steps = attempt.placement, dict(attempt.holding.steps)
    moves = attempt.holding.backups()
    if to_bind is not None:
        moves = {rank: move for rank, move in attempt.unbound_backups().items() if rank in to_bind}
        places = {
            rank: (move.placement, move.ranks.index(rank)) for rank, move in moves.items() if move.placement is not None
        }
        placement = merged_placement(placement, places) if places else placement
        steps |= {rank: move.step for rank, move in moves.items()}
    return Gang(
        attempt.namespace,
        attempt.name,
        attempt.uid,
        attempt.attempt,
        placement,
        run_ms,
        tuple(attempt.gone),
        step=attempt.holding.step,
        steps=steps,
        todo=None if to_bind is None else tuple(to_bind),
        recovers=attempt.recovers,
        backups={rank: move.backup_of(rank) for rank, move in moves.items()},
    )
