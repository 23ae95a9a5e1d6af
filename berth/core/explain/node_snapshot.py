"""Snapshot of the nodes just before a pod was placed: the state on which an explanation repeats the decision."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from berth.core.chips.affinity import class_of
from berth.core.cluster.view import RowState
from berth.core.constraints.constraint_round import ConstraintRound
from berth.core.gangs import Gang
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import gang_of
from berth.core.scheduling.drained_gangs import DrainedGangs
from berth.core.state.cell import State
from berth.core.state.ledger import PodShare, pods_of
from berth.core.topologies.layouts import JobPods
from berth.core.topologies.maps import DrawnCell, Maps
from berth.core.topologies.planning import Ground, PlacedGang, TopologyRound
from berth.core.topologies.registry import begun, maps_of
from berth.schemas.ledger import Settings, Verdict
from berth.schemas.offers import Demand, Shape
from berth.schemas.placement import Placement, Share
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.refusal import NodeReason

Keys = npt.NDArray[np.int64]
_FITS: Final = int(NodeReason.FITS)
_RANK_BITS: Final = 32
_LAST: Final = np.iinfo(np.int64).max
"""Sort key after every node that fits."""


class NodeSnapshot:
    """Nodes just before a pod was placed.

    Args:
        state: The cell just before the record; not changed.
        settings: Settings of the epoch.
        at_ms: The moment of the record.
    """

    def __init__(self, state: State, settings: Settings, at_ms: int) -> None:
        self.state = state
        self._drained = DrainedGangs(state, at_ms)
        self.table = state.table
        self.scorer = Scorer(state.table, state.shares, settings)
        self.nodes = RoundNodes(self.scorer)
        self.takers: dict[str, dict[str, None]] = {}
        """Jobs that earlier verdicts of the record placed, by node."""
        self.constraints = ConstraintRound(state.constraints.view, self.nodes)
        """Constraints, with the pods of earlier verdicts and ranks."""
        self._placed: list[PlacedGang] = []
        self._ground = Ground(state.table, self.nodes.columns, settings, state.colocation, self._placed)
        self._more: list[JobPods] = []
        """Jobs that earlier verdicts of the record placed."""

    def gang(self, verdict: Verdict) -> Gang | None:
        """Gang of a verdict; None when the state does not contain its request."""
        job = self.state.jobs.get((verdict.namespace, verdict.name))
        if job is None or job.uid != verdict.uid or job.request is None:
            return None
        profiles = self.state.constraints.profiles(job.namespace, job.request)
        settings = self.state.fold.settings
        gang = gang_of(job, job.request, attempt=verdict.attempt, settings=settings, profiles=profiles)
        return self._drained.applied(gang)

    def at(self, row: int) -> RowState:
        """State of a node after everything that was taken from it so far."""
        return self.nodes.state(row)

    def take_all(self, verdict: Verdict, placement: Placement) -> None:
        """Apply the placement of an earlier verdict."""
        job = f"{verdict.namespace}/{verdict.name}"
        gang = self.gang(verdict)
        labels = gang.labels if gang is not None else {}
        self._placed.append(PlacedGang((verdict.uid, verdict.attempt), labels, placement, replaces=False))
        pods = pods_of(placement)
        self._more.append(JobPods(job, placement, pods, pods))
        for profile, node in zip(gang.pods_in_order() if gang is not None else (), placement.names(), strict=False):
            self.note(profile, self.table.row(node))
        for pod in pods:
            self.take(pod, placement.share)
            if pod.chips:
                self.takers.setdefault(pod.node, {})[job] = None
        self.nodes.begin_gang()

    def topology(self, demand: Demand) -> TopologyRound:
        """The topology that a demand names, as the gang found it."""
        return begun(demand, self._ground, self.state.indexes)

    def jobs(self) -> list[JobPods]:
        """Placed jobs by name, those of earlier verdicts included."""
        return jobs_of(self.state, self._more)

    def take(self, pod: PodShare, share: Share | None) -> int:
        """Take the resources of a pod from its node; returns the row."""
        row = self.table.row(pod.node)
        self.nodes.take(row, pod.mask, pod.cpu_milli, pod.memory_mib, share)
        return row

    def note(self, profile: PodProfile, row: int) -> None:
        """Count a pod in the constraints of others."""
        self.constraints.add(profile, row)

    def holders(self, node: str) -> list[str]:
        """Jobs with chips on a node as ``namespace/name``, by name, jobs of earlier verdicts included."""
        held = {
            f"{holding.namespace}/{holding.name}"
            for key, holding in self.state.fold.holdings.items()
            if any(pod.node == node and pod.chips for pod in self.state.held_by(key))
        }
        held.update(
            f"{one.namespace}/{one.name}"
            for one in self.state.fold.held.values()
            if any(pod.node == node for pod in one.places().values())
        )
        return sorted(held.union(self.takers.get(node, ())))

    def usable(self, shape: Shape, row: int) -> int:
        """Chips of a node that a pod of the shape could use, one bit each."""
        rule = self.scorer.rule(shape)
        if rule is not None:
            return rule.usable(self.at(row).free, int(self.table.network[row]))
        return self.state.shares.free_mask(row) if shape.share is not None else 0

    def affinity(self, shape: Shape, row: int) -> int:
        """Affinity class of a node's usable chips."""
        rule = self.scorer.rule(shape)
        if rule is None:
            return 0
        return class_of(rule.form, self.usable(shape, row), chips=shape.chips, distributed=rule.distributed)


