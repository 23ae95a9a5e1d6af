"""Use of nodes for a timeline, from the columns of a cell: chips in use, and spans of placements."""

import numpy as np

from berth.core.cluster.node_table import NodeTable
from berth.core.simulation.statistics import OUT
from berth.core.topologies.planning import Index
from berth.schemas.facts import NodeHealth
from berth.schemas.placement import Placement


class Use:
    """Chips in use, by node and in total."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._revision = -1
        self._totals = (0, 0)

    def totals(self) -> tuple[int, int]:
        """Healthy chips of present nodes, and how many of them are in use."""
        table = self._table
        if self._revision != table.revision:
            self._revision = table.revision
            rows = table.view()
            healthy = (table.chips[rows] & ~table.unhealthy[rows]) * table.present[rows]
            used = (table.used[rows] | table.releasing[rows]) & healthy
            self._totals = int(np.bitwise_count(healthy).sum()), int(np.bitwise_count(used).sum())
        return self._totals

    def by_row(self) -> bytes:
        """One byte for each row: chips in use; ``OUT`` for a node that takes no work."""
        table = self._table
        rows = table.view()
        used = np.bitwise_count((table.used[rows] | table.releasing[rows]) & table.chips[rows])
        open_ = [key.ready and not key.cordoned for key in table.classes] or [True]
        takes = table.present[rows] & (table.level[rows] < NodeHealth.NO_NEW_WORK)
        takes &= np.array(open_, np.bool_).take(table.node_class[rows], mode="wrap")
        return np.where(takes, used, OUT).astype(np.uint8).tobytes()


class Spans:
    """Spans of placements over leaf switches and SuperPoDs, and the smallest possible spans."""

    def __init__(self, leaves: Index, table: NodeTable) -> None:
        self._leaves = leaves
        self._table = table
        self._layout: tuple[object, ...] = ()
        self._leaf_sizes: list[int] = []
        self._superpod_sizes: list[int] = []

    def of(self, placement: Placement) -> tuple[int, int, int, int, int]:
        """Nodes with chips; leaf switches and their smallest number; SuperPoDs and their smallest number."""
        self._settle()
        table, leaf_of = self._table, self._leaves.group_of
        parts = zip(placement.names(), placement.chips_by_rank(), strict=True)
        nodes = list(dict.fromkeys(name for name, chips in parts if chips))
        leaves = [leaf for name in nodes if (leaf := leaf_of(name)) >= 0]
        superpods = [pod for name in nodes if (pod := int(table.superpod[table.row(name)])) >= 0]
        return (
            len(nodes),
            len(set(leaves)),
            _fewest(self._leaf_sizes, len(leaves)),
            len(set(superpods)),
            _fewest(self._superpod_sizes, len(superpods)),
        )

    def _settle(self) -> None:
        """Count the nodes of leaves and SuperPoDs after a change."""
        layout = (id(self._leaves.group_names()), self._table.layout_revision)
        if layout == self._layout:
            return
        self._layout = layout
        rows = np.flatnonzero(self._table.present[self._table.view()])
        above = [leaf for row in rows.tolist() if (leaf := self._leaves.group_of(self._table.names[row])) >= 0]
        self._leaf_sizes = _sizes(above)
        self._superpod_sizes = _sizes([pod for pod in self._table.superpod[rows].tolist() if pod >= 0])


def _sizes(groups: list[int]) -> list[int]:
    """Sizes of the groups, largest first."""
    return sorted(filter(None, np.bincount(np.array(groups, np.int64)).tolist()), reverse=True)


def _fewest(sizes: list[int], nodes: int) -> int:
    """Smallest number of groups that hold ``nodes`` nodes; all groups if they do not."""
    for count, size in enumerate(sizes, 1):
        if not nodes:
            return count - 1
        nodes -= min(nodes, size)
    return len(sizes)
