"""Moves: steps of recoveries that are not over, and their places merged into the placement of the attempt."""

from collections.abc import Container, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from berth.core.topologies.families import family_of
from berth.schemas.columns import pack, unpack
from berth.schemas.placement import ClaimVolume, Groups, Placement, Run, placement_of
from berth.schemas.recovery import DISPLACED, How, Scope

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
    def gives_up(self) -> bool:
        """Whether its ranks leave for another gang: those beyond the minimum of a gang that runs on."""
        return self.kind in DISPLACED and self.how != "place"

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
    seats: Mapping[str, "_Seat"]
    """Its place in each family of topologies of the placement."""


class _Seat(NamedTuple):
    """Place of a rank in a topology: group, empty without one; state; and part, None without one."""

    name: str
    state: int
    part: int | None


_NO_SEAT: Final = _Seat("", 0, None)


def with_counts(runs: list[Run], counts: Sequence[int]) -> list[Run]:
    """Runs of a placement after ranks own other numbers of chips.

    Args:
        runs: The runs before.
        counts: Number of chips of each rank.
    """
    each = [run for run in runs for _ in range(run.pods)]
    if [run.chips for run in each] == list(counts):
        return runs
    return [Run(1, count, run.cpu_milli, run.memory_mib) for run, count in zip(each, counts, strict=True)]


def merged_placement(base: Placement, places: Mapping[int, tuple[Placement, int]]) -> Placement:
    """A placement with new places of some ranks.

    Groups of topologies are merged too: names and parts without a rank go, new names come last.
    What is about the whole gang stays, such as the rule of the plan. A rank may get another number of chips: that of a
    pod that was found, without chips that others own, and more of them later.

    Args:
        base: The placement.
        places: By rank of ``base``: a placement, and the rank in it that is the new place.
    """
    ranks = _ranks_of(base)
    read: dict[int, list[_Rank]] = {}
    found: list[Groups] = []
    for rank, (placement, place) in sorted(places.items()):
        if id(placement) not in read:
            read[id(placement)] = _ranks_of(placement)
            found += placement.groups
        ranks[rank] = read[id(placement)][place]
    chips = [rank.chips for rank in ranks]
    return placement_of(
        [rank.node for rank in ranks],
        chips,
        with_counts(base.runs, list(map(len, chips))),
        resource=base.resource,
        share=base.share,
        groups=[_merged_groups(part, ranks, found, places) for part in base.groups],
        claims=_merged_claims(base.claims, places),
    )


def _merged_groups(base: Groups, ranks: Sequence[_Rank], new: Sequence[Groups], moved: Container[int]) -> Groups:
    """Groups of all ranks; a part with a rank that has not moved keeps its rule."""
    family = family_of(base.topology)
    seats = [rank.seats.get(family, _NO_SEAT) for rank in ranks]
    kept = {seat.part for rank, seat in enumerate(seats) if rank not in moved}
    rules = dict(zip(base.parts, base.rules, strict=False))
    for part in new:
        if family_of(part.topology) == family:
            named = zip(part.parts, part.rules, strict=False)
            rules.update((number, rule) for number, rule in named if number not in kept or number not in rules)
    names = _table(base.names, [seat.name for seat in seats if seat.name])
    parts = sorted({seat.part for seat in seats if seat.part is not None})
    name_at = {name: place for place, name in enumerate(names, start=1)}
    part_at: dict[int | None, int] = {part: place for place, part in enumerate(parts, start=1)}
    states = bytes(seat.state for seat in seats)
    return msgspec.structs.replace(
        base,
        names=names,
        name_index=pack([name_at.get(seat.name, 0) for seat in seats], _INDEX_BYTES) if names or parts else b"",
        parts=parts,
        rules=[rules[part] for part in parts] if base.parts or parts else base.rules,
        part_index=pack([part_at.get(seat.part, 0) for seat in seats], _INDEX_BYTES) if parts else b"",
        states=states if base.states or any(states) else b"",
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
    seats: list[dict[str, _Seat]] = [{} for _ in names]
    for part in placement.groups:
        columns = zip(
            _by_rank(part.name_index, part.names, "", len(names)),
            part.states or bytes(len(names)),
            _by_rank(part.part_index, [*part.parts], None, len(names)),
            strict=True,
        )
        for one, row in zip(seats, columns, strict=True):
            one[family_of(part.topology)] = _Seat(*row)
    return [_Rank(*row) for row in zip(names, chips, seats, strict=True)]
