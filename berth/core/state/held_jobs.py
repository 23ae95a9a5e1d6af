"""Held attempts as the indexes of topologies count them."""

from collections.abc import Iterator, Mapping, Sequence

from berth.core.pod_shares import PodShare
from berth.core.state.ledger import Holding
from berth.core.topologies.planning import HeldJob
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.placement import Placement


def held_job(
    holding: Holding, pods: Sequence[PodShare], reserved: Mapping[int, PodShare], seen: PodsSeen | None
) -> HeldJob:
    """A held attempt; it is also where places are reserved for it.

    Args:
        holding: The attempt.
        pods: What each of its ranks owns now.
        reserved: Places that are reserved for ranks.
        seen: Its pods in the cluster; None unless an index follows them.
    """
    running = seen.phase.count(PodPhase.RUNNING) if seen is not None else 0
    places = list(_places(holding, reserved)) if reserved else ()
    return HeldJob(holding.placement, pods, places, holding.gone, holding.foreign, running)


def _places(holding: Holding, reserved: Mapping[int, PodShare]) -> Iterator[tuple[PodShare, Placement, int]]:
    """Reserved places, each with the placement of its step and the rank in that."""
    for rank, pod in reserved.items():
        move = next(move for move in holding.moves if rank in move.placed)
        if move.placement is not None:
            yield pod, move.placement, move.ranks.index(rank)
