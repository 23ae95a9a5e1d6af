"""Blocks in SuperPoDs with racks: one rack for all blocks, a domain of racks, one SuperPoD, or several.

A block consists of parts, each inside one rack. Small racks are used first, so that large racks stay whole.

Source: docs/reference/superpods.md, "Racks". See decisions D-1, D-8 and D-19.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import Final, Literal, NamedTuple

import numpy as np

from berth.core.cluster.node_groups import Counts, Rows
from berth.core.parity import OWN, Differences
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    Lack,
    NoBlocks,
    Phase,
    closest,
)
from berth.core.topologies.blocks.node_assignment import candidates
from berth.core.topologies.racks.limits import RACK_NODES

DOMAIN_RACKS: Final = 16
"""Racks that share memory over the unified bus: those whose numbers have the same quotient by this value."""

Strategy = Literal["rack", "ub-memory", "superpod", "multi-superpod"]
NO_ROWS: Final[Rows] = np.empty(0, np.int64)


class OpenRackBlocks(NamedTuple):
    """Blocks to place.

    Attributes:
        demand: Request of the whole gang.
        open_ids: Ids of the whole blocks, ascending.
        piece_nodes: Number of further nodes that were pieces before and may be pieces again.
        next_id: Id of the first new piece.
    """

    demand: BlockDemand
    open_ids: Sequence[int]
    piece_nodes: int = 0
    next_id: int = 0

    @property
    def nodes(self) -> int:
        """Number of nodes to find."""
        return len(self.open_ids) * self.demand.block + self.piece_nodes

    @property
    def parts(self) -> int:
        """Number of parts of whole blocks to find, each inside one rack."""
        return len(self.open_ids) * self.demand.block // self.demand.rack_block


class BlockNodes(NamedTuple):
    """Nodes of a block.

    Attributes:
        block_id: Id of the block.
        pod: Index of the SuperPoD in the pool.
        rows: Rows of its nodes, in the order of the block.
        phase: Step that allocated them.
    """

    block_id: int
    pod: int
    rows: Rows
    phase: Phase


class Racks:
    """Racks of a pool and the nodes left in each. Nodes with an unknown rack are omitted.

    Args:
        pool: SuperPoDs with the candidates of a gang.
    """

    def __init__(self, pool: CandidatePool) -> None:
        self.pool = pool
        places = np.flatnonzero(pool.racks >= 0)
        pods = np.repeat(np.arange(len(pool.ids)), pool.counts)[places]
        racks = pool.racks[places]
        order = np.lexsort((racks, pods))
        self._rows: Rows = pool.rows[places[order]]
        pods, racks = pods[order], racks[order]
        first = np.ones(len(pods), np.bool_)
        first[1:] = (pods[1:] != pods[:-1]) | (racks[1:] != racks[:-1])
        starts = np.flatnonzero(first)
        self.pods: Rows = pods[starts]
        """SuperPoD of each rack, rising. Shape (racks,)."""
        self.racks: Rows = racks[starts]
        """Number of each rack, rising inside a SuperPoD. Shape (racks,)."""
        self.left: Counts = np.diff(starts, append=len(pods))
        """Number of nodes left in each rack. Shape (racks,)."""
        self.free: Counts = np.bincount(pods, minlength=len(pool.ids))
        """Number of nodes of each SuperPoD before any was taken. Shape (SuperPoDs,)."""
        self._starts = starts
        self.limits: list[int] = np.searchsorted(self.pods, np.arange(len(pool.ids) + 1)).tolist()
        """The racks of SuperPoD ``p`` are ``limits[p]`` to ``limits[p + 1]``."""

    def drop(self, gone: Rows) -> None:
        """Remove nodes, given by their rows."""
        if not len(gone):
            return
        cells = np.repeat(np.arange(len(self.left)), self.left)
        places = (
            np.repeat(self._starts, self.left)
            + np.arange(len(cells))
            - np.repeat(np.cumsum(self.left) - self.left, self.left)
        )
        kept = ~np.isin(self._rows[places], gone)
        self._rows = self._rows[places[kept]]
        self.left = np.bincount(cells[kept], minlength=len(self.left))
        self._starts = np.cumsum(self.left) - self.left

    def take(self, cell: int, nodes: int) -> Rows:
        """Take nodes of a rack; returns their rows."""
        start = int(self._starts[cell])
        self._starts[cell] += nodes
        self.left[cell] -= nodes
        return self._rows[start : start + nodes]

    def by_left(self, start: int, stop: int) -> list[int]:
        """Racks of a range with nodes left, the one with the fewest first."""
        left = self.left[start:stop].tolist()
        return [start + at for at in sorted(range(len(left)), key=left.__getitem__) if left[at]]

    def filled(self, cells: Sequence[int], parts: int, size: int) -> Rows:
        """Rows of ``parts`` parts with ``size`` nodes each: racks in the order given, each with all its parts."""
        rows = []
        for cell in cells:
            given = min(int(self.left[cell]) // size, parts)
            if given:
                rows.append(self.take(cell, given * size))
                parts -= given
            if not parts:
                break
        return np.concatenate([NO_ROWS, *rows])


def strategies(demand: BlockDemand, rules: BlockRules) -> tuple[Strategy, ...]:
    """Strategies to try, in order."""
    if demand.replicas <= RACK_NODES:
        return ("rack", "superpod", "multi-superpod")
    if demand.ub_memory:
        return ("ub-memory",)
    return ("superpod", "multi-superpod") if demand.replicas <= rules.size else ("multi-superpod",)


def plan_racks(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, *, unlinked: Rows = NO_ROWS
) -> BlockPlan | NoBlocks:
    """Plan of a new gang with racks.

    Args:
        pool: SuperPoDs with the candidates of the gang, and their racks.
        demand: Request of the gang.
        rules: Size, and which decisions go Berth's way.
        unlinked: Rows of nodes with chips that the network does not reach; a plan on several SuperPoDs cannot use them.
    """
    allocated = place(Racks(candidates(pool, demand)), all_of(demand), rules, unlinked=unlinked)
    return allocated if isinstance(allocated, NoBlocks) else ranked(allocated, demand, rules.differs)


def all_of(demand: BlockDemand) -> OpenRackBlocks:
    """All blocks of a gang."""
    return OpenRackBlocks(demand, range(demand.blocks), next_id=demand.blocks)


def oversized_lack(racks: Racks, open_blocks: OpenRackBlocks, rules: BlockRules) -> NoBlocks | None:
    """Refusal of the reference if a SuperPoD has more free nodes than its configured size (decision D-1), or None."""
    if rules.differs.large_superpods or racks.free.max(initial=0) <= rules.size:
        return None
    return rack_shortage(racks, open_blocks, "size", limit=rules.size)


def place(
    racks: Racks, open_blocks: OpenRackBlocks, rules: BlockRules, *, unlinked: Rows = NO_ROWS
) -> list[BlockNodes] | NoBlocks:
    """Nodes of each block, by the first strategy that finds them.

    Args:
        racks: Racks; nodes that are taken are removed from them.
        open_blocks: Blocks to place. With piece nodes only several SuperPoDs are tried.
        rules: Size, and which decisions go Berth's way.
        unlinked: See :func:`plan_racks`.
    """
    lack = oversized_lack(racks, open_blocks, rules)
    if lack is not None:
        return lack
    ways: dict[Strategy, Callable[[], list[BlockNodes] | NoBlocks]] = {
        "rack": lambda: _one_rack(racks, open_blocks),
        "ub-memory": lambda: _one_domain(racks, open_blocks),
        "superpod": lambda: _one_superpod(racks, open_blocks),
        "multi-superpod": lambda: _superpods(racks, open_blocks, rules, unlinked),
    }
    tried = ("multi-superpod",) if open_blocks.piece_nodes else strategies(open_blocks.demand, rules)
    found: list[BlockNodes] | NoBlocks = []
    for strategy in tried:
        if strategy == "rack":
            lack = _impossible(racks, open_blocks)
            if lack is not None:
                return lack
        found = ways[strategy]()
        if not isinstance(found, NoBlocks):
            break
        if strategy == "rack" and not open_blocks.demand.soft and open_blocks.nodes == open_blocks.demand.rack_block:
            break
    return found


def rack_shortage(
    racks: Racks, open_blocks: OpenRackBlocks, lack: Lack, *, limit: int = 0, have: int | None = None
) -> NoBlocks:
    """Refusal with the numbers of a gang with racks."""
    block = open_blocks.demand.block
    return NoBlocks(
        lack=lack,
        block=block,
        blocks_need=len(open_blocks.open_ids),
        blocks_have=int(_blocks(racks, open_blocks).sum()) if have is None else have,
        nodes_need=open_blocks.nodes,
        nodes_have=int(racks.left.sum()),
        closest=closest(racks.pool.ids, racks.free, block),
        limit=limit,
    )


def _parts(racks: Racks, open_blocks: OpenRackBlocks) -> Counts:
    """Number of parts that fit into the racks of each SuperPoD."""
    parts = racks.left // open_blocks.demand.rack_block
    return np.bincount(racks.pods, parts, minlength=len(racks.free)).astype(np.int64)


def _blocks(racks: Racks, open_blocks: OpenRackBlocks) -> Counts:
    """Number of blocks that fit into each SuperPoD."""
    return _parts(racks, open_blocks) // (open_blocks.demand.block // open_blocks.demand.rack_block)


def _impossible(racks: Racks, open_blocks: OpenRackBlocks) -> NoBlocks | None:
    """Refusal of a hard gang that no combination of SuperPoDs can hold; otherwise None."""
    have = int((racks.free // open_blocks.demand.block).sum())
    if open_blocks.demand.soft or have >= len(open_blocks.open_ids):
        return None
    return rack_shortage(racks, open_blocks, "blocks", have=have)


def _one_rack(racks: Racks, open_blocks: OpenRackBlocks) -> list[BlockNodes] | NoBlocks:
    """All blocks in the smallest rack that is large enough, of the SuperPoD with the fewest nodes that has one.

    The last block gets the first nodes.
    """
    fit = np.flatnonzero(racks.left >= open_blocks.nodes)
    if not len(fit):
        return rack_shortage(racks, open_blocks, "rack")
    pods = racks.pods[fit]
    cell = int(fit[np.lexsort((racks.left[fit], pods, racks.free[pods]))[0]])
    rows = racks.take(cell, open_blocks.nodes)
    return list(
        _split_blocks(rows, open_blocks.open_ids[::-1], int(racks.pods[cell]), open_blocks.demand.block, "rack")
    )


def _one_domain(racks: Racks, open_blocks: OpenRackBlocks) -> list[BlockNodes] | NoBlocks:
    """All blocks in one domain of racks, of the SuperPoD with the fewest nodes that has one.

    Of several domains the smallest is used. SuperPoDs with equal numbers of nodes are treated as one here.
    """
    domains = racks.pods * (int(racks.racks.max(initial=0)) // DOMAIN_RACKS + 1) + racks.racks // DOMAIN_RACKS
    starts = np.flatnonzero(np.diff(domains, prepend=-1))
    if not len(starts):
        return rack_shortage(racks, open_blocks, "rack")
    size, pods = open_blocks.demand.rack_block, racks.pods[starts]
    parts = np.add.reduceat(racks.left // size, starts)
    left = np.add.reduceat(racks.left, starts)
    fit = np.flatnonzero((parts >= open_blocks.parts) & (racks.free[pods] >= open_blocks.nodes))
    if not len(fit):
        return rack_shortage(racks, open_blocks, "rack")
    best = int(fit[np.lexsort((pods[fit], left[fit], racks.free[pods[fit]]))[0]])
    stop = int(starts[best + 1]) if best + 1 < len(starts) else len(domains)
    rows = racks.filled(racks.by_left(int(starts[best]), stop), open_blocks.parts, size)
    return list(_split_blocks(rows, open_blocks.open_ids, int(pods[best]), open_blocks.demand.block, "ub-memory"))


def _one_superpod(racks: Racks, open_blocks: OpenRackBlocks) -> list[BlockNodes] | NoBlocks:
    """All blocks in one SuperPoD, the one with the fewest nodes that is large enough."""
    fit = np.flatnonzero((racks.free >= open_blocks.nodes) & (_parts(racks, open_blocks) >= open_blocks.parts))
    if not len(fit):
        return rack_shortage(racks, open_blocks, "blocks")
    pod = int(fit[np.argmin(racks.free[fit])])
    return list(_blocks_of_superpod(racks, open_blocks, pod, open_blocks.open_ids, "superpod"))


def _superpods(
    racks: Racks, open_blocks: OpenRackBlocks, rules: BlockRules, unlinked: Rows
) -> list[BlockNodes] | NoBlocks:
    """Whole blocks from several SuperPoDs, those with the most nodes first; a soft gang continues rack by rack."""
    racks.drop(unlinked)
    order = np.argsort(-racks.free, kind="stable")
    fits = _blocks(racks, open_blocks)[order]
    before = np.cumsum(fits) - fits
    given = np.minimum(fits, len(open_blocks.open_ids) - before).clip(min=0)
    if not open_blocks.demand.soft and int(given.sum()) < len(open_blocks.open_ids):
        return rack_shortage(racks, open_blocks, "blocks")
    allocated: list[BlockNodes] = []
    for at in np.flatnonzero(given).tolist():
        ids = open_blocks.open_ids[int(before[at]) : int(before[at] + given[at])]
        allocated += _blocks_of_superpod(racks, open_blocks, int(order[at]), ids, "multi-superpod")
    missing = open_blocks.nodes - len(allocated) * open_blocks.demand.block
    if not missing:
        return allocated
    if int(racks.left.sum()) < missing:
        return rack_shortage(racks, open_blocks, "nodes", have=len(allocated))
    new_ids = count(open_blocks.next_id) if rules.differs.new_ids_of_pieces else count(open_blocks.demand.replicas, -1)
    return [*allocated, *_pieces(racks, order, missing, chain(open_blocks.open_ids[len(allocated) :], new_ids))]


def _pieces(racks: Racks, pods: Rows, missing: int, ids: Iterator[int]) -> Iterator[BlockNodes]:
    """Remaining nodes, one piece per rack: SuperPoDs in the order given, the rack with the fewest nodes first."""
    for pod in pods.tolist():
        for cell in racks.by_left(*racks.limits[pod : pod + 2]):
            if not missing:
                return
            rows = racks.take(cell, min(int(racks.left[cell]), missing))
            missing -= len(rows)
            yield BlockNodes(next(ids), pod, rows, "multi-superpod-pieces")


def _blocks_of_superpod(
    racks: Racks, open_blocks: OpenRackBlocks, pod: int, ids: Sequence[int], phase: Phase
) -> Iterator[BlockNodes]:
    """Blocks of one SuperPoD, from its racks with the fewest nodes first."""
    demand = open_blocks.demand
    parts = len(ids) * demand.block // demand.rack_block
    rows = racks.filled(racks.by_left(*racks.limits[pod : pod + 2]), parts, demand.rack_block)
    return _split_blocks(rows, ids, pod, demand.block, phase)


def _split_blocks(rows: Rows, ids: Sequence[int], pod: int, block: int, phase: Phase) -> Iterator[BlockNodes]:
    """Rows split into blocks, one after the other."""
    return (BlockNodes(block_id, pod, rows[at * block : (at + 1) * block], phase) for at, block_id in enumerate(ids))


def ranked(allocated: Sequence[BlockNodes], demand: BlockDemand, differs: Differences = OWN) -> BlockPlan:
    """Node of each rank. Ranks are numbered block after block by block id.

    The reference gives rank ``r`` the node ``r mod B`` of block ``r div B``, so that some ranks have no node if there
    are pieces (decision D-8).
    """
    walk = sorted(allocated, key=lambda take: take.block_id)
    lengths = np.array([len(take.rows) for take in walk], np.int64)
    block_ids = np.repeat(np.array([take.block_id for take in walk], np.int64), lengths)
    ranks = np.arange(len(block_ids))
    if not differs.new_ids_of_pieces:
        ranks = block_ids * demand.block + ranks - np.repeat(np.cumsum(lengths) - lengths, lengths)
    kept = ranks < demand.replicas
    found = np.full((3, demand.replicas), -1, np.int64)
    columns = (np.concatenate([take.rows for take in walk]), block_ids, np.repeat([take.pod for take in walk], lengths))
    for column, values in zip(found, columns, strict=True):
        column[ranks[kept]] = values[kept]
    allocations = tuple(BlockAllocation(take.block_id, take.pod, len(take.rows), take.phase) for take in allocated)
    return BlockPlan(found[0], found[1], found[2], allocations)
