"""Trees of levels in a round: plans of gangs."""

from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.topologies.blocks.block_round import block_lack, whole_part
from berth.core.topologies.blocks.demand import blocks_of_gang
from berth.core.topologies.blocks.explanation import BlockExplanations, Places
from berth.core.topologies.layouts import WaitingGang
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.levels.level_map import LevelMap
from berth.core.topologies.levels.model import NoLevels
from berth.core.topologies.levels.planner import plan_levels
from berth.core.topologies.levels.replacement import LevelTrees, level_lack, replace_in_levels
from berth.core.topologies.levels.rescheduling import neighbours
from berth.core.topologies.planning import Ground, Lack, Planned, Replaced
from berth.schemas.offers import Demand

_NO_PLACE: Final = -1


class LevelRound(BlockExplanations):
    """Trees of levels during a round.

    Args:
        ground: What it sees of the round.
        levels: Trees of the nodes.
    """

    def __init__(self, ground: Ground, levels: LevelMap) -> None:
        self.table = ground.table
        self._trees = LevelTrees(ground, levels)

    def plan(self, gang: Gang, usable: Fits) -> Planned | Lack:
        """Plan all pods with chips of a gang."""
        blocks = blocks_of_gang(gang)
        replicas = sum(pods for shape, pods in gang.request_class if shape.is_planned)
        trees = self._trees.of(self._trees.whole_nodes(gang, usable))
        found = plan_levels(trees, blocks.levels, replicas)
        if isinstance(found, NoLevels):
            return block_lack(level_lack(found, blocks.levels, trees, replicas))
        groups = trees[found.tree].groups[-1]
        block_ids = found.blocks.tolist()
        names = [groups[group] for group in found.groups[found.blocks].tolist()]
        part = whole_part(gang, blocks, block_ids, names, dict.fromkeys(block_ids, "level"))
        return Planned(found.rows.tolist(), [part.groups])

    def replace(self, leaving: LeavingPods, own: OwnPlaces, usable: Fits) -> Replaced | Lack:
        """New places of the planned pods that leave, or what is missing."""
        return replace_in_levels(self._trees, leaving, own, usable)

    def places(self) -> Places:
        """All groups of level 1, tree after tree."""
        of_row = np.full(len(self.table), _NO_PLACE, np.int64)
        names: list[str] = []
        for tree in self._trees.of(np.ones(len(self.table), np.bool_)):
            of_row[tree.rows] = tree.paths[-1] + len(names)
            names += tree.groups[-1]
        return Places(names, of_row)

    def candidates(self, asked: WaitingGang) -> Fits:
        """Rows that one pod of a gang fills, shape (rows,)."""
        found: Fits = asked.usable & (self.table.capacity[self.table.view()] == asked.shape.chips)
        return found

    def beside(self, demand: Demand, row: int) -> Fits:  # noqa: ARG002  # the port has it
        """Rows in the group of level 1 of a row, shape (rows,)."""
        found: Fits = np.zeros(len(self.table), np.bool_)
        if row >= 0:
            for tree in self._trees.of(~found):
                found[neighbours(tree, row)] = True
        return found
