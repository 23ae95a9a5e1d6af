"""Blocks of inference jobs: close to the other jobs of a service, or close to the pods that a MindIE gang prefers.

Both allocate whole blocks one after the other, each to the best SuperPoD at that moment, and never split a block;
whether the gang is soft or hard is ignored. The first SuperPoD wins a tie.

Source: docs/reference/superpods.md, "Inference on SuperPoDs".
"""

import heapq
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from berth.core.cluster.node_groups import Counts
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockRules,
    Lack,
    NoBlocks,
    Phase,
    closest,
)


class AffinityPreference(NamedTuple):
    """Preferences of a MindIE gang.

    Attributes:
        idlest: SuperPoDs with more free nodes come first.
        matching: ``int64[SuperPoDs]``: number of nodes that are not candidates and have pods that match the first term
            of the gang's preferred pod affinity; None if the gang has no such term.
    """

    idlest: bool
    matching: Counts | None


def service_allocations(
    ids: Sequence[str], counts: Counts, demand: BlockDemand, hosts: Collection[str]
) -> tuple[BlockAllocation, ...] | NoBlocks:
    """Blocks of a job of an inference service: SuperPoDs that host the service first, then those with most free nodes.

    A SuperPoD with a new block counts as a host for the next block. The reserve is ignored.

    Source: docs/reference/superpods.md, "Inference services".

    Args:
        ids: SuperPoDs in their order.
        counts: ``int64[SuperPoDs]``, candidate nodes of each.
        demand: Request of the gang.
        hosts: SuperPoDs with pods of other jobs of the service.
    """
    left: list[int] = counts.tolist()
    is_host = [name in hosts for name in ids]

    def key(pod: int) -> tuple[int, ...]:
        return (not is_host[pod], -left[pod])

    def taken(pod: int) -> None:
        is_host[pod] = True

    lack: Lack = "service"
    return _too_few(ids, counts, demand, lack) or _allocate_blocks(left, demand, "service", key, taken)


def mindie_allocations(
    ids: Sequence[str], counts: Counts, demand: BlockDemand, rules: BlockRules, preference: AffinityPreference
) -> tuple[BlockAllocation, ...] | NoBlocks:
    """Blocks of a MindIE gang: SuperPoDs that can keep their reserve first, then by matching pods, then by free nodes.

    Source: docs/reference/superpods.md, "MindIE".

    Args:
        ids: SuperPoDs in their order.
        counts: ``int64[SuperPoDs]``, candidate nodes of each.
        demand: Request of the gang.
        rules: Reserve of each SuperPoD.
        preference: Preferences of the gang.
    """
    left: list[int] = counts.tolist()
    matching: list[int] = [0] * len(left) if preference.matching is None else preference.matching.tolist()
    least = demand.block + rules.reserve
    sign = -1 if preference.idlest else 1

    def key(pod: int) -> tuple[int, ...]:
        return (left[pod] < least, -matching[pod], sign * left[pod])

    def taken(pod: int) -> None:
        if preference.matching is not None:
            matching[pod] += demand.block

    lack: Lack = "blocks"
    return _too_few(ids, counts, demand, lack) or _allocate_blocks(left, demand, "affinity", key, taken)


def _allocate_blocks(
    left: list[int],
    demand: BlockDemand,
    phase: Phase,
    key: Callable[[int], tuple[int, ...]],
    taken: Callable[[int], None],
) -> tuple[BlockAllocation, ...]:
    """Blocks one after the other, each from the SuperPoD with the smallest key at that moment.

    A key depends only on its own SuperPoD, so that only the key of the last SuperPoD is computed again.
    """
    heap = [(key(pod), pod) for pod, nodes in enumerate(left) if nodes >= demand.block]
    heapq.heapify(heap)
    allocations: list[BlockAllocation] = []
    for block_id in range(demand.blocks):
        _, pod = heap[0]
        allocations.append(BlockAllocation(block_id, pod, demand.block, phase))
        left[pod] -= demand.block
        taken(pod)
        if left[pod] >= demand.block:
            heapq.heapreplace(heap, (key(pod), pod))
        else:
            heapq.heappop(heap)
    return tuple(allocations)


def _too_few(ids: Sequence[str], counts: Counts, demand: BlockDemand, lack: Lack) -> NoBlocks | None:
    """Refusal if there are too few whole blocks for the gang; otherwise None."""
    blocks = int((counts // demand.block).sum())
    if blocks >= demand.blocks:
        return None
    return NoBlocks(
        lack=lack,
        block=demand.block,
        blocks_need=demand.blocks,
        blocks_have=blocks,
        nodes_need=demand.replicas,
        nodes_have=int(counts.sum()),
        closest=closest(ids, counts, demand.block),
    )
