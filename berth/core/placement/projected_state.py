"""Columns of a cell at a moment to come: who has ended by then has given back what he held, who starts before holds it.

A prospect is a fork: it shares with the table what does not change, and leaves the table as it is. What a gang would get is
planned by the choice of a round on it, so that every policy of affinity holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from berth.core.chips.soft_share_table import ShareBook
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Mask
from berth.core.cluster.node_table import NodeTable
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import Gang
from berth.core.state.cell import State
from berth.core.state.leaf_occupancy import placed_job
from berth.core.state.ledger import PodShare, pods_of
from berth.core.state.superpod_index import BlockGround, ColocationIndex
from berth.core.switches.occupancy.leaf_states import LeafBook, LeafJob
from berth.schemas.placement import Placement, Share

Rows = npt.NDArray[np.int64]
_LEAST: Final = int(np.iinfo(np.int32).min)


class ResourceFootprint(NamedTuple):
    """What an attempt holds, or would hold."""

    rows: Rows
    """One a pod."""
    masks: Mask
    cpu: Rows
    memory: Rows
    share: Share | None
    nodes: frozenset[int]
    leaf: LeafJob
    """As leaf switches see it."""

    def meets(self, other: "ResourceFootprint") -> bool:
        """Whether both have something on one node: chips, or cpu and memory that the other may need."""
        return not self.nodes.isdisjoint(other.nodes)


def lot_of(table: NodeTable, pods: Iterable[PodShare], placement: Placement) -> ResourceFootprint:
    """What pods of a placement hold of a table."""
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


def _joined(lots: Sequence[ResourceFootprint]) -> ResourceFootprint:
    """All that some hold, but for soft shares."""
    rows, masks, cpu, memory = (
        np.concatenate(part) for part in zip(*(footprint[:4] for footprint in lots), strict=True)
    )
    return ResourceFootprint(rows, masks, cpu, memory, None, frozenset(), lots[0].leaf)


class _Fork(NodeTable):
    """A table that goes its own way in what is free; nodes, classes and places are those of the other."""

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
        """Let go of a lot, or take it; chips that are taken already stay so."""
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
        """What follows from who holds chips, as the table derives it for one row."""
        healthy = self.chips[rows] & ~self.unhealthy[rows]
        held = (self.used[rows] | self.releasing[rows]) & healthy
        free = healthy & ~held & ~self.withheld[rows]
        self.free[rows] = np.where(self.present[rows], free, np.uint64(0))
        self.idle[rows] = self.allocatable[rows] - np.bitwise_count(held).astype(np.int16)


class Silent(NamedTuple):
    """Rows that nobody speaks for."""

    by_leaf: Fits | None = None
    """For shapes with switch affinity."""
    others: Fits | None = None


class _Cell(NamedTuple):
    """What changes."""

    table: NodeTable
    shares: ShareBook
    book: LeafBook
    over: frozenset[tuple[str, int]] = frozenset()
    """Who has ended."""
    come: tuple[tuple[Mapping[str, str], Placement], ...] = ()
    """Labels and placements of those who have started."""
    unread: tuple[tuple[tuple[str, int], LeafJob | None], ...] = ()
    """Who has started, or ended (None), and the leaf switches do not know it yet."""


class ProjectedState:
    """A cell at a moment to come.

    Args:
        state: The cell now.
        scorer: Its scoring.
        silent: Rows that count for nothing.
        like: What it begins with; the cell as it is when None.
    """

    def __init__(self, state: State, scorer: Scorer, silent: Silent, *, like: _Cell | None = None) -> None:
        cell = like or _Cell(state.table, state.shares, state.leaf_book)
        self._state = state
        self._silent = silent
        self._origin = scorer
        self._table = _Fork(cell.table)
        self._shares = ShareBook(self._table)
        self._shares.nodes = {row: node.copy() for row, node in cell.shares.nodes.items()}
        self._scorer = scorer.on(self._table, self._shares)
        self._has_leaves = bool(len(state.leaves))
        self._book = cell.book.copy() if self._has_leaves else cell.book
        self._over, self._come = set(cell.over), list(cell.come)
        self._unread = list(cell.unread)

    def copy(self) -> "ProjectedState":
        """One that goes its own way."""
        cell = _Cell(
            self._table, self._shares, self._book, frozenset(self._over), tuple(self._come), tuple(self._unread)
        )
        return ProjectedState(self._state, self._origin, self._silent, like=cell)

    def end(self, ended: Mapping[tuple[str, int], ResourceFootprint]) -> None:
        """Some have ended by then."""
        for footprint in ended.values():
            if footprint.share is not None:
                self._shift(footprint, gives_back=True)
        plain = [footprint for footprint in ended.values() if footprint.share is None]
        if plain:
            self._table.shift(_joined(plain), gives_back=True)
        self._over.update(ended)
        if self._has_leaves:
            self._unread += [(key, None) for key in ended]

    def start(self, gang: Gang, placement: Placement, footprint: ResourceFootprint) -> None:
        """Somebody runs then who does not now."""
        self._shift(footprint, gives_back=False)
        self._come.append((gang.labels, placement))
        if self._has_leaves:
            self._unread.append(
                ((gang.uid, gang.attempt), footprint.leaf)
            )  # most moments are too full to look any further

    def plan(self, gang: Gang) -> Placement | None:
        """Where a gang would be placed; None when it finds no room."""
        if not self.may_fit(gang):
            return None
        if gang.tor_affinity:
            self._read()
        state, silent = self._state, self._silent
        asks = candidate_counts([gang])
        views = {
            shape: self._scorer.candidates(
                shape, count, leaves=state.leaves, without=silent.by_leaf if shape.tor_affinity else silent.others
            )
            for shape, count in asks.items()
        }
        ground = BlockGround(
            state.blocks.superpods, state.blocks.levels, ColocationIndex(self._nodes_of_service, self._nodes_of_labels)
        )
        chooser = PlacementRound(self._scorer, views, asks, leaves=(state.leaves, self._book), blocks=ground)
        return chooser.choose([gang])[0].placement

    def _read(self) -> None:
        """Let the leaf switches know who has started and ended."""
        for key, job in self._unread:
            if job is None:
                self._book.drop(key)
            else:
                self._book.put(key, job)
        self._unread.clear()

    def may_fit(self, gang: Gang) -> bool:
        """Whether there are chips enough on nodes that a gang can use; quick, and never false where :meth:`plan` finds a plan."""
        return all(self._scorer.may_fit(shape, pods) for shape, pods in gang.request_class)

    def _shift(self, footprint: ResourceFootprint, *, gives_back: bool) -> None:
        if footprint.share is None:
            self._table.shift(footprint, gives_back=gives_back)
            return
        bare = footprint._replace(masks=np.zeros_like(footprint.masks))
        for row, mask in zip(footprint.rows.tolist(), footprint.masks.tolist(), strict=True):
            if mask:
                step = self._shares.let_go if gives_back else self._shares.hold
                step(row, mask.bit_length() - 1, footprint.share)
        self._table.shift(bare, gives_back=gives_back)

    def _nodes_of_service(self, service: str) -> list[str]:
        """Nodes of the jobs of an inference service."""
        holdings = self._state.fold.holdings.items()
        keys = [key for key, one in holdings if one.placement.block and one.placement.block.service == service]
        come = [part for _, part in self._come if part.block is not None and part.block.service == service]
        return self._nodes_of(keys, come)

    def _nodes_of_labels(self, labels: Mapping[str, str]) -> list[str]:
        """Nodes of the jobs that carry all of some labels."""
        jobs = self._state.jobs
        keys = []
        for key, holding in self._state.fold.holdings.items():
            job = jobs.get((holding.namespace, holding.name))
            if job is not None and job.request is not None and labels.items() <= job.request.labels.items():
                keys.append(key)
        return self._nodes_of(keys, [part for known, part in self._come if labels.items() <= known.items()])

    def _nodes_of(self, keys: Iterable[tuple[str, int]], come: Iterable[Placement]) -> list[str]:
        """Nodes on which some have chips."""
        held = [pod for key in keys if key not in self._over for pod in self._state.owned(key)]
        held += [pod for part in come for pod in pods_of(part)]
        return sorted({pod.node for pod in held if pod.mask})
