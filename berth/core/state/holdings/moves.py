"""Moves: steps of recoveries that are not over, and their places merged into the placement of the attempt."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from berth.core.errors import InvariantError
from berth.schemas.columns import pack, unpack
from berth.schemas.placement import BlockPart, ClaimVolume, Placement, SwitchPart, placement_of
from berth.schemas.recovery import How, Scope

T = TypeVar("T")
_INDEX_BYTES: Final = 2


class Move(msgspec.Struct, gc=False, omit_defaults=True):
    """A step of a recovery, as far as it is not over."""

    step: int
    scope: Scope
    how: How
    ranks: list[int]
    """Ranks of the step, ascending."""
    until_ms: int = 0
    placement: Placement | None = None
    """Places of ``ranks``, in their order; None without any."""
    leaving: list[int] = []
    """Those of ``ranks`` that have not been released yet, ascending: their pods are deleted."""
    placed: list[int] = []
    """Those of ``ranks`` whose place is reserved: they still leave, here or in an older move, have a backup pod, or get
    it in the next attempt."""
    backups: list[str] = []
    """Uids of the backup pods, in the order of ``ranks``; none unless ``how`` is ``backup``."""
    kind: str = ""
    """Kind of the fault."""
    cause: str = ""
    """What is broken, as one sentence."""
    saves: bool = False
    """Agents are asked to save a checkpoint before the first pod is deleted."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to be done."""
        return not (self.leaving or self.placed)

    @property
    def is_restart(self) -> bool:
        """Whether it is of the whole job: its places are for the next attempt."""
        return self.scope == "job"

    def backup_of(self, rank: int) -> str:
        """Backup pod (uid) of a rank of a step ``backup``."""
        return self.backups[self.ranks.index(rank)]

    def without(self, ranks: set[int], *, placed_only: bool = False) -> "Move":
        """The move after some ranks have left it; with ``placed_only`` only their places have."""
        return msgspec.structs.replace(
            self,
            leaving=self.leaving if placed_only else [rank for rank in self.leaving if rank not in ranks],
            placed=[rank for rank in self.placed if rank not in ranks],
        )


class _Rank(NamedTuple):
    """What a placement says of a rank."""

    node: str
    chips: tuple[int, ...]
    leaf: str
    """Leaf by which it was placed; empty without."""
    state: int
    block: int | None
    """Id of its block; None without."""
    superpod: str


def merged_placement(base: Placement, places: Mapping[int, tuple[Placement, int]]) -> Placement:
    """A placement with new places of some ranks.

    Columns of switches and blocks are merged too: leaves, blocks and SuperPoDs without a rank go, new ones come last.
    What is about the whole gang stays, such as the rule of the plan.

    Args:
        base: The placement.
        places: By rank of ``base``: a placement, and the rank in it that is the new place.

    Raises:
        InvariantError: A new place has another number of chips than the rank.
    """
    ranks = _ranks_of(base)
    read: dict[int, list[_Rank]] = {}
    blocks: list[BlockPart] = []
    for rank, (placement, place) in sorted(places.items()):
        if id(placement) not in read:
            read[id(placement)] = _ranks_of(placement)
            blocks += [placement.block] if placement.block is not None else []
        new = read[id(placement)][place]
        if len(new.chips) != len(ranks[rank].chips):
            raise InvariantError(
                f"gets {len(new.chips)} chips, it has {len(ranks[rank].chips)}", subject=f"rank {rank}"
            )
        ranks[rank] = new
    kept = {one.block for rank, one in enumerate(ranks) if rank not in places}
    return placement_of(
        [rank.node for rank in ranks],
        [rank.chips for rank in ranks],
        base.runs,
        resource=base.resource,
        share=base.share,
        switch=_merged_switch(base.switch, ranks),
        block=_merged_block(base.block, ranks, blocks, kept),
        claims=_merged_claims(base.claims, places),
    )


def _merged_switch(base: SwitchPart | None, ranks: Sequence[_Rank]) -> SwitchPart | None:
    if base is None:
        return None
    leaves = _table(base.leaves, [rank.leaf for rank in ranks if rank.leaf])
    at = {leaf: place for place, leaf in enumerate(leaves, start=1)}
    states = bytes(rank.state for rank in ranks)
    return msgspec.structs.replace(
        base,
        leaves=leaves,
        leaf_index=pack([at.get(rank.leaf, 0) for rank in ranks], _INDEX_BYTES) if leaves else b"",
        states=states if base.states or any(states) else b"",
    )


def _merged_block(
    base: BlockPart | None, ranks: Sequence[_Rank], new: Sequence[BlockPart], kept: set[int | None]
) -> BlockPart | None:
    """Blocks of all ranks; one with a rank that stays (``kept``) keeps its rule."""
    if base is None:
        return None
    phases = dict(zip(base.blocks, base.phases, strict=True))
    for part in new:
        named = zip(part.blocks, part.phases, strict=True)
        phases.update((block, phase) for block, phase in named if block not in kept or block not in phases)
    blocks = sorted({rank.block for rank in ranks if rank.block is not None})
    superpods = _table(base.superpods, [rank.superpod for rank in ranks if rank.superpod])
    block_at: dict[int | None, int] = {block: place for place, block in enumerate(blocks, start=1)}
    superpod_at = {superpod: place for place, superpod in enumerate(superpods, start=1)}
    has_columns = bool(blocks or superpods)
    return msgspec.structs.replace(
        base,
        blocks=blocks,
        phases=[phases[block] for block in blocks],
        superpods=superpods,
        block_index=pack([block_at.get(rank.block, 0) for rank in ranks], _INDEX_BYTES) if has_columns else b"",
        superpod_index=pack([superpod_at.get(rank.superpod, 0) for rank in ranks], _INDEX_BYTES)
        if has_columns
        else b"",
    )


def _merged_claims(base: Sequence[ClaimVolume], places: Mapping[int, tuple[Placement, int]]) -> list[ClaimVolume]:
    """Claims of all ranks in their order; a claim that a new place names again gets the volume named there."""
    claims = {claim.uid: claim for claim in base}
    for rank, (placement, place) in sorted(places.items()):
        for claim in placement.claims:
            if claim.rank == place:
                claims[claim.uid] = msgspec.structs.replace(claim, rank=rank)
    return sorted(claims.values(), key=lambda claim: claim.rank)


def _table(base: Sequence[str], used: Sequence[str]) -> list[str]:
    """Names that are used, those of a table before the others."""
    names = dict.fromkeys(used)
    known = [name for name in base if name in names]
    return list(dict.fromkeys([*known, *names]))


def _by_rank(column: bytes, table: Sequence[T], none: T, count: int) -> list[T]:
    """Entry of a table for each rank, from a column of indexes plus one; ``none`` for 0."""
    if not column:
        return [none] * count
    return [table[index - 1] if index else none for index in unpack(column, _INDEX_BYTES)]


def _ranks_of(placement: Placement) -> list[_Rank]:
    names, chips = placement.names(), placement.chips_by_rank()
    count = len(names)
    leaves, states = [""] * count, [0] * count
    if placement.switch is not None:
        leaves = _by_rank(placement.switch.leaf_index, placement.switch.leaves, "", count)
        states = list(placement.switch.states or bytes(count))
    blocks: list[int | None] = [None] * count
    superpods = [""] * count
    if placement.block is not None:
        blocks = _by_rank(placement.block.block_index, [*placement.block.blocks], None, count)
        superpods = _by_rank(placement.block.superpod_index, placement.block.superpods, "", count)
    return [_Rank(*row) for row in zip(names, chips, leaves, states, blocks, superpods, strict=True)]
