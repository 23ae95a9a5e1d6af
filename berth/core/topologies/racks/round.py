"""SuperPoDs with racks in a round: plans of gangs, inference jobs near others included."""

from collections import Counter

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.topologies.blocks.block_round import BlockRound
from berth.core.topologies.blocks.demand import Blocks
from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, CandidatePool, NoBlocks
from berth.core.topologies.layouts import BlockLayout
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Lack, Replaced
from berth.core.topologies.racks.inference import plan_rack_service
from berth.core.topologies.racks.planner import plan_racks
from berth.core.topologies.racks.replacement import replace_in_racks, unlinked
from berth.schemas.offers import Demand


class RackRound(BlockRound):
    """SuperPoDs with racks during a round."""

    def found(self, blocks: Blocks, demand: BlockDemand, pool: CandidatePool) -> BlockPlan | NoBlocks:
        """Plan of a gang in SuperPoDs with racks."""
        if blocks.service or blocks.mindie:
            return plan_rack_service(pool, demand, self.hosts(blocks.service))
        return plan_racks(pool, demand, self.rules, unlinked=unlinked(self.table, pool))

    def replace(self, leaving: LeavingPods, own: OwnPlaces, usable: Fits) -> Replaced | Lack:
        """New places of the planned pods that leave, or what is missing."""
        return replace_in_racks(self, leaving, own, usable)

    def whole(self, layout: BlockLayout, rows: Rows) -> int:
        """Whole blocks, of parts that stay in one rack, that fit on some rows of a SuperPoD."""
        racks = Counter(self.table.rack[rows].tolist())
        part = layout.size if layout.service else layout.rack_size
        return sum(nodes // part for rack, nodes in racks.items() if rack >= 0) * part // layout.size

    def beside(self, demand: Demand, row: int) -> Fits:
        """Rows in the SuperPoD and rack of a row, shape (rows,)."""
        found: Fits = super().beside(demand, row) & (self.table.rack[self.table.view()] == self.table.rack[row])
        return found
