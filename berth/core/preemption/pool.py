"""Candidates of like preemptors on the nodes of a round, and how much room there is with and without them.

It lasts as long as no more than victims leave and preemptors get their places: then only the rows that they hold are
counted anew.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Mask
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.view import RowState, row_state
from berth.core.gangs import ClassKey, Gang
from berth.core.placement.projected_state import ProjectedState
from berth.core.placement.scoring import Scorer
from berth.core.preemption.cost import Prices
from berth.core.preemption.footprints import Held, OnRow
from berth.core.preemption.model import Candidate, Cost
from berth.core.preemption.places import Pairs, prices_of
from berth.core.preemption.slots import Slots

_LEFT: Final = ("free", "idle", "cpu_free", "memory_free")
"""Columns of what a row has left."""


class Counts(NamedTuple):
    """Room for a class of gangs.

    Attributes:
        slots: Counts it.
        now: Room of each row for each task before anybody leaves, shape (rows,) each.
        most: The same if all candidates have left.
    """

    slots: Slots
    now: list[Rows]
    most: list[Rows]


class Pool:
    """Candidates of like preemptors.

    Args:
        candidates: They, in any order.
        held: What each holds.
        base: The nodes before anybody leaves.
        silent: Rows that count for nothing, shape (rows,); None for no such row.
        is_exact: Pods that share chips are among preemptors or candidates: all is made anew after each change.

    Attributes:
        candidates: They, the cheapest first.
        prices: Compares sets of them.
        held: What each holds.
        pairs: Where they hold something.
        usable: Chips of each row that a pod may get, shape (rows,).
        is_shared: Rows on which several of them hold something, shape (rows,).
        has_shared: Candidates that hold something on such rows, shape (candidates,).
        alone: Row and candidate of each pair where one alone holds something.
        ranks: Rank of each candidate by what it costs, the cheapest 0.
        is_exact: As given.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate],
        held: Callable[[Candidate], Held],
        base: ProjectedState,
        silent: Fits | None,
        *,
        is_exact: bool,
    ) -> None:
        self.candidates = sorted(candidates, key=lambda one: one.dearness)
        self.numbers = {one: number for number, one in enumerate(self.candidates)}
        self._numbers_of: dict[tuple[str, int], list[int]] = {}
        for number, one in enumerate(self.candidates):
            self._numbers_of.setdefault(one.gang.key, []).append(number)
        self.prices = Prices(self.candidates)
        self.held = held
        self.is_exact = is_exact
        self._base, self._silent = base, silent
        self._stays: Fits = np.ones(len(self.candidates), np.bool_)
        """Candidates that have not left, shape (candidates,)."""
        table = base.scorer.table
        view, size = table.view(), max(len(table), 1)
        self.usable: Mask = table.chips[view] & ~table.unhealthy[view] & ~table.withheld[view]
        self.ranks: list[int] = []
        self._by_price: list[int] = []
        self._all, self._masks, self._cpu, self._memory = self._made_pairs()
        self.pairs = self._all
        self._by_row = np.argsort(self._all.rows, kind="stable")
        """Pairs in the order of their rows."""
        keys = np.unique(self._all.numbers * size + self._all.rows)
        numbers, rows = keys // size, keys % size
        self.is_shared: Fits = np.bincount(rows, minlength=len(table)) > 1
        alone = ~self.is_shared[rows]
        self.alone = rows[alone], numbers[alone]
        self.has_shared: Fits = np.bincount(numbers[~alone], minlength=len(self.candidates)) > 0
        self._shared: dict[Candidate, Sequence[OnRow]] = {}
        self._gone = self._made_gone()
        self._counts: dict[ClassKey, Counts] = {}

    def _made_pairs(self) -> tuple[Pairs, Mask, Rows, Rows]:
        parts = [self.held(one).footprint for one in self.candidates]
        if not parts:
            none = np.empty(0, np.int64)
            return Pairs(none, none, none, none, none), np.empty(0, np.uint64), none, none
        numbers = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
        masks = np.concatenate([part.masks for part in parts])
        levels = [self.prices.ranks[one.level] for one in self.candidates]
        # The surplus of a gang may be cut to nearly nothing, so it counts as nothing here.
        keys = [
            (len(one.gang.budgets), level, one.lost, one.gang.restarts, one.gang.counted.uid)
            if not one.ranks
            else (0, 0, 0, 0, "")
            for level, one in zip(levels, self.candidates, strict=True)
        ]
        self._by_price = sorted(range(len(parts)), key=keys.__getitem__)
        ranks = np.empty(len(parts), np.int64)
        ranks[self._by_price] = np.arange(len(parts))
        self.ranks = ranks.tolist()
        prices = prices_of([one.lost for one in self.candidates], levels)
        chips = np.maximum(np.bitwise_count(masks).astype(np.int64), 1)
        rows = np.concatenate([part.rows for part in parts])
        cpu, memory = (np.concatenate([getattr(part, name) for part in parts]) for name in ("cpu", "memory"))
        return Pairs(rows, numbers, chips, prices[numbers], ranks[numbers]), masks, cpu, memory

    def _made_gone(self) -> Scorer:
        """Scoring on the nodes as they are if all candidates have left."""
        scorer = self._base.scorer
        if self.is_exact:
            projection = self._base.copy()
            largest = {one.gang.key: one for one in self.candidates}
            for one in largest.values():  # all of a gang comes behind its surplus
                projection.free(self.held(one).footprint)
            return projection.scorer
        table = copy.copy(scorer.table)
        rows, view = self._all.rows, table.view()
        free = table.free[view].copy()
        order = self._by_row
        touched, firsts = np.unique(rows[order], return_index=True)
        if len(touched):
            free[touched] |= np.bitwise_or.reduceat(self._masks[order], firsts)
        free &= self.usable
        free[~table.present[view]] = 0
        more = np.bitwise_count(free).astype(np.int64) - np.bitwise_count(table.free[view])
        _put(table, "free", free)
        _put(table, "idle", table.idle[view] + more)
        for name, column in (("cpu_free", self._cpu), ("memory_free", self._memory)):
            _put(table, name, table_column(table, name) + np.bincount(rows, column, len(free)).astype(np.int64))
        return scorer.on(table, scorer.shares)

    def counts(self, gang: Gang) -> Counts:
        """Room for the class of a gang."""
        found = self._counts.get(gang.request_class)
        if found is None:
            slots = Slots(gang, self._gone, self._silent)
            found = self._counts[gang.request_class] = Counts(slots, slots.at(self._base.scorer), slots.most)
        return found

    def alone_cost(self, rank: int) -> Cost:
        """Cost of the candidate of a rank alone; that of nobody for a surplus. No set with it is cheaper."""
        one = self.candidates[self._by_price[rank]]
        return self.prices.of([] if one.ranks else [one])

    def on(self, inside: Fits | None, helpers: Iterable[int]) -> list[Candidate]:
        """Candidates that hold something on some rows, and others, the cheapest first.

        Args:
            inside: The rows, shape (rows,); None for all.
            helpers: Numbers of the others.
        """
        numbers = self.pairs.numbers if inside is None else self.pairs.numbers[inside[self.pairs.rows]]
        found = {*np.unique(numbers).tolist(), *(number for number in helpers if self._stays.item(number))}
        return [self.candidates[number] for number in sorted(found)]

    def state(self, row: int) -> RowState:
        """State of a row before anybody leaves."""
        scorer = self._base.scorer
        return row_state(scorer.table, scorer.shares.nodes, row)

    def follow(self, keys: Iterable[tuple[str, int]], rows: Iterable[int]) -> None:
        """Count some rows anew after gangs have left and others got places.

        Args:
            keys: Uid and attempt of the gangs that left.
            rows: Rows on which anybody left or came.
        """
        for key in keys:
            self._stays[self._numbers_of.get(key, [])] = False
        keep = self._stays[self._all.numbers]
        self.pairs = Pairs(*(column[keep] for column in self._all))
        for row in rows:
            self._count(row)

    def _count(self, row: int) -> None:
        now, table = self.state(row), self._gone.table
        first, last = np.searchsorted(self._all.rows, [row, row + 1], sorter=self._by_row)
        state = now
        for pair in self._by_row[first:last].tolist():
            if self._stays[self._all.numbers.item(pair)]:
                mask = self._masks.item(pair) & self.usable.item(row)
                state = state.without_pod(mask, self._cpu.item(pair), self._memory.item(pair), None)
        for name in _LEFT:
            getattr(table, name)[row] = getattr(state, name)
        for counts in self._counts.values():
            for task, (less, more) in enumerate(
                zip(counts.slots.of_row(row, now), counts.slots.of_row(row, state), strict=True)
            ):
                counts.now[task][row], counts.most[task][row] = less, more

    def followed(self, one: Candidate, number: int) -> Sequence[OnRow]:
        """What a candidate holds on rows that others hold something on; all of it for a part of a candidate (-1)."""
        if number < 0:
            return self.held(one).rows
        if not self.has_shared.item(number):
            return ()
        found = self._shared.get(one)
        if found is None:
            found = [pod for pod in self.held(one).rows if self.is_shared.item(pod.row)]
            self._shared[one] = found
        return found


def table_column(table: NodeTable, name: str) -> Rows:
    """A column of a table as far as it has rows."""
    found: Rows = getattr(table, name)[table.view()]
    return found


def _put(table: NodeTable, name: str, values: np.ndarray) -> None:
    """Give a copy of a table a column of its own."""
    column = getattr(table, name).copy()
    column[table.view()] = values
    setattr(table, name, column)
