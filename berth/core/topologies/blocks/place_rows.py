"""Rows that have the place in the topology which a shape needs: a SuperPoD, and a rack for pods in racks."""

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.model import rack_number
from berth.schemas.offers import Shape


class PlaceRows:
    """Places of the rows of a table, and of its copies with the same topology."""

    def __init__(self) -> None:
        self._has_number: Fits = np.empty(0, np.bool_)

    def lost(self, table: NodeTable, shape: Shape) -> Fits | None:
        """Rows without the place, shape (rows,); None if the shape needs none."""
        blocks = shape.blocks
        if blocks is None or blocks.levels:
            return None
        rows = table.view()
        lost: Fits = table.superpod[rows] < 0
        if blocks.rack_size:
            lost |= ~self._racked(table)[table.rack[rows]]  # -1 is the last
        return lost

    def has(self, table: NodeTable, shape: Shape, row: int) -> bool:
        """Whether one row has it; as :meth:`lost`."""
        blocks = shape.blocks
        if blocks is None or blocks.levels:
            return True
        has_superpod = table.superpod.item(row) >= 0
        return bool(has_superpod and (not blocks.rack_size or self._racked(table)[table.rack[row]]))

    def _racked(self, table: NodeTable) -> Fits:
        """Whether each rack has a number, shape (racks + 1,); the last entry, for nodes in no rack, is false."""
        names = table.racks
        if len(self._has_number) != len(names) + 1:
            self._has_number = np.array([*(rack_number(name) >= 0 for name in names), False], np.bool_)
        return self._has_number
