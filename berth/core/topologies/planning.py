"""What a round asks of a topology: one plan for all planned pods of a gang, and new places for those that leave."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.gangs import Gang
from berth.core.pod_shares import PodShare
from berth.core.topologies.layouts import NO_LAYOUTS, Layouts, WaitingGang
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.schemas.facts import TopologySeen
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Groups, Placement
from berth.schemas.refusal import Code, Refusal

AreaKind = Literal["leaf", "superpod", "rack", "group"]


class HeldJob(NamedTuple):
    """A placed attempt, as indexes count it.

    Attributes:
        placement: Its placement.
        pods: What each of its ranks owns now.
        reserved: Places that are reserved for ranks, each with the placement of its step and the rank in that.
        gone: Ranks that have given back what they owned.
        is_part: Its other pods, if any, are recorded as jobs of their own.
        running: Pods that run, as far as some index follows them.
    """

    placement: Placement
    pods: Sequence[PodShare]
    reserved: Sequence[tuple[PodShare, Placement, int]]
    gone: Sequence[int]
    is_part: bool
    running: int


class Index:
    """What a topology keeps of the nodes of a cell from round to round."""

    def fork(self, table: NodeTable) -> "Index":  # noqa: ARG002  # topologies have it
        """The same for a copy of the table."""
        return self

    @property
    def counts_jobs(self) -> bool:
        """Whether it counts placed jobs: where they are decides what a gang gets."""
        return False

    @property
    def follows_pods(self) -> bool:
        """Whether pods of a job count by their progress, not from the decision on."""
        return False

    def placed(self, placement: Placement) -> Any:  # noqa: ANN401, ARG002  # as each topology counts it
        """A new placement as it counts it."""
        return None

    def held(self, job: HeldJob) -> Any:  # noqa: ANN401, ARG002
        """A placed job as it counts it."""
        return None

    def set(self, key: tuple[str, int], job: Any) -> bool:  # noqa: ANN401, ARG002
        """Count an attempt, or no more (None); returns whether it may leave room for more jobs than before."""
        return False

    def learn(self, fact: TopologySeen) -> bool:  # noqa: ARG002
        """Take a valid fact; returns whether all jobs have to be counted anew."""
        return False

    def heed(self, settings: Settings) -> bool:  # noqa: ARG002
        """Follow the settings of an epoch; returns whether all jobs have to be counted anew."""
        return False

    def group_names(self) -> Sequence[str]:
        """Names of its groups, where a fact of its own says them."""
        return ()

    def group_of(self, node: str) -> int:  # noqa: ARG002
        """Index of the group of a node in these names; -1 for none."""
        return -1

    def oversized(self, settings: Settings) -> Sequence[str]:  # noqa: ARG002  # as above
        """Groups with more nodes than the settings say, in their order."""
        return ()


class Colocation(NamedTuple):
    """Nodes of jobs near which other jobs may be placed.

    Attributes:
        of_placed: Nodes of the jobs whose placements are such.
        of_labels: Nodes of the jobs that have all of some labels.
        of_job: Nodes of the job with a namespace and a name.
    """

    of_placed: Callable[[Callable[[Placement], bool]], list[str]] = lambda _is_such: []
    of_labels: Callable[[Mapping[str, str]], list[str]] = lambda _labels: []
    of_job: Callable[[str, str], list[str]] = lambda _namespace, _name: []


NO_JOBS = Colocation()


class PlacedGang(NamedTuple):
    """A gang that the round has placed, or some of its pods.

    Attributes:
        key: The attempt.
        labels: Labels of the job.
        placement: The new places.
        replaces: They are for pods of a placed gang, which is on its old nodes too until the pods have left them.
    """

    key: tuple[str, int]
    labels: Mapping[str, str]
    placement: Placement
    replaces: bool


class Ground(NamedTuple):
    """What a topology sees of a round.

    Attributes:
        table: Nodes before the round.
        columns: Nodes as the round leaves them.
        settings: Settings of the epoch.
        colocation: Nodes of jobs that were placed before the round.
        placed: What the round has placed so far, in that order.
    """

    table: NodeTable
    columns: Callable[[], NodeTable]
    settings: Settings
    colocation: Colocation
    placed: Sequence[PlacedGang]


class Planned(NamedTuple):
    """Rows of the planned pods in rank order, and what the placement records of the plan. Empty for other gangs."""

    rows: Sequence[int] = ()
    groups: Sequence[Groups] = ()


class Replaced(NamedTuple):
    """Row of each planned pod that leaves, by rank, and what the new places record of the plan."""

    rows: Mapping[int, int] = {}
    groups: Sequence[Groups] = ()


class Areas(NamedTuple):
    """Groups of nodes of one kind, in each of which all pods of a gang could be planned if it is large enough.

    Attributes:
        kind: What a group is.
        names: Names of the groups, in their order.
        of_row: Group of each row, shape (rows,); -1 for none.
        whole: So many planned pods of the gang must be together in one of them.
    """

    kind: AreaKind
    names: Sequence[str]
    of_row: Rows
    whole: int = 1


class Lack(NamedTuple):
    """Why there is no plan.

    Attributes:
        code: Code of the refusal.
        fields: Fields of the refusal that say what is missing, by name.
        ranks: Ranks that keep their places and would have to leave as well, ascending.
        is_first: It is so whatever else keeps the gang from its nodes.
    """

    code: Code
    fields: Mapping[str, object] = {}
    ranks: Sequence[int] = ()
    is_first: bool = False

    def of(self, refusal: Refusal) -> Refusal:
        """A refusal for lack of room with what is missing."""
        code = self.code if self.is_first or refusal.code == "no-room" else refusal.code
        return msgspec.structs.replace(refusal, code=code, **self.fields)


class TopologyRound:
    """A topology during a round. What one does not define has a neutral answer."""

    def plan(self, gang: Gang, usable: Fits) -> Planned | Lack:
        """Plan all pods with chips of a gang.

        Args:
            gang: The gang.
            usable: Rows that can take any of its pods, shape (rows,).
        """
        raise NotImplementedError

    def replace(self, leaving: LeavingPods, own: OwnPlaces, usable: Fits) -> Replaced | Lack:
        """New places of the planned pods that leave, or what is missing.

        Args:
            leaving: The leaving pods.
            own: Places of the gang.
            usable: Rows that can take any of the pods, shape (rows,).
        """
        raise NotImplementedError

    def beside(self, demand: Demand, row: int) -> Fits | None:  # noqa: ARG002  # topologies have it; so below
        """Rows for a second place of a pod, shape (rows,), from the row of its place; None for all.

        Args:
            demand: What its gang demands.
            row: Its row; -1 for an unknown node.
        """
        return None

    def unsupported(self, gang: Gang) -> Refusal | None:  # noqa: ARG002
        """Refusal of a gang that the topology places and does not support; None if it supports it."""
        return None

    def explain_placed(
        self,
        gang: Gang,  # noqa: ARG002
        placement: Placement,  # noqa: ARG002
        usable: Fits,  # noqa: ARG002
        *,
        is_current: bool,  # noqa: ARG002
    ) -> tuple[Layouts, bool]:
        """Groups of a placement, and whether planning again gives it again.

        Args:
            gang: The gang.
            placement: Its placement.
            usable: Rows that could take any of its planned pods before it took anything, shape (rows,).
            is_current: The state is the current one, not that of the decision.
        """
        return NO_LAYOUTS, True

    def explain_waiting(self, asked: WaitingGang) -> Layouts:  # noqa: ARG002
        """The groups with most usable nodes for a waiting gang."""
        return NO_LAYOUTS

    def take_back(self, last: PlacedGang) -> None:
        """Note that the last of what the round has placed is placed no more."""
