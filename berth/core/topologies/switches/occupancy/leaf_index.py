"""Leaf switches of a cell and the jobs on them, as rounds get them."""

from berth.core.topologies.planning import Index
from berth.core.topologies.switches.occupancy.leaf_states import LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable


class LeafIndex(Index):
    """Leaf switches and the jobs on them; without arguments, none are known.

    Args:
        leaves: The leaf switches.
        occupancy: Jobs on them; None for none.
    """

    def __init__(self, leaves: LeafTable | None = None, occupancy: LeafOccupancy | None = None) -> None:
        self.leaves = LeafTable() if leaves is None else leaves
        self.occupancy = LeafOccupancy(self.leaves) if occupancy is None else occupancy
