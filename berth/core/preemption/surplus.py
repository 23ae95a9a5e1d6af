"""Surplus of a placed gang: ranks that may leave while the rest goes on.

The topology of a gang says more: whoever plans all pods of a gang together, or has a fixed rank table, has no surplus.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from berth.core.state.holdings.holding import Holding
from berth.schemas.intake import JobRequest

RANK_TABLE: Final = "ring-controller.atlas"
"""Label of jobs for which a rank table is made."""
_FIXED: Final = frozenset({"ascend-job"})
"""Origins of jobs whose rank table is fixed when they start."""


def surplus_of_job(request: JobRequest, holding: Holding) -> tuple[int, ...]:
    """Surplus of a placed job, as :func:`surplus_ranks`; none while ranks of it leave or wait for a place.

    A job has none, whatever its minimum is, if one plan places all of its pods, if they share chips, or if its rank
    table is fixed.

    Args:
        request: Its request.
        holding: What it holds.
    """
    if not request.min_available:
        return ()
    placement = holding.placement
    is_fixed = request.origin in _FIXED or RANK_TABLE in request.labels
    roles = [task.name for task in request.tasks for _ in range(task.replicas)]
    if is_fixed or placement.groups or placement.share is not None or len(roles) != placement.pods():
        return ()
    if holding.ending or holding.moves or holding.unplaced:
        return ()
    return surplus_ranks(roles, holding.gone, request.min_available, {})


def surplus_ranks(
    roles: Sequence[str], gone: Collection[int], least: int, by_role: Mapping[str, int]
) -> tuple[int, ...]:
    """Ranks beyond the minimum, in the order in which they leave: the last one first.

    No role has fewer ranks left than it declares, where these numbers are part of the minimum. A gang below its minimum
    has no surplus.

        >>> surplus_ranks(["master", "worker", "worker", "worker"], (), 2, {"master": 1})
        (3, 2)

    Args:
        roles: Role of each rank.
        gone: Ranks that hold nothing.
        least: Ranks that the gang needs; 0, or not fewer than there are, for all: then it is not elastic.
        by_role: Ranks of roles that it needs; they count if they are no more than ``least`` together.
    """
    if not 0 < least < len(roles):
        return ()
    missing = set(gone)
    held = [rank for rank in range(len(roles)) if rank not in missing]
    left = len(held) - least
    counts = sum(by_role.values()) <= least
    spare = Counter(roles[rank] for rank in held)
    if counts:
        spare.subtract({role: number for role, number in by_role.items() if role in spare})
    found: list[int] = []
    for rank in reversed(held):
        if len(found) >= left:
            break
        if spare[roles[rank]] > 0:
            spare[roles[rank]] -= 1
            found.append(rank)
    return tuple(found)
