"""What is asked of a topology. Each answers for itself in a folder of its own; ``registry`` has them all."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.job_topology import JobTopology
from berth.core.topologies.layouts import Layouts, Seat, UnfitWords
from berth.core.topologies.leaving import Together
from berth.core.topologies.maps import DrawnCell, Maps
from berth.core.topologies.planning import Areas, Ground, Index, TopologyRound
from berth.schemas.facts import PodsSeen, TopologySeen
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Groups, Placement, Run
from berth.schemas.refusal import Code, NodeReason, Refusal


class FoundPods(NamedTuple):
    """Pods that another scheduler placed.

    Attributes:
        table: The nodes.
        fact: The pods.
        nodes: Node of each of them.
        runs: What each of them has.
    """

    table: NodeTable
    fact: PodsSeen
    nodes: Sequence[str]
    runs: Sequence[Run]


class Places:
    """Places of the rows of a table, and of its copies with the same topology. By default each row has one."""

    def lost(self, table: NodeTable, demand: Demand) -> Fits | None:  # noqa: ARG002  # topologies have it
        """Rows without a place, shape (rows,); None if the demand needs none."""
        return None

    def has(self, table: NodeTable, demand: Demand, row: int) -> bool:  # noqa: ARG002  # topologies have it
        """Whether one row has a place; as :meth:`lost`."""
        return True


AnyIndex = TypeVar("AnyIndex", bound=Index)


class Topology(JobTopology, Generic[AnyIndex]):
    """A topology. What one does not define has a neutral answer.

    Attributes:
        index_name: Name of what it keeps of the nodes; topologies with the same one share it.
        record_bytes_a_pod: Bytes of a record that each planned pod takes, in the usual case.
        heeds_jobs: Which jobs are in a group, not free nodes alone, decides what it takes.
        heeds_fewer_nodes: Fewer free nodes may help a gang.
        codes: Codes of refusals that are its own.
        keeps_groups: A gang that starts anew keeps its groups where they were, not each pod its node.
    """

    index_name: str = ""
    record_bytes_a_pod: int = 0
    heeds_jobs: bool = False
    heeds_fewer_nodes: bool = False
    codes: tuple[Code, ...] = ()
    keeps_groups: bool = False

    def settings_error(self, settings: Settings) -> str:  # noqa: ARG002  # topologies have it; so below
        """What is wrong with its settings; empty for nothing."""
        return ""

    def for_some(self, annotations: Mapping[str, str], chips: Sequence[int]) -> dict[str, str]:  # noqa: ARG002
        """Annotations that differ for some pods of a gang whose pods come in turn: sizes that are parts of its own.

        Args:
            annotations: Those of the gang.
            chips: Of the pods with chips that wait at the same time, of each; at least one.
        """
        return {}

    def summary(
        self,
        index: AnyIndex,  # noqa: ARG002  # topologies have it
        facts: Mapping[str, TopologySeen],  # noqa: ARG002  # as above
        settings: Settings,  # noqa: ARG002  # as above
        jobs_on: Callable[[str], list[str]],  # noqa: ARG002  # as above
    ) -> dict[str, str]:
        """What it tells other programs in the ConfigMap of topologies, by key; none without keys.

        Args:
            index: What it keeps of the nodes.
            facts: Newest facts about topologies, by kind.
            settings: Settings of the epoch.
            jobs_on: Names of the jobs on a node, sorted.
        """
        return {}

    def is_beside(self, demand: Demand | None) -> bool:  # noqa: ARG002  # topologies have it
        """Whether the plan of a gang depends on where certain other jobs run."""
        return False

    def places(self) -> Places:
        """Places of the rows of a table."""
        return Places()

    def index(self, table: NodeTable) -> AnyIndex:
        """What it keeps of the nodes of a table from round to round."""
        raise NotImplementedError

    def areas(
        self,
        table: NodeTable,
        index: AnyIndex,  # noqa: ARG002  # topologies have it
        demand: Demand | None,  # noqa: ARG002  # as above
        settings: Settings,  # noqa: ARG002  # as above
    ) -> list[Areas]:
        """Groups of nodes in which a gang with a demand could be planned, those of smaller groups first.

        Args:
            table: The nodes.
            index: What it keeps of them.
            demand: The demand; None for a gang without.
            settings: Settings of the epoch.
        """
        view = table.view()
        found = [
            Areas("leaf", table.leaves, table.leaf[view].astype(np.int64)),
            Areas("superpod", table.superpods, table.superpod[view].astype(np.int64)),
        ]
        return [areas for areas in found if areas.names]

    def begin(self, ground: Ground, index: AnyIndex) -> TopologyRound:
        """The topology during a round.

        Args:
            ground: What it sees of the round.
            index: What it keeps of the nodes.
        """
        raise NotImplementedError

    def class_reason(
        self,
        demand: Demand,  # noqa: ARG002  # topologies have it
        labels: Mapping[str, str],  # noqa: ARG002  # as above
        settings: Settings,  # noqa: ARG002  # as above
    ) -> NodeReason:
        """Why no node with some labels takes a pod."""
        return NodeReason.FITS

    def is_helped_by_loss(self, refusal: Refusal) -> bool | None:  # noqa: ARG002
        """Whether fewer free nodes may help a gang with a refusal; None if the refusal is not of its plan."""
        return None

    def together(self, demand: Demand, placement: Placement) -> Together:  # noqa: ARG002
        """Which planned pods of a placed gang belong together."""
        return Together()

    def adopted(self, found: FoundPods) -> Groups | None:  # noqa: ARG002
        """Groups of pods that another scheduler placed, by their annotations; None without any."""
        return None

    def maps(self, index: AnyIndex, cell: DrawnCell) -> Maps:  # noqa: ARG002  # topologies have it
        """What is drawn of it.

        Args:
            index: What it keeps of the nodes.
            cell: What it sees of the cell.
        """
        return Maps()

    def check_fact(self, fact: TopologySeen) -> None:
        """Check that a fact about its nodes is valid.

        Raises:
            DecodeError: The fact is invalid.
        """

    def lack_words(self, refusal: Refusal) -> str:  # noqa: ARG002  # topologies have it; so below
        """What a gang lacks by a refusal of one of its codes, as a sentence without a full stop; empty if unknown."""
        return ""

    def placed_lines(self, layouts: Layouts, *, form: str) -> list[str]:  # noqa: ARG002
        """Groups of a placed gang, one sentence for each entry.

        Args:
            layouts: What is said of topologies.
            form: Product form of the job.
        """
        return []

    def waiting_lines(self, layouts: Layouts, unfit_words: UnfitWords) -> list[str]:  # noqa: ARG002
        """What is missing for a waiting gang and the nearest groups, one sentence for each entry.

        Args:
            layouts: What is said of topologies.
            unfit_words: Words about nodes that do not fit.
        """
        return []

    def seats(self, placement: Placement) -> Sequence[Seat | None]:
        """Position of each rank; None for a rank that it did not plan."""
        return [None] * placement.pods()

    def seat_words(self, seat: Seat, layouts: Layouts) -> tuple[str, str] | None:  # noqa: ARG002
        """Position of a rank, as it follows its node, and the plan that gave it; None if it did not plan the rank."""
        return None
