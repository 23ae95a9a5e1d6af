"""Recovery of a gang with racks: what moves in which scope, and its new place.

A lost pod first gets another node of its rack. Later its part moves within its SuperPoD, then its block moves anywhere,
and finally the whole gang is placed again. A pod with a healthy node moves only with its part or block, and the result
names it, so that it can be ended first.

Source: docs/reference/superpods.md, "Stages of deletion" and "Racks". See decision D-10.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Marks
from berth.core.cluster.node_groups import Rows
from berth.core.parity import OWN
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    NoBlocks,
)
from berth.core.topologies.racks.planner import (
    DOMAIN_RACKS,
    NO_ROWS,
    BlockNodes,
    OpenRackBlocks,
    Racks,
    place,
    plan_racks,
    rack_shortage,
)

MoveScope = Literal["pod", "part", "block", "job"]
"""What moves: lost pods only; parts of blocks, which stay inside a rack; blocks; the whole gang."""


class PlacedRanks(NamedTuple):
    """Previous places of the ranks of a gang. All arrays are ``int64[replicas]``.

    Attributes:
        rows: Node of each rank; -1 if it is not known.
        block_ids: Block of each rank.
        pods: SuperPoD of each rank, as its index in the pool; -1 if it is not known.
        racks: Rack of each rank; -1 if it is not known.
    """

    rows: Rows
    block_ids: Rows
    pods: Rows
    racks: Rows


class RackRecovery(NamedTuple):
    """Place of each rank after a loss.

    Attributes:
        plan: Places of all ranks; its allocations are those of the blocks that were placed again.
        moved: Ranks whose node changes, ascending.
        given_up: Those of them whose previous node is healthy: their pods have to end first.
    """

    plan: BlockPlan
    moved: Rows
    given_up: Rows


def parts_of(block_ids: Rows, lost: Marks, demand: BlockDemand, scope: MoveScope) -> list[Rows]:
    """Ranks that move together, ascending; the part of the first rank first.

    Args:
        block_ids: ``int64[replicas]``, block of each rank.
        lost: ``bool[replicas]``, ranks that are lost.
        demand: Request of the gang.
        scope: What moves.
    """
    ranks = np.arange(len(block_ids))
    keys: dict[MoveScope, Rows] = {
        "pod": ranks,
        "part": block_ids * len(block_ids) + _positions(block_ids) // demand.rack_block,
        "block": block_ids,
        "job": np.zeros(len(block_ids), np.int64),
    }
    key = keys[scope]
    return [ranks[key == one] for one in dict.fromkeys(key[lost].tolist())]


def _positions(block_ids: Rows) -> Rows:
    """Position of each rank in its block."""
    order = np.argsort(block_ids, kind="stable")
    ordered = block_ids[order]
    positions = np.empty(len(block_ids), np.int64)
    positions[order] = np.arange(len(block_ids)) - np.searchsorted(ordered, ordered)
    return positions


def recover_racks(
    pool: CandidatePool,
    demand: BlockDemand,
    rules: BlockRules,
    placed: PlacedRanks,
    scope: MoveScope,
    *,
    unlinked: Rows = NO_ROWS,
    ending: bool = False,
) -> RackRecovery | NoBlocks:
    """New places for a gang that had places before.

    Args:
        pool: SuperPoDs with the candidates and the nodes that the gang still holds; any other node of it is lost.
        demand: Request of the gang.
        rules: Size.
        placed: Previous places of its ranks.
        scope: What moves.
        unlinked: Rows of nodes with chips that the network does not reach; a plan on several SuperPoDs cannot use them.
        ending: Pods of the gang are being deleted and still hold their nodes.
    """
    lost: Marks = ~np.isin(placed.rows, pool.rows)
    parts = parts_of(placed.block_ids, lost, demand, scope)
    moving = np.zeros(len(lost), np.bool_)
    moving[np.concatenate([NO_ROWS, *parts])] = True
    eligible = pool.without(np.isin(pool.rows, placed.rows[~moving]))
    if ending:
        return rack_shortage(Racks(eligible), OpenRackBlocks(demand, (), int(moving.sum())), "wait")
    rules = rules._replace(differs=OWN)
    found: BlockPlan | NoBlocks
    if scope == "job" and parts:
        found = plan_racks(eligible, demand, rules, unlinked=unlinked)
        if isinstance(found, BlockPlan):
            found = found._replace(rows=_keep_positions(found, placed))
    elif scope == "block":
        found = _blocks_moved(eligible, demand, rules, placed, parts, unlinked)
    else:
        found = _parts_moved(eligible, demand, placed, parts, lost, same_rack=scope == "pod")
    if isinstance(found, NoBlocks):
        return found
    moved = found.rows != placed.rows
    return RackRecovery(found, np.flatnonzero(moved), np.flatnonzero(moved & ~lost))


def _keep_positions(plan: BlockPlan, placed: PlacedRanks) -> Rows:
    """Nodes of a plan, where each node that its block already had keeps its position."""
    rows = plan.rows.copy()
    for block_id in dict.fromkeys(plan.block_ids.tolist()):
        ranks = np.flatnonzero(plan.block_ids == block_id)
        rows[ranks] = _at_previous_nodes(rows[ranks], placed.rows[ranks])
    return rows


def _at_previous_nodes(rows: Rows, held: Rows) -> Rows:
    """The same nodes, where nodes that were held before keep their positions."""
    fates = np.isin(held, rows)
    settled = np.where(fates, held, -1)
    settled[~fates] = rows[~np.isin(rows, held)]
    return settled


def _parts_moved(
    pool: CandidatePool,
    demand: BlockDemand,
    placed: PlacedRanks,
    parts: Sequence[Rows],
    lost: Marks,
    *,
    same_rack: bool,
) -> BlockPlan | NoBlocks:
    """Pods or parts, each in its rack if there is room; with ``same_rack`` only there, otherwise in another rack.

    The other rack is the smallest one of its SuperPoD that has room.
    """
    racks = Racks(pool)
    pods = np.repeat(np.arange(len(pool.ids)), pool.counts)
    wanted = np.isin(pods, placed.pods[lost]) & (pool.racks >= 0)
    free: dict[tuple[int, int], list[int]] = {}
    for pod, rack, row in zip(
        pods[wanted].tolist(), pool.racks[wanted].tolist(), pool.rows[wanted].tolist(), strict=True
    ):
        free.setdefault((pod, rack), []).append(row)
    others = {int(row) for part in parts for row in placed.rows[part]}
    rows, allocations = placed.rows.copy(), []
    for part in parts:
        first = part[lost[part]][0]
        home = int(placed.pods[first]), int(placed.racks[first])
        own = {int(row) for row in placed.rows[part]}
        cell = _cell_for(free, home, len(part), demand, same_rack=same_rack)
        if cell is None:
            return rack_shortage(racks, OpenRackBlocks(demand, (), len(part)), "rack")
        nodes = sorted(free[cell], key=lambda row: (row not in own, row in others))[: len(part)]
        free[cell] = [row for row in free[cell] if row not in nodes]
        rows[part] = _at_previous_nodes(np.array(nodes, np.int64), placed.rows[part])
        allocations.append(BlockAllocation(int(placed.block_ids[first]), cell[0], len(part), "replaced"))
    places = placed.pods.copy()
    return BlockPlan(rows, placed.block_ids, places, tuple(allocations))


def _cell_for(
    free: dict[tuple[int, int], list[int]], home: tuple[int, int], nodes: int, demand: BlockDemand, *, same_rack: bool
) -> tuple[int, int] | None:
    """Rack with room: the previous one; otherwise the smallest of the SuperPoD (of the domain if memory is shared)."""
    if len(free.get(home, ())) >= nodes:
        return home
    if same_rack:
        return None
    pod, rack = home
    fit = [
        (len(rows), cell)
        for cell, rows in free.items()
        if cell[0] == pod
        and len(rows) >= nodes
        and (not demand.ub_memory or cell[1] // DOMAIN_RACKS == rack // DOMAIN_RACKS)
    ]
    return min(fit)[1] if fit else None


def _blocks_moved(
    pool: CandidatePool,
    demand: BlockDemand,
    rules: BlockRules,
    placed: PlacedRanks,
    parts: Sequence[Rows],
    unlinked: Rows,
) -> BlockPlan | NoBlocks:
    """Blocks, placed like those of a new gang; pieces of a soft gang may become other pieces."""
    whole = {int(placed.block_ids[part[0]]): part for part in parts if len(part) == demand.block}
    moving = sum(len(part) for part in parts) - len(whole) * demand.block
    open_blocks = OpenRackBlocks(
        demand, sorted(whole), moving, max(demand.blocks, int(placed.block_ids.max(initial=-1)) + 1)
    )
    allocated: list[BlockNodes] | NoBlocks = (
        [] if not parts else place(Racks(pool), open_blocks, rules, unlinked=unlinked)
    )
    if isinstance(allocated, NoBlocks):
        return allocated
    rows, block_ids, pods = placed.rows.copy(), placed.block_ids.copy(), placed.pods.copy()
    open_ranks = dict.fromkeys(np.sort(np.concatenate([NO_ROWS, *parts])).tolist())
    pieces = []
    for take in sorted(allocated, key=lambda take: take.block_id):
        if len(take.rows) != demand.block or take.block_id not in whole:
            pieces.append(take)
            continue
        part = whole[take.block_id]
        rows[part], pods[part] = _at_previous_nodes(take.rows, placed.rows[part]), take.pod
        for rank in part.tolist():
            del open_ranks[rank]
    rest = np.array(list(open_ranks), np.int64)
    for take in pieces:
        part, rest = rest[: len(take.rows)], rest[len(take.rows) :]
        rows[part], block_ids[part], pods[part] = take.rows, take.block_id, take.pod
    return BlockPlan(
        rows,
        block_ids,
        pods,
        tuple(BlockAllocation(take.block_id, take.pod, len(take.rows), take.phase) for take in allocated),
    )
