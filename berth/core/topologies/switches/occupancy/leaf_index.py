"""Leaf switches of a cell and the jobs on them, as rounds get them."""

from collections.abc import Mapping

from berth.core.cluster.node_packing import SWITCHES as KIND
from berth.core.cluster.node_table import NodeTable
from berth.core.copies import copied
from berth.core.parity import differs
from berth.core.topologies.planning import HeldJob, Index
from berth.core.topologies.switches.demand import SWITCHES
from berth.core.topologies.switches.occupancy.leaf_states import LeafJob, LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable, leaf_table
from berth.core.topologies.switches.occupancy.placed_jobs import held_job, placed_job
from berth.schemas.facts import TopologySeen
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement


class LeafIndex(Index):
    """Leaf switches and the jobs on them; without arguments, none are known.

    Args:
        leaves: The leaf switches.
        occupancy: Jobs on them; None for none.
    """

    def __init__(self, leaves: LeafTable | None = None, occupancy: LeafOccupancy | None = None) -> None:
        self.leaves = LeafTable() if leaves is None else leaves
        self.occupancy = LeafOccupancy(self.leaves) if occupancy is None else occupancy
        self._layout: tuple[object, ...] | None = None

    def fork(self, table: NodeTable) -> "LeafIndex":  # noqa: ARG002  # the port has it
        """A copy that is changed alone."""
        return copied(self, occupancy=self.occupancy.fork())

    @property
    def counts_jobs(self) -> bool:
        """Whether leaf switches are known."""
        return bool(len(self.leaves))

    @property
    def follows_pods(self) -> bool:
        """Whether the progress of pods decides what counts (without the decision busy-from-decision)."""
        return self.occupancy.follows_pods

    def placed(self, placement: Placement) -> LeafJob:
        """Job on leaf switches of a new placement."""
        return placed_job(placement)

    def held(self, job: HeldJob) -> LeafJob:
        """Job on leaf switches of a placed attempt."""
        return held_job(job, follows_pods=self.follows_pods)

    def set(self, key: tuple[str, int], job: LeafJob | None) -> bool:
        """Count an attempt, or no more; returns whether some leaf may be open to more jobs than before."""
        return self.occupancy.set(key, job)

    def learn(self, fact: TopologySeen) -> bool:
        """Take other leaf switches, on which no job is counted yet; false if they are the same."""
        layout = (fact.leaves, fact.level, fact.places)
        if fact.kind != KIND or layout == self._layout:
            return False
        self._layout = layout
        self.leaves = leaf_table(fact)
        self.occupancy = LeafOccupancy(self.leaves, self.occupancy.differs)
        return True

    def heed(self, settings: Settings) -> bool:
        """Count as the settings have it; false if that is as before."""
        if differs(settings) is self.occupancy.differs:
            return False
        self.occupancy = LeafOccupancy(self.leaves, differs(settings))
        return True

    def group_names(self) -> list[str]:
        """Names of the leaf switches."""
        return self.leaves.names

    def group_of(self, node: str) -> int:
        """Index of the leaf switch above a node; -1 if it is not known."""
        return self.leaves.leaf_of(node)


def leaf_index_of(indexes: Mapping[str, Index]) -> LeafIndex:
    """The leaf switches of a cell."""
    index = indexes[SWITCHES]
    return index if isinstance(index, LeafIndex) else LeafIndex()
