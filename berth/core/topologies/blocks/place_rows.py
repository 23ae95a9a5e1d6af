"""Rows that have the place which blocks need: a SuperPoD, and a rack for pods in racks; and rows by such a place."""

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.parity import differs
from berth.core.topologies.blocks.demand import blocks_of
from berth.core.topologies.blocks.model import rack_number
from berth.core.topologies.planning import Areas
from berth.core.topologies.port import Places
from berth.schemas.ledger import Settings
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


def superpod_areas(table: NodeTable, demand: Demand | None, settings: Settings) -> Areas:
    """Rows by SuperPoD; a block that is never split is in one of them."""
    blocks = blocks_of(demand)
    whole = blocks.size if blocks is not None and _is_hard(demand, settings) else 1
    return Areas("superpod", table.superpods, table.superpod[table.view()].astype(np.int64), whole)


def rack_areas(table: NodeTable, demand: Demand | None, settings: Settings) -> Areas:
    """Rows by rack of a SuperPoD; the part of a block that is never split is in one of them."""
    view = table.view()
    superpods, racks = table.superpod[view].astype(np.int64), table.rack[view].astype(np.int64)
    key = np.where((superpods < 0) | (racks < 0), -1, superpods * (len(table.racks) + 1) + racks)
    keys, of_row = np.unique(key, return_inverse=True)
    has_none = int(len(keys) > 0 and keys[0] < 0)
    names = [
        f"{table.superpods[one // (len(table.racks) + 1)]}/{table.racks[one % (len(table.racks) + 1)]}"
        for one in keys[has_none:].tolist()
    ]
    blocks = blocks_of(demand)
    whole = blocks.rack_size if blocks is not None and _is_hard(demand, settings) else 1
    return Areas("rack", names, of_row.astype(np.int64) - has_none, max(whole, 1))


def _is_hard(demand: Demand | None, settings: Settings) -> bool:
    """Whether blocks are never split."""
    blocks = blocks_of(demand)
    if blocks is None or not differs(settings).whole_blocks:
        return False
    return not (blocks.soft or blocks.service or blocks.mindie)
