"""Candidates of a gang after a fault, as they are given to its blocks.

Source: docs/reference/superpods.md, "Places after a fault".
"""

from collections.abc import Collection

import numpy as np

from berth.core.topologies.blocks.model import CandidatePool
from berth.core.topologies.superpods.block_history import NOWHERE


class FreeNodes:
    """Nodes that no block has taken yet.

    Args:
        pool: SuperPoDs with the candidates of the gang.
        failed_nodes: Rows of nodes that failed for this gang at some time; they are taken last.
    """

    def __init__(self, pool: CandidatePool, failed_nodes: Collection[int]) -> None:
        self.pool = pool
        self.gone = np.zeros(len(pool.rows), np.bool_)
        self._failed_nodes = failed_nodes
        self._index = {name: pod for pod, name in enumerate(pool.ids)}
        self._place = np.full(int(pool.rows.max(initial=0)) + 1, NOWHERE, np.int64)
        self._place[pool.rows] = np.arange(len(pool.rows))
        self._queues: dict[str, list[int]] = {}

    def pod(self, superpod: str) -> int:
        """Index of a SuperPoD in the pool; -1 if the pool does not contain it."""
        return self._index.get(superpod, NOWHERE)

    def is_free(self, row: int) -> bool:
        """Whether the node of a row is a candidate that no block has taken."""
        place = int(self._place[row]) if 0 <= row < len(self._place) else NOWHERE
        return place != NOWHERE and not self.gone[place]

    def free(self, superpod: str) -> int:
        """Number of candidates of a SuperPoD that no block has taken."""
        places = self._places(superpod)
        return len(places) - int(self.gone[places.start : places.stop].sum())

    def take(self, row: int) -> int:
        """Take a free node; returns its row."""
        self.gone[self._place[row]] = True
        return row

    def take_next(self, superpod: str) -> int:
        """Take the next free node of a SuperPoD; returns its row. Nodes that failed for this gang come last.

        The SuperPoD must have a free node.
        """
        if superpod not in self._queues:
            places = self._places(superpod)
            rows = self.pool.rows[places.start : places.stop].tolist()
            self._queues[superpod] = sorted(rows, key=lambda row: row in self._failed_nodes)[::-1]
        queue = self._queues[superpod]
        while not self.is_free(queue[-1]):
            queue.pop()
        return self.take(queue[-1])

    def fill(self, rows: list[int], superpod: str) -> list[int]:
        """Rows of a block, with a free node of the SuperPoD in each position that was :data:`NOWHERE`."""
        return [self.take_next(superpod) if row == NOWHERE else row for row in rows]

    def _places(self, superpod: str) -> range:
        pod = self.pod(superpod)
        return range(0) if pod == NOWHERE else range(int(self.pool.starts[pod]), int(self.pool.starts[pod + 1]))
