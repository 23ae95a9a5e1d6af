"""Held places: what stays reserved for a job that starts anew as a whole, from the end of one attempt to the next."""

import msgspec

from berth.core.errors import InvariantError
from berth.core.pod_shares import PodShare, pods_at
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.moves import merged_placement
from berth.schemas.placement import Placement
from berth.schemas.recovery import HeldPlaces


class Held(msgspec.Struct, gc=False, omit_defaults=True):
    """Places of an attempt that has ended, which nobody else gets."""

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    """Of all ranks of that attempt; of a rank for which another place was reserved, that one."""
    ranks: list[int]
    """Ranks whose places are held, ascending."""
    until_ms: int
    queue: str = ""
    """Queue to which they are charged, as in the holding."""

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the attempt that has ended."""
        return (self.uid, self.attempt)

    def places(self) -> dict[int, PodShare]:
        """The places, by rank."""
        return pods_at(self.placement, self.ranks)


def held_of(holding: Holding, entry: HeldPlaces) -> Held:
    """What an entry of a record holds of an attempt that ends.

    Raises:
        InvariantError: The attempt does not own it.
    """
    ranks = entry.ranks
    restart = next((move for move in holding.moves if move.is_restart), None)
    placed = restart.placed if restart is not None else []
    is_owned = set(ranks) <= set(range(holding.placement.pods())).difference(holding.gone).union(placed)
    if not is_owned or ranks != sorted(set(ranks)):
        subject = f"gang {holding.uid} attempt {holding.attempt}"
        raise InvariantError(f"holds places that it does not own: ranks {ranks}", subject=subject)
    placement = holding.placement
    if restart is not None and restart.placement is not None:
        places = {rank: (restart.placement, restart.ranks.index(rank)) for rank in placed}
        placement = merged_placement(placement, places)
    return Held(
        holding.namespace,
        holding.name,
        holding.uid,
        holding.attempt,
        placement,
        list(ranks),
        entry.until_ms,
        holding.queue,
    )
