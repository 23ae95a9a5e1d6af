"""Pods with chips of a gang with switch or SuperPoD affinity: one plan gives all of them their nodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang, first_planned, planned_shapes
from berth.core.placement.constrained_pods import ConstrainedPods
from berth.core.placement.round_nodes import RoundNodes, TouchedMarks
from berth.core.placement.round_refusals import RoundRefusals
from berth.core.placement.scoring import Candidates
from berth.core.placement.single_pods import SinglePods
from berth.core.topologies.planning import Colocation, Ground, Index, PlacedGang, Planned, TopologyRound
from berth.core.topologies.registry import begun
from berth.schemas.offers import Demand, Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import Refusal

_NOTHING = Planned()


class PlannedPods:
    """Plans gangs with affinity, on the nodes that the round has left.

    Args:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        refusals: Refusals of gangs that find no room.
        indexes: What topologies keep of the nodes, by name of the index.
        colocation: Nodes of jobs that were placed before the round.
        by_name: Rows that names leave to a shape that names nodes.
    """

    def __init__(
        self,
        nodes: RoundNodes,
        views: Mapping[Shape, Candidates],
        refusals: RoundRefusals,
        *,
        indexes: Mapping[str, Index],
        colocation: Colocation,
        by_name: Callable[[Shape], Fits],
    ) -> None:
        scorer = nodes.scorer
        self._nodes = nodes
        self._by_name = by_name
        self._views = views
        self._refusals = refusals
        self._indexes = indexes
        self._placed: list[PlacedGang] = []
        self._ground = Ground(scorer.table, nodes.columns, scorer.settings, colocation, self._placed)
        self._rounds: dict[str, TopologyRound] = {}
        self._usable = TouchedMarks(nodes)

    def of(self, demand: Demand) -> TopologyRound:
        """The topology that a demand names, the placements of the round included."""
        found = self._rounds.get(demand.topology)
        if found is None:
            found = self._rounds[demand.topology] = begun(demand, self._ground, self._indexes)
        return found

    def plan(self, gang: Gang, missing: Sequence[int], *, allowed: Fits | None = None) -> Planned | Refusal:
        """Nodes of all planned pods of a gang, or why there is no plan.

        Args:
            gang: The gang.
            missing: Shards that did not answer.
            allowed: Rows that constraints leave to it, shape (rows,); None for all.
        """
        demand = gang.demand
        if demand is None:
            return _NOTHING
        found = self.of(demand).plan(gang, self.usable(planned_shapes(gang), allowed))
        if isinstance(found, Planned):
            return found
        return found.of(self._refusals.no_room(gang, first_planned(gang), 0, missing))

    def add(self, gang: Gang, placement: Placement, *, replaces: bool = False) -> None:
        """Count a placed gang, or new places of some of its pods, in the plans of the next ones."""
        self._placed.append(PlacedGang((gang.uid, gang.attempt), gang.labels, placement, replaces))
        self._nodes.note(self._take_back)

    def _take_back(self) -> None:
        last = self._placed.pop()
        for one in self._rounds.values():
            one.take_back(last)

    def usable(self, shapes: Sequence[Shape], allowed: Fits | None) -> Fits:
        """Rows that can take a pod of each of some shapes, shape (rows,).

        Args:
            shapes: The shapes.
            allowed: Rows that constraints leave to them, shape (rows,); None for all.
        """
        marks = [self._marks(shape) for shape in shapes]
        if allowed is not None:
            marks.append(allowed)
        marks += (self._by_name(shape) for shape in shapes if shape.names_nodes)
        found: Fits = np.logical_and.reduce(marks)
        return found

    def _marks(self, shape: Shape) -> Fits:
        """Rows that can take a pod of a shape, shape (rows,); none when no shard answered."""
        offered = self._views[shape.offered].fits
        if offered is None:
            return np.zeros(len(self._nodes.scorer.table), np.bool_)
        return self._usable.now(shape, offered)


class RoundParts(NamedTuple):
    """What new places for pods of placed gangs are chosen from.

    Attributes:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        counts: How many candidates were asked for, by shape.
        single: Best node for one more pod, all nodes considered.
        refusals: Refusals of pods that find no room.
        planned: Plans of gangs with affinity.
        marked: Best node for one more pod whose nodes are marked.
        returned: Returns everything that the current gang has taken, because of an error; gives the refusal.
    """

    nodes: RoundNodes
    views: Mapping[Shape, Candidates]
    counts: Mapping[Shape, int]
    single: SinglePods
    refusals: RoundRefusals
    planned: PlannedPods
    marked: ConstrainedPods
    returned: Callable[[Gang, Exception], Refusal]
