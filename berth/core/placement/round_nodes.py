"""Nodes as the gangs of one round leave them: a view on the table of the cell, and scoring on it."""

from collections.abc import Iterable, Sequence, Sized
from typing import Final

import msgspec
import numpy as np

from berth.core.chips.soft_share_scoring import pick_chip
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.shared_use import SharedNode
from berth.core.cluster.view import RowState, View
from berth.core.placement.scoring import Scorer
from berth.schemas.offers import Shape
from berth.schemas.placement import Share

MANY_LEAST: Final = 64
_MANY_SHARE: Final = 32
"""All rows are scored at once from so many touched rows on, and from such a part of the rows on."""


class RoundNodes(View):
    """The view of a round; a mark is open for the current gang.

    Args:
        scorer: Scoring on the dispatcher's own columns, unchanged during the round: what shards offered is about these.
    """

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer.table, scorer.shares.nodes)
        self.scorer = scorer
        self._now: Scorer | None = None
        """Scoring on the columns of the view."""
        self._gang = self.tentative()
        self._without_own: dict[int, SharedNode] = {}
        """Shared use of rows on which the current gang has pods already, without these."""

    def are_many(self, rows: Sized, shape: Shape) -> bool:
        """Whether all rows are scored for a shape sooner by :meth:`now` than these one by one."""
        return len(rows) >= max(MANY_LEAST, len(self.scorer.table) // _MANY_SHARE) and shape.share is None

    def now(self) -> Scorer:
        """Scoring on all rows at once, as the round leaves them; not for pods that share chips."""
        table = self.columns()
        if self._now is None:
            self._now = self.scorer.on(table, self.scorer.shares)
        return self._now

    def with_room(self, shape: Shape, chips: int) -> list[int]:
        """Touched rows with room for a pod of a shape in chips, cpu and memory, ascending.

        Args:
            shape: The shape; not one of soft share.
            chips: Chips that its rule needs.
        """
        table = self.columns()
        rows = table.view()
        room = self.touched & (table.idle[rows] >= chips)
        for need, left in ((shape.cpu_milli, table.cpu_free), (shape.memory_mib, table.memory_free)):
            if need:
                room &= left[rows] >= need
        return np.flatnonzero(room).tolist()

    def begin_gang(self) -> None:
        """Begin with the next gang: what was placed before it stays placed."""
        self.advance(self._gang)
        if self._without_own:
            rows, self._without_own = list(self._without_own), {}
            for row in rows:  # scored for the gang before
                self.touch(row)

    def roll_back_gang(self) -> None:
        """Return everything that the current gang has taken."""
        self._gang.roll_back()

    def leave_out(self, share: Share, pods: Iterable[tuple[int, int]]) -> None:
        """Leave out soft-share pods that the current gang has already, where its capacity on a node is computed.

        Source: docs/reference/nodes-and-chips.md, "Soft share".

        Args:
            share: Quota of each.
            pods: Row and chip of each.
        """
        for row, chip in pods:
            use = self.state(row).share
            if use is None:
                continue
            found = self._without_own.get(row)
            if found is None:
                found = self._without_own[row] = use.copy()
                self.touch(row)
            if found.pods[chip]:
                found.remove(chip, share)

    def base(self, row: int) -> RowState | None:
        """State of a row without pods of the current gang, as far as soft share needs it; None if it has none there."""
        before, share = self._gang.before.get(row), self._without_own.get(row)
        return before if share is None else msgspec.structs.replace(before or self.states[row], share=share)

    def end_soft_share(self) -> None:
        """Let the pods of the current gang count as pods of others: its nodes are scored again for the next gang."""
        for row in self._gang.before:
            self.touch(row)

    def fits_again(self, row: int, shape: Shape, chips: Sequence[int]) -> bool:
        """Whether a node would take a pod that it has already, on the same chips, if it were to come anew.

        Args:
            row: The node.
            shape: Shape of the pod.
            chips: Chips that the pod owns.
        """
        mask = _mask(chips)
        if not self.scorer.table.are_usable(row, mask):
            return False
        without = self.state(row).without_pod(mask, shape.cpu_milli, shape.memory_mib, shape.share)
        return not self.scorer.evaluate_one(shape, row, without, self.base(row))[0]

    def let_go(self, row: int, shape: Shape, chips: Sequence[int]) -> None:
        """Free what a pod has on a node, for the pods of the current gang.

        Args:
            row: The node.
            shape: Shape of the pod; not one of soft share.
            chips: Its chips, all of them healthy.
        """
        self.give(row, _mask(chips), shape.cpu_milli, shape.memory_mib)

    def hold(self, row: int, shape: Shape, chips: Sequence[int]) -> None:
        """Let a pod have what it has let go; the arguments are those of :meth:`let_go`."""
        self.take(row, _mask(chips), shape.cpu_milli, shape.memory_mib)

    def place(self, row: int, shape: Shape) -> tuple[int, ...]:
        """Give a pod its chips on a node.

        Returns:
            Indexes of the chips; empty for a pod without chips.
        """
        scorer, state = self.scorer, self.states.get(row)
        if state is None:
            state = self.state(row)
        rule = scorer.rule(shape)
        chips: tuple[int, ...] = ()
        if rule is not None:
            chips = rule.pick(state.free, scorer.table.network.item(row))
        elif shape.share is not None and state.share is not None:
            name = scorer.table.names[row]
            chips = (pick_chip(scorer.shares, shape.share, row, state.share, name=name, free=state.free),)
        mask = 0
        for chip in chips:
            mask |= 1 << chip
        self.change(row, state, state.with_pod(mask, shape.cpu_milli, shape.memory_mib, shape.share))
        return chips


class TouchedMarks:
    """Rows that take a pod of each shape, updated on demand.

    Args:
        nodes: Nodes as the round leaves them.
    """

    def __init__(self, nodes: RoundNodes) -> None:
        self._nodes = nodes
        self._marks: dict[Shape, tuple[Fits, int]] = {}
        """Marks of a shape, and how many entries of the log of touched rows they include."""

    def now(self, shape: Shape, offered: Fits) -> Fits:
        """Current marks of a shape, shape (rows,).

        Args:
            shape: Shape of the pod.
            offered: Marks before the round, shape (rows,); not changed.
        """
        marks, seen = self._marks.get(shape) or (offered.copy(), 0)
        nodes, scorer = self._nodes, self._nodes.scorer
        rule = scorer.rule(shape)
        for row in dict.fromkeys(nodes.log[seen:]):
            state = nodes.states[row]
            is_short = rule is not None and state.idle < rule.chips  # true for most rows: plans take whole nodes
            marks[row] = not (is_short or scorer.evaluate_one(shape, row, state)[0])
        self._marks[shape] = (marks, len(nodes.log))
        return marks


def _mask(chips: Iterable[int]) -> int:
    return sum(1 << chip for chip in chips)
