"""Plans of gangs with SuperPoD affinity: blocks are selected on counts, then nodes are drawn.

Source: docs/reference/superpods.md, "Before the selection" and "Selection of blocks".
"""

from berth.core.errors import InvariantError
from berth.core.topologies.blocks.model import (
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    NoBlocks,
)
from berth.core.topologies.blocks.node_assignment import assign_nodes, candidates, not_enough_nodes
from berth.core.topologies.superpods import block_selection
from berth.core.topologies.superpods.block_selection import OpenBlocks


def plan_blocks(pool: CandidatePool, demand: BlockDemand, rules: BlockRules) -> BlockPlan | NoBlocks:
    """Plan of a new gang without racks.

    Args:
        pool: SuperPoDs with the candidates of the gang.
        demand: Request of the gang; ``replicas`` is a multiple of ``block``.
        rules: Reserve, size, and which decisions go Berth's way.

    Raises:
        InvariantError: The gang requests racks, which :mod:`berth.core.topologies.racks.planner` plans.
    """
    if demand.variant == "rack":
        raise InvariantError("racks are no matter of the three queues", subject=f"a gang of {demand.replicas}")
    eligible = candidates(pool, demand)
    counts = eligible.counts
    if len(eligible.rows) < demand.replicas:
        return not_enough_nodes(eligible, demand)
    allocations = block_selection.select(eligible.ids, counts, open_blocks_of(demand), rules)
    return allocations if isinstance(allocations, NoBlocks) else assign_nodes(eligible, allocations, demand.replicas)


def open_blocks_of(demand: BlockDemand) -> OpenBlocks:
    """All blocks of a gang, for the selection."""
    return OpenBlocks(
        demand.variant,
        demand.block,
        range(demand.blocks),
        demand.replicas,
        demand.blocks,
        soft=demand.soft,
        is_partial=demand.is_partial,
    )
