"""Racks of SuperPoDs as a topology: which nodes are in one."""

from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.demand import SUPERPODS
from berth.core.topologies.blocks.place_rows import RackPlaces, rack_areas, superpod_areas
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.blocks.topology import BlockTopology
from berth.core.topologies.leaving import Together
from berth.core.topologies.planning import Areas, Ground
from berth.core.topologies.port import Places
from berth.core.topologies.racks.request import RackJobs
from berth.core.topologies.racks.round import RackRound
from berth.core.topologies.racks.text import RACK_LACKS
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Placement


class Racks(RackJobs, BlockTopology[SuperpodMap]):
    """SuperPoDs with racks."""

    index_name = SUPERPODS
    lacks = RACK_LACKS

    def together(self, demand: Demand, placement: Placement) -> Together:
        """The blocks of the placement, and their parts in one rack."""
        found = super().together(demand, placement)
        return found._replace(rank_block=demand.sizes[0], is_rack=True) if found.superpods else found

    def places(self) -> Places:
        """A node without a SuperPoD, or without a rack that has a number, has none."""
        return RackPlaces()

    def index(self, table: NodeTable) -> SuperpodMap:
        """Order of the nodes of all SuperPoDs."""
        return SuperpodMap(table)

    def areas(
        self,
        table: NodeTable,
        index: SuperpodMap,  # noqa: ARG002  # the port has it
        demand: Demand | None,
        settings: Settings,
    ) -> list[Areas]:
        """The racks of SuperPoDs, and the SuperPoDs."""
        return [rack_areas(table, demand, settings), superpod_areas(table, demand, settings)]

    def begin(self, ground: Ground, index: SuperpodMap) -> RackRound:
        """SuperPoDs during a round."""
        return RackRound(ground, index)
