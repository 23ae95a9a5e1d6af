"""Pods with chips of a gang with switch or SuperPoD affinity: one plan gives all of them their nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang, first_planned, planned_shapes
from berth.core.placement.constrained_pods import ConstrainedPods
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.round_refusals import RoundRefusals
from berth.core.placement.scoring import Candidates
from berth.core.placement.single_pods import SinglePods
from berth.core.placement.superpod_placement import BlockRound
from berth.core.placement.switch_placement import LeafRound, code_of
from berth.core.state.superpod_index import BlockInputs
from berth.core.topologies.switches.demand import is_by_leaf
from berth.core.topologies.switches.occupancy.leaf_states import LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import Grid, LeafTable
from berth.core.topologies.switches.planner import Plan
from berth.schemas.offers import Shape
from berth.schemas.placement import Groups, Placement
from berth.schemas.refusal import BlockLack, Code, Refusal


class PlannedRows(NamedTuple):
    """Rows of the planned pods in rank order, and what the placement records of the plan. Empty for other gangs."""

    rows: Sequence[int] = ()
    groups: Sequence[Groups] = ()


class PlannedPods:
    """Plans gangs with affinity, on the nodes that the round has left.

    Args:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        refusals: Refusals of gangs that find no room.
        leaves: Leaf switches and the jobs on them.
        blocks: SuperPoDs, trees of levels, and the jobs on them.
        by_name: Rows that names leave to a shape that names nodes.

    Attributes:
        leaves: Leaf switches, the placements of the round included.
        blocks: SuperPoDs and trees of levels, the placements of the round included.
    """

    def __init__(
        self,
        nodes: RoundNodes,
        views: Mapping[Shape, Candidates],
        refusals: RoundRefusals,
        *,
        leaves: tuple[LeafTable, LeafOccupancy],
        blocks: BlockInputs,
        by_name: Callable[[Shape], Fits],
    ) -> None:
        self._nodes = nodes
        self._by_name = by_name
        self._views = views
        self._refusals = refusals
        self.leaves = LeafRound(nodes, *leaves)
        self.blocks = BlockRound(nodes, blocks)

    def plan(self, gang: Gang, missing: Sequence[int], *, allowed: Fits | None = None) -> PlannedRows | Refusal:
        """Nodes of all planned pods of a gang, or why there is no plan.

        Args:
            gang: The gang.
            missing: Shards that did not answer.
            allowed: Rows that constraints leave to it, shape (rows,); None for all.
        """
        demand = gang.demand
        if demand is None:
            return PlannedRows()
        return (self._plan_by_leaf if is_by_leaf(demand) else self._plan_blocks)(gang, missing, allowed)

    def note(self, gang: Gang, placement: Placement, *, replaces: bool = False) -> None:
        """Count a placed gang, or new places of some of its pods, in the plans of the next ones."""
        self.leaves.note((gang.uid, gang.attempt), placement, replaces=replaces)
        self.blocks.note(gang, placement)

    def usable_places(self, shapes: Sequence[Shape], allowed: Fits | None) -> Grid:
        """Places below leaf switches that can take a pod of each of some shapes, shape (leaves, places).

        Args:
            shapes: The shapes.
            allowed: Rows that constraints leave to them, shape (rows,); None for all.
        """
        grids = [self.leaves.usable(shape, self._views[shape.offered].fits) for shape in shapes]
        grids += map(self.leaves.places_of, self._allowed(shapes, allowed))
        found: Grid = np.logical_and.reduce(grids)
        return found

    def usable_rows(self, shapes: Sequence[Shape], allowed: Fits | None) -> Fits:
        """Rows that can take a pod of each of some shapes, shape (rows,); ``allowed`` as above."""
        fits = [self.blocks.usable(shape, self._views[shape.offered].fits) for shape in shapes]
        found: Fits = np.logical_and.reduce([*fits, *self._allowed(shapes, allowed)])
        return found

    def _allowed(self, shapes: Sequence[Shape], allowed: Fits | None) -> Iterator[Fits]:
        """Rows that constraints leave to some shapes, and rows that names leave to those that name nodes."""
        if allowed is not None:
            yield allowed
        yield from (self._by_name(shape) for shape in shapes if shape.names_nodes)

    def support_warning(self, gang: Gang) -> str:
        """What the switch policy does not support of a gang; empty for a supported gang or without leaf switches."""
        return self.leaves.warning(gang) if len(self.leaves.leaves) else ""

    def _plan_by_leaf(self, gang: Gang, missing: Sequence[int], allowed: Fits | None) -> PlannedRows | Refusal:
        index = first_planned(gang)
        if not len(self.leaves.leaves):
            return msgspec.structs.replace(self._refusals.no_room(gang, index, 0, missing), code="no-topology")
        found = self.leaves.plan(gang, self.usable_places(planned_shapes(gang), allowed))
        if isinstance(found, Plan):
            return PlannedRows(self.leaves.rows_of(found.cells), [self.leaves.part(gang, found).groups])
        refusal = self._refusals.no_room(gang, index, 0, missing)
        code = code_of(found.lack) if refusal.code == "no-room" else refusal.code
        return msgspec.structs.replace(refusal, code=code, switch=found.lack)

    def _plan_blocks(self, gang: Gang, missing: Sequence[int], allowed: Fits | None) -> PlannedRows | Refusal:
        fits = self.usable_rows(planned_shapes(gang), allowed)
        found = self.blocks.plan(gang, fits)
        if isinstance(found, BlockLack):
            refusal = self._refusals.no_room(gang, first_planned(gang), 0, missing)
            code: Code = "no-blocks" if refusal.code == "no-room" else refusal.code
            return msgspec.structs.replace(refusal, code=code, blocks=found)
        return PlannedRows(found.rows, [found.part.groups])


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
