"""Number of nodes that each SuperPoD gives to each block, decided on counts alone.

The selection fills the blocks in three queues, and then in pieces if a block may be split. A table orders the SuperPoDs
by what they have above their reserve R: ``(free - R) div B`` is the column, the remainder of the division the second
key. Small remainders and small columns come first, so that few SuperPoDs are fragmented; reserves are used last.

Source: docs/reference/superpods.md, "Queues", "Phases", "Soft and hard" and "Where Berth decides otherwise".
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from berth.core.cluster.node_groups import Counts, Rows
from berth.core.parity import Differences
from berth.core.topologies.blocks.demand import Variant
from berth.core.topologies.blocks.model import BlockAllocation, BlockRules, Lack, NoBlocks, Phase, closest

"""Documented decisions of a selection, and their fields in :class:`Differences`."""


class OpenBlocks(NamedTuple):
    """Blocks to place.

    Attributes:
        variant: Handler of the product.
        block: B, number of nodes of a block.
        open_ids: Ids of the blocks without nodes, ascending.
        missing: Number of nodes to find: those of the open blocks and of lost pieces.
        next_id: First id for a piece: V, or after a fault the number of known blocks and pieces.
        soft: Blocks may be split.
        is_partial: Some pods of the gang run, and more than one pod is to be placed.
    """

    variant: Variant
    block: int
    open_ids: Sequence[int]
    missing: int
    next_id: int
    soft: bool
    is_partial: bool = False


class _Table(NamedTuple):
    """SuperPoDs that are considered, with their column and remainder. All arrays have shape (SuperPoDs,)."""

    pods: Rows
    column: Rows
    remainder: Rows


class _Decision:
    """State of one selection: nodes left in each SuperPoD, open blocks, and allocations so far."""

    def __init__(self, counts: Counts, open_blocks: OpenBlocks, reserve: int, differs: Differences) -> None:
        """Start without allocations."""
        self.open_blocks = open_blocks
        self.reserve = reserve
        self.differs = differs
        self.left: list[int] = counts.tolist()
        self.need = deque(open_blocks.open_ids)
        self.next_id = open_blocks.next_id
        self.missing = open_blocks.missing
        self.allocations: list[BlockAllocation] = []

    def next_open(self) -> int:
        """Id of the next open block, or of a new piece if no block is open."""
        if self.need:
            return self.need.popleft()
        self.next_id += 1
        return self.next_id - 1

    def give(self, pod: int, nodes: int, phase: Phase) -> None:
        """Allocate nodes of a SuperPoD to the next block or piece."""
        self.allocations.append(BlockAllocation(self.next_open(), pod, nodes, phase))
        self.left[pod] -= nodes
        self.missing -= nodes

    def drain(self, pod: int, phase: Phase) -> None:
        """Allocate whole blocks of a SuperPoD while it keeps its reserve."""
        block = self.open_blocks.block
        for _ in range(min((self.left[pod] - self.reserve) // block, len(self.need))):
            self.give(pod, block, phase)

    def fits(self, table: _Table) -> None:
        """Phase A: SuperPoDs that the open blocks use up completely, ordered by remainder.

        The number of open blocks is read again for each new pair of column and remainder.
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
        """Phase C: one block from the reserve of each SuperPoD that has one, repeated until no block changes.

        The reference does not repeat it (decision D-3).
        """
        while self._give_reserves(table) and self.differs.whole_blocks:
            pass

    def _give_reserves(self, table: _Table) -> bool:
        """One pass of phase C. Returns whether it allocated anything."""
        block, before = self.open_blocks.block, len(self.allocations)
        left = self._left_of(table)
        order = np.lexsort((-left, table.column, -table.remainder))
        for pod in table.pods[order[left[order] >= block]].tolist():
            if not self.need:
                break
            self.give(pod, block, "reserve")
        return len(self.allocations) > before

    def take_pieces(self, table: _Table) -> None:
        """Phase D: the remaining nodes in pieces of at most one block, repeated until no node is missing.

        The reference does not repeat it (decision D-4).
        """
        while self._give_pieces(table) and self.differs.pieces_until_complete:
            pass

    def _give_pieces(self, table: _Table) -> bool:
        """One pass of phase D. Returns whether it allocated anything."""
        block, before = self.open_blocks.block, len(self.allocations)
        left = self._left_of(table)
        for pod in table.pods[self._order_of_pieces(table, left)].tolist():
            if self.missing <= 0:
                break
            nodes = min(block, self.left[pod])
            if nodes < block and self.open_blocks.variant == "850" and not self.open_blocks.soft:
                self.next_open()  # the reference consumes the id and takes nothing
            else:
                self.give(pod, min(nodes, self.missing) if self.differs.small_pieces else nodes, "pieces")
        return len(self.allocations) > before

    def _left_of(self, table: _Table) -> Counts:
        return np.asarray(self.left, np.int64)[table.pods]

    def _order_of_pieces(self, table: _Table, left: Counts) -> Rows:
        """SuperPoDs by nodes left, the most first; the reference sorts by remainder, those below the reserve last."""
        if self.differs.large_pieces_first:
            order = np.argsort(-left, kind="stable")
        else:
            low = table.remainder < min(self.open_blocks.block, self.reserve)
            rank = np.where(low, table.remainder, -table.remainder)
            order = np.lexsort((-left, table.column, rank, low))
        return order[left[order] > 0]


