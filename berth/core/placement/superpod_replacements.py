"""New places for leaving pods of a gang with SuperPoD affinity on Atlas A3 and Atlas 850.

Blocks keep the nodes of the pods that stay, and of those that can return. A pod never gets the node of another one that
can return to it: if both are in one SuperPoD they swap their nodes, otherwise the plan is made again without the node.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from berth.core.cluster.bitmaps import Fits
from berth.core.errors import InvariantError
from berth.core.placement.leaving_pods import LeavingPods, OwnPlaces
from berth.core.placement.scoring import RowState
from berth.core.placement.superpod_placement import BlockRound, block_demand, blocks_of, lack_of, part_of
from berth.core.rescheduling.block_history import DisruptedGang, HeldBlock, PodFate, PodRecord, restored
from berth.core.rescheduling.superpods import StuckBlocks, plan_again
from berth.core.superpods.model import BlockDemand, BlockPlan, NoBlocks
from berth.schemas.columns import unpack
from berth.schemas.placement import BlockPart, Placement
from berth.schemas.refusal import BlockLack


class BlockReplacement(NamedTuple):
    """New places of the planned pods that leave.

    Attributes:
        rows: Row of each of them, by rank.
        part: What the new places record of the plan.
    """

    rows: dict[int, int]
    part: BlockPart


class BlocksMissing(NamedTuple):
    """Why there are no places in SuperPoDs.

    Attributes:
        lack: What is missing.
        ranks: Ranks that keep their places and would have to leave as well, ascending.
    """

    lack: BlockLack
    ranks: Sequence[int] = ()


class PlannedRank(NamedTuple):
    """A rank of a gang that is planned, and its place.

    Attributes:
        rank: The rank.
        block_id: Its block.
        superpod: Its SuperPoD, or its group of the lowest level.
    """

    rank: int
    block_id: int
    superpod: str


def planned_ranks(placement: Placement, own: OwnPlaces) -> list[PlannedRank]:
    """Ranks of a gang that are planned, in the order in which the planner numbers them.

    Raises:
        InvariantError: The placement does not say in which blocks they are.
    """
    part = placement.block
    if part is None or not part.block_index:
        raise InvariantError("a gang with SuperPoD affinity has no blocks", subject="placement")
    blocks, superpods = unpack(part.block_index, 2), unpack(part.superpod_index, 2)
    return [
        PlannedRank(rank, part.blocks[blocks[rank] - 1], part.superpods[superpods[rank] - 1])
        for rank, shape in enumerate(own.shapes)
        if shape.blocks is not None
    ]


def replace_blocks(
    blocks: BlockRound, leaving: LeavingPods, own: OwnPlaces, fits: Fits, states: Mapping[int, RowState]
) -> BlockReplacement | BlocksMissing:
    """New places of the planned pods that leave, or what is missing.

    Args:
        blocks: SuperPoDs of the round.
        leaving: The leaving pods.
        own: Places of the gang.
        fits: Rows that can take any of the pods, shape (rows,).
        states: Current state of the rows that the round has touched.
    """
    planner = _Planner(blocks, leaving, own, states)
    found = planner.plan(fits, faulty_return=False)
    if isinstance(found, BlocksMissing) and planner.faulty_homes:
        again = planner.plan(fits, faulty_return=True)
        return found if isinstance(again, BlocksMissing) else again
    return found


class _Planner:
    """Plans of one gang."""

    def __init__(
        self, blocks: BlockRound, leaving: LeavingPods, own: OwnPlaces, states: Mapping[int, RowState]
    ) -> None:
        self._blocks = blocks
        self._leaving = leaving
        self._own = own
        self._states = states
        self._request = blocks_of(leaving.gang)
        self._ranks = planned_ranks(leaving.placement, own)
        self._demand: BlockDemand = block_demand(leaving.gang, self._request)
        self._moving = frozenset(leaving.ranks)
        homes = {rank: row for rank in leaving.ranks if (row := own.usable(rank)) is not None}
        self.faulty_homes = {rank: row for rank, row in homes.items() if rank in leaving.faulty}
        """Rows to which faulty planned pods could return."""
        self._homes = {rank: row for rank, row in homes.items() if rank not in leaving.faulty}
        planned = {one.rank for one in self._ranks}
        for found in (self._homes, self.faulty_homes):
            for rank in [rank for rank in found if rank not in planned]:
                del found[rank]

    def plan(self, fits: Fits, *, faulty_return: bool) -> BlockReplacement | BlocksMissing:
        """Plan on some rows.

        Args:
            fits: Rows that can take any of the pods, shape (rows,).
            faulty_return: Faulty pods may return to their places.
        """
        rules = self._blocks.rules
        homes = self._homes | (self.faulty_homes if faulty_return else {})
        usable = fits.copy()
        usable[list(homes.values())] = True
        gang = DisruptedGang(
            self._held(), self._leaving.scope != "job", self._own.avoided, waited_ms=self._leaving.waited_ms
        )
        while True:
            pool = self._blocks.pool(usable, self._demand, self._states)
            if not rules.parity:
                pool = pool.with_last(self._own.avoided)
            found = plan_again(pool, self._demand, rules, gang)
            if isinstance(found, StuckBlocks):
                return BlocksMissing(lack_of(found.lack), self._staying_in(found.block_ids))
            if isinstance(found, NoBlocks):
                return BlocksMissing(lack_of(found))
            rows = {one.rank: int(found.rows[index]) for index, one in enumerate(self._ranks)}
            foreign = self._settle(rows, homes, found)
            if not foreign:
                return self._answer(found, rows, pool.ids)
            usable[foreign] = False

    def _held(self) -> list[HeldBlock]:
        records = [
            PodRecord(index, one.block_id, one.superpod, self._own.row(one.rank), self._fate(one.rank))
            for index, one in enumerate(self._ranks)
        ]
        return restored(records, self._demand, parity=self._blocks.rules.parity)

    def _fate(self, rank: int) -> PodFate:
        if rank not in self._moving:
            return PodFate.RUNS
        if rank in self._leaving.faulty or (rank not in self._leaving.released and rank not in self._homes):
            return PodFate.LOST
        return PodFate.RETURNS

    def _staying_in(self, block_ids: Sequence[int]) -> list[int]:
        """Ranks of some blocks that keep their places."""
        staying = frozenset(self._own.staying)
        return [one.rank for one in self._ranks if one.block_id in block_ids and one.rank in staying]

    def _settle(self, rows: dict[int, int], homes: Mapping[int, int], found: BlockPlan) -> list[int]:
        """Let pods that can return have their own nodes; returns those nodes that cannot be swapped.

        Args:
            rows: New row of each planned rank; is changed.
            homes: Row to which each leaving rank can return.
            found: The plan.
        """
        superpod = {one.rank: int(found.pods[index]) for index, one in enumerate(self._ranks)}
        rank_at = {row: rank for rank, row in rows.items()}
        foreign = []
        for rank, home in homes.items():
            other = rank_at.get(home, rank)
            if other == rank:
                continue
            if superpod[other] != superpod[rank]:
                foreign.append(home)
                continue
            rows[other], rows[rank] = rows[rank], home
            rank_at[rows[other]], rank_at[home] = other, rank
        return foreign

    def _answer(
        self, found: BlockPlan, rows: Mapping[int, int], ids: Sequence[str]
    ) -> BlockReplacement | BlocksMissing:
        """The plan as places of the leaving ranks."""
        staying = {self._own.row(one.rank) for one in self._ranks if one.rank not in self._moving}
        new = {one.rank: rows[one.rank] for one in self._ranks if one.rank in self._moving}
        taken = set(new.values())
        if min(taken, default=0) < 0 or len(taken) < len(new) or not taken.isdisjoint(staying):
            # Only the plans of the reference lack nodes, or give the node of a pod that stays to another one.
            demand = self._demand
            nodes = len(taken - staying - {-1})
            return BlocksMissing(
                BlockLack("incomplete", demand.blocks, 0, demand.block, nodes_need=len(new), nodes_have=nodes)
            )
        phases: dict[int, str] = {}
        for allocation in found.allocations:
            phases.setdefault(allocation.block_id, allocation.phase)
        place = {
            one.rank: (int(found.block_ids[index]), ids[int(found.pods[index])])
            for index, one in enumerate(self._ranks)
        }
        pods = [place.get(rank) for rank in self._leaving.ranks]
        return BlockReplacement(new, part_of(self._leaving.gang, self._request, pods, phases))
