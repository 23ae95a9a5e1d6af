"""New places for leaving pods of a gang with racks (Atlas 950).

The smallest scope is tried first: another node of the same rack, then another rack for a part of a block, then another
place for the block, then for the gang. So pods that leave with their block return to their nodes where that is enough.
Nodes of faulty pods are used only if no scope has places without them.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.block_round import BlockRound, block_lack, lack_of
from berth.core.topologies.blocks.leaving_blocks import BlockPods
from berth.core.topologies.blocks.model import CandidatePool, NoBlocks, rack_number
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Lack, Replaced
from berth.core.topologies.racks.rescheduling import MoveScope, PlacedRanks, RackRecovery, recover_racks
from berth.schemas.recovery import Scope

_NONE: Final = -1
MOVE_SCOPES: Final[tuple[MoveScope, ...]] = ("pod", "part", "block", "job")
_WIDEST: Final[Mapping[Scope, MoveScope]] = {
    "pod": "pod",
    "rank-block": "part",
    "superpod": "block",
    "level": "pod",
    "job": "job",
}


def replace_in_racks(blocks: BlockRound, leaving: LeavingPods, own: OwnPlaces, fits: Fits) -> Replaced | Lack:
    """New places of the planned pods that leave, or what is missing.

    Args:
        blocks: SuperPoDs of the round.
        leaving: The leaving pods.
        own: Places of the gang.
        fits: Rows that can take any of the pods, shape (rows,).
    """
    planner = _Planner(blocks, own, BlockPods(leaving, own, blocks.table))
    return planner.plan(fits, MOVE_SCOPES.index(_WIDEST[leaving.scope]))


class _Planner:
    """Plans of one gang."""

    def __init__(self, blocks: BlockRound, own: OwnPlaces, pods: BlockPods) -> None:
        self._blocks = blocks
        self._own = own
        self._pods = pods
        self._demand = pods.demand
        if pods.request.service:
            # A block of a service stays inside one rack.
            self._demand = pods.demand._replace(rack_block=pods.demand.block)
        self._block_ids = np.array(pods.block_ids, np.int64)
        self._racks = np.array([rack_of(blocks.table, row) for row in pods.rows], np.int64)

    def plan(self, fits: Fits, widest: int) -> Replaced | Lack:
        """Places in the smallest scope that has them, up to the widest; otherwise what is missing in that one.

        Args:
            fits: Rows that can take any of the pods, shape (rows,).
            widest: Index of the widest scope.
        """
        missing: list[Lack] = []
        for open_rows, homes in self._pods.trials(fits, self._own.avoided):
            for scope in MOVE_SCOPES[: widest + 1]:
                found = self._tried(open_rows.copy(), dict(homes), scope)
                if not isinstance(found, Lack):
                    return found
                missing.append(found)
        return missing[-1]._replace(ranks=self._also(fits, missing, widest))

    def _also(self, fits: Fits, missing: Sequence[Lack], widest: int) -> Sequence[int]:
        """Ranks that would have to leave as well: those of the smallest scope in which there would be places then."""
        ranks = next((one.ranks for one in missing if one.ranks), ())
        for open_rows, homes in self._pods.trials(fits, self._own.avoided):
            for scope in MOVE_SCOPES[widest + 1 :]:
                if ranks:
                    return ranks
                found = self._tried(open_rows.copy(), dict(homes), scope)
                ranks = found.ranks if isinstance(found, Lack) else ()
        return ranks

    def _tried(self, open_rows: Fits, homes: dict[int, int], scope: MoveScope) -> Replaced | Lack:
        """Places in one scope.

        Args:
            open_rows: Rows for new places, shape (rows,); is changed.
            homes: Row to which each leaving pod can return, by number; is changed.
            scope: The scope.
        """
        blocks, pods = self._blocks, self._pods
        ending = not blocks.rules.differs.racks_at_once and any(
            leaves and not pods.is_released(number) for number, leaves in enumerate(pods.moving)
        )
        given_up: set[int] = set()
        while True:
            held = pods.held(open_rows, homes, given_up)
            usable = open_rows.copy()
            usable[held[held >= 0]] = True
            usable[list(homes.values())] = True
            pool = blocks.pool(usable, self._demand)
            index = {name: number for number, name in enumerate(pool.ids)}
            placed = PlacedRanks(
                held,
                self._block_ids,
                np.array([index.get(name, -1) for name in pods.superpods], np.int64),
                self._racks,
            )
            found = recover_racks(
                pool, self._demand, blocks.rules, placed, scope, unlinked=unlinked(blocks.table, pool), ending=ending
            )
            if isinstance(found, NoBlocks):
                return block_lack(lack_of(found))
            rows = found.plan.rows.tolist()
            foreign = pods.foreign(rows, {number: row for number, row in enumerate(held.tolist()) if row >= 0} | homes)
            if not foreign:
                return self._answer(found, rows, open_rows, homes, pool.ids)
            pods.give_up(foreign, given_up, open_rows, homes)

    def _answer(
        self, found: RackRecovery, rows: list[int], open_rows: Fits, homes: Mapping[int, int], ids: Sequence[str]
    ) -> Replaced | Lack:
        """A plan as places of the pods that leave, unless others would have to leave as well."""
        pods = self._pods
        staying = pods.staying(found.moved.tolist())
        places = pods.places(rows, open_rows, homes)
        if staying or places < sum(pods.moving):
            return pods.incomplete(places)._replace(ranks=staying)
        names = [
            ids[pod] if pod >= 0 else pods.superpods[number] for number, pod in enumerate(found.plan.pods.tolist())
        ]
        phases = {allocation.block_id: allocation.phase for allocation in found.plan.allocations}
        return pods.answer(rows, found.plan.block_ids.tolist(), names, phases)


def unlinked(table: NodeTable, pool: CandidatePool) -> Rows:
    """Rows of a pool with chips that have no network, or whose network state is unknown; ascending."""
    rows = pool.rows
    found: Rows = rows[((table.network[rows] & table.chips[rows]) != 0) | ~table.network_known[rows]]
    return found


def rack_of(table: NodeTable, row: int) -> int:
    """Number of the rack of a row; -1 if it is not known."""
    rack = int(table.rack[row]) if row >= 0 else _NONE
    return rack_number(table.racks[rack]) if rack >= 0 else _NONE
