"""New places for leaving pods of a gang with levels: the smallest part that finds room moves, as far as it may."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.placement.block_places import BlockPods, BlockReplacement, BlocksMissing
from berth.core.placement.leaving_pods import LeavingPods, OwnPlaces
from berth.core.placement.superpod_placement import BlockRound, level_lack
from berth.core.topologies.levels.model import NoLevels, Tree
from berth.core.topologies.levels.rescheduling import STEPS_MAX, LevelRecovery, recover_levels
from berth.schemas.recovery import Scope

_STEPS: Final[Mapping[Scope, int]] = {"pod": 0, "rank-block": 1, "superpod": 1, "job": STEPS_MAX}
"""Levels by which a part may grow; the scope ``level`` says it itself."""


def replace_in_levels(
    blocks: BlockRound, leaving: LeavingPods, own: OwnPlaces, fits: Fits
) -> BlockReplacement | BlocksMissing:
    """New places of the planned pods that leave, or what is missing.

    Args:
        blocks: Trees of levels of the round.
        leaving: The leaving pods.
        own: Places of the gang.
        fits: Rows that can take any of the pods, shape (rows,).
    """
    pods = BlockPods(leaving, own, blocks.superpod_of)
    kept = blocks.whole_nodes(leaving.gang, fits)
    most = len(pods.request.levels) + 1
    allowed = min(_STEPS.get(leaving.scope, leaving.steps), most)
    missing: list[BlocksMissing] = []
    for open_rows, homes in pods.trials(kept, own.avoided):
        for steps in range(allowed + 1):
            found = _tried(blocks, pods, open_rows.copy(), dict(homes), steps)
            if not isinstance(found, BlocksMissing):
                return found
            missing.append(found)
    ranks = next((one.ranks for one in missing if one.ranks), ())
    for open_rows, homes in pods.trials(kept, own.avoided):
        for steps in range(allowed + 1, most + 1):
            if not ranks:
                # A larger part could move: its pods would have to leave.
                found = _tried(blocks, pods, open_rows.copy(), dict(homes), steps)
                ranks = found.ranks if isinstance(found, BlocksMissing) else ()
    return missing[-1]._replace(ranks=ranks)


def _tried(
    blocks: BlockRound, pods: BlockPods, open_rows: Fits, homes: dict[int, int], steps: int
) -> BlockReplacement | BlocksMissing:
    """Places for parts that grow by some levels at most.

    Args:
        blocks: Trees of levels of the round.
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
        trees = blocks.trees(usable)
        found = recover_levels(trees, pods.request.levels, held, steps)
        if isinstance(found, NoLevels):
            return BlocksMissing(level_lack(found, pods.request.levels, trees, sum(pods.moving)))
        own = {number: row for number, row in enumerate(held.tolist()) if row >= 0} | homes
        foreign = pods.foreign(found.rows.tolist(), own)
        if not foreign:
            return _answer(pods, found, trees[found.tree], open_rows, homes)
        pods.give_up(foreign, given_up, open_rows, homes)


def _answer(
    pods: BlockPods, found: LevelRecovery, tree: Tree, open_rows: Fits, homes: Mapping[int, int]
) -> BlockReplacement | BlocksMissing:
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