def select(
    ids: Sequence[str], counts: Counts, open_blocks: OpenBlocks, rules: BlockRules
) -> tuple[BlockAllocation, ...] | NoBlocks:
    """Number of nodes that each SuperPoD gives to each block.

    Args:
        ids: SuperPoDs in their order, for a refusal.
        counts: ``int64[SuperPoDs]``, candidate nodes of each.
        open_blocks: Blocks to place.
        rules: Reserve, size, and which decisions go Berth's way.

    Returns:
        Allocations in the order of the decision, or what is missing.
    """
    return _select(ids, counts, open_blocks, rules, rules.differs)


def _select(
    ids: Sequence[str], counts: Counts, open_blocks: OpenBlocks, rules: BlockRules, differs: Differences
) -> tuple[BlockAllocation, ...] | NoBlocks:
    if not differs.large_superpods and _overflows(counts, open_blocks, rules):
        return _none("size", ids, counts, open_blocks, limit=rules.size)
    capacity = int((counts // open_blocks.block).sum())
    if capacity < len(open_blocks.open_ids) and (not open_blocks.soft or open_blocks.is_partial):
        return _none("blocks", ids, counts, open_blocks)
    decision = _Decision(counts, open_blocks, rules.reserve, differs)
    table = _table(counts, open_blocks, rules.reserve)
    decision.fits(table)
    decision.larger(table)
    decision.take_reserves(table)
    if open_blocks.soft or not differs.whole_blocks:
        decision.take_pieces(table)
    if decision.missing > 0 and differs.whole_blocks:
        return _none("incomplete", ids, counts, open_blocks, found=open_blocks.missing - decision.missing)
    return tuple(decision.allocations)


def _table(counts: Counts, open_blocks: OpenBlocks, reserve: int) -> _Table:
    """Columns and remainders of all SuperPoDs that are considered.

    Source: docs/reference/superpods.md, "Queues".
    """
    pods = np.flatnonzero(counts > 0 if open_blocks.soft else counts >= open_blocks.block)
    above_reserve = counts[pods] - reserve
    has_more = above_reserve >= 0
    return _Table(
        pods,
        np.where(has_more, above_reserve // open_blocks.block, 0),
        np.where(has_more, above_reserve, counts[pods]) % open_blocks.block,
    )


def _overflows(counts: Counts, open_blocks: OpenBlocks, rules: BlockRules) -> bool:
    """Whether the reference has no column for some SuperPoD; 850 compares the size itself (decision D-1)."""
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
