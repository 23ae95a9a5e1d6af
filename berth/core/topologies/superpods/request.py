"""What a job says of SuperPoDs without racks."""

from berth.core.topologies.blocks.demand import SUPERPODS
from berth.core.topologies.blocks.request import MINDIE_LABELS, SERVICE_LABEL, SP_FIT, BlockJobs
from berth.core.topologies.blocks.validation import SP_BLOCK, SUPER_POD_AFFINITY


class SuperpodJobs(BlockJobs):
    """Blocks in SuperPoDs."""

    name = SUPERPODS
    keys = (SUPER_POD_AFFINITY, SERVICE_LABEL, SP_BLOCK, SP_FIT, *MINDIE_LABELS)
    variants = ("a3", "850")
