"""What every plan of blocks has to keep, whatever the reference answers: rules of the reference page, stated anew.

Source: docs/reference/superpods.md, "Before the selection", "Queues", "Phases", "Order by free nodes",
"Ranks and annotations of blocks", "Soft and hard", "Places after a fault", "MindIE", "Inference services",
"Inference services on Atlas 950" and "Racks". See decisions D-3, D-4, D-5, D-6, D-8 and D-10.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.blocks.model import BlockAllocation, BlockDemand, BlockPlan, BlockRules, CandidatePool
from berth.core.topologies.racks.limits import RACK_NODES
from berth.core.topologies.racks.planner import DOMAIN_RACKS, BlockNodes
from berth.core.topologies.superpods.block_history import DisruptedGang, PodFate
from tests.golden.harness import Differences, differ

PIECES = ("pieces", "multi-superpod-pieces")
"""Phases that give less than a block."""


def holds_gang(eligible: CandidatePool, demand: BlockDemand) -> bool:
    """Whether a gang without racks finds room: enough nodes, and whole blocks if they may not be split."""
    blocks = int((eligible.counts // demand.block).sum())
    return len(eligible.rows) >= demand.replicas and (demand.soft or blocks >= demand.blocks)


def holds_racks(eligible: CandidatePool, demand: BlockDemand, *, is_service: bool) -> bool:
    """Whether a gang with racks finds room: by the strategy that is tried last, which is the widest."""
    free = Counter[tuple[int, int]](
        (pod, rack) for pod, rack in zip(pods_of(eligible), eligible.racks.tolist(), strict=True) if rack >= 0
    )
    if is_service:
        return sum(nodes // demand.block for nodes in free.values()) >= demand.blocks
    if demand.ub_memory and demand.replicas > RACK_NODES:
        domains = Counter[tuple[int, int]]()
        for (pod, rack), nodes in free.items():
            domains[pod, rack // DOMAIN_RACKS] += nodes // demand.rack_block * demand.rack_block
        return max(domains.values(), default=0) >= demand.replicas
    if demand.soft:
        return free.total() >= demand.replicas
    parts = Counter[int]()
    for (pod, _), nodes in free.items():
        parts[pod] += nodes // demand.rack_block
    return sum(number * demand.rack_block // demand.block for number in parts.values()) >= demand.blocks


def pods_of(eligible: CandidatePool) -> list[int]:
    """SuperPoD of each candidate."""
    pods: list[int] = np.repeat(np.arange(len(eligible.ids)), eligible.counts).tolist()
    return pods


def plan_faults(eligible: CandidatePool, demand: BlockDemand, rules: BlockRules, plan: BlockPlan) -> Differences:
    """What is wrong with a plan of a gang of which no pod has a node yet.

    Args:
        eligible: Candidates that the gang looks at.
        demand: What it asks.
        rules: In plans of the reference ranks may lack nodes and blocks may have more than ranks need.
        plan: The plan.
    """
    faults = node_faults(
        plan.rows.tolist(), eligible.rows.tolist(), demand.replicas, may_lack=rules.differs is REFERENCE
    )
    home = dict(zip(eligible.rows.tolist(), pods_of(eligible), strict=True))
    placed = [rank for rank, row in enumerate(plan.rows.tolist()) if row in home]
    faults += differ("plan", [home[int(plan.rows[rank])] for rank in placed], [int(plan.pods[rank]) for rank in placed])
    faults += size_faults(plan.allocations, demand, is_exact=rules.differs is OWN)
    if rules.differs is OWN:
        faults += differ("plan", sizes_of(plan.allocations), sizes_of_ranks(plan), "sizes of the blocks of the ranks")
        faults += differ(
            "plan", sorted(plan.block_ids.tolist()), plan.block_ids.tolist(), "ranks walk the blocks by number"
        )
    return faults


def node_faults(rows: Sequence[int], candidates: Sequence[int], pods: int, *, may_lack: bool) -> Differences:
    """Every pod has a node, no two have the same, and all of them are candidates."""
    given = [row for row in rows if row >= 0]
    faults = differ("plan", len(given), len(set(given)), "different nodes")
    faults += differ("plan", [], sorted(set(given).difference(candidates)), "nodes that are no candidates")
    return faults if may_lack else faults + differ("plan", pods, len(given), "pods with a node")


def size_faults(allocations: Sequence[BlockAllocation], demand: BlockDemand, *, is_exact: bool) -> Differences:
    """Blocks are whole, only pieces of a soft gang are smaller; every id is given once and none is left out."""
    faults: Differences = ()
    for allocation in allocations:
        is_piece = allocation.phase in PIECES and (demand.soft or not is_exact)
        if not (0 < allocation.nodes <= demand.block if is_piece else allocation.nodes == demand.block):
            faults += (("plan", f"block {allocation.block_id} of {demand.block} nodes has {allocation.nodes}"),)
    if is_exact:
        ids = sorted(allocation.block_id for allocation in allocations)
        faults += differ("plan", list(range(len(allocations))), ids, "ids of blocks")
        faults += differ(
            "plan", demand.replicas, sum(allocation.nodes for allocation in allocations), "nodes of all blocks"
        )
    return faults


def sizes_of(allocations: Sequence[BlockAllocation]) -> Mapping[tuple[int, int], int]:
    """Nodes of each block, by its id and SuperPoD."""
    return {(allocation.block_id, allocation.pod): allocation.nodes for allocation in allocations}


def sizes_of_ranks(plan: BlockPlan) -> Mapping[tuple[int, int], int]:
    """Ranks of each block, by its id and SuperPoD."""
    return Counter(zip(plan.block_ids.tolist(), plan.pods.tolist(), strict=True))


def piece_faults(eligible: CandidatePool, demand: BlockDemand, plan: BlockPlan) -> Differences:
    """Pieces come from the SuperPoD with the most left on, none is larger than what is missing, until nothing is
    missing.

    Decisions D-4, D-5 and D-6; the whole blocks of the plan are taken as they are.
    """
    whole = [allocation for allocation in plan.allocations if allocation.phase not in PIECES]
    left: list[int] = eligible.counts.tolist()
    for allocation in whole:
        left[allocation.pod] -= allocation.nodes
    missing = demand.replicas - sum(allocation.nodes for allocation in whole)
    wanted: list[tuple[int, int]] = []
    while missing > 0 and any(left):
        for pod in sorted(range(len(left)), key=lambda pod: -left[pod]):
            nodes = min(demand.block, left[pod], missing)
            if nodes:
                wanted.append((pod, nodes))
                left[pod] -= nodes
                missing -= nodes
    got = [(allocation.pod, allocation.nodes) for allocation in plan.allocations if allocation.phase in PIECES]
    return differ("plan", wanted, got, "pieces")


def rack_faults(
    eligible: CandidatePool, demand: BlockDemand, allocated: Sequence[BlockNodes], *, is_service: bool, is_exact: bool
) -> Differences:
    """What is wrong with the blocks of a gang with racks.

    Args:
        eligible: Candidates that the gang looks at.
        demand: What it asks.
        allocated: Nodes of its blocks.
        is_service: Every block stays inside one rack; else every part of a whole block does.
        is_exact: Ids of pieces go on where those of blocks end (decision D-8).
    """
    rows = [row for take in allocated for row in take.rows.tolist()]
    faults = node_faults(rows, eligible.rows.tolist(), demand.replicas, may_lack=False)
    allocations = [BlockAllocation(take.block_id, take.pod, len(take.rows), take.phase) for take in allocated]
    faults += size_faults(allocations, demand, is_exact=is_exact)
    pods = dict(zip(eligible.rows.tolist(), pods_of(eligible), strict=True))
    racks = dict(zip(eligible.rows.tolist(), eligible.racks.tolist(), strict=True))
    for take in allocated:
        faults += differ(
            "plan", {take.pod}, {pods.get(row) for row in take.rows.tolist()}, f"block {take.block_id} is in"
        )
        part = demand.block if is_service else demand.rack_block
        shares = Counter(racks.get(row) for row in take.rows.tolist())
        if take.phase not in PIECES and any(nodes % part for nodes in shares.values()):
            faults += (("plan", f"block {take.block_id} with parts of {part} has {dict(shares)} nodes by rack"),)
        if take.phase in PIECES and len(shares) > 1:
            faults += (("plan", f"piece {take.block_id} is in racks {sorted(map(str, shares))}"),)
    return faults


def move_faults(
    pool: CandidatePool, demand: BlockDemand, failure: DisruptedGang, plan: BlockPlan, *, parity: bool
) -> Differences:
    """What is wrong with a plan of a gang after a fault.

    Pods that run stay where they are (decision D-10); blocks that were there before keep their length.

    Args:
        pool: Candidates.
        demand: What the gang asks.
        failure: Its blocks and what became of them.
        plan: The plan.
        parity: The reference moves pods that run, and may list a node twice.
    """
    known = [row for held in failure.held for row in held.rows]
    if parity:
        strangers = set(plan.rows[plan.rows >= 0].tolist()).difference(pool.rows.tolist(), known)
        return differ("plan", [], sorted(strangers), "nodes that are neither candidates nor its own")
    faults = node_faults(plan.rows.tolist(), [*pool.rows.tolist(), *known], demand.replicas, may_lack=False)
    runs = {rank: row for rank, row, fate in positions_of(failure) if fate is PodFate.RUNS}
    faults += differ("plan", runs, {rank: int(plan.rows[rank]) for rank in runs}, "pods that run are at")
    new = {row for rank, row in enumerate(plan.rows.tolist()) if rank not in runs}
    faults += differ("plan", [], sorted(new.difference(pool.rows.tolist())), "nodes that are no candidates")
    lengths = {held.block_id: len(held.rows) for held in failure.held}
    is_split = demand.soft or any(nodes != demand.block for nodes in lengths.values())
    for allocation in plan.allocations:
        most = max(lengths.get(allocation.block_id, 0), demand.block)
        if not (0 < allocation.nodes <= most if is_split else allocation.nodes == demand.block):
            faults += (("plan", f"block {allocation.block_id} of {most} nodes has {allocation.nodes}"),)
    faults += differ(
        "plan",
        len(plan.allocations),
        len({allocation.block_id for allocation in plan.allocations}),
        "different ids of blocks",
    )
    return faults + differ("plan", sizes_of(plan.allocations), sizes_of_ranks(plan), "sizes of the blocks of the ranks")


def positions_of(failure: DisruptedGang) -> list[tuple[int, int, PodFate]]:
    """Rank, node and what becomes of it, of every pod of a gang after a fault."""
    return [position for held in failure.held for position in zip(held.ranks, held.rows, held.fates, strict=True)]


def is_stuck(pool: CandidatePool, failure: DisruptedGang) -> bool:
    """Blocks with pods that run lack more nodes than are free in the SuperPoD where they have to stay."""
    lacking = Counter[str]()
    for held in failure.held:
        if held.runs or not held.is_damaged:
            lacking[held.superpod] += len(held.rows) - held.runs
    free = dict(zip(pool.ids, pool.counts.tolist(), strict=True))
    return any(held.runs and lacking[held.superpod] > free.get(held.superpod, 0) for held in failure.held)
