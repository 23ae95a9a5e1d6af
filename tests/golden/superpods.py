"""Families ``superpod`` and ``superpod_validate``: the SuperPoDs whose nodes a gang gets, and valid requests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, Final

import numpy as np

from berth.core.parity import REFERENCE, differs
from berth.core.topologies.blocks.demand import Variant
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    NoBlocks,
    pool_of,
)
from berth.core.topologies.blocks.node_assignment import candidates
from berth.core.topologies.blocks.validation import SOFT, BadBlocks, BlockRequest, BlockShape, Pods, check_blocks
from berth.core.topologies.superpods import planner
from berth.schemas.ledger import Settings
from tests.golden.block_invariants import holds_gang, piece_faults, plan_faults
from tests.golden.harness import Answer, Differences, Line, differ
from tests.support.plan_decisions import block_decisions

VARIANTS: Final[Mapping[str, tuple[Variant, int]]] = {
    "a3x16": ("a3", 16),
    "a3x8": ("a3", 8),
    "850": ("850", 8),
    "ra64": ("rack", 8),
}
"""Handler and chips of a node, by the word of a line."""
WITHOUT_VIDS: Final = ("850",)
"""Policies whose logical ids are random in the reference."""


def compare_superpod(line: Line, settings: Settings) -> Answer:
    """One arriving gang."""
    expected = line["result"]
    request = request_of(line)
    shape = check_blocks(request)
    if isinstance(shape, BadBlocks):
        return Answer(
            (*differ("ok", expected["ok"], got=False), *differ("reason", expected.get("reason"), shape.reason))
        )
    pool = pool_of_line(line)
    demand = BlockDemand(request.variant, shape.block, shape.replicas, soft=line["affinity"] == SOFT)
    rules = BlockRules(line["reserve"], line["super_pod_size"], differs(settings))
    found = planner.plan_blocks(pool, demand, rules)
    faults = faults_of(pool, demand, rules, found)
    active = () if rules.differs is REFERENCE else block_decisions(pool, demand, rules)
    if "D-1" in active and not expected["ok"]:
        return Answer(faults, decided=("D-1",))
    differences = differences_of(line, pool, found)
    if (
        differences
        and not active
        and any(not differences_of(line, other, planner.plan_blocks(other, demand, rules)) for other in reordered(pool))
    ):
        return Answer(faults, skipped=("tie",))
    if active and isinstance(found, BlockPlan):
        differences += whole_differences(line, pool, found, active)
    return Answer(differences + faults, active=active)


def faults_of(pool: CandidatePool, demand: BlockDemand, rules: BlockRules, found: BlockPlan | NoBlocks) -> Differences:
    """What the reference page forbids, whatever the reference answers; with decisions also whether there is a plan."""
    eligible = candidates(pool, demand)
    faults = plan_faults(eligible, demand, rules, found) if isinstance(found, BlockPlan) else ()
    if rules.differs is REFERENCE:
        return faults
    if isinstance(found, BlockPlan):
        faults += piece_faults(eligible, demand, found)
    return faults + differ("plan", holds_gang(eligible, demand), isinstance(found, BlockPlan), "room for the gang")


def whole_differences(line: Line, pool: CandidatePool, found: BlockPlan, active: Sequence[str]) -> Differences:
    """Blocks that came before anything that a decision changes: D-3 changes reserves, D-4 to D-6 only pieces."""
    if not line["result"]["ok"] or not line["stable_by_vid"] or line["policy"] in WITHOUT_VIDS:
        return ()
    phases = ("fits", "larger") if "D-3" in active else ("fits", "larger", "reserve")
    whole = [allocation for allocation in found.allocations if allocation.phase in phases]
    said = [block for block in line["canonical"]["by_vid"] if block[0] < len(whole)]
    return differ("whole blocks", canonical(said), by_vid_of(pool, whole))


def request_of(line: Line) -> BlockRequest:
    """What a line's job says."""
    variant, node_chips = VARIANTS[line["policy"]]
    ra_block = line.get("ra_block_npu")
    return BlockRequest(
        variant,
        node_chips,
        str(line["sp_block_npu"]),
        [Pods(line["tasks"], line["chips_per_pod"])],
        size=line["super_pod_size_from_conf" if "super_pod_size_from_conf" in line else "super_pod_size"],
        ra_block=None if ra_block is None else str(ra_block),
    )