def jobs_of(state: State, more: Iterable[JobPods] = ()) -> list[JobPods]:
    """Placed jobs by name.

    Args:
        state: The cell.
        more: Jobs that are not yet in the state.
    """
    held = (
        JobPods(f"{one.namespace}/{one.name}", one.placement, state.owned(key), state.held_by(key))
        for key, one in state.fold.holdings.items()
    )
    return sorted([*held, *more], key=lambda taken: taken.job)


def drawn_maps(state: State, topology: str) -> Maps:
    """What is drawn of the topology with a name; nothing without it."""
    cell = DrawnCell(state.table, state.fold.settings, state.topologies, jobs_of(state))
    return maps_of(topology, state.indexes, cell)


class ShapeEvaluation:
    """Reasons and scores of all nodes for one shape, shape (rows,)."""

    def __init__(self, snapshot: NodeSnapshot, shape: Shape) -> None:
        self._snapshot = snapshot
        self.shape = shape
        reasons, scores = snapshot.scorer.evaluate(shape)
        self._alone = reasons.copy()
        """Reasons, constraints left out."""
        self.reasons = self._alone
        self._forbid()
        self.scores = scores.astype(np.int64)
        self._bonus: Mapping[int, int] = {}
        self._before = self.keys()
        for row in snapshot.nodes.states:
            self.refresh(row)

    def prefer(self, bonus: Mapping[int, int]) -> None:
        """Add to the scores of some rows, by row, those before the round included. Call it once."""
        self._bonus = bonus
        added = np.zeros(len(self.scores), np.int64)
        added[list(bonus)] = list(bonus.values())
        self.scores += np.where(self.reasons == _FITS, added, 0)
        self._before = np.where(self._before < _LAST, self._before - (added << _RANK_BITS), _LAST)

    def refresh(self, row: int) -> None:
        """Evaluate a changed node again."""
        nodes = self._snapshot.nodes
        reason, score = nodes.scorer.evaluate_one(self.shape, row, nodes.state(row), nodes.base(row))
        self._alone[row], self.scores[row] = reason, score + (0 if reason else self._bonus.get(row, 0))
        self._forbid()

    def _forbid(self) -> None:
        """Add what constraints forbid."""
        constraints = self._snapshot.constraints
        if constraints.limits(self.shape):
            self.reasons = np.where(self._alone == _FITS, constraints.reasons(self.shape), self._alone)

    def preferred(self, row: int) -> int:
        """What the preferences of the pod add to the score of a node."""
        return self._bonus.get(row, 0)

    def key(self, row: int) -> tuple[int, int]:
        """Sort key of a node in the total order; the best node has the lowest."""
        return -int(self.scores[row]), int(self._snapshot.table.ranks()[row])

    def best_besides(self, row: int, count: int) -> list[int]:
        """The best nodes that fit, best first, without ``row``."""
        keys = self.keys()
        keys[row] = _LAST
        best = np.argpartition(keys, count)[:count] if count < len(keys) else np.arange(len(keys))
        return [other for other in best[np.argsort(keys[best])].tolist() if keys[other] < _LAST]

    def taken_from(self, row: int, count: int) -> list[int]:
        """Nodes that were better than ``row`` before this round and no longer are, best first."""
        now, before = self.keys(), self._before
        lost = np.flatnonzero((before < now[row]) & (now > now[row]))
        return [other for other in lost[np.argsort(before[lost])][:count].tolist() if other != row]

    def score_before(self, row: int) -> int:
        """Score of a node before the round."""
        return -(int(self._before[row]) >> _RANK_BITS)

    def keys(self) -> Keys:
        """Sort key of each row in the total order, shape (rows,); rows that do not fit come last."""
        table = self._snapshot.table
        fits = (self.reasons == _FITS) & table.present[table.view()]
        places = (-self.scores << _RANK_BITS) | table.ranks().astype(np.int64)
        return np.where(fits, places, _LAST)
