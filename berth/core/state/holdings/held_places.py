"""Held places: what stays reserved for a gang that waits.

A job that starts anew as a whole keeps places from the end of one attempt to the next. A gang for which others leave
has a place from that decision on: at first what is free of it, and the rest as they leave.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from berth.core.chips.picking import ids_of
from berth.core.errors import InvariantError
from berth.core.pod_shares import PodShare, pods_at
from berth.core.state.holdings.holding import Holding, owned_by
from berth.core.state.holdings.moves import merged_placement
from berth.schemas.placement import Placement
from berth.schemas.recovery import Awaited, HeldPlaces, Reservation

TAKEN_MS: Final = 10_000
"""How long a place is reserved once all others have left it. A gang that does not fit there by then is tried anew: pods
of others may have come near, or have taken cpu."""


class Held(msgspec.Struct, gc=False, omit_defaults=True):
    """Places of a gang that waits, which nobody else gets."""

    namespace: str
    name: str
    uid: str
    attempt: int
    """The attempt that has ended; of a reserved place the one that gets it."""
    placement: Placement
    """Of all ranks of that attempt; of a rank for which another place was reserved, that one."""
    ranks: list[int]
    """Ranks whose places are held, ascending."""
    until_ms: int
    queue: str = ""
    """Queue to which they are charged, as in the holding."""
    awaits: list[Awaited] = []
    """Attempts that leave, or give up ranks, and still hold a part of a reserved place, sorted."""
    lacks: dict[int, int] = {}
    """By rank on a node of theirs: chips of its place that they hold (mask). Such a rank lacks cpu and memory, too."""
    is_reserved: bool = False
    """Others leave, or have left, so that the gang gets its place."""
    is_prolonged: bool = False
    """Others did not leave in time, and it was reserved once more."""
    since_ms: int = 0
    """When it was reserved."""

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the attempt."""
        return (self.uid, self.attempt)

    @property
    def awaited(self) -> list[tuple[str, int]]:
        """Identities of the attempts that leave, or give up ranks."""
        return [(one.uid, one.attempt) for one in self.awaits]

    def places(self) -> dict[int, PodShare]:
        """The places, by rank, as far as nobody else holds them."""
        found = pods_at(self.placement, self.ranks)
        for rank, mask in self.lacks.items():
            share = found[rank]
            free = share.mask & ~mask
            found[rank] = PodShare(share.node, free, ids_of(free), 0, 0, pods=0)
        return found

    def awaited_chips(self) -> list[tuple[str, int]]:
        """Nodes with chips of its place that others still have (mask), each chip once."""
        names = self.placement.names() if self.lacks else []
        found: dict[str, int] = {}
        for rank, mask in self.lacks.items():
            found[names[rank]] = found.get(names[rank], 0) | mask
        return [(node, mask) for node, mask in sorted(found.items()) if mask]

    def without(
        self, gone: Iterable[tuple[str, int]], holdings: Mapping[tuple[str, int], Holding], *, at_ms: int
    ) -> "Held":
        """The place after attempts have left, or ranks of them.

        Args:
            gone: Those attempts that have left as a whole.
            holdings: What others hold.
            at_ms: The moment.
        """
        keys = set(gone)
        left = [one for one in self.awaits if (one.uid, one.attempt) not in keys and _is_there(one, holdings)]
        lacks = _lacks(self.placement, left, holdings)
        until_ms = self.until_ms if left else at_ms + TAKEN_MS
        return msgspec.structs.replace(self, awaits=left, lacks=lacks, until_ms=until_ms)


def reserved_of(entry: Reservation, holdings: Mapping[tuple[str, int], Holding], *, at_ms: int) -> Held:
    """What an entry of a record reserves.

    Args:
        entry: The entry.
        holdings: What others hold.
        at_ms: The moment.

    Raises:
        InvariantError: Attempts that it awaits hold nothing, or do not leave.
    """
    keys = [(one.uid, one.attempt) for one in entry.awaits]
    subject = f"gang {entry.uid} attempt {entry.attempt}"
    if keys != sorted(set(keys)) or not all(leaves(one, holdings) for one in entry.awaits):
        raise InvariantError(f"awaits attempts that do not leave: {keys}", subject=subject)
    return Held(
        entry.namespace,
        entry.name,
        entry.uid,
        entry.attempt,
        entry.placement,
        list(range(entry.placement.pods())),
        entry.until_ms,
        entry.queue,
        entry.awaits,
        _lacks(entry.placement, entry.awaits, holdings),
        is_reserved=True,
        is_prolonged=entry.is_prolonged,
        since_ms=at_ms,
    )


def leaves(one: Awaited, holdings: Mapping[tuple[str, int], Holding]) -> bool:
    """Whether an attempt leaves, or all the ranks that it gives up leave or have left."""
    holding = holdings.get((one.uid, one.attempt))
    if holding is None or holding.ending or not one.ranks:
        return holding is not None and bool(holding.ending)
    return set(one.ranks) <= {*holding.leaving(), *holding.gone}


def _is_there(one: Awaited, holdings: Mapping[tuple[str, int], Holding]) -> bool:
    """Whether an attempt that leaves holds anything, or any of the ranks that it gives up."""
    return not one.ranks or not set(holdings[one.uid, one.attempt].gone).issuperset(one.ranks)


def _lacks(
    placement: Placement, leaving: Iterable[Awaited], holdings: Mapping[tuple[str, int], Holding]
) -> dict[int, int]:
    """What others hold that leave of a placement: chips of each rank on a node where they hold anything."""
    masks: dict[str, int] = {}
    for one in leaving:
        holding = holdings[one.uid, one.attempt]
        pods = owned_by(holding)
        for pod in [pods[rank] for rank in one.ranks] if one.ranks else (*pods, *holding.reserved().values()):
            if pod.pods:
                masks[pod.node] = masks.get(pod.node, 0) | pod.mask
    shares = pods_at(placement, range(placement.pods()) if masks else ())
    return {rank: share.mask & masks[share.node] for rank, share in sorted(shares.items()) if share.node in masks}


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
