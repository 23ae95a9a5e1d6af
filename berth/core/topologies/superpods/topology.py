"""SuperPoDs as a topology: which nodes are in one."""

from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.adopted import adopted_part
from berth.core.topologies.blocks.demand import SUPERPODS
from berth.core.topologies.blocks.place_rows import SuperpodPlaces, superpod_areas
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.blocks.text import lacking_blocks
from berth.core.topologies.blocks.topology import BlockTopology
from berth.core.topologies.maps import DrawnCell, Maps
from berth.core.topologies.planning import Areas, Ground
from berth.core.topologies.port import FoundPods, Places
from berth.core.topologies.superpods.drawing import superpods_shown
from berth.core.topologies.superpods.request import SuperpodJobs
from berth.core.topologies.superpods.round import SuperpodRound
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Groups
from berth.schemas.refusal import Refusal


class Superpods(SuperpodJobs, BlockTopology[SuperpodMap]):
    """SuperPoDs without racks."""

    index_name = SUPERPODS
    keeps_groups = True

    def adopted(self, found: FoundPods) -> Groups | None:
        """Blocks and inference service of pods in SuperPoDs, racks or groups of levels, by annotations."""
        part = adopted_part(found.table, found.fact, found.nodes, found.runs)
        return part.groups if part is not None else None

    def lack_words(self, refusal: Refusal) -> str:
        """What is missing for the plan of a gang: blocks, by a rule of a later release."""
        lack = refusal.blocks
        return super().lack_words(refusal) or (lacking_blocks(lack) if lack is not None else "")

    def places(self) -> Places:
        """A node without a SuperPoD has none."""
        return SuperpodPlaces()

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
        """The SuperPoDs."""
        return [superpod_areas(table, demand, settings)]

    def begin(self, ground: Ground, index: SuperpodMap) -> SuperpodRound:
        """SuperPoDs during a round."""
        return SuperpodRound(ground, index)

    def maps(self, index: SuperpodMap, cell: DrawnCell) -> Maps:
        """The SuperPoDs, those of racks included."""
        return Maps(superpods=superpods_shown(index, cell))
