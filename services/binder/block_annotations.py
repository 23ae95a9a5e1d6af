"""Annotations for the pods of a gang: their logical SuperPoD (block) and their SuperPoD. Pure.

Source: docs/reference/superpods.md, "Ranks and annotations of blocks" and "Keys of SuperPoDs".
"""

from typing import Final

from berth.formats.ascend.block_annotations import block_annotations
from berth.schemas.columns import unpack
from berth.schemas.placement import Placement

_INDEX_BYTES: Final = 2


def block_annotations_of(placement: Placement) -> list[dict[str, str]]:
    """Annotations of each rank; none for pods without chips or a block, and for a placement without annotations.

    Raises:
        ValueError: The columns do not have one entry per rank.
    """
    part = placement.block
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
