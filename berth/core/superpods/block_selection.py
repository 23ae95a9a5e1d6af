"""Which SuperPoDs give blocks, decided on counts alone: three queues, and pieces where a block may be split.

A table sorts the SuperPoDs by what they have beside their reserve: ``(free - R) div B`` is the column, the rest the
remainder. Small remainders and few columns come first, so that as little as possible is broken up; reserves come last.

Source: docs/reference/superpods.md, "Queues", "Phases", "Soft and hard" and "Where Berth decides otherwise".
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.superpods.model import (
    BlockAllocation,
    BlockRules,
    Counts,
    Lack,
    NoBlocks,
    Phase,
    Rows,
    Variant,
    closest,
)

CORRECTIONS: Final = ("D-1", "D-3", "D-4", "D-5", "D-6")
"""Documented decisions that differ from the reference. D-1: a SuperPoD may be larger than ``super-pod-size``. D-3: reserves
are given up until nothing changes, a hard gang is never split, and a plan without a node for some pod is none. D-4: pieces
are taken until none is missing. D-5: no piece is larger than what is missing. D-6: pieces come from the SuperPoD with the
most left first."""


class OpenBlocks(NamedTuple):
    """Blocks that are to be placed.

    Attributes:
        variant: Which handler.
        block: B, nodes of a block.
        open_ids: Blocks that have no nodes yet, ascending.
        missing: Nodes that are to be found: those of the open blocks, and of lost pieces.
        next_id: First id for a piece: V, or after a fault the number of blocks and pieces that are known.
        soft: Blocks may be split.
        is_partial: Some pods of the gang run, and more than one is to be placed.
    """

    variant: Variant
    block: int
    open_ids: Sequence[int]
    missing: int
    next_id: int
    soft: bool = False
    is_partial: bool = False


class _Table(NamedTuple):
    """SuperPoDs that are looked at, with their cell."""

    pods: Rows
    column: Rows
    remainder: Rows


class _Decision:
    """One decision as it goes: what SuperPoDs have left, which blocks are still open, what was given."""

    def __init__(self, counts: Counts, open_blocks: OpenBlocks, reserve: int, corrections: frozenset[str]) -> None:
        """Begin with nothing given."""
        self.open_blocks = open_blocks
        self.reserve = reserve
        self.corrections = corrections
        self.left: list[int] = counts.tolist()
        self.need = deque(open_blocks.open_ids)
        self.next_id = open_blocks.next_id
        self.missing = open_blocks.missing
        self.allocations: list[BlockAllocation] = []

    def next_open(self) -> int:
        """Id of the next block, or of a new piece when no block is open."""
        if self.need:
            return self.need.popleft()
        self.next_id += 1
        return self.next_id - 1

    def give(self, pod: int, nodes: int, phase: Phase) -> None:
        """Nodes of a SuperPoD for the next block or piece."""
        self.allocations.append(BlockAllocation(self.next_open(), pod, nodes, phase))
        self.left[pod] -= nodes
        self.missing -= nodes

    def drain(self, pod: int, phase: Phase) -> None:
        """Blocks of a SuperPoD, as long as it keeps its reserve."""
        block = self.open_blocks.block
        for _ in range(min((self.left[pod] - self.reserve) // block, len(self.need))):
            self.give(pod, block, phase)

    def fits(self, table: _Table) -> None:
        """Phase A: SuperPoDs that the open blocks use up, remainder by remainder.

        How many blocks are open is looked up whenever another cell begins.
        """
        most, cell = 0, (-1, -1)
        order = np.lexsort((table.column, table.remainder))
        order = order[(table.column[order] >= 1) & (table.column[order] <= len(self.need))]
        for pod, column, remainder in _walk(table, order):
            if not self.need:
                return
            if cell != (column, remainder):
                most, cell = len(self.need), (column, remainder)
            if column <= most:
                self.drain(pod, "fits")

    def larger(self, table: _Table) -> None:
        """Phase B: SuperPoDs with room for more than the open blocks, the smallest column first."""
        order = np.lexsort((table.remainder, table.column))
        for pod, _, _ in _walk(table, order[table.column[order] > len(self.need)]):
            if not self.need:
                return
            self.drain(pod, "larger")

    def take_reserves(self, table: _Table) -> None:
        """Phase C: a block of each SuperPoD that has one; again until nothing changes, unless the reference's way."""
        while self._give_reserves(table) and "D-3" in self.corrections:
            pass

    def _give_reserves(self, table: _Table) -> bool:
        """One round of phase C; whether it gave anything."""
        block, before = self.open_blocks.block, len(self.allocations)
        left = self._left_of(table)
        order = np.lexsort((-left, table.column, -table.remainder))
        for pod in table.pods[order[left[order] >= block]].tolist():
            if not self.need:
                break
            self.give(pod, block, "reserve")
        return len(self.allocations) > before

    def take_pieces(self, table: _Table) -> None:
        """Phase D: what is left, in pieces of at most a block; again until nothing is missing, unless the reference's way."""
        while self._give_pieces(table) and "D-4" in self.corrections:
            pass

    def _give_pieces(self, table: _Table) -> bool:
        """One round of phase D; whether it gave anything."""
        block, before = self.open_blocks.block, len(self.allocations)
        left = self._left_of(table)
        for pod in table.pods[self._order_of_pieces(table, left)].tolist():
            if self.missing <= 0:
                break
            nodes = min(block, self.left[pod])
            if nodes < block and self.open_blocks.variant == "850" and not self.open_blocks.soft:
                self.next_open()  # the reference uses the id up and takes nothing
            else:
                self.give(pod, min(nodes, self.missing) if "D-5" in self.corrections else nodes, "pieces")
        return len(self.allocations) > before

    def _left_of(self, table: _Table) -> Counts:
        return np.asarray(self.left, np.int64)[table.pods]

    def _order_of_pieces(self, table: _Table, left: Counts) -> Rows:
        """Those with the most left first, or the reference's order: by remainder, those below the reserve at the end."""
        if "D-6" in self.corrections:
            order = np.argsort(-left, kind="stable")
        else:
            low = table.remainder < min(self.open_blocks.block, self.reserve)
            rank = np.where(low, table.remainder, -table.remainder)
            order = np.lexsort((-left, table.column, rank, low))
        return order[left[order] > 0]


