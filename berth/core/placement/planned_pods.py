"""Pods with chips of a gang with switch or SuperPoD affinity: one plan gives all of them their nodes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.round_refusals import RoundRefusals
from berth.core.placement.scoring import Candidates
from berth.core.placement.superpod_placement import BlockRound
from berth.core.placement.switch_placement import LeafRound, code_of
from berth.core.requests.gangs import Gang
from berth.core.state.superpod_index import BlockInputs
from berth.core.switches.occupancy.leaf_states import LeafOccupancy
from berth.core.switches.occupancy.leaf_table import LeafTable
from berth.core.switches.planner import Plan
from berth.schemas.offers import Shape
from berth.schemas.placement import BlockPart, Placement, SwitchPart
from berth.schemas.refusal import BlockLack, Code, Refusal


class PlannedRows(NamedTuple):
    """Rows of the planned pods in rank order, and what the placement records of the plan. Empty for other gangs."""

    rows: Sequence[int] = ()
    switch: SwitchPart | None = None
    block: BlockPart | None = None


class PlannedPods:
    """Plans gangs with affinity, on the nodes that the round has left.

    Args:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        refusals: Refusals of gangs that find no room.
        leaves: Leaf switches and the jobs on them.
        blocks: SuperPoDs, trees of levels, and the jobs on them.
    """

    def __init__(
        self,
        nodes: RoundNodes,
        views: Mapping[Shape, Candidates],
        refusals: RoundRefusals,
        *,
        leaves: tuple[LeafTable, LeafOccupancy],
        blocks: BlockInputs,
    ) -> None:
        self._nodes = nodes
        self._views = views
        self._refusals = refusals
        self._leaves = LeafRound(nodes.scorer, *leaves)
        self._blocks = BlockRound(nodes.scorer, blocks)

    def plan(self, gang: Gang, missing: Sequence[int], *, allowed: Fits | None = None) -> PlannedRows | Refusal:
        """Nodes of all planned pods of a gang, or why there is no plan.

        Args:
            gang: The gang.
            missing: Shards that did not answer.
            allowed: Rows that constraints leave to it, shape (rows,); None for all.
        """
        if gang.tor_affinity:
            return self._plan_by_leaf(gang, missing, allowed)
        return self._plan_blocks(gang, missing, allowed) if gang.blocks is not None else PlannedRows()

    def note(self, gang: Gang, placement: Placement) -> None:
        """Count a placed gang in the plans of the next ones."""
        self._leaves.note(gang, placement)
        self._blocks.note(gang, placement)

    def support_warning(self, gang: Gang) -> str:
        """What the switch policy does not support of a gang; empty for a supported gang or without leaf switches."""
        return self._leaves.warning(gang) if len(self._leaves.leaves) else ""

    def _plan_by_leaf(self, gang: Gang, missing: Sequence[int], allowed: Fits | None) -> PlannedRows | Refusal:
        index = first_planned(gang)
        if not len(self._leaves.leaves):
            return msgspec.structs.replace(self._refusals.no_room(gang, index, 0, missing), code="no-topology")
        log, state_of = self._nodes.log, self._nodes.states.__getitem__
        grids = [self._leaves.usable(shape, self._views[shape].usable, log, state_of) for shape in planned_shapes(gang)]
        if allowed is not None:
            grids.append(self._leaves.places_of(allowed))
        found = self._leaves.plan(gang, np.logical_and.reduce(grids))
        if isinstance(found, Plan):
            return PlannedRows(self._leaves.rows(found), switch=self._leaves.part(gang, found))
        refusal = self._refusals.no_room(gang, index, 0, missing)
        code = code_of(found.lack) if refusal.code == "no-room" else refusal.code
        return msgspec.structs.replace(refusal, code=code, switch=found.lack)

    def _plan_blocks(self, gang: Gang, missing: Sequence[int], allowed: Fits | None) -> PlannedRows | Refusal:
        log, state_of = self._nodes.log, self._nodes.states.__getitem__
        fits = [self._blocks.usable(shape, self._views[shape].fits, log, state_of) for shape in planned_shapes(gang)]
        if allowed is not None:
            fits.append(allowed)
        found = self._blocks.plan(gang, np.logical_and.reduce(fits), self._nodes.states)
        if isinstance(found, BlockLack):
            refusal = self._refusals.no_room(gang, first_planned(gang), 0, missing)
            code: Code = "no-blocks" if refusal.code == "no-room" else refusal.code
            return msgspec.structs.replace(refusal, code=code, blocks=found)
        return PlannedRows(found.rows, block=found.part)


def first_planned(gang: Gang) -> int:
    """Index of the first task whose pods are planned together."""
    return next(index for index, (shape, _) in enumerate(gang.request_class) if shape.is_planned)


def planned_shapes(gang: Gang) -> list[Shape]:
    """Distinct shapes of the pods that are planned together."""
    return list(dict.fromkeys(shape for shape, _ in gang.request_class if shape.is_planned))
