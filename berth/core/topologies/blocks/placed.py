"""Blocks of a placed gang, and the physical SuperPoDs or groups of levels that hold them, as its placement states."""

from typing import Final

import msgspec

from berth.core.topologies.blocks.demand import SUPERPODS, TOPOLOGY_OF
from berth.schemas.placement import Groups, Placement

_TOPOLOGIES: Final = frozenset(TOPOLOGY_OF.values())


class BlockPlacement(msgspec.Struct, frozen=True):
    """Logical SuperPoDs (blocks) of a gang with SuperPoD affinity, and the physical ones that hold them.

    Columns have one entry per rank: ``block_index`` and ``superpod_index`` ``<u2`` plus one into ``blocks`` and
    ``superpods``, 0 for a rank that belongs to no block. They are of one length.
    """

    variant: str
    """``a3``, ``850``, ``rack`` or ``levels``; empty when adopted."""
    size: int
    """Nodes of a block."""
    blocks: list[int] = []
    """Ids of the blocks, ascending."""
    phases: list[str] = []
    """Rule that chose the nodes of each block, parallel to ``blocks``."""
    superpods: list[str] = []
    """Physical SuperPoDs, or groups of the lowest level, in the order of the plan."""
    block_index: bytes = b""
    superpod_index: bytes = b""
    annotated: bool = False
    """Pods carry the annotations ``super-pod-id`` and ``super-pod-rank``."""
    service: str = ""
    """Label ``inferserviceid``; empty without."""

    @property
    def groups(self) -> Groups:
        """The same as a placement has it."""
        return Groups(
            TOPOLOGY_OF.get(self.variant, SUPERPODS),
            policy=self.variant,
            label=self.service,
            size=self.size,
            names=self.superpods,
            name_index=self.superpod_index,
            parts=self.blocks,
            rules=self.phases,
            part_index=self.block_index,
            annotated=self.annotated,
        )


def block_of(placement: Placement) -> BlockPlacement | None:
    """Blocks of a placement; None without."""
    found = next((part for part in placement.groups if part.topology in _TOPOLOGIES), None)
    if found is None:
        return None
    return BlockPlacement(
        found.policy,
        found.size,
        found.parts,
        found.rules if found.parts else [],
        found.names,
        found.part_index,
        found.name_index if found.part_index else b"",
        found.annotated,
        found.label,
    )


def service_of(placement: Placement) -> str:
    """Inference service of a placed gang; empty without."""
    return next((part.label for part in placement.groups if part.topology in _TOPOLOGIES), "")
