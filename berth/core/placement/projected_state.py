"""State of a cell at a later moment.

Jobs that end before that moment have released their resources; jobs that start before it hold theirs. Gangs are planned
on it by a placement round, so that every affinity policy applies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Mask
from berth.core.cluster.node_fork import NodeFork, Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.copies import copied
from berth.core.gangs import Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.state.cell import State
from berth.core.state.cell_fork import CellFork
from berth.core.state.holdings.steps import take_step
from berth.core.state.ledger import Holding, PodShare
from berth.core.topologies.planning import Index
from berth.core.topologies.registry import topology_of
from berth.schemas.placement import Placement, Share
from berth.schemas.recovery import Recovery

AttemptKey = tuple[str, int]
_NOT_YET: Final = 1 << 62


class ResourceFootprint(NamedTuple):
    """Resources that an attempt holds, or would hold."""

    rows: Rows
    """Row of each pod, shape (pods,); the other columns are parallel."""
    masks: Mask
    """Chips of each pod, one bit each."""
    cpu: Rows
    """In milli-CPU."""
    memory: Rows
    """In MiB."""
    share: Share | None
    nodes: frozenset[int]
    counted: Mapping[str, object]
    """The attempt as each index of topologies that counts jobs has it, by name of the index."""

    def requests(self) -> Iterator[tuple[int, int, int]]:
        """Row, cpu and memory of each pod."""
        return zip(self.rows.tolist(), self.cpu.tolist(), self.memory.tolist(), strict=True)

    def meets(self, other: "ResourceFootprint") -> bool:
        """Whether both hold something on the same node."""
        return not self.nodes.isdisjoint(other.nodes)


def footprint_of(state: State, pods: Iterable[PodShare], placement: Placement) -> ResourceFootprint:
    """Resources that the pods of a placement hold."""
    held = [pod for pod in pods if pod.mask or pod.cpu_milli or pod.memory_mib]
    rows = [state.table.row_of[pod.node] for pod in held]
    return ResourceFootprint(
        np.array(rows, np.int64),
        np.array([pod.mask for pod in held], np.uint64),
        np.array([pod.cpu_milli for pod in held], np.int64),
        np.array([pod.memory_mib for pod in held], np.int64),
        placement.share,
        frozenset(rows),
        {name: index.placed(placement) for name, index in state.counting.items()},
    )


class ProjectedState:
    """A cell at a later moment.

    Args:
        state: The cell that it begins with; not changed.
        scorer: Its scoring.
        missing: Rows of shards that did not answer, shape (rows,): no gang is planned on them. None for no such row.
    """

    def __init__(self, state: State, scorer: Scorer, missing: Fits | None) -> None:
        self._state = state
        self._missing = missing
        self._origin = scorer
        self._become(state.table, state.shares, state.counting)
        self._changes: list[Holding | AttemptKey] = []
        """Attempts that have begun, or ended (key)."""
        self._uncounted: list[tuple[AttemptKey, Mapping[str, object]]] = []
        """Those of them that no index counts yet, as at most moments the chips do not suffice."""

    def _become(self, table: NodeTable, shares: SoftShareTable, counting: Mapping[str, Index]) -> None:
        """Begin with copies of the parts of a cell that change at once."""
        self._table = NodeFork(table)
        self._shares = shares.fork(self._table)
        self._scorer = self._origin.on(self._table, self._shares)
        self._counting = {name: index.fork(self._table) for name, index in counting.items()}
        self._cell: CellFork | None = None
        """All else of the cell, made on demand."""
        self._settled = 0
        """Changes that it includes."""

    def copy(self) -> "ProjectedState":
        """An independent copy."""
        other = copied(self, _changes=self._changes[:], _uncounted=self._uncounted[:])
        other._become(self._table, self._shares, self._counting)  # noqa: SLF001  # a copy
        return other

    def end(self, ended: Mapping[AttemptKey, ResourceFootprint]) -> None:
        """Let attempts end: they release their resources."""
        for footprint in ended.values():
            if footprint.share is not None:
                self._shift(footprint, gives_back=True)
        self._shift_plain([footprint for footprint in ended.values() if footprint.share is None], gives_back=True)
        self._changes += ended
        if self._counting:
            self._uncounted += [(key, {}) for key in ended]

    def free(self, footprint: ResourceFootprint) -> None:
        """Let pods of an attempt that runs on release their resources; what counts its jobs and pods is as before."""
        self._shift(footprint, gives_back=True)

    def start(self, gang: Gang, placement: Placement, footprint: ResourceFootprint) -> None:
        """Let a gang start: it takes its resources."""
        self._shift(footprint, gives_back=False)
        self._note_start(gang, placement, footprint)

    def start_all(self, starting: Sequence[tuple[Gang, Placement, ResourceFootprint]]) -> None:
        """As :meth:`start`, of several gangs."""
        self._shift_plain([footprint for *_, footprint in starting if footprint.share is None], gives_back=False)
        for gang, placement, footprint in starting:
            if footprint.share is not None:
                self._shift(footprint, gives_back=False)
            self._note_start(gang, placement, footprint)

    def _shift_plain(self, footprints: Sequence[ResourceFootprint], *, gives_back: bool) -> None:
        """Release or take what pods hold that share no chips."""
        if footprints:
            columns = zip(*(footprint[:4] for footprint in footprints), strict=True)
            self._table.shift(*map(np.concatenate, columns), gives_back=gives_back)

    def _note_start(self, gang: Gang, placement: Placement, footprint: ResourceFootprint) -> None:
        uid, attempt = gang.uid, gang.attempt
        holding = Holding(gang.namespace, gang.name, uid, attempt, placement, ledger_seq=_NOT_YET, at_ms=0)
        self._note(holding, footprint.counted)

    def move(self, gang: Gang, recovery: Recovery, left: ResourceFootprint, new: ResourceFootprint) -> None:
        """Let a step of the recovery of a running gang be recorded.

        Args:
            gang: The gang.
            recovery: The step.
            left: What the gang does not hold any more.
            new: What it holds now beside the rest; what counts is the whole gang.
        """
        self._shift(left, gives_back=True)
        self._shift(new, gives_back=False)
        holding = msgspec.structs.replace(self._now().fold.holdings[gang.uid, gang.attempt])
        take_step(holding, recovery)
        self._note(holding, new.counted)

    @property
    def scorer(self) -> Scorer:
        """Scoring on the nodes of this moment."""
        return self._scorer

    def plan(self, gang: Gang, *, without: Fits | None = None) -> Placement | None:
        """Placement that a gang would get; None when it does not fit.

        Args:
            gang: The gang.
            without: Rows to leave out, shape (rows,), instead of those of silent shards alone; None for these.
        """
        if not self.may_fit(gang):
            return None
        missing = self._missing if without is None else without
        state = self._state
        topology = topology_of(gang.demand)
        if topology.heeds_jobs:
            for key, jobs in self._uncounted:
                for name, index in self._counting.items():
                    index.set(key, jobs.get(name))
            self._uncounted.clear()
        constraints = state.constraints.view
        if not constraints.is_idle:
            constraints = self._now().constraints.view
        counts = candidate_counts([gang], full=constraints.full_nodes)
        views = {shape: self._scorer.candidates(shape, count, without=missing) for shape, count in counts.items()}
        placement_round = PlacementRound(
            self._scorer,
            views,
            counts,
            indexes={**state.indexes, **self._counting},
            colocation=(self._now() if topology.is_beside(gang.demand) else state).colocation,
            constraints=constraints,
        )
        return placement_round.choose([gang]).verdicts[0].placement

    def unused(self, row: int) -> tuple[int, int]:
        """Free cpu of a row in thousandths, and free memory in MiB."""
        return int(self._table.cpu_free[row]), int(self._table.memory_free[row])

    def may_fit(self, gang: Gang) -> bool:
        """Whether enough chips are free for a gang: a fast check that is true whenever :meth:`plan` succeeds."""
        return all(self._scorer.may_fit(shape, pods) for shape, pods in gang.request_class)

    def _now(self) -> CellFork:
        """The cell with the holdings of this moment."""
        if self._cell is None:
            self._cell = CellFork(self._state, nodes=self._table)
        for change in self._changes[self._settled :]:
            self._cell.become(change)
        self._settled = len(self._changes)
        return self._cell

    def _note(self, holding: Holding, counted: Mapping[str, object]) -> None:
        self._changes.append(holding)
        if self._counting:
            self._uncounted.append((holding.key, counted))

    def _shift(self, footprint: ResourceFootprint, *, gives_back: bool) -> None:
        nodes, shares = self._table, self._shares
        if footprint.share is None:
            nodes.shift(*footprint[:4], gives_back=gives_back)
            return
        for row, mask in zip(footprint.rows.tolist(), footprint.masks.tolist(), strict=True):
            if mask:
                step = shares.let_go if gives_back else shares.hold
                step(ChangesBuilder(), row, mask.bit_length() - 1, footprint.share)  # nobody waits for a projection
        without = np.zeros_like(footprint.masks)
        nodes.shift(footprint.rows, without, footprint.cpu, footprint.memory, gives_back=gives_back)
