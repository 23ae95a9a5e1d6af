"""Blocks of pods that another scheduler placed, by their annotations."""

from collections.abc import Sequence
from typing import Final

from berth.core.cluster.node_groups import group_key
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.placed import BlockPlacement
from berth.schemas.columns import pack, unpack
from berth.schemas.facts import PodsSeen
from berth.schemas.placement import Run

_INDEX_BYTES: Final = 2


def adopted_part(table: NodeTable, fact: PodsSeen, nodes: Sequence[str], runs: Sequence[Run]) -> BlockPlacement | None:
    """Blocks and inference service from the annotations of adopted pods; None without any.

    The SuperPoD of a pod with a block is that of its node, as far as it is known. What is not known of the job, its
    variant and the size of a block, stays open.
    """
    numbers = unpack(fact.blocks, _INDEX_BYTES) or [0] * len(runs)
    numbers = [number if run.chips else 0 for run, number in zip(runs, numbers, strict=True)]
    if not any(run.chips for run in runs) or not (fact.service or any(numbers)):
        return None
    rows = [table.row_of.get(node, -1) if number else -1 for node, number in zip(nodes, numbers, strict=True)]
    homes = [table.superpod_at(row) for row in rows]
    blocks = sorted({number - 1 for number in numbers if number})
    block_at = {block: place for place, block in enumerate(blocks, start=1)}
    superpods = sorted({home for home in homes if home}, key=group_key)
    superpod_at = {home: place for place, home in enumerate(superpods, start=1)}
    return BlockPlacement(
        variant="",
        size=0,
        blocks=blocks,
        phases=[""] * len(blocks),
        superpods=superpods,
        block_index=pack([block_at.get(number - 1, 0) for number in numbers], _INDEX_BYTES),
        superpod_index=pack([superpod_at.get(home, 0) for home in homes], _INDEX_BYTES),
        service=fact.service,
    )
