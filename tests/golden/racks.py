"""Family ``superpod_rack``: which SuperPoDs and racks a job gets."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from berth.core.parity import OWN, REFERENCE, differs
from berth.core.topologies.blocks.model import BlockAllocation, BlockDemand, BlockRules, CandidatePool, NoBlocks
from berth.core.topologies.blocks.node_assignment import candidates
from berth.core.topologies.blocks.validation import BlockShape, check_blocks
from berth.core.topologies.racks.inference import place_service
from berth.core.topologies.racks.planner import BlockNodes, Racks, all_of, place
from berth.schemas.ledger import Settings
from tests.golden.block_invariants import holds_racks, pods_of, rack_faults
from tests.golden.harness import Answer, Differences, Line, differ
from tests.golden.superpods import by_phys_of, by_vid_of, canonical, pool_of_line, request_of
from tests.support.plan_decisions import rack_decisions

UB_MEMORY: Final = "ubmemory scene"
"""Note of a line whose job shares memory over the unified bus."""
SOFT: Final = "soft"


def compare_rack(line: Line, settings: Settings) -> Answer:
    """One arriving job."""
    is_ub = line.get("note") == UB_MEMORY
    shape = check_blocks(request_of(line)._replace(ub_memory=is_ub))
    if not isinstance(shape, BlockShape):
        return Answer(differ("ok", line["result"]["ok"], got=False))
    pool = pool_of_line(line)
    demand = BlockDemand(
        "rack",
        shape.block,
        shape.replicas,
        soft=line["affinity"] == SOFT,
        rack_block=shape.rack_block,
        ub_memory=is_ub,
    )
    rules = BlockRules(line["reserve"], line["super_pod_size"], differs(settings))
    serves = bool(line.get("infer", {}).get("inferserviceid"))
    found = place_service(pool, demand, ()) if serves else place(Racks(candidates(pool, demand)), all_of(demand), rules)
    active = () if serves or rules.differs is REFERENCE else rack_decisions(pool, demand, rules)
    differences, decided = differences_of(line, pool, demand, found, rules, active)
    eligible = candidates(pool, demand)
    if not isinstance(found, NoBlocks):
        differences += rack_faults(eligible, demand, found, is_service=serves, is_exact=rules.differs is OWN)
    if rules.differs is OWN:
        has_room = holds_racks(eligible, demand, is_service=serves)
        differences += differ("plan", has_room, not isinstance(found, NoBlocks), "room for the gang")
    return Answer(differences, () if line["stable"] else ("unstable",), decided=decided)


def differences_of(
    line: Line,
    pool: CandidatePool,
    demand: BlockDemand,
    found: Sequence[BlockNodes] | NoBlocks,
    rules: BlockRules,
    active: Sequence[str],
) -> tuple[Differences, tuple[str, ...]]:
    """What is not as expected, and the decisions that say what is expected in the place of the reference."""
    ok, said = line["result"]["ok"], line["canonical"]
    if not ok and "D-1" in active:
        return (), ("D-1",)
    if not ok and not line["stable"]:
        return (), ()
    differences = differ("ok", ok, not isinstance(found, NoBlocks))
    if isinstance(found, NoBlocks) or not ok:
        return differences, ()
    allocations = [BlockAllocation(take.block_id, take.pod, len(take.rows), take.phase) for take in found]
    if line["stable"]:
        rows = [row for take in found for row in take.rows.tolist()]
        differences += differ("by_phys", canonical(said["by_phys"]), by_phys_of(pool, allocations, rows))
        differences += differ("by_rack", canonical(said["by_rack"]), by_rack_of(pool, rows))
    if not line["stable_by_vid"]:
        return differences, ()
    block_ids = (
        said["by_vid"]
        if rules.differs is REFERENCE
        else [[renumbered(block_id, demand), *rest] for block_id, *rest in said["by_vid"]]
    )
    differences += differ("by_vid", canonical(block_ids), by_vid_of(pool, allocations))
    return differences, () if block_ids == said["by_vid"] else ("D-8",)


def renumbered(block_id: int, demand: BlockDemand) -> int:
    """Id of a piece: the reference counts down from N, ours up from V (decision D-8). Ids of blocks stay."""
    return block_id if block_id < demand.blocks else demand.blocks + demand.replicas - block_id


def by_rack_of(pool: CandidatePool, taken: Sequence[int]) -> list[list[int]]:
    """Candidates and nodes taken of each rack that gives nodes."""
    cells = zip(pods_of(pool), pool.racks.tolist(), strict=True)
    rack_of = dict(zip(pool.rows.tolist(), cells, strict=True))
    free = Counter(rack_of.values())
    return canonical([free[rack], nodes] for rack, nodes in Counter(rack_of[row] for row in taken).items())
