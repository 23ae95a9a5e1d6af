"""Annotations of placed pods that name their block and its physical SuperPoD.

Source: docs/reference/superpods.md, "Ranks and annotations of blocks" and "Keys of SuperPoDs".
"""

from typing import Final

from berth.core.topologies.blocks.placed import block_of
from berth.products.model import SUPER_POD_ID, SUPER_POD_RANK
from berth.schemas.columns import unpack
from berth.schemas.placement import Placement

_INDEX_BYTES: Final = 2


def block_annotations(placement: Placement) -> list[dict[str, str]]:
    """Annotations of each rank with a block; none for a placement without annotations.

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
    return [
        {SUPER_POD_ID: part.superpods[superpod - 1], SUPER_POD_RANK: str(part.blocks[block - 1])}
        if block and superpod
        else {}
        for block, superpod in zip(blocks, superpods, strict=True)
    ]
