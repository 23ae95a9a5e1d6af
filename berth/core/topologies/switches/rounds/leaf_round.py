"""Gangs with switch affinity in one round: leaf switches and their jobs, the placements of the round included."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.topologies.planning import Ground, PlacedGang
from berth.core.topologies.switches.demand import label_of
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex
from berth.core.topologies.switches.occupancy.leaf_states import LeafJob, LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import Grid
from berth.core.topologies.switches.occupancy.placed_jobs import moving_job, placed_job
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.core.topologies.switches.planner import Demand, LeafPool, NoPlan, Plan, is_annotated, plan, switch_rules
from berth.core.topologies.switches.support import unsupported
from berth.schemas.columns import pack

_NONE: Final = -1


class LeafRound:
    """Leaf switches (ToR) during a round.

    Args:
        ground: What is seen of the round.
        index: The leaf switches, and the jobs on them before the round.
    """

    def __init__(self, ground: Ground, index: LeafIndex) -> None:
        self.leaves = index.leaves
        self.rules = switch_rules(ground.settings, is_single_layer=self.leaves.is_single_layer)
        self._table = ground.table
        self._placed = ground.placed
        self._before = index.occupancy
        self._occupancy: LeafOccupancy | None = None
        self._former: list[LeafJob | None] = []
        """For each placement of the round that the occupancy has: the job before it."""

    def take_back(self, last: PlacedGang) -> None:
        """Remove the last placement of the round."""
        if self._occupancy is not None and len(self._former) > len(self._placed):
            self._occupancy.set(last.key, self._former.pop())

    def occupancy(self) -> LeafOccupancy:
        """Jobs on the leaf switches, the placements of the round included."""
        if self._placed and self._occupancy is None:
            self._occupancy = self._before.fork()
        if self._occupancy is None:
            return self._before
        for key, _, placement, replaces in self._placed[len(self._former) :]:
            former = self._occupancy.job(key)
            job = moving_job(former, placement) if replaces and former is not None else placed_job(placement)
            self._occupancy.put(key, job)
            self._former.append(former)
        return self._occupancy

    def places_of(self, rows: Fits) -> Grid:
        """Places whose nodes are marked, shape (leaves, places), from marks of shape (rows,)."""
        return self.leaves.usable(self._table, rows)

    def plan(self, gang: Gang, usable: Fits) -> Plan | NoPlan:
        """Plan the pods with chips of a gang on the usable rows, shape (rows,)."""
        return plan(self.pool(self.places_of(usable)), demand_of(gang), self.rules)

    def pool(self, usable: Grid) -> LeafPool:
        """Input of the planner: the leaf switches with the jobs on them and the usable places."""
        leaves = self.leaves
        return LeafPool(leaves.names, usable, leaves.slices, self.occupancy().bits(), leaves.places)

    def rows_of(self, cells: Sequence[int]) -> list[int]:
        """Row of the node at each of some cells; -1 for an unknown node."""
        rows: list[int] = self.leaves.rows(self._table)[np.array(cells, np.int64)].tolist()
        return rows

    def warning(self, gang: Gang) -> str:
        """What the switch policy does not support of a gang; empty when it supports the gang."""
        shares = gang.share is not None
        return unsupported(self.rules.policy, form=gang.form, framework=gang.framework, shares_chips=shares)

    def part(self, gang: Gang, found: Plan) -> SwitchPlacement:
        """Record of a plan in the placement."""
        planned = iter(zip(found.cells, found.states, strict=True))
        shapes = [shape for shape, pods in gang.request_class for _ in range(pods)]
        return self.part_of(gang, [next(planned) if shape.is_planned else None for shape in shapes], rule=found.rule)

    def part_of(self, gang: Gang, pods: Sequence[tuple[int, int] | None], *, rule: str) -> SwitchPlacement:
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
        return SwitchPlacement(
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