def pool_of_line(line: Line) -> CandidatePool:
    """SuperPoDs of a line with the nodes that have enough free chips; rows follow the order of the line."""
    pods, idle, sub_healthy, racks = [], [], [], []
    chips, full, sick = line["chips_per_pod"], VARIANTS[line["policy"]][1], set(line.get("sub_healthy", ()))
    for index, superpod in enumerate(line["super_pods"]):
        free = dict.fromkeys(superpod["free_nodes"], full) | superpod.get("partial", {})
        for name in superpod.get("nodes", free):
            if free.get(name, 0) >= chips:
                pods.append(index)
                idle.append(free[name])
                sub_healthy.append(name in sick)
                racks.append(superpod.get("racks", {}).get(name, -1))
    return pool_of(
        [str(superpod["id"]) for superpod in line["super_pods"]],
        np.array(pods, np.int64),
        np.arange(len(pods)),
        racks=np.array(racks, np.int64),
        sub_healthy=np.array(sub_healthy, np.bool_),
        idle=np.array(idle, np.int64),
    )


def reordered(pool: CandidatePool) -> Iterator[CandidatePool]:
    """The same SuperPoDs in other orders: each two of them first, and by what they have of healthy nodes.

    The reference visits SuperPoDs that are alike for its rules in the order of a hash map. They can differ in what the
    canonical form says all the same: in sub-healthy nodes, and for one pod in nodes with more idle chips. A line of
    which some other order gives the expected answer is an exact tie.
    """
    pods = range(len(pool.ids))
    healthy = [int((~pool.sub_healthy[pool.starts[pod] : pool.starts[pod + 1]]).sum()) for pod in pods]
    orders = [[*first, *(pod for pod in pods if pod not in first)] for first in permutations(pods, 2)]
    orders += [sorted(pods, key=lambda pod: sign * healthy[pod]) for sign in (1, -1)]
    of_rows = np.repeat(np.arange(len(pods)), pool.counts)
    for order in orders:
        place = np.empty(len(pods), np.int64)
        place[order] = np.arange(len(pods))
        ids = [pool.ids[pod] for pod in order]
        yield pool_of(ids, place[of_rows], pool.rows, sub_healthy=pool.sub_healthy, idle=pool.idle)


def differences_of(line: Line, pool: CandidatePool, found: BlockPlan | NoBlocks) -> Differences:
    """Where a plan is not the expected one, in the canonical form."""
    ok, said = line["result"]["ok"], line["canonical"]
    differences = differ("ok", ok, isinstance(found, BlockPlan))
    if isinstance(found, NoBlocks) or not ok:
        return differences
    if line["stable"]:
        got = by_phys_of(pool, found.allocations, found.rows.tolist())
        differences += differ("by_phys", canonical(said["by_phys"]), got)
    if line["stable_by_vid"] and line["policy"] not in WITHOUT_VIDS:
        differences += differ("by_vid", canonical(said["by_vid"]), by_vid_of(pool, found.allocations))
    return differences


def canonical(cells: Iterable[list[int]]) -> list[list[int]]:
    """Cells of a canonical form, which are a multiset, in an order of their own."""
    return sorted(cells, key=str)


def by_vid_of(pool: CandidatePool, allocations: Iterable[BlockAllocation]) -> list[list[int]]:
    """Id, candidates of its SuperPoD and nodes, of each block."""
    counts = pool.counts
    return canonical([allocation.block_id, int(counts[allocation.pod]), allocation.nodes] for allocation in allocations)


def by_phys_of(pool: CandidatePool, allocations: Sequence[BlockAllocation], ranked: Iterable[int]) -> list[list[int]]:
    """Candidates, nodes taken, blocks, sub-healthy nodes taken, of each SuperPoD that gives nodes.

    Nodes that blocks got beyond those of the ranks are the next of their SuperPoD.
    """
    blocks = Counter(allocation.pod for allocation in allocations)
    rows = set(ranked)
    cells = []
    for pod, count in blocks.items():
        start, end = pool.starts[pod : pod + 2].tolist()
        taken = sum(allocation.nodes for allocation in allocations if allocation.pod == pod)
        ranked_first = sorted(range(start, end), key=lambda place: int(pool.rows[place]) not in rows)
        cells.append([end - start, taken, count, int(pool.sub_healthy[ranked_first[:taken]].sum())])
    return canonical(cells)


def compare_validate(line: Line, settings: Settings) -> Answer:
    """One request; it is judged alike in both runs."""
    del settings
    found = check_blocks(request_of(line))
    expected: Mapping[str, Any] = line["result"]
    reason = found.reason if isinstance(found, BadBlocks) else ""
    return Answer(
        (
            *differ("pass", expected["pass"], isinstance(found, BlockShape)),
            *differ("reason", expected["reason"], reason),
        )
    )
