"""New places for leaving pods of a gang with levels: the smallest part that finds room moves, as far as it may."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.topologies.blocks.block_round import block_lack
from berth.core.topologies.blocks.leaving_blocks import BlockPods
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.levels.level_map import LevelMap
from berth.core.topologies.levels.model import NoLevels, Tree
from berth.core.topologies.levels.rescheduling import STEPS_MAX, LevelRecovery, recover_levels
from berth.core.topologies.planning import Ground, Lack, Replaced
from berth.schemas.recovery import Scope
from berth.schemas.refusal import BlockLack, NearGroup

_STEPS: Final[Mapping[Scope, int]] = {"pod": 0, "rank-block": 1, "superpod": 1, "job": STEPS_MAX}
"""Levels by which a part may grow; the scope ``level`` says it itself."""


class LevelTrees:
    """Trees of levels during a round.

    Args:
        ground: What is seen of the round.
        levels: Trees of the nodes.
    """

    def __init__(self, ground: Ground, levels: LevelMap) -> None:
        self.table = ground.table
        self._levels = levels
        self._text = ground.settings.resource_levels

    def of(self, fits: Fits) -> list[Tree]:
        """Trees with some rows, shape (rows,)."""
        return self._levels.trees(fits, self._text)

    def whole_nodes(self, gang: Gang, fits: Fits) -> Fits:
        """Of some rows the empty nodes that one pod of a gang fills, shape (rows,). See decision D-11."""
        chips = max(shape.chips for shape, _ in gang.request_class)
        view = self.table.view()
        found: Fits = fits & (self.table.capacity[view] == chips) & (np.bitwise_count(self.table.free[view]) == chips)
        return found


def replace_in_levels(trees: LevelTrees, leaving: LeavingPods, own: OwnPlaces, fits: Fits) -> Replaced | Lack:
    """New places of the planned pods that leave, or what is missing.

    Args:
        trees: Trees of levels of the round.
        leaving: The leaving pods.
        own: Places of the gang.
        fits: Rows that can take any of the pods, shape (rows,).
    """
    pods = BlockPods(leaving, own, trees.table)
    kept = trees.whole_nodes(leaving.gang, fits)
    most = len(pods.request.levels) + 1
    allowed = min(_STEPS.get(leaving.scope, leaving.steps), most)
    missing: list[Lack] = []
    for open_rows, homes in pods.trials(kept, own.avoided):
        for steps in range(allowed + 1):
            found = _tried(trees, pods, open_rows.copy(), dict(homes), steps)
            if not isinstance(found, Lack):
                return found
            missing.append(found)
    ranks = next((one.ranks for one in missing if one.ranks), ())
    for open_rows, homes in pods.trials(kept, own.avoided):
        for steps in range(allowed + 1, most + 1):
            if not ranks:
                # A larger part could move: its pods would have to leave.
                found = _tried(trees, pods, open_rows.copy(), dict(homes), steps)
                ranks = found.ranks if isinstance(found, Lack) else ()
    return missing[-1]._replace(ranks=ranks)


def _tried(trees: LevelTrees, pods: BlockPods, open_rows: Fits, homes: dict[int, int], steps: int) -> Replaced | Lack:
    """Places for parts that grow by some levels at most.

    Args:
        trees: Trees of levels of the round.
        pods: The planned pods.
        open_rows: Rows for new places, shape (rows,); is changed.
        homes: Row to which each leaving pod can return, by number; is changed.
        steps: The levels.
    """
    given_up: set[int] = set()
    while True:
        held = pods.held(open_rows, homes, given_up)
        usable = open_rows.copy()
        usable[held[held >= 0]] = True
        usable[list(homes.values())] = True
        grown = trees.of(usable)
        found = recover_levels(grown, pods.request.levels, held, steps)
        if isinstance(found, NoLevels):
            return block_lack(level_lack(found, pods.request.levels, grown, sum(pods.moving)))
        own = {number: row for number, row in enumerate(held.tolist()) if row >= 0} | homes
        foreign = pods.foreign(found.rows.tolist(), own)
        if not foreign:
            return _answer(pods, found, grown[found.tree], open_rows, homes)
        pods.give_up(foreign, given_up, open_rows, homes)


def _answer(
    pods: BlockPods, found: LevelRecovery, tree: Tree, open_rows: Fits, homes: Mapping[int, int]
) -> Replaced | Lack:
    """A plan as places of the pods that leave, unless others would have to leave as well."""
    rows = found.rows.tolist()
    staying = pods.staying(found.moved.tolist())
    places = pods.places(rows, open_rows, homes)
    if staying or places < sum(pods.moving):
        return pods.incomplete(places)._replace(ranks=staying)
    block_ids = (np.arange(len(rows)) // pods.request.levels[0]).tolist()
    moved = {block_ids[number] for number in found.moved.tolist()}
    return pods.answer(rows, block_ids, _groups(tree, rows, pods.superpods), dict.fromkeys(sorted(moved), "level"))


def _groups(tree: Tree, rows: Sequence[int], before: Sequence[str]) -> list[str]:
    """Group of the lowest level of each pod; the one before for a pod whose node is not in the tree."""
    at = dict(zip(tree.rows.tolist(), tree.paths[-1].tolist(), strict=True))
    names = tree.groups[-1]
    return [names[at[row]] if row in at else before[number] for number, row in enumerate(rows)]


def level_lack(found: NoLevels, sizes: Sequence[int], trees: Sequence[Tree], pods: int) -> BlockLack:
    """Part of the refusal for a plan of levels that was not found.

    Args:
        found: What is missing.
        sizes: Number of pods that share a group, level 1 first.
        trees: Trees with the candidates.
        pods: Number of pods to place.
    """
    # When no tree has enough levels, the numbers count levels instead of nodes.
    size = sizes[found.level - 1] if 0 < found.level <= len(sizes) else int(found.gap != "levels")
    near = [NearGroup(found.tree, found.have, found.have)] if found.tree else []
    lack = "nodes" if found.gap == "nodes" else "level"
    nodes = sum(len(tree.rows) for tree in trees)
    return BlockLack(lack, found.need, found.have, size, nodes_need=pods, nodes_have=nodes, near=near)
