"""Rows that have the place which blocks need: a SuperPoD, and a rack for pods in racks."""

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.model import rack_number
from berth.core.topologies.port import Places
from berth.schemas.offers import Demand


class SuperpodPlaces(Places):
    """Rows in a SuperPoD."""

    def lost(self, table: NodeTable, demand: Demand) -> Fits | None:  # noqa: ARG002  # the port has it
        """Rows without a SuperPoD, shape (rows,)."""
        found: Fits = table.superpod[table.view()] < 0
        return found

    def has(self, table: NodeTable, demand: Demand, row: int) -> bool:  # noqa: ARG002  # the port has it
        """Whether one row has a SuperPoD."""
        return bool(table.superpod.item(row) >= 0)


class RackPlaces(Places):
    """Rows in a SuperPoD, and in a rack of it that has a number."""

    def __init__(self) -> None:
        self._has_number: Fits = np.empty(0, np.bool_)

    def lost(self, table: NodeTable, demand: Demand) -> Fits | None:  # noqa: ARG002  # the port has it
        """Rows without one of the two, shape (rows,)."""
        rows = table.view()
        found: Fits = (table.superpod[rows] < 0) | ~self._racked(table)[table.rack[rows]]  # -1 is the last
        return found

    def has(self, table: NodeTable, demand: Demand, row: int) -> bool:  # noqa: ARG002  # the port has it
        """Whether one row has both."""
        return bool(table.superpod.item(row) >= 0 and self._racked(table)[table.rack[row]])

    def _racked(self, table: NodeTable) -> Fits:
        """Whether each rack has a number, shape (racks + 1,); the last entry, for nodes in no rack, is false."""
        names = table.racks
        if len(self._has_number) != len(names) + 1:
            self._has_number = np.array([*(rack_number(name) >= 0 for name in names), False], np.bool_)
        return self._has_number
