"""SuperPoDs without racks in a round: plans of gangs, inference jobs near others included."""

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.topologies.blocks.block_round import BlockRound
from berth.core.topologies.blocks.demand import Blocks
from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, CandidatePool, NoBlocks
from berth.core.topologies.blocks.node_assignment import assign_nodes, candidates, not_enough_nodes
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Ground, Lack, Replaced
from berth.core.topologies.superpods.inference import AffinityPreference, mindie_allocations, service_allocations
from berth.core.topologies.superpods.planner import plan_blocks
from berth.core.topologies.superpods.replacement import replace_blocks


class SuperpodRound(BlockRound):
    """SuperPoDs without racks during a round; each keeps a reserve."""

    def __init__(self, ground: Ground, superpods: SuperpodMap) -> None:
        super().__init__(ground, superpods)
        self.reserve_nodes = ground.settings.reserve_nodes

    def found(self, blocks: Blocks, demand: BlockDemand, pool: CandidatePool) -> BlockPlan | NoBlocks:
        """Plan of a gang in SuperPoDs."""
        if not (blocks.service or blocks.mindie):
            return plan_blocks(pool, demand, self.rules)
        hosts = self.hosts(blocks.service)
        pool = candidates(pool, demand)
        if len(pool.rows) < demand.replicas:
            return not_enough_nodes(pool, demand)
        counts = pool.counts
        if blocks.service:
            allocations = service_allocations(pool.ids, counts, demand, [superpod for superpod, _ in hosts])
        else:
            preference = AffinityPreference(blocks.idlest, self._liked(blocks, pool) if blocks.near else None)
            allocations = mindie_allocations(pool.ids, counts, demand, self.rules, preference)
        return allocations if isinstance(allocations, NoBlocks) else assign_nodes(pool, allocations, demand.replicas)

    def replace(self, leaving: LeavingPods, own: OwnPlaces, usable: Fits) -> Replaced | Lack:
        """New places of the planned pods that leave, or what is missing."""
        return replace_blocks(self, leaving, own, usable)

    def _liked(self, blocks: Blocks, pool: CandidatePool) -> Rows:
        """Count of nodes of each SuperPoD with pods that the gang prefers to be near, candidates excluded."""
        near = dict(blocks.near)
        nodes = set(self.ground.colocation.of_labels(near))
        for placed in self.ground.placed:
            if near.items() <= placed.labels.items():
                nodes.update(placed.placement.names())
        nodes.difference_update(self.table.names[row] for row in pool.rows.tolist())
        place = {name: index for index, name in enumerate(pool.ids)}
        matching = np.zeros(len(pool.ids), np.int64)
        for superpod, _ in self.superpods.places_of(sorted(nodes)):
            if superpod in place:
                matching[place[superpod]] += 1
        return matching
