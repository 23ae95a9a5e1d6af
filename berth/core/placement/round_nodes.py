"""Nodes as the gangs of one round leave them, on top of a node table that stays as it is."""

import copy
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Final

import msgspec
import numpy as np

from berth.core.chips.soft_share_scoring import pick_chip
from berth.core.chips.soft_share_table import SharedNode
from berth.core.placement.scoring import RowState, Scorer
from berth.schemas.offers import Shape
from berth.schemas.placement import Share

KeptRows = Mapping[int, tuple[int, int]]
"""Cpu (thousandths) and memory (MiB) by row."""


_LEFT: Final = ("free", "idle", "cpu_free", "memory_free", "no_cpu", "no_memory")
"""Columns of what a row has left, which are fields of :class:`RowState` too."""

MANY_LEAST: Final = 64
_MANY_SHARE: Final = 32
"""All rows are scored at once from so many touched rows on, and from such a part of the rows on."""
_LEAST: Final = -(1 << 31)
"""Room that is kept may be more than a column holds."""


class RoundNodes:
    """State of the nodes that a round has touched.

    Args:
        scorer: Scoring on the dispatcher's own columns, unchanged during the round.

    Attributes:
        states: Current state of each touched row.
        versions: How often each touched row has changed.
        log: Touched rows in the order of their changes.
        before: Rows that the current gang has touched, as they were before it.
        kept: Cpu and memory of rows that pods must leave free, in thousandths and in MiB.
    """

    __slots__ = (
        "_now",
        "_now_seen",
        "_touched_rows",
        "_without_own",
        "before",
        "kept",
        "log",
        "scorer",
        "states",
        "versions",
    )

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.states: dict[int, RowState] = {}
        self.versions: dict[int, int] = {}
        self.log: list[int] = []
        self.before: dict[int, RowState] = {}
        self.kept: KeptRows = {}
        self._now: Scorer | None = None
        """Scoring on a copy of the columns, and ..."""
        self._now_seen = 0
        """... how many entries of the log it includes."""
        self._touched_rows = np.zeros(len(scorer.table), np.bool_)
        """Rows among these entries, shape (rows,)."""
        self._without_own: dict[int, SharedNode] = {}
        """Shared use of rows on which the current gang has pods already, without these."""

    def are_many(self, rows: Sized, shape: Shape) -> bool:
        """Whether all rows are scored for a shape sooner by :meth:`now` than these one by one."""
        return len(rows) >= max(MANY_LEAST, len(self.scorer.table) // _MANY_SHARE) and shape.share is None

    def now(self) -> Scorer:
        """Scoring on all rows at once, as the round leaves them; not for pods that share chips."""
        if self._now is None:
            table = copy.copy(self.scorer.table)
            for column in _LEFT:
                setattr(table, column, getattr(table, column).copy())
            self._now = self.scorer.on(table, self.scorer.shares)
        table = self._now.table
        for row in dict.fromkeys(self.log[self._now_seen :]):
            state = self.states[row]
            self._touched_rows[row] = True
            for column in _LEFT:
                getattr(table, column)[row] = max(getattr(state, column), _LEAST)
        self._now_seen = len(self.log)
        return self._now

    def with_room(self, shape: Shape, chips: int) -> list[int]:
        """Touched rows with room for a pod of a shape in chips, cpu and memory, ascending.

        Args:
            shape: The shape; not one of soft share.
            chips: Chips that its rule needs.
        """
        table = self.now().table
        rows = table.view()
        room = self._touched_rows & (table.idle[rows] >= chips)
        for need, left in ((shape.cpu_milli, table.cpu_free), (shape.memory_mib, table.memory_free)):
            if need:
                room &= left[rows] >= need
        return np.flatnonzero(room).tolist()

    def begin_gang(self) -> None:
        """Begin with the next gang: what was placed before it stays placed."""
        rows, self._without_own = list(self._without_own), {}
        self.before = {}
        for row in rows:  # scored for the gang before
            self._set(row, self.states[row])

    def leave_out(self, share: Share, pods: Iterable[tuple[int, int]]) -> None:
        """Leave out soft-share pods that the current gang has already, where its capacity on a node is computed.

        Source: docs/reference/nodes-and-chips.md, "Soft share".

        Args:
            share: Quota of each.
            pods: Row and chip of each.
        """
        for row, chip in pods:
            state = self.states.get(row) or self.scorer.row_state(row)
            if state.share is None:
                continue
            found = self._without_own.get(row)
            if found is None:
                found = self._without_own[row] = state.share.copy()
                self._set(row, state)
            if found.pods[chip]:
                found.remove(chip, share)

    def base(self, row: int) -> RowState | None:
        """State of a row without pods of the current gang, as far as soft share needs it; None if it has none there."""
        before, share = self.before.get(row), self._without_own.get(row)
        return before if share is None else msgspec.structs.replace(before or self.states[row], share=share)

    def keep(self, rows: KeptRows) -> None:
        """Let pods leave cpu and memory of some rows free until the next call. Call it between gangs."""
        if rows == self.kept:
            return
        for row in dict.fromkeys((*self.kept, *rows)):
            (cpu_before, memory_before), (cpu, memory) = self.kept.get(row, (0, 0)), rows.get(row, (0, 0))
            old = self.states.get(row) or self.scorer.row_state(row)
            cpu_free, memory_free = old.cpu_free + cpu_before - cpu, old.memory_free + memory_before - memory
            self._set(row, msgspec.structs.replace(old, cpu_free=cpu_free, memory_free=memory_free))
        self.kept = rows

    def roll_back(self) -> None:
        """Return everything that the current gang has taken."""
        for row, state in self.before.items():
            self._set(row, state)

    def end_soft_share(self) -> None:
        """Let the pods of the current gang count as pods of others: its nodes are scored again for the next gang."""
        for row in self.before:
            self._set(row, self.states[row])

    def fits_again(self, row: int, shape: Shape, chips: Sequence[int]) -> bool:
        """Whether a node would take a pod that it has already, on the same chips, if it were to come anew.

        Args:
            row: The node.
            shape: Shape of the pod.
            chips: Chips that the pod owns.
        """
        scorer = self.scorer
        state = self.states.get(row) or scorer.row_state(row)
        mask = sum(1 << chip for chip in chips)
        if not scorer.table.are_usable(row, mask):
            return False
        free, idle, share = state.free, state.idle, state.share
        if shape.share is None:
            free, idle = free | mask, idle + len(chips)
        elif share is not None:
            share = share.copy()
            for chip in chips:
                share.remove(chip, shape.share)
                returned = 0 if share.pods[chip] else 1 << chip
                free, idle = free | returned, idle + returned.bit_count()
        without = RowState(
            free,
            idle,
            state.cpu_free + shape.cpu_milli,
            state.memory_free + shape.memory_mib,
            share,
            state.no_cpu - (not shape.cpu_milli),
            state.no_memory - (not shape.memory_mib),
        )
        return not scorer.evaluate_one(shape, row, without, self.base(row))[0]

    def let_go(self, row: int, shape: Shape, chips: Sequence[int]) -> None:
        """Free what a pod has on a node, for the pods of the current gang: the opposite of :meth:`take`.

        Args:
            row: The node.
            shape: Shape of the pod; not one of soft share.
            chips: Its chips, all of them healthy.
        """
        old = self._touched(row)
        self._set(
            row,
            RowState(
                old.free | sum(1 << chip for chip in chips),
                old.idle + len(chips),
                old.cpu_free + shape.cpu_milli,
                old.memory_free + shape.memory_mib,
                old.share,
                old.no_cpu - (not shape.cpu_milli),
                old.no_memory - (not shape.memory_mib),
            ),
        )

    def restore(self, row: int) -> None:
        """Return what the current gang has taken on a node, and take back what it let go there."""
        self._set(row, self.before[row])

    def take(self, row: int, shape: Shape) -> tuple[int, ...]:
        """Give a pod its chips on a node.

        Returns:
            Indexes of the chips; empty for a pod without chips.
        """
        scorer = self.scorer
        old = self._touched(row)
        rule = scorer.rule(shape)
        share = old.share
        free, idle = old.free, old.idle
        chips: tuple[int, ...] = ()
        if rule is not None:
            chips = rule.pick(free, int(scorer.table.network[row]))
        elif shape.share is not None and share is not None:
            name = scorer.table.names[row]
            chips = (pick_chip(scorer.shares, shape.share, row, share, name=name, free=free),)
            share = share.copy()
            share.add(chips[0], shape.share)
        for chip in chips:
            idle -= free >> chip & 1
            free &= ~(1 << chip)
        self._set(
            row,
            RowState(
                free,
                idle,
                old.cpu_free - shape.cpu_milli,
                old.memory_free - shape.memory_mib,
                share,
                old.no_cpu + (not shape.cpu_milli),
                old.no_memory + (not shape.memory_mib),
            ),
        )
        return chips

    def _touched(self, row: int) -> RowState:
        """State of a row that the current gang changes now."""
        state = self.states.get(row)
        if state is None:
            state = self.scorer.row_state(row)
        self.before.setdefault(row, state)
        return state

    def _set(self, row: int, state: RowState) -> None:
        self.states[row] = state
        self.versions[row] = self.versions.get(row, 0) + 1
        self.log.append(row)
