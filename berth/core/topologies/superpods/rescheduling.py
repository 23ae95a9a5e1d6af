"""Blocks after a fault: which ones keep their nodes, which ones get other nodes in their SuperPoD, and which ones move.

A running pod never moves. If a block with running pods cannot get a node for a lost pod in its SuperPoD, the plan
states it: its pods have to be deleted before the block can move. The reference lists other nodes for them instead
(decision D-10).

Source: docs/reference/superpods.md, "Places after a fault" and "Where Berth decides otherwise".
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.node_groups import Rows
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
from berth.core.topologies.blocks.node_assignment import assign_nodes, candidates, not_enough_nodes
from berth.core.topologies.superpods.block_history import NOWHERE, DisruptedGang, HeldBlock, PodFate
from berth.core.topologies.superpods.block_selection import OpenBlocks, select
from berth.core.topologies.superpods.free_nodes import FreeNodes

RELEASE_WAIT_MS: Final = 10_000
"""How long after its first attempt a gang waits for the release of its own healthy nodes, in milliseconds."""


class StuckBlocks(NamedTuple):
    """Blocks with running pods that cannot get the missing nodes in their SuperPoD.

    Attributes:
        block_ids: Their ids, ascending: all their pods have to be deleted before they can move.
        lack: Number of missing nodes.
    """

    block_ids: tuple[int, ...]
    lack: NoBlocks


class _DecidedBlock(NamedTuple):
    """A block with decided nodes, by position."""

    held: HeldBlock
    pod: int
    rows: list[int]
    phase: Phase


class _FirstPass(NamedTuple):
    """What is decided before other SuperPoDs are considered.

    Attributes:
        settled: Blocks with decided nodes, by id.
        rest: Candidates that are left.
        open_blocks: Blocks and nodes that are still to be found.
        is_overdrawn: Only without decision D-10: a block with running pods took the nodes of a whole block.
    """

    settled: dict[int, _DecidedBlock]
    rest: CandidatePool
    open_blocks: OpenBlocks
    is_overdrawn: bool = False


def plan_again(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, failure: DisruptedGang
) -> BlockPlan | NoBlocks | StuckBlocks:
    """Plan of a gang after a fault.

    Source: docs/reference/superpods.md, "Places after a fault".

    Args:
        pool: Candidates. The nodes of running pods are not among them; those of returning pods may be.
        demand: Request of the gang.
        rules: Reserve, size, and which documented decisions go Berth's way.
        failure: Blocks of the gang, and what happened to their pods.
    """
    found = _first_pass(pool, demand, rules, failure)
    if not isinstance(found, _FirstPass):
        return found
    allocations: tuple[BlockAllocation, ...] | NoBlocks = ()
    if found.open_blocks.open_ids or found.open_blocks.missing > 0:
        allocations = select(pool.ids, found.rest.counts, found.open_blocks, rules)
    if isinstance(allocations, NoBlocks):
        return allocations
    return (_own_plan if rules.differs.running_pods_stay else _reference_plan)(found, demand, allocations)


def _first_pass(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, failure: DisruptedGang
) -> _FirstPass | NoBlocks | StuckBlocks:
    pool = candidates(pool, demand)
    free_nodes = FreeNodes(pool, failure.failed_nodes)
    pending = demand.replicas - failure.runs
    if len(pool.rows) < pending and not (failure.runs and len(pool.rows)):
        return not_enough_nodes(pool, demand._replace(replicas=pending))
    moves = not rules.differs.running_pods_stay
    if not failure.is_pod_level and failure.waited_ms < RELEASE_WAIT_MS:
        late = [row for row in _healthy(failure.held, with_running=moves) if not free_nodes.is_free(row)]
        if late:
            return _none("wait", pool, demand, failure.held, nodes=(len(late), 0))
    return (_reference_pass if moves else _own_pass)(free_nodes, demand, failure, pending)


def _healthy(held: Iterable[HeldBlock], *, with_running: bool) -> Iterable[int]:
    """Rows of nodes that did not fail and that the gang releases."""
    for block in held:
        for row, fate in zip(block.rows, block.fates, strict=True):
            if fate is PodFate.RETURNS or (with_running and fate is PodFate.RUNS):
                yield row


def _take_own_nodes(free_nodes: FreeNodes, held: HeldBlock) -> list[int]:
    """Take the free nodes of returning pods. Returns the rows of the block.

    Nodes of running pods stay in it; any other position is :data:`NOWHERE`.
    """
    return [
        row
        if fate is PodFate.RUNS
        else free_nodes.take(row)
        if fate is PodFate.RETURNS and free_nodes.is_free(row)
        else NOWHERE
        for row, fate in zip(held.rows, held.fates, strict=True)
    ]


def _own_pass(
    free_nodes: FreeNodes, demand: BlockDemand, failure: DisruptedGang, pending: int
) -> _FirstPass | StuckBlocks:
    """Blocks that stay. Blocks with running pods come first, because they cannot move."""
    settled: dict[int, _DecidedBlock] = {}
    damaged: list[HeldBlock] = []
    for held in failure.held:
        returning = [row for row, fate in zip(held.rows, held.fates, strict=True) if fate is PodFate.RETURNS]
        if held.is_damaged or not all(map(free_nodes.is_free, returning)):
            damaged.append(held)
        else:
            settled[held.block_id] = _DecidedBlock(
                held, free_nodes.pod(held.superpod), _take_own_nodes(free_nodes, held), "kept"
            )
    partial = [
        _DecidedBlock(held, free_nodes.pod(held.superpod), _take_own_nodes(free_nodes, held), "replaced")
        for held in damaged
        if held.runs
    ]
    owed: Counter[str] = Counter()
    stuck: list[_DecidedBlock] = []
    for block in partial:
        lacking = block.rows.count(NOWHERE)
        if owed[block.held.superpod] + lacking > free_nodes.free(block.held.superpod):
            stuck.append(block)
        else:
            owed[block.held.superpod] += lacking
    if stuck:
        return _stuck(free_nodes, demand, stuck, owed)
    for held in damaged:
        left = free_nodes.free(held.superpod) - owed[held.superpod]
        if not held.runs and left >= len(held.rows):  # a piece of a soft gang has fewer nodes than a block
            block = _DecidedBlock(held, free_nodes.pod(held.superpod), _take_own_nodes(free_nodes, held), "rebuilt")
            owed[held.superpod] += block.rows.count(NOWHERE)
            partial.append(block)
    for block in partial:
        settled[block.held.block_id] = block._replace(rows=free_nodes.fill(block.rows, block.held.superpod))
    return _FirstPass(
        settled,
        free_nodes.pool.without(free_nodes.gone),
        _still_open(demand, settled, pending, _unneeded_ids(demand, failure)),
    )


def _stuck(
    free_nodes: FreeNodes, demand: BlockDemand, stuck: Sequence[_DecidedBlock], owed: Counter[str]
) -> StuckBlocks:
    """Blocks that lack more nodes than their SuperPoD has."""
    homes = dict.fromkeys(block.held.superpod for block in stuck)
    lacking = sum(block.rows.count(NOWHERE) for block in stuck)
    have = sum(free_nodes.free(home) - owed[home] for home in homes)
    held = [block.held for block in stuck]
    return StuckBlocks(
        tuple(block.block_id for block in held),
        _none("home", free_nodes.pool.without(free_nodes.gone), demand, held, nodes=(lacking, have)),
    )


def _reference_pass(
    free_nodes: FreeNodes, demand: BlockDemand, failure: DisruptedGang, pending: int
) -> _FirstPass | NoBlocks:
    """Blocks that stay, as the reference decides."""
    lack = _reference_shortage(free_nodes, demand, failure)
    if lack is not None:
        return lack
    settled: dict[int, _DecidedBlock] = {}
    damaged: list[HeldBlock] = []
    for held in failure.held:
        if held.is_damaged or not (failure.is_pod_level or all(map(free_nodes.is_free, held.rows))):
            damaged.append(held)
            continue
        settled[held.block_id] = _DecidedBlock(held, free_nodes.pod(held.superpod), list(held.rows), "kept")
        for row in filter(free_nodes.is_free, held.rows):
            free_nodes.take(row)
    is_overdrawn = False
    for held in damaged:
        if free_nodes.free(held.superpod) >= demand.block:
            rows = [
                free_nodes.take(row) if fate is not PodFate.LOST and free_nodes.is_free(row) else NOWHERE
                for row, fate in zip(held.rows, held.fates, strict=True)
            ]
            settled[held.block_id] = _DecidedBlock(
                held, free_nodes.pod(held.superpod), free_nodes.fill(rows, held.superpod), "rebuilt"
            )
            is_overdrawn |= held.runs > 0
    for held in damaged if failure.is_pod_level else ():
        lost = held.fates.count(PodFate.LOST)
        if lost == 0:
            settled[held.block_id] = _DecidedBlock(held, free_nodes.pod(held.superpod), list(held.rows), "kept")
        elif lost <= free_nodes.free(held.superpod) and pending < len(held.rows):
            rows = [NOWHERE if fate is PodFate.LOST else row for row, fate in zip(held.rows, held.fates, strict=True)]
            settled[held.block_id] = _DecidedBlock(
                held, free_nodes.pod(held.superpod), free_nodes.fill(rows, held.superpod), "replaced"
            )
    return _FirstPass(
        settled, free_nodes.pool.without(free_nodes.gone), _still_open(demand, settled, pending), is_overdrawn
    )


def _reference_shortage(free_nodes: FreeNodes, demand: BlockDemand, failure: DisruptedGang) -> NoBlocks | None:
    """Check of the reference whether pods can return at all; it passes as soon as one block returns as a whole."""
    homes: Counter[str] = Counter()
    for held in failure.held:
        running = held.runs if failure.is_pod_level else 0
        if not running:
            return None
        homes[held.superpod] += len(held.rows) - running
    short = {home: number for home, number in homes.items() if free_nodes.free(home) < number}
    if not short:
        return None
    partial = [held for held in failure.held if held.superpod in short]
    return _none(
        "home", free_nodes.pool, demand, partial, nodes=(sum(short.values()), sum(map(free_nodes.free, short)))
    )


def _still_open(
    demand: BlockDemand, settled: Mapping[int, _DecidedBlock], pending: int, unneeded: Collection[int] = ()
) -> OpenBlocks:
    """Blocks and nodes that are still to be found; ``unneeded`` ids stay closed."""
    return OpenBlocks(
        demand.variant,
        demand.block,
        [block_id for block_id in range(demand.blocks) if block_id not in settled and block_id not in unneeded],
        demand.replicas - sum(len(block.rows) for block in settled.values()),
        demand.blocks + sum(block_id >= demand.blocks for block_id in settled),
        demand.soft,
        demand._replace(pending=pending).is_partial,
    )


def _unneeded_ids(demand: BlockDemand, failure: DisruptedGang) -> list[int]:
    """Ids without nodes that need none, because other blocks had all nodes that the gang needs (decision D-3)."""
    known = {held.block_id for held in failure.held}
    unknown = max(0, demand.replicas - sum(len(held.rows) for held in failure.held))
    return [block_id for block_id in range(demand.blocks) if block_id not in known][-(-unknown // demand.block) :]


def _reference_plan(found: _FirstPass, demand: BlockDemand, allocations: Sequence[BlockAllocation]) -> BlockPlan:
    """Plan with ranks numbered by a walk over all blocks, as in the reference."""
    rows, block_ids, pods = _nodes_of(found, allocations)
    walk = np.argsort(block_ids, kind="stable")[: demand.replicas]
    plan = _empty_plan(demand)
    for field, values in ((plan.rows, rows), (plan.block_ids, block_ids), (plan.pods, pods)):
        field[: len(walk)] = values[walk]
    return plan._replace(allocations=(*_kept_allocations(found), *allocations))


def _own_plan(found: _FirstPass, demand: BlockDemand, allocations: Sequence[BlockAllocation]) -> BlockPlan:
    """Plan in which blocks that stay keep their ranks; other blocks get the open ranks by id."""
    allocations = _trimmed(found, demand, allocations)
    rows, block_ids, pods = _nodes_of(found, allocations)
    settled = [rank for block in found.settled.values() for rank in block.held.ranks]
    is_open = np.ones(demand.replicas, np.bool_)
    is_open[settled] = False
    walk = np.argsort(block_ids[len(settled) :], kind="stable") + len(settled)
    ranks = np.concatenate([np.array(settled, np.int64), np.flatnonzero(is_open)])
    order = np.concatenate([np.arange(len(settled)), walk])
    plan = _empty_plan(demand)
    for field, values in ((plan.rows, rows), (plan.block_ids, block_ids), (plan.pods, pods)):
        field[ranks] = values[order]
    return plan._replace(allocations=(*_kept_allocations(found), *allocations))


def _trimmed(found: _FirstPass, demand: BlockDemand, allocations: Sequence[BlockAllocation]) -> list[BlockAllocation]:
    """Allocations with at most the missing nodes (decision D-5), and no new piece with the id of a block (D-8)."""
    free_ids = (block_id for block_id in count(found.open_blocks.next_id) if block_id not in found.settled)
    missing = found.open_blocks.missing
    trimmed = []
    for allocation in allocations:
        nodes = min(allocation.nodes, missing)
        if nodes:
            block_id = allocation.block_id if allocation.block_id < demand.blocks else next(free_ids)
            trimmed.append(allocation._replace(block_id=block_id, nodes=nodes))
        missing -= nodes
    return trimmed


def _nodes_of(found: _FirstPass, allocations: Sequence[BlockAllocation]) -> tuple[Rows, Rows, Rows]:
    """Node, block and SuperPoD of each position: first of the blocks that stay, then of the selected blocks."""
    settled = found.settled.items()
    new = assign_nodes(found.rest, allocations, sum(allocation.nodes for allocation in allocations))
    return (
        np.array([row for _, block in settled for row in block.rows] + new.rows.tolist(), np.int64),
        np.array([block_id for block_id, block in settled for _ in block.rows] + new.block_ids.tolist(), np.int64),
        np.array([block.pod for _, block in settled for _ in block.rows] + new.pods.tolist(), np.int64),
    )


def _kept_allocations(found: _FirstPass) -> tuple[BlockAllocation, ...]:
    return tuple(
        BlockAllocation(block_id, block.pod, len(block.rows), block.phase)
        for block_id, block in sorted(found.settled.items())
    )


def _empty_plan(demand: BlockDemand) -> BlockPlan:
    """A plan without a node for any rank."""
    rows, block_ids, pods = np.full((3, demand.replicas), NOWHERE, np.int64)
    return BlockPlan(rows, block_ids, pods, ())


def _none(
    lack: Lack, pool: CandidatePool, demand: BlockDemand, held: Sequence[HeldBlock], *, nodes: tuple[int, int]
) -> NoBlocks:
    """Refusal; ``nodes`` are the numbers of needed and found nodes."""
    counts = pool.counts
    return NoBlocks(
        lack=lack,
        block=demand.block,
        blocks_need=sum(block.runs < len(block.rows) for block in held),
        blocks_have=int((counts // demand.block).sum()),
        nodes_need=nodes[0],
        nodes_have=nodes[1],
        closest=closest(pool.ids, counts, demand.block),
    )
