"""Gangs with switch affinity in one round: leaf switches and their jobs, the placements of the round included."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.placement.round_nodes import RoundNodes, TouchedMarks
from berth.core.state.leaf_occupancy import moving_job, placed_job
from berth.core.topologies.switches.demand import label_of
from berth.core.topologies.switches.occupancy.leaf_states import LeafJob, LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import Grid, LeafTable
from berth.core.topologies.switches.placed import SwitchPart
from berth.core.topologies.switches.planner import Demand, LeafPool, NoPlan, Plan, is_annotated, plan, switch_rules
from berth.core.topologies.switches.support import unsupported
from berth.schemas.columns import pack
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import Code, SwitchLack

_CODES: Final[Mapping[str, Code]] = {
    "one-leaf": "no-leaf",
    "leaf-size": "no-leaf",
    "logical-switches": "no-rows",
    "idle-and-shared": "no-leaves",
    "any-leaf": "no-leaves",
    "open-places": "no-leaves",
    "shared-limit": "no-leaves",
    "own-leaves": "no-leaves",
}
_NONE: Final = -1


class LeafRound:
    """Leaf switches (ToR) during a round.

    Args:
        nodes: Nodes as the round leaves them.
        leaves: The leaf switches.
        occupancy: Jobs on them before the round; not changed.
    """

    def __init__(self, nodes: RoundNodes, leaves: LeafTable, occupancy: LeafOccupancy) -> None:
        self.leaves = leaves
        self.rules = switch_rules(nodes.scorer.settings, is_single_layer=leaves.is_single_layer)
        self._nodes = nodes
        self._scorer = nodes.scorer
        self._before = occupancy
        self._occupancy: LeafOccupancy | None = None
        self._placed: list[tuple[tuple[str, int], Placement, bool]] = []
        """Attempts of the round and their placements, and whether these are new places for some of its pods."""
        self._former: list[LeafJob | None] = []
        """For each of these that the occupancy has: the job before it."""
        cell_of, names = leaves.cell_of, nodes.scorer.table.names
        self._usable = TouchedMarks(nodes, lambda row: cell_of.get(names[row], -1))

    def note(self, key: tuple[str, int], placement: Placement, *, replaces: bool = False) -> None:
        """Add a placement of the round.

        Args:
            key: The attempt.
            placement: Its placement.
            replaces: It has new places for pods of a placed gang, which is on its old nodes too until the pods have
                left them.
        """
        if len(self.leaves):
            self._placed.append((key, placement, replaces))
            self._nodes.note(self._take_back)

    def _take_back(self) -> None:
        """Remove the last placement."""
        key, _, _ = self._placed.pop()
        if self._occupancy is None or len(self._former) <= len(self._placed):
            return
        self._occupancy.set(key, self._former.pop())

    def occupancy(self) -> LeafOccupancy:
        """Jobs on the leaf switches, the placements of the round included."""
        if self._placed and self._occupancy is None:
            self._occupancy = self._before.fork()
        if self._occupancy is None:
            return self._before
        for key, placement, replaces in self._placed[len(self._former) :]:
            former = self._occupancy.job(key)
            job = moving_job(former, placement) if replaces and former is not None else placed_job(placement)
            self._occupancy.put(key, job)
            self._former.append(former)
        return self._occupancy

    def usable(self, shape: Shape, offered: Fits | None) -> Grid:
        """Places that can take a pod of a shape.

        Args:
            shape: Shape of the pod.
            offered: Rows that could take it before the round, shape (rows,); None when no shard answered.

        Returns:
            Marks of shape (leaves, places).
        """
        if offered is None:
            return np.zeros_like(self.leaves.listed)
        marks = self._usable.now(shape, self.places_of(offered).reshape(-1))
        return marks.reshape(self.leaves.listed.shape)

    def places_of(self, rows: Fits) -> Grid:
        """Places whose nodes are marked, shape (leaves, places), from marks of shape (rows,)."""
        return self.leaves.usable(self._scorer.table, rows)

    def plan(self, gang: Gang, usable: Grid) -> Plan | NoPlan:
        """Plan the pods with chips of a gang on the usable places, shape (leaves, places)."""
        return plan(self.pool(usable), demand_of(gang), self.rules)

    def pool(self, usable: Grid) -> LeafPool:
        """Input of the planner: the leaf switches with the jobs on them and the usable places."""
        leaves = self.leaves
        return LeafPool(leaves.names, usable, leaves.slices, self.occupancy().bits(), leaves.places)

    def rows_of(self, cells: Sequence[int]) -> list[int]:
        """Row of the node at each of some cells; -1 for an unknown node."""
        rows: list[int] = self.leaves.rows(self._scorer.table)[np.array(cells, np.int64)].tolist()
        return rows

    def warning(self, gang: Gang) -> str:
        """What the switch policy does not support of a gang; empty when it supports the gang."""
        shares = gang.share is not None
        return unsupported(self.rules.policy, form=gang.form, framework=gang.framework, shares_chips=shares)

    def part(self, gang: Gang, found: Plan) -> SwitchPart:
        """Record of a plan in the placement."""
        planned = iter(zip(found.cells, found.states, strict=True))
        shapes = [shape for shape, pods in gang.request_class for _ in range(pods)]
        return self.part_of(gang, [next(planned) if shape.is_planned else None for shape in shapes], rule=found.rule)

    def part_of(self, gang: Gang, pods: Sequence[tuple[int, int] | None], *, rule: str) -> SwitchPart:
        """Record of planned pods in a placement.

        Args:
            gang: Their gang.
            pods: Cell of each pod of the placement, and the state of its leaf; None for a pod that is not planned.
            rule: Rule that chose the leaves.
        """
        width = self.leaves.width
        above = [pod[0] // width if pod is not None else _NONE for pod in pods]
        order = {
            leaf: index for index, leaf in enumerate((leaf for leaf in dict.fromkeys(above) if leaf != _NONE), start=1)
        }
        return SwitchPart(
            tor_affinity=demand_of(gang).tor_affinity,
            pods=demand_of(gang).pods,
            policy=self.rules.policy,
            rule=rule,
            leaves=[self.leaves.names[leaf] for leaf in order],
            leaf_index=pack([order.get(leaf, 0) for leaf in above], 2),
            states=bytes(pod[1] if pod is not None else 0 for pod in pods),
            annotated=is_annotated(self.rules),
            warning=self.warning(gang),
        )


def demand_of(gang: Gang) -> Demand:
    """Demand of a gang with switch affinity for the planner."""
    replicas = sum(pods for shape, pods in gang.request_class if shape.is_planned)
    pods = max((shape.gang_pods for shape, _ in gang.request_class), default=0)
    return Demand(replicas, max(replicas, pods), label_of(gang.demand))


def code_of(lack: SwitchLack) -> Code:
    """Refusal code of a plan that was not found."""
    return _CODES[lack.rule]
