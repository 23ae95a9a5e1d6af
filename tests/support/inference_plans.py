"""Plans of inference services and MindIE gangs on SuperPoDs, as a round makes them."""

from collections.abc import Callable, Collection, Sequence

from berth.core.cluster.node_groups import Counts
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    NoBlocks,
)
from berth.core.topologies.blocks.node_assignment import assign_nodes, candidates, not_enough_nodes
from berth.core.topologies.superpods.inference import AffinityPreference, mindie_allocations, service_allocations


def plan_service(pool: CandidatePool, demand: BlockDemand, hosts: Collection[str]) -> BlockPlan | NoBlocks:
    """Plan of a job of an inference service.

    Args:
        pool: SuperPoDs with the candidates of the gang.
        demand: Request of the gang.
        hosts: SuperPoDs with pods of other jobs of the service.
    """
    return _planned(pool, demand, lambda ids, counts: service_allocations(ids, counts, demand, hosts))


def plan_mindie(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, preference: AffinityPreference
) -> BlockPlan | NoBlocks:
    """Plan of a MindIE gang.

    Args:
        pool: SuperPoDs with the candidates of the gang.
        demand: Request of the gang.
        rules: Reserve of each SuperPoD.
        preference: Preferences of the gang.
    """
    return _planned(pool, demand, lambda ids, counts: mindie_allocations(ids, counts, demand, rules, preference))


def _planned(
    pool: CandidatePool,
    demand: BlockDemand,
    allocations_of: Callable[[Sequence[str], Counts], tuple[BlockAllocation, ...] | NoBlocks],
) -> BlockPlan | NoBlocks:
    eligible = candidates(pool, demand)
    if len(eligible.rows) < demand.replicas:
        return not_enough_nodes(eligible, demand)
    allocations = allocations_of(eligible.ids, eligible.counts)
    return allocations if isinstance(allocations, NoBlocks) else assign_nodes(eligible, allocations, demand.replicas)
