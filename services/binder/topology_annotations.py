"""Annotations for the pods of a gang: logical SuperPoD (block), SuperPoD and state of the leaf switch. Pure.

Source: docs/reference/superpods.md, "Ranks and annotations of blocks" and "Keys of SuperPoDs";
docs/reference/switches.md, "Ranks, scores and annotations". See decision annotations-in-1.0.
"""

from typing import Final

from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.switches.placed import switch_of
from berth.formats.ascend.block_annotations import block_annotations
from berth.formats.ascend.switch_annotations import switch_annotations
from berth.schemas.columns import unpack
from berth.schemas.placement import Placement

_INDEX_BYTES: Final = 2


def block_annotations_of(placement: Placement) -> list[dict[str, str]]:
    """Annotations of each rank; none for pods without chips or a block, and for a placement without annotations.

    Raises:
        ValueError: The columns do not have one entry per rank.
    """
    part = block_of(placement)
    ranks = placement.pods()
    if part is None or not part.annotated:
        return [{}] * ranks
    blocks, superpods = unpack(part.block_index, _INDEX_BYTES), unpack(part.superpod_index, _INDEX_BYTES)
    if len(blocks) != ranks or len(superpods) != ranks:
        raise ValueError(
            f"placement has blocks of {len(blocks)} ranks and SuperPoDs of {len(superpods)}: expected {ranks}"
        )
    chips = [run.chips for run in placement.runs for _ in range(run.pods)]
    return [
        block_annotations(part.blocks[block - 1], part.superpods[superpod - 1]) if block and superpod and picked else {}
        for block, superpod, picked in zip(blocks, superpods, chips, strict=True)
    ]


def leaf_annotations_of(placement: Placement) -> list[dict[str, str]]:
    """Annotations of each rank; none for pods without chips, and for a placement without annotations.

    Raises:
        ValueError: The columns do not have one entry per rank.
    """
    part = switch_of(placement)
    ranks = placement.pods()
    if part is None or not part.annotated:
        return [{}] * ranks
    indexes = unpack(part.leaf_index, _INDEX_BYTES)
    if len(indexes) != ranks or len(part.states) != ranks:
        raise ValueError(
            f"placement has leaves of {len(indexes)} ranks and states of {len(part.states)}: expected {ranks}"
        )
    chips = [run.chips for run in placement.runs for _ in range(run.pods)]
    return [
        switch_annotations(state, part.leaves[index - 1]) if index and picked else {}
        for index, state, picked in zip(indexes, part.states, chips, strict=True)
    ]
