"""Blocks of an inference service with racks: every block is inside one rack, close to other jobs of the service.

Source: docs/reference/superpods.md, "Inference services on Atlas 950".
"""

import heapq
from collections.abc import Collection

import numpy as np

from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, CandidatePool, NoBlocks
from berth.core.topologies.blocks.node_assignment import candidates
from berth.core.topologies.racks.limits import RACK_NODES
from berth.core.topologies.racks.planner import BlockNodes, Racks, all_of, rack_shortage, ranked

Key = tuple[int, int, int, int]


class _SiblingRacks:
    """Racks that host a service, and the free nodes around them, updated while blocks are allocated.

    Args:
        racks: Racks with the candidates.
        block: B, number of nodes of a block.
        hosts: SuperPoD and rack of each pod of other jobs of the service.
    """

    def __init__(self, racks: Racks, block: int, hosts: Collection[tuple[str, int]]) -> None:
        self._racks = racks
        self._block = block
        index = {name: pod for pod, name in enumerate(racks.pool.ids)}
        known = {(index[superpod], rack) for superpod, rack in hosts if superpod in index}
        cells = zip(racks.pods.tolist(), racks.racks.tolist(), strict=True)
        self._is_host = [cell in known for cell in cells]
        self._hosts = {pod for pod, _ in known}
        self._left: list[int] = racks.left.tolist()
        self._free: list[int] = racks.free.tolist()
        self._idle: list[int] = (
            np.bincount(racks.pods, racks.left >= RACK_NODES, minlength=len(self._free)).astype(np.int64).tolist()
        )

    def best(self, pod: int) -> tuple[Key, int, int] | None:
        """The best rack of a SuperPoD with its key; None if it has no rack for a block."""
        cells = range(*self._racks.limits[pod : pod + 2])
        return min(
            ((self._key(pod, cell), pod, cell) for cell in cells if self._left[cell] >= self._block), default=None
        )

    def _key(self, pod: int, cell: int) -> Key:
        left = self._left[cell]
        if self._is_host[cell]:
            return (0, -left, 0, 0)
        return (1 if pod in self._hosts else 2, -self._idle[pod], -left, -self._free[pod])

    def give(self, pod: int, cell: int) -> None:
        """Allocate a block of a rack; the rack hosts the service from then on."""
        self._idle[pod] -= self._left[cell] >= RACK_NODES
        self._left[cell] -= self._block
        self._idle[pod] += self._left[cell] >= RACK_NODES
        self._free[pod] -= self._block
        self._is_host[cell] = True
        self._hosts.add(pod)


def plan_rack_service(
    pool: CandidatePool, demand: BlockDemand, hosts: Collection[tuple[str, int]]
) -> BlockPlan | NoBlocks:
    """Plan of a job of an inference service.

    Racks are used in this order: racks with pods of the service, the one with the most nodes left first; other racks of
    a SuperPoD that hosts the service; all other racks. Inside these classes the order is: SuperPoD with the most idle
    racks, rack with the most nodes left, SuperPoD with the most nodes left. The reserve, and whether the gang is soft
    or hard, are ignored.

    Args:
        pool: SuperPoDs with the candidates of the gang, and their racks.
        demand: Request of the gang.
        hosts: SuperPoD and rack of each pod of other jobs of the service.
    """
    allocated = place_service(pool, demand, hosts)
    return allocated if isinstance(allocated, NoBlocks) else ranked(allocated, demand)


def place_service(
    pool: CandidatePool, demand: BlockDemand, hosts: Collection[tuple[str, int]]
) -> list[BlockNodes] | NoBlocks:
    """Nodes of each block; see :func:`plan_rack_service`."""
    racks = Racks(candidates(pool, demand))
    open_blocks = all_of(demand)
    have = int((racks.left // demand.block).sum())
    if have < demand.blocks:
        return rack_shortage(racks, open_blocks, "service", have=have)
    siblings = _SiblingRacks(racks, demand.block, hosts)
    heap = [best for best in map(siblings.best, range(len(racks.free))) if best is not None]
    heapq.heapify(heap)
    allocated: list[BlockNodes] = []
    for block_id in range(demand.blocks):
        _, pod, cell = heap[0]
        allocated.append(BlockNodes(block_id, pod, racks.take(cell, demand.block), "service"))
        siblings.give(pod, cell)
        best = siblings.best(pod)
        if best is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, best)
    return allocated
