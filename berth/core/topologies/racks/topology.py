"""Racks of SuperPoDs as a topology: what a job says of them, and which nodes are in one."""

from berth.core.topologies.blocks.demand import RACKS
from berth.core.topologies.blocks.place_rows import RackPlaces
from berth.core.topologies.blocks.request import SERVICE_LABEL
from berth.core.topologies.blocks.topology import BlockTopology
from berth.core.topologies.blocks.validation import RA_BLOCK, SP_BLOCK, SUPER_POD_AFFINITY, UB_MEMORY
from berth.core.topologies.port import Places


class Racks(BlockTopology):
    """SuperPoDs with racks."""

    name = RACKS
    keys = (SUPER_POD_AFFINITY, SERVICE_LABEL, SP_BLOCK, RA_BLOCK, UB_MEMORY)
    variants = ("rack",)

    def places(self) -> Places:
        """A node without a SuperPoD, or without a rack that has a number, has none."""
        return RackPlaces()
