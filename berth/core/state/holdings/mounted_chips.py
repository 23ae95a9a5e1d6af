"""Chips that pods have mounted where these are not the ones that were decided, and what their ranks own from then on.

A device plug-in may serve pods of one node in another order than they were decided, or know better. Then the ledger
follows: a rank gets the chips that its pod names, as far as nobody else owns them. Two ranks may have changed places.
A rank that was found while others owned some of its chips owns the rest of them, and gets those as they are given back.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import msgspec

from berth.core.chips.picking import ids_of, union_of
from berth.core.errors import InvariantError
from berth.core.pod_shares import PodShare
from berth.core.state.holdings.chip_owners import ChipOwners
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.moves import with_counts
from berth.schemas.placement import Share


class Claim(NamedTuple):
    """A rank whose pod names chips that it does not own. Masks are of chips of the node."""

    uid: str
    attempt: int
    rank: int
    node: str
    named: int
    """As many as it owns; fewer; or more, with all that it owns among them."""
    owned: int

    @property
    def is_part(self) -> bool:
        """Whether the rank owns a part of what its pod names."""
        return self.named.bit_count() > self.owned.bit_count()


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
    What a rank names beyond that number it gets last, of chips that nobody owned.

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
        gets = 0 if claim.is_part else claim.named & ~taken
        found[claim] |= gets
        taken |= gets
    for rest in (0, pool):  # its own first: each rank finds enough, for all together own as many as before
        for claim in claims:
            lacks = claim.owned.bit_count() - found[claim].bit_count()
            fills = sum(1 << chip for chip in ids_of((claim.owned | rest) & ~taken)[:lacks])
            found[claim] |= fills
            taken |= fills
    for claim in claims:
        gets = claim.named & ~(taken | held) if claim.is_part else 0
        found[claim] |= gets
        taken |= gets
    return found


def settle_all(claims: Iterable[tuple[Claim, Share | None]], held: Callable[[str], int], owners: ChipOwners) -> Settled:
    """As :func:`settle`, for ranks with whole chips, whose quota is None, and with parts of one.

    Of those with parts all that fit together go where their pods are; the quotas of a chip and its policy are those of
    the ledger. Of those that do not fit the last ones in order stay.

    Args:
        claims: The ranks and their quotas; a rank occurs once.
        held: As for :func:`settle`.
        owners: Owners of chips before.
    """
    whole: list[Claim] = []
    parts: dict[str, list[tuple[Claim, Share]]] = {}
    for claim, share in sorted(claims, key=itemgetter(0)):
        if share is None:
            whole.append(claim)
        else:
            parts.setdefault(claim.node, []).append((claim, share))
    found = settle(whole, held)
    given = {(claim.node, chip) for claim, mask in found.chips.items() for chip in ids_of(mask)}
    for node, sharers in parts.items():
        moves = {claim for claim, _ in sharers if given.isdisjoint((node, chip) for chip in ids_of(claim.named))}
        while (last := _unfit(sharers, moves, owners)) is not None:
            moves.remove(last)
        found.chips.update((claim, claim.named) for claim, _ in sharers if claim in moves)
        found.short.extend(claim for claim, _ in sharers if claim not in moves)
    return found


def _unfit(claims: Sequence[tuple[Claim, Share]], moves: Collection[Claim], owners: ChipOwners) -> Claim | None:
    """The first of some ranks that does not fit on the chip that its pod names; None if all fit together."""
    draft = owners.draft()
    for claim, share in claims:
        draft.give_back([_part(claim, claim.owned)], share)
    for claim, share in claims:
        if claim not in moves:
            draft.take([_part(claim, claim.owned)], share)
    for claim, share in claims:
        if claim in moves:
            try:
                draft.take([_part(claim, claim.named)], share)
            except InvariantError:
                return claim
    return None


def _part(claim: Claim, mask: int) -> PodShare:
    return PodShare(claim.node, mask, ids_of(mask), 0, 0)


def correct_chips(holding: Holding, chips: Mapping[int, tuple[int, ...]]) -> None:
    """Let ranks of an attempt own other chips of their nodes, or more of them.

    Args:
        holding: The attempt; it is changed.
        chips: All chips of each rank.

    Raises:
        InvariantError: A rank is not there, has given back what it owned, or owned more chips.
    """
    subject = f"gang {holding.uid} attempt {holding.attempt}"
    placement = holding.placement
    counts = [run.chips for run in placement.runs for _ in range(run.pods)]
    for rank, ids in chips.items():
        if rank >= len(counts) or rank in holding.gone:
            raise InvariantError(f"has other chips for rank {rank}, which owns nothing", subject=subject)
        if len(ids) < counts[rank]:
            raise InvariantError(f"has {len(ids)} chips for rank {rank}, it owns {counts[rank]}", subject=subject)
    by_rank = [chips.get(rank, ids) for rank, ids in enumerate(placement.chips_by_rank())]
    runs = with_counts(placement.runs, list(map(len, by_rank)))
    holding.placement = msgspec.structs.replace(placement, runs=runs, chips=bytes(chain.from_iterable(by_rank)))
