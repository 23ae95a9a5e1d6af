"""Chips that pods have mounted where these are not the ones that were decided, and what their ranks own from then on.

A device plug-in may serve pods of one node in another order than they were decided, or know better. Then the ledger
follows: a rank gets the chips that its pod names, as far as nobody else owns them. Two ranks may have changed places.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from berth.core.chips.picking import ids_of, union_of
from berth.core.errors import InvariantError
from berth.core.state.holdings.holding import Holding
from berth.schemas.columns import offsets


class Claim(NamedTuple):
    """A rank whose pod names chips that it does not own. Masks are of chips of the node."""

    uid: str
    attempt: int
    rank: int
    node: str
    named: int
    """At most as many as it owns."""
    owned: int


class Settled(NamedTuple):
    """What follows from claims."""

    chips: dict[Claim, int]
    """What ranks own from now on, where that changes, in the order of the claims."""
    short: list[Claim]
    """Ranks that do not get all that their pods name: others own it."""


def settle(claims: Iterable[Claim], held: Callable[[str], int]) -> Settled:
    """Find which chips ranks own whose pods name other chips than they own.

    A rank keeps what it owns and names, then gets what it names and nobody else owns or keeps, then as many as it lacks
    of its old chips, or of those that other ranks give up. So each owns as many as before, and none is given twice.

    Args:
        claims: The ranks; a rank occurs once.
        held: Chips of a node that have an owner, as a mask.
    """
    chips: dict[Claim, int] = {}
    short: list[Claim] = []
    on_node: dict[str, list[Claim]] = {}
    for claim in sorted(claims):
        on_node.setdefault(claim.node, []).append(claim)
    for node, found in on_node.items():
        given = _given(found, held(node))
        chips.update((claim, mask) for claim, mask in given.items() if mask != claim.owned)
        short += [claim for claim in found if claim.named & ~given[claim]]
    return Settled(chips, short)


def _given(claims: Sequence[Claim], held: int) -> dict[Claim, int]:
    """Chips of ranks on one node."""
    pool = union_of(claim.owned for claim in claims)
    found = {claim: claim.named & claim.owned for claim in claims}
    taken = (held & ~pool) | union_of(found.values())
    for claim in claims:
        gets = claim.named & ~taken
        found[claim] |= gets
        taken |= gets
    for rest in (0, pool):  # its own first: each rank finds enough, for all together own as many as before
        for claim in claims:
            lacks = claim.owned.bit_count() - found[claim].bit_count()
            fills = sum(1 << chip for chip in ids_of((claim.owned | rest) & ~taken)[:lacks])
            found[claim] |= fills
            taken |= fills
    return found


def correct_chips(holding: Holding, chips: Mapping[int, tuple[int, ...]]) -> None:
    """Let ranks of an attempt own other chips of their nodes.

    Args:
        holding: The attempt; it is changed.
        chips: All chips of each rank.

    Raises:
        InvariantError: A rank is not there, has given back what it owned, or had another number of chips.
    """
    subject = f"gang {holding.uid} attempt {holding.attempt}"
    placement = holding.placement
    counts = [run.chips for run in placement.runs for _ in range(run.pods)]
    starts, found = offsets(counts), bytearray(placement.chips)
    for rank, ids in chips.items():
        if rank >= len(counts) or rank in holding.gone:
            raise InvariantError(f"has other chips for rank {rank}, which owns nothing", subject=subject)
        if len(ids) != counts[rank]:
            raise InvariantError(f"has {len(ids)} chips for rank {rank}, it owns {counts[rank]}", subject=subject)
        found[starts[rank] : starts[rank + 1]] = bytes(ids)
    holding.placement = msgspec.structs.replace(placement, chips=bytes(found))
