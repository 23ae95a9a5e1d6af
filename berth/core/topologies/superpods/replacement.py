"""New places for leaving pods of a gang with SuperPoD affinity on Atlas A3 and Atlas 850.

Blocks keep the nodes of the pods that stay, and of those that can return. A pod never gets the node of another one that
can return to it: if both are in one SuperPoD they swap their nodes, otherwise the plan is made again without the node.
Blocks of an attempt that has ended may get any place that is held for the gang.
"""

from collections.abc import Mapping

from berth.core.cluster.bitmaps import Fits
from berth.core.topologies.blocks.block_round import BlockRound, block_lack, lack_of
from berth.core.topologies.blocks.leaving_blocks import BlockPods
from berth.core.topologies.blocks.model import BlockPlan, NoBlocks
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Lack, Replaced
from berth.core.topologies.superpods.block_history import DisruptedGang, HeldBlock, PodFate, PodRecord, restored
from berth.core.topologies.superpods.rescheduling import RELEASE_WAIT_MS, StuckBlocks, plan_again


def replace_blocks(blocks: BlockRound, leaving: LeavingPods, own: OwnPlaces, fits: Fits) -> Replaced | Lack:
    """New places of the planned pods that leave, or what is missing.

    Args:
        blocks: SuperPoDs of the round.
        leaving: The leaving pods.
        own: Places of the gang.
        fits: Rows that can take any of the pods, shape (rows,).
    """
    pods = BlockPods(leaving, own, blocks.table)
    planner = _Planner(blocks, leaving, own, pods)
    found = planner.plan(fits, pods.homes)
    if isinstance(found, Lack) and pods.faulty_homes:
        again = planner.plan(fits, pods.homes | pods.faulty_homes)
        return found if isinstance(again, Lack) else again
    return found


class _Planner:
    """Plans of one gang."""

    def __init__(self, blocks: BlockRound, leaving: LeavingPods, own: OwnPlaces, pods: BlockPods) -> None:
        self._blocks = blocks
        self._leaving = leaving
        self._own = own
        self._pods = pods

    def plan(self, fits: Fits, homes: Mapping[int, int]) -> Replaced | Lack:
        """Plan on some rows.

        Args:
            fits: Rows that can take any of the pods, shape (rows,).
            homes: Row to which each leaving pod can return, by number.
        """
        rules, pods = self._blocks.rules, self._pods
        usable = fits.copy()
        usable[list(homes.values())] = True
        waited_ms = RELEASE_WAIT_MS if self._leaving.waited_ms is None else self._leaving.waited_ms
        gang = DisruptedGang(self._held(homes), self._leaving.scope != "job", self._own.avoided, waited_ms=waited_ms)
        while True:
            pool = self._blocks.pool(usable, pods.demand)
            if rules.differs.failed_nodes_last:
                pool = pool.with_last(self._own.avoided)
            found = plan_again(pool, pods.demand, rules, gang)
            if isinstance(found, StuckBlocks):
                stuck = [number for number, block_id in enumerate(pods.block_ids) if block_id in found.block_ids]
                return block_lack(lack_of(found.lack))._replace(ranks=pods.staying(stuck))
            if isinstance(found, NoBlocks):
                return block_lack(lack_of(found))
            rows = _swapped(pods, found, homes)
            foreign = pods.foreign(rows, homes)
            if not foreign:
                found_places = pods.places(rows, fits, homes)
                if found_places < sum(pods.moving):  # only a plan of the reference
                    return pods.incomplete(found_places)
                phases: dict[int, str] = {}
                for allocation in found.allocations:
                    phases.setdefault(allocation.block_id, allocation.phase)
                superpods = [pool.ids[pod] for pod in found.pods.tolist()]
                return pods.answer(rows, found.block_ids.tolist(), superpods, phases)
            usable[[homes[number] for number in foreign]] = False

    def _held(self, homes: Mapping[int, int]) -> list[HeldBlock]:
        pods = self._pods
        records = [
            PodRecord(number, block_id, pods.superpods[number], pods.rows[number], self._fate(number, homes))
            for number, block_id in enumerate(pods.block_ids)
        ]
        return restored(records, pods.demand, self._blocks.rules.differs)

    def _fate(self, number: int, homes: Mapping[int, int]) -> PodFate:
        pods = self._pods
        if not pods.moving[number]:
            return PodFate.RUNS
        is_lost = pods.is_faulty(number) or not (pods.is_released(number) or number in homes)
        return PodFate.LOST if is_lost else PodFate.RETURNS


def _swapped(pods: BlockPods, found: BlockPlan, homes: Mapping[int, int]) -> list[int]:
    """Rows of a plan, where pods that can return have their own nodes if the plan uses these in the same SuperPoD."""
    rows: list[int] = found.rows.tolist()
    at = {row: number for number, row in enumerate(rows)}
    for number in pods.foreign(rows, homes):
        home = homes[number]
        other = at[home]
        if other != number and found.pods[other] == found.pods[number]:
            rows[other], rows[number] = rows[number], home
            at[rows[other]], at[home] = other, number
    return rows
