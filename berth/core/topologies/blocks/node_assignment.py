"""Nodes of blocks: those that a gang considers, and those of each rank, assigned from counts by SuperPoD.

Source: docs/reference/superpods.md, "Before the selection" and "Ranks and annotations of blocks".
"""

from collections.abc import Sequence

import numpy as np

from berth.core.cluster.node_groups import Rows
from berth.core.topologies.blocks.model import BlockAllocation, BlockDemand, BlockPlan, CandidatePool, NoBlocks, closest


def candidates(pool: CandidatePool, demand: BlockDemand) -> CandidatePool:
    """Nodes that a gang considers.

    A gang with one pod goes to the nodes with the fewest idle chips, and to a healthy node if there is one. With racks
    health is ignored.

    Source: docs/reference/superpods.md, "Before the selection".
    """
    if demand.replicas != 1 or not len(pool.rows):
        return pool
    if pool.idle is not None:
        pool = pool.without(pool.idle > pool.idle.min())
    return pool if demand.variant == "rack" or pool.sub_healthy.all() else pool.without(pool.sub_healthy)


def not_enough_nodes(pool: CandidatePool, demand: BlockDemand) -> NoBlocks:
    """Refusal: there are fewer candidates than pods.

    Source: docs/reference/superpods.md, "Before the selection".
    """
    return NoBlocks(
        lack="nodes",
        block=demand.block,
        blocks_need=demand.blocks,
        blocks_have=int((pool.counts // demand.block).sum()),
        nodes_need=demand.replicas,
        nodes_have=len(pool.rows),
        closest=closest(pool.ids, pool.counts, demand.block),
    )


def assign_nodes(pool: CandidatePool, allocations: Sequence[BlockAllocation], replicas: int) -> BlockPlan:
    """Nodes of each rank, taken from each SuperPoD in its order, allocation after allocation.

        >>> from berth.core.topologies.blocks.model import pool_of
    >>> pool = pool_of(["s0", "s1"], np.array([0, 0, 1, 1]), np.array([12, 10, 11, 13]))
        >>> plan = assign_nodes(pool, [BlockAllocation(1, 1, 2, "fits"), BlockAllocation(0, 0, 2, "fits")], 4)
        >>> plan.rows, plan.block_ids, plan.pods
        (array([12, 10, 11, 13]), array([0, 0, 1, 1]), array([0, 0, 1, 1]))

    Ranks are numbered block after block by block id. Block 0 has two nodes of SuperPoD ``s0``, block 1 two of ``s1``.

    Source: docs/reference/superpods.md, "Ranks and annotations of blocks".

    Args:
        pool: SuperPoDs with the free nodes.
        allocations: Number of nodes of each block from each SuperPoD, at most those that it has.
        replicas: Number of ranks. Further nodes are not used; ranks beyond the nodes get -1.
    """
    block_ids, pods, nodes = (
        np.fromiter((allocation[field] for allocation in allocations), np.int64, len(allocations))
        for field in (0, 1, 2)
    )
    walk = np.argsort(block_ids, kind="stable")
    lengths = nodes[walk]
    ends = np.cumsum(lengths)
    places = np.repeat(_begins(pool, pods, nodes)[walk] - ends + lengths, lengths) + np.arange(lengths.sum())
    return BlockPlan(
        _ranks(pool.rows[places], replicas),
        _ranks(np.repeat(block_ids[walk], lengths), replicas),
        _ranks(np.repeat(pods[walk], lengths), replicas),
        tuple(allocations),
    )


def _begins(pool: CandidatePool, pods: Rows, nodes: Rows) -> Rows:
    """Index in the pool of the first node of each allocation; earlier allocations of its SuperPoD come before it."""
    order = np.argsort(pods, kind="stable")
    by_pod, before = pods[order], np.cumsum(nodes[order]) - nodes[order]
    is_first = np.ones(len(pods), np.bool_)
    is_first[1:] = by_pod[1:] != by_pod[:-1]
    begins = np.empty(len(pods), np.int64)
    begins[order] = pool.starts[by_pod] + before - np.maximum.accumulate(np.where(is_first, before, 0))
    return begins


def _ranks(values: Rows, replicas: int) -> Rows:
    found = np.full(replicas, -1, np.int64)
    found[: len(values)] = values[:replicas]
    return found