def select(
    ids: Sequence[str], counts: Counts, open_blocks: OpenBlocks, rules: BlockRules
) -> tuple[BlockAllocation, ...] | NoBlocks:
    """Which SuperPoD gives how many nodes to which block.

    Args:
        ids: SuperPoDs in their order, for a refusal.
        counts: Candidates of each.
        open_blocks: Blocks that are to be placed.
        rules: Reserve and size.
    """
    return _select(ids, counts, open_blocks, rules, frozenset() if rules.parity else frozenset(CORRECTIONS))


def selection_decisions(
    ids: Sequence[str], counts: Counts, open_blocks: OpenBlocks, rules: BlockRules
) -> tuple[str, ...]:
    """Documented decisions that change what is selected: alone, or taken back alone while the others stand."""
    everything = frozenset(CORRECTIONS)
    mended = _select(ids, counts, open_blocks, rules, everything)
    copied = _select(ids, counts, open_blocks, rules, frozenset())
    return tuple(
        name
        for name in CORRECTIONS
        if _select(ids, counts, open_blocks, rules, everything - {name}) != mended
        or _select(ids, counts, open_blocks, rules, frozenset({name})) != copied
    )


def _select(
    ids: Sequence[str], counts: Counts, open_blocks: OpenBlocks, rules: BlockRules, corrections: frozenset[str]
) -> tuple[BlockAllocation, ...] | NoBlocks:
    if "D-1" not in corrections and _overflows(counts, open_blocks, rules):
        return _none("size", ids, counts, open_blocks, limit=rules.size)
    capacity = int((counts // open_blocks.block).sum())
    if capacity < len(open_blocks.open_ids) and (not open_blocks.soft or open_blocks.is_partial):
        return _none("blocks", ids, counts, open_blocks)
    decision = _Decision(counts, open_blocks, rules.reserve, corrections)
    table = _table(counts, open_blocks, rules.reserve)
    decision.fits(table)
    decision.larger(table)
    decision.take_reserves(table)
    if open_blocks.soft or "D-3" not in corrections:
        decision.take_pieces(table)
    if decision.missing > 0 and "D-3" in corrections:
        return _none("incomplete", ids, counts, open_blocks, found=open_blocks.missing - decision.missing)
    return tuple(decision.allocations)


def _table(counts: Counts, open_blocks: OpenBlocks, reserve: int) -> _Table:
    """Cells of all SuperPoDs that are looked at.

    Source: docs/reference/superpods.md, "Queues".
    """
    pods = np.flatnonzero(counts > 0 if open_blocks.soft else counts >= open_blocks.block)
    beside = counts[pods] - reserve
    has_more = beside >= 0
    return _Table(
        pods,
        np.where(has_more, beside // open_blocks.block, 0),
        np.where(has_more, beside, counts[pods]) % open_blocks.block,
    )


def _overflows(counts: Counts, open_blocks: OpenBlocks, rules: BlockRules) -> bool:
    """The reference's table has no column for some SuperPoD; 850 asks for the size itself.

    See decision D-1.
    """
    most = int(counts.max(initial=0))
    if open_blocks.variant == "850":
        return most > rules.size
    return (most - rules.reserve) // open_blocks.block > rules.size // open_blocks.block


def _walk(table: _Table, order: Rows) -> Iterator[tuple[int, int, int]]:
    return zip(table.pods[order].tolist(), table.column[order].tolist(), table.remainder[order].tolist(), strict=True)


def _none(
    lack: Lack, ids: Sequence[str], counts: Counts, open_blocks: OpenBlocks, *, found: int | None = None, limit: int = 0
) -> NoBlocks:
    return NoBlocks(
        lack=lack,
        block=open_blocks.block,
        blocks_need=len(open_blocks.open_ids),
        blocks_have=int((counts // open_blocks.block).sum()),
        nodes_need=open_blocks.missing,
        nodes_have=int(counts.sum()) if found is None else found,
        closest=closest(ids, counts, open_blocks.block),
        limit=limit,
    )
