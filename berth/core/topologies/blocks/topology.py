"""What topologies whose gangs are split into blocks answer alike."""

from collections.abc import Collection

from berth.core.topologies.blocks.demand import blocks_of
from berth.core.topologies.blocks.request import requested_blocks
from berth.core.topologies.port import Asked, IndexT, Topology
from berth.products.model import Form
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.refusal import Refusal


class BlockTopology(Topology[IndexT]):
    """A topology whose gangs are split into blocks of nodes.

    Attributes:
        variants: Variants of the product forms that use it.
    """

    variants: Collection[str] = ()
    record_bytes_a_pod = 2 + 2
    """Indexes of the block and of the SuperPoD of a pod."""
    heeds_fewer_nodes = True

    def demand(self, asked: Asked, form: Form, settings: Settings) -> Demand | Refusal | None:
        """Blocks of a job whose form has one of the variants."""
        return requested_blocks(asked, form, settings) if form.variant in self.variants else None

    def is_beside(self, demand: Demand | None) -> bool:
        """Jobs of a service are near one another, and MindIE jobs near those that they name."""
        blocks = blocks_of(demand)
        return blocks is not None and bool(blocks.service or blocks.near)
