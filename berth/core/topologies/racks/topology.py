"""Racks of SuperPoDs as a topology: what a job says of them, and which nodes are in one."""

from berth.core.topologies.blocks.demand import RACKS, blocks_of
from berth.core.topologies.blocks.place_rows import RackPlaces
from berth.core.topologies.blocks.request import BLOCK_BYTES_A_POD, SERVICE_LABEL, requested_blocks
from berth.core.topologies.blocks.validation import RA_BLOCK, SP_BLOCK, SUPER_POD_AFFINITY, UB_MEMORY
from berth.core.topologies.port import Asked, Places, Topology
from berth.products.model import Form
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.refusal import Refusal


class Racks(Topology):
    """SuperPoDs with racks."""

    name = RACKS
    keys = (SUPER_POD_AFFINITY, SERVICE_LABEL, SP_BLOCK, RA_BLOCK, UB_MEMORY)
    record_bytes_a_pod = BLOCK_BYTES_A_POD
    heeds_fewer_nodes = True

    def demand(self, asked: Asked, form: Form, settings: Settings) -> Demand | Refusal | None:
        """Blocks whose parts are in racks."""
        return requested_blocks(asked, form, settings) if form.variant == "rack" else None

    def is_beside(self, demand: Demand) -> bool:
        """Jobs of a service are near one another, and MindIE jobs near those that they name."""
        blocks = blocks_of(demand)
        return blocks is not None and bool(blocks.service or blocks.near)

    def places(self) -> Places:
        """A node without a SuperPoD, or without a rack that has a number, has none."""
        return RackPlaces()
