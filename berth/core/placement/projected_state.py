"""State of a cell at a later moment.

Jobs that end before that moment have released their resources; jobs that start before it hold theirs. A projected state
copies the columns that change and shares all others; the table itself is not changed. Gangs are planned on it by a
placement round, so that every affinity policy applies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Mask
from berth.core.cluster.node_table import NodeTable
from berth.core.constraints.constraint_round import ConstraintView
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import Gang
from berth.core.state.cell import State
from berth.core.state.leaf_occupancy import placed_job
from berth.core.state.ledger import PodShare, pods_of
from berth.core.state.superpod_index import BlockInputs, ColocationIndex
from berth.core.topologies.switches.demand import is_by_leaf
from berth.core.topologies.switches.occupancy.leaf_states import LeafJob, LeafOccupancy
from berth.schemas.placement import Placement, Share
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.recovery import Recovery

Rows = npt.NDArray[np.int64]
_LEAST: Final = int(np.iinfo(np.int32).min)


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
    leaf: LeafJob
    """The attempt in the table of leaf switches."""

    def requests(self) -> Iterator[tuple[int, int, int]]:
        """Row, cpu and memory of each pod."""
        return zip(self.rows.tolist(), self.cpu.tolist(), self.memory.tolist(), strict=True)

    def meets(self, other: "ResourceFootprint") -> bool:
        """Whether both hold something on the same node."""
        return not self.nodes.isdisjoint(other.nodes)


def footprint_of(table: NodeTable, pods: Iterable[PodShare], placement: Placement) -> ResourceFootprint:
    """Resources that the pods of a placement hold."""
    held = [pod for pod in pods if pod.mask or pod.cpu_milli or pod.memory_mib]
    rows = [table.row_of[pod.node] for pod in held]
    return ResourceFootprint(
        np.array(rows, np.int64),
        np.array([pod.mask for pod in held], np.uint64),
        np.array([pod.cpu_milli for pod in held], np.int64),
        np.array([pod.memory_mib for pod in held], np.int64),
        placement.share,
        frozenset(rows),
        placed_job(placement),
    )


def _joined(footprints: Sequence[ResourceFootprint]) -> ResourceFootprint:
    """Sum of footprints without soft share."""
    rows, masks, cpu, memory = (
        np.concatenate(part) for part in zip(*(footprint[:4] for footprint in footprints), strict=True)
    )
    return ResourceFootprint(rows, masks, cpu, memory, None, frozenset(), footprints[0].leaf)


class _ForkedTable(NodeTable):
    """A copy of a table with its own resource columns; nodes, classes and topology are shared."""

    def __init__(self, table: NodeTable) -> None:
        table.ranks()
        self.__dict__.update(vars(table))
        for column in (
            "used",
            "releasing",
            "free",
            "idle",
            "cpu_free",
            "memory_free",
            "unhealthy_count",
            "allocatable",
        ):
            setattr(self, column, getattr(table, column).copy())
        self._cpu_used, self._memory_used = dict(self._cpu_used), dict(self._memory_used)

    def shift(self, footprint: ResourceFootprint, *, gives_back: bool) -> None:
        """Release or take a footprint. A chip that is taken twice stays taken."""
        if gives_back:
            for column in (self.used, self.releasing):
                np.bitwise_and.at(column, footprint.rows, ~footprint.masks)
        else:
            np.bitwise_or.at(self.used, footprint.rows, footprint.masks)
        sign = -1 if gives_back else 1
        for index in np.flatnonzero(footprint.cpu | footprint.memory).tolist():
            row = int(footprint.rows[index])
            cpu, memory = sign * int(footprint.cpu[index]), sign * int(footprint.memory[index])
            self._cpu_used[row] = self._cpu_used.get(row, 0) + cpu
            self._memory_used[row] = self._memory_used.get(row, 0) + memory
            self.cpu_free[row] = max(int(self.cpu[row]) - self._cpu_used[row], _LEAST)
            self.memory_free[row] = max(int(self.memory[row]) - self._memory_used[row], _LEAST)
        self._derive_rows(footprint.rows)

    def _derive_rows(self, rows: Rows) -> None:
        """Derive the free columns of some rows, as the table does for one row."""
        healthy = self.chips[rows] & ~self.unhealthy[rows]
        held = (self.used[rows] | self.releasing[rows]) & healthy
        free = healthy & ~held & ~self.withheld[rows]
        self.free[rows] = np.where(self.present[rows], free, np.uint64(0))
        self.idle[rows] = self.allocatable[rows] - np.bitwise_count(held).astype(np.int16) - self.chips_others[rows]


class _Cell(NamedTuple):
    """The parts of a cell that a projected state changes."""

    table: NodeTable
    shares: SoftShareTable
    occupancy: LeafOccupancy
    ended: frozenset[tuple[str, int]] = frozenset()
    """Attempts that have ended."""
    started: tuple[tuple[Mapping[str, str], Placement], ...] = ()
    """Labels and placements of the gangs that have started."""
    placed: tuple[tuple[Sequence[PodProfile], Placement], ...] = ()
    """Profiles, by rank, and placements of the gangs that have started."""
    pending: tuple[tuple[tuple[str, int], LeafJob | None], ...] = ()
    """Attempts that have started, or ended (None), and are not yet in ``occupancy``."""


class ProjectedState:
    """A cell at a later moment.

    Args:
        state: The cell now; not changed.
        scorer: Scoring of the cell.
        missing: Rows of shards that did not answer: no gang is planned on them.
        origin: State to begin with; None for the cell as it is now.
    """

    def __init__(self, state: State, scorer: Scorer, missing: Fits | None, *, origin: _Cell | None = None) -> None:
        cell = origin or _Cell(state.table, state.shares, state.leaf_occupancy)
        self._state = state
        self._missing = missing
        self._origin = scorer
        self._table = _ForkedTable(cell.table)
        self._shares = SoftShareTable(self._table)
        self._shares.nodes = {row: node.copy() for row, node in cell.shares.nodes.items()}
        self._scorer = scorer.on(self._table, self._shares)
        self._has_leaves = bool(len(state.leaves))
        self._occupancy = cell.occupancy.copy() if self._has_leaves else cell.occupancy
        self._ended, self._started = set(cell.ended), list(cell.started)
        self._placed = list(cell.placed)
        self._pending = list(cell.pending)

    def copy(self) -> "ProjectedState":
        """An independent copy."""
        cell = _Cell(
            self._table,
            self._shares,
            self._occupancy,
            frozenset(self._ended),
            tuple(self._started),
            tuple(self._placed),
            tuple(self._pending),
        )
        return ProjectedState(self._state, self._origin, self._missing, origin=cell)

    def end(self, ended: Mapping[tuple[str, int], ResourceFootprint]) -> None:
        """Let attempts end: they release their resources."""
        for footprint in ended.values():
            if footprint.share is not None:
                self._shift(footprint, gives_back=True)
        plain = [footprint for footprint in ended.values() if footprint.share is None]
        if plain:
            self._table.shift(_joined(plain), gives_back=True)
        self._ended.update(ended)
        if self._has_leaves:
            self._pending += [(key, None) for key in ended]

    def start(self, gang: Gang, placement: Placement, footprint: ResourceFootprint) -> None:
        """Let a gang start: it takes its resources."""
        self._shift(footprint, gives_back=False)
        self._started.append((gang.labels, placement))
        if gang.profiles:
            self._placed.append((gang.pods_in_order(), placement))
        if self._has_leaves:
            # Applied on demand: at most moments the chips do not suffice, and the leaf switches are not evaluated.
            self._pending.append(((gang.uid, gang.attempt), footprint.leaf))

    def move(self, gang: Gang, recovery: Recovery, left: ResourceFootprint, new: ResourceFootprint) -> None:
        """Let a step of the recovery of a running gang be recorded.

        Args:
            gang: The gang.
            recovery: The step.
            left: What the gang does not hold any more.
            new: What it holds now beside the rest; its leaf job is that of the whole gang.
        """
        self._shift(left, gives_back=True)
        self._shift(new, gives_back=False)
        if self._has_leaves:
            self._pending.append(((gang.uid, gang.attempt), new.leaf))
        if recovery.placement is None:
            return
        self._started.append((gang.labels, recovery.placement))
        if gang.profiles:
            profiles = gang.pods_in_order()
            self._placed.append(([profiles[rank] for rank in recovery.ranks], recovery.placement))

    def plan(self, gang: Gang) -> Placement | None:
        """Placement that a gang would get; None when it does not fit."""
        if not self.may_fit(gang):
            return None
        if is_by_leaf(gang.demand):
            self._update_leaves()
        state = self._state
        constraints = self._constraints()
        counts = candidate_counts([gang], full=constraints.full_nodes)
        views = {shape: self._scorer.candidates(shape, count, without=self._missing) for shape, count in counts.items()}
        inputs = BlockInputs(
            state.blocks.superpods,
            state.blocks.levels,
            ColocationIndex(self._nodes_of_service, self._nodes_of_labels, state.blocks.colocation.of_job),
        )
        placement_round = PlacementRound(
            self._scorer,
            views,
            counts,
            leaves=(state.leaves, self._occupancy),
            blocks=inputs,
            constraints=constraints,
        )
        return placement_round.choose([gang]).verdicts[0].placement

    def _constraints(self) -> ConstraintView:
        """Constraints at this moment: without the pods that have ended, and with those that have started."""
        constraints = self._state.constraints
        view = constraints.view
        if view.is_idle:
            return view
        moved = [(pod, row, -1) for key in sorted(self._ended) for pod, row in constraints.pods_of(key)]
        row_of = self._table.row
        for pods, placement in self._placed:
            moved += [(pod, row_of(node), 1) for pod, node in zip(pods, placement.names(), strict=False)]
        return view._replace(moved=tuple(moved))

    def _update_leaves(self) -> None:
        """Apply the pending starts and ends to the leaf switches."""
        for key, job in self._pending:
            if job is None:
                self._occupancy.drop(key)
            else:
                self._occupancy.put(key, job)
        self._pending.clear()

    def unused(self, row: int) -> tuple[int, int]:
        """Free cpu of a row in thousandths, and free memory in MiB."""
        return int(self._table.cpu_free[row]), int(self._table.memory_free[row])

    def may_fit(self, gang: Gang) -> bool:
        """Whether enough chips are free for a gang: a fast check that is true whenever :meth:`plan` succeeds."""
        return all(self._scorer.may_fit(shape, pods) for shape, pods in gang.request_class)

    def _shift(self, footprint: ResourceFootprint, *, gives_back: bool) -> None:
        if footprint.share is None:
            self._table.shift(footprint, gives_back=gives_back)
            return
        bare = footprint._replace(masks=np.zeros_like(footprint.masks))
        for row, mask in zip(footprint.rows.tolist(), footprint.masks.tolist(), strict=True):
            if mask:
                step = self._shares.let_go if gives_back else self._shares.hold
                step(ChangesBuilder(), row, mask.bit_length() - 1, footprint.share)  # nobody waits for a projection
        self._table.shift(bare, gives_back=gives_back)

    def _nodes_of_service(self, service: str) -> list[str]:
        """Nodes of all jobs of an inference service."""
        holdings = self._state.fold.holdings.items()
        keys = [key for key, one in holdings if one.placement.block and one.placement.block.service == service]
        started = [part for _, part in self._started if part.block is not None and part.block.service == service]
        return self._nodes_of(keys, started)

    def _nodes_of_labels(self, labels: Mapping[str, str]) -> list[str]:
        """Nodes of all jobs that have the given labels."""
        jobs = self._state.jobs
        keys = []
        for key, holding in self._state.fold.holdings.items():
            job = jobs.get((holding.namespace, holding.name))
            if job is not None and job.request is not None and labels.items() <= job.request.labels.items():
                keys.append(key)
        return self._nodes_of(keys, [part for known, part in self._started if labels.items() <= known.items()])

    def _nodes_of(self, keys: Iterable[tuple[str, int]], started: Iterable[Placement]) -> list[str]:
        """Nodes on which these attempts and placements have chips, by name."""
        held = [pod for key in keys if key not in self._ended for pod in self._state.held_by(key)]
        held += [pod for part in started for pod in pods_of(part)]
        return sorted({pod.node for pod in held if pod.mask})
