"""SuperPoDs as a topology: what a job says of them, and which nodes are in one."""

from berth.core.topologies.blocks.demand import SUPERPODS, blocks_of
from berth.core.topologies.blocks.place_rows import SuperpodPlaces
from berth.core.topologies.blocks.request import (
    BLOCK_BYTES_A_POD,
    MINDIE_LABELS,
    SERVICE_LABEL,
    SP_FIT,
    requested_blocks,
)
from berth.core.topologies.blocks.validation import SP_BLOCK, SUPER_POD_AFFINITY
from berth.core.topologies.port import Asked, Places, Topology
from berth.products.model import Form
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.refusal import Refusal


class Superpods(Topology):
    """SuperPoDs without racks."""

    name = SUPERPODS
    keys = (SUPER_POD_AFFINITY, SERVICE_LABEL, SP_BLOCK, SP_FIT, *MINDIE_LABELS)
    record_bytes_a_pod = BLOCK_BYTES_A_POD
    heeds_fewer_nodes = True

    def demand(self, asked: Asked, form: Form, settings: Settings) -> Demand | Refusal | None:
        """Blocks in SuperPoDs."""
        return requested_blocks(asked, form, settings) if form.variant in {"a3", "850"} else None

    def is_beside(self, demand: Demand) -> bool:
        """Jobs of a service are near one another, and MindIE jobs near those that they name."""
        blocks = blocks_of(demand)
        return blocks is not None and bool(blocks.service or blocks.near)

    def places(self) -> Places:
        """A node without a SuperPoD has none."""
        return SuperpodPlaces()
