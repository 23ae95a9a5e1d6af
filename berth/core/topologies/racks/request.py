"""What a job says of racks of SuperPoDs."""

from berth.core.topologies.blocks.demand import RACKS
from berth.core.topologies.blocks.request import SERVICE_LABEL, BlockJobs
from berth.core.topologies.blocks.validation import RA_BLOCK, SP_BLOCK, SUPER_POD_AFFINITY, UB_MEMORY


class RackJobs(BlockJobs):
    """Blocks in SuperPoDs with racks."""

    name = RACKS
    keys = (SUPER_POD_AFFINITY, SERVICE_LABEL, SP_BLOCK, RA_BLOCK, UB_MEMORY)
    variants = ("rack",)
