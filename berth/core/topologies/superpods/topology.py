"""SuperPoDs as a topology: what a job says of them, and which nodes are in one."""

from berth.core.topologies.blocks.demand import SUPERPODS
from berth.core.topologies.blocks.place_rows import SuperpodPlaces
from berth.core.topologies.blocks.request import MINDIE_LABELS, SERVICE_LABEL, SP_FIT
from berth.core.topologies.blocks.topology import BlockTopology
from berth.core.topologies.blocks.validation import SP_BLOCK, SUPER_POD_AFFINITY
from berth.core.topologies.port import Places


class Superpods(BlockTopology):
    """SuperPoDs without racks."""

    name = SUPERPODS
    keys = (SUPER_POD_AFFINITY, SERVICE_LABEL, SP_BLOCK, SP_FIT, *MINDIE_LABELS)
    variants = ("a3", "850")

    def places(self) -> Places:
        """A node without a SuperPoD has none."""
        return SuperpodPlaces()
