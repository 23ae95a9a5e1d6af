"""Inputs of the planners of blocks: the nodes of each SuperPoD of a table, and their order.

Inside a SuperPoD neighbours are adjacent: nodes are sorted by rack, leaf, position and name. Sub-healthy nodes come
after the healthy ones when a pool is built.

Source: docs/reference/superpods.md, "Order of nodes in a SuperPoD". See decision D-18.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows, group_key, running
from berth.core.cluster.node_table import NodeTable
from berth.core.copies import copied
from berth.core.topologies.blocks.model import CandidatePool, pool_of, rack_number
from berth.core.topologies.planning import Index
from berth.schemas.facts import NodeHealth
from berth.schemas.ledger import Settings

_NO_RACK: Final = -1


class SuperpodMap(Index):
    """Order of the nodes of all SuperPoDs, rebuilt when a node is added, removed or moved.

    Args:
        table: The nodes; always the same table.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._revision = -1
        self._ids: list[str] = []
        self._rows: Rows = np.empty(0, np.int64)
        self._pods: Rows = np.empty(0, np.int64)
        self._racks: Rows = np.empty(0, np.int64)
        self._sizes: Rows = np.empty(0, np.int64)

    def fork(self, table: NodeTable) -> "SuperpodMap":
        """The same for a copy of the table."""
        return copied(self, _table=table)

    @property
    def ids(self) -> list[str]:
        """SuperPoDs with nodes, in their order."""
        self._settle()
        return self._ids

    def oversized(self, settings: Settings) -> list[str]:
        """SuperPoDs with more nodes than the configured size, in their order."""
        self._settle()
        return [self._ids[pod] for pod in np.flatnonzero(self._sizes > settings.super_pod_size).tolist()]

    def pool(self, fits: Fits, *, idle: Rows | None = None) -> CandidatePool:
        """SuperPoDs with the nodes that fit.

        Args:
            fits: ``bool[rows]``, one entry per row of the table.
            idle: ``int64[rows]``, idle chips of each row of the table; None if they are not needed.
        """
        self._settle()
        kept = fits[self._rows]
        rows, pods, racks = self._rows[kept], self._pods[kept], self._racks[kept]
        sub_healthy = self._table.level[rows] == NodeHealth.SUB_HEALTHY
        chips = None if idle is None else idle[rows]
        if sub_healthy.any():
            return pool_of(self._ids, pods, rows, racks=racks, sub_healthy=sub_healthy, idle=chips)
        return CandidatePool(
            self._ids, running(np.bincount(pods, minlength=len(self._ids))), rows, racks, sub_healthy, chips
        )

    def places_of(self, nodes: Iterable[str]) -> list[tuple[str, int]]:
        """SuperPoD and rack (-1 if unknown) of each node in a SuperPoD."""
        table = self._table
        rows = [row for node in nodes if (row := table.row_of.get(node)) is not None]
        return [
            (table.superpods[superpod], rack_number(table.racks[rack]) if rack >= 0 else _NO_RACK)
            for superpod, rack in zip(table.superpod[rows].tolist(), table.rack[rows].tolist(), strict=True)
            if superpod >= 0
        ]

    def _settle(self) -> None:
        table = self._table
        if self._revision == table.layout_revision:
            return
        self._revision = table.layout_revision
        view = table.view()
        rows = np.flatnonzero(table.present[view] & (table.superpod[view] >= 0))
        used = sorted(np.unique(table.superpod[rows]).tolist(), key=lambda index: group_key(table.superpods[index]))
        self._ids = [table.superpods[index] for index in used]
        place = np.full(len(table.superpods) + 1, -1, np.int64)
        place[used] = np.arange(len(used))
        pods = place[table.superpod[rows]]
        numbers = np.array([*map(rack_number, table.racks), _NO_RACK], np.int64)
        racks = numbers[table.rack[rows]]  # -1 is the last
        leaves = np.array([*_order(table.leaves), -1], np.int64)[table.leaf[rows]]
        order = np.lexsort((table.ranks()[rows], table.position[rows], leaves, racks, pods))
        self._rows, self._pods, self._racks = rows[order], pods[order], racks[order]
        self._sizes = np.bincount(self._pods, minlength=len(self._ids))


def _order(names: list[str]) -> list[int]:
    """Rank of each name in the sorted names."""
    place = {name: index for index, name in enumerate(sorted(names))}
    return [place[name] for name in names]
