"""Costs of steps of a recovery: what each of them would stop, and a smaller step where a larger one is allowed."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from berth.core.faults.escalation import Wanted
from berth.core.pod_shares import pods_at
from berth.core.state.holdings.holding import Holding
from berth.schemas.placement import Placement


class Cost(NamedTuple):
    """Cost of a step; less is better, in the order of the fields.

    Attributes:
        restarts: Pods that run and would be deleted.
        idle: Chips that no pod uses while the old pods leave: places that are reserved beside those of these pods, and
            chips of ranks that get no place.
        number: Place of the step among those that may be taken.
    """

    restarts: int
    idle: int
    number: int


def deleted_pod_count(holding: Holding, option: Wanted) -> int:
    """Pods that a step deletes and no step before it does."""
    if option.how not in {"grace", "force"}:
        return 0
    return len(set(option.ranks).difference(holding.gone, holding.leaving()))


def idle_of(holding: Holding, option: Wanted, placement: Placement | None) -> int:
    """Chips that a step leaves without a pod.

    Args:
        holding: The attempt.
        option: The step.
        placement: Places of its ranks; None if they get none.
    """
    if placement is None:
        return sum(len(pod.chips) for pod in pods_at(holding.placement, option.ranks).values())
    own = pods_at(holding.placement, set(option.ranks).difference(holding.gone))
    new = dict(zip(option.ranks, zip(placement.names(), placement.chips_by_rank(), strict=True), strict=True))
    return sum(
        len(pod.chips) for rank, pod in own.items() if (pod.node, list(pod.chips)) != (new[rank][0], list(new[rank][1]))
    )


def smaller_step(options: Sequence[Wanted], failed: Wanted, also: Collection[int]) -> Wanted | None:
    """The step in which few more pods leave, so that all of them find places.

    Args:
        options: Steps that may be taken: one of them must let these pods leave already, and more.
        failed: The step that found no places.
        also: Ranks that would have to leave as well.

    Returns:
        The step; None if no option allows it, or if it needs the first pod, without which none runs on.
    """
    ranks = tuple(sorted({*failed.ranks, *also}))
    if not also or 0 in also:
        return None
    wider = next((one for one in options if one.how in {"grace", "force"} and set(ranks) < set(one.ranks)), None)
    if wider is None:
        return None
    scope = failed.scope if failed.scope != "job" else "pod"
    return wider._replace(
        scope=scope,
        moves=wider.scope,
        ranks=ranks,
        faulty=tuple(rank for rank in wider.faulty if rank in ranks),
        sought=ranks,
        needs_place=True,
    )
