"""Meshes of four chips: what affinity and the selection of chips share."""

from typing import Final

WHOLE_MESHES_FROM: Final = 4
"""Pods of this size or more need full meshes.

Source: docs/reference/nodes-and-chips.md, "Meshes of 4"."""
MESH_IDS: Final = 16
"""Chips with this id or above belong to no mesh.

Source: docs/reference/nodes-and-chips.md, "Meshes of 4"."""


def keeps_mesh(chips: int) -> bool:
    """Whether meshes of 4 can serve ``chips`` without a partial mesh.

    Source: docs/reference/nodes-and-chips.md, "Meshes of 4".
    """
    return chips <= WHOLE_MESHES_FROM or chips % WHOLE_MESHES_FROM == 0
