"""Families ``superpod_infer`` and ``superpod_resched``: blocks of inference, and blocks after a fault."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from berth.core.parity import OWN, REFERENCE, differs
from berth.core.placement.replacements import NoPlaces
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    NoBlocks,
)
from berth.core.topologies.blocks.node_assignment import assign_nodes, candidates
from berth.core.topologies.blocks.placed import BlockPlacement
from berth.core.topologies.blocks.request import IDLEST, SERVICE_LABEL, SP_FIT, inference_of
from berth.core.topologies.blocks.validation import SOFT
from berth.core.topologies.superpods.block_history import DisruptedGang, PodFate, PodRecord, is_pod_level, restored
from berth.core.topologies.superpods.inference import AffinityPreference, mindie_allocations
from berth.core.topologies.superpods.rescheduling import RELEASE_WAIT_MS, StuckBlocks, plan_again
from berth.schemas.columns import pack, unpack
from berth.schemas.ledger import Settings
from tests.golden.block_invariants import holds_gang, is_stuck, move_faults, plan_faults, positions_of
from tests.golden.harness import PARITY, Answer, Differences, Line, differ
from tests.golden.live_plans import Damaged, new_places, request_of, table_of
from tests.golden.superpods import VARIANTS, differences_of, pool_of_line
from tests.support.inference_plans import plan_mindie, plan_service
from tests.support.placed_parts import the_block
from tests.support.plan_decisions import decisions_after

ON: Final = "on"


class Scene(NamedTuple):
    """SuperPoDs of a line, what its gang asks, and what its plan must heed."""

    pool: CandidatePool
    demand: BlockDemand
    rules: BlockRules


def scene_of(line: Line, settings: Settings) -> Scene:
    """A line as production sees it."""
    variant, _ = VARIANTS[line["policy"]]
    return Scene(
        pool_of_line(line),
        BlockDemand(variant, line["sp_block"], line["tasks"], soft=line["affinity"] == SOFT),
        BlockRules(line["reserve"], line["super_pod_size"], differs(settings)),
    )


def compare_infer(line: Line, settings: Settings) -> Answer:
    """One arriving gang of inference."""
    scene = scene_of(line, settings)
    job = line["infer"]
    labels = dict.fromkeys(job.get("mindie_labels", ()), "x") | {SERVICE_LABEL: job.get(SERVICE_LABEL, "")}
    preference = AffinityPreference(idlest=job.get(SP_FIT) == IDLEST, matching=None)
    is_mindie = inference_of(labels, scene.demand.variant) == "mindie"
    found: BlockPlan | NoBlocks
    if is_mindie:
        found = plan_mindie(scene.pool, scene.demand, scene.rules, preference)
    else:
        found = plan_service(
            scene.pool, scene.demand, [str(name) for name in job["super_pods_already_hosting_service"]]
        )
    differences = differences_of(line, scene.pool, found)
    eligible, whole = candidates(scene.pool, scene.demand), scene.demand._replace(soft=False)
    faults = differ("plan", holds_gang(eligible, whole), isinstance(found, BlockPlan), "room for the gang")
    if isinstance(found, BlockPlan):
        faults += plan_faults(eligible, whole, scene.rules._replace(differs=OWN), found)
    if unstable(line):
        return Answer(differences + faults, skipped=("unstable",))
    if differences and is_mindie and isinstance(found, BlockPlan) and is_tie(line, scene, preference):
        return Answer(faults, skipped=("tie",))
    return Answer(differences + faults)


def is_tie(line: Line, scene: Scene, preference: AffinityPreference) -> bool:
    """The reference's own order of SuperPoDs is one that the rule allows, so that only the luck of its heap differs.

    Block by block: were the SuperPoD that the reference took the first one, production would take it too; and the plan
    made of these blocks is the expected one.
    """
    used = line["result"].get("super_pods_used", {})
    left = scene.pool.counts.copy()
    one = scene.demand._replace(replicas=scene.demand.block)
    allocations: list[BlockAllocation] = []
    for block_id in range(scene.demand.blocks):
        if str(block_id) not in used:
            return False
        taken = scene.pool.ids.index(str(used[str(block_id)]["physical"]))
        order = [taken, *(pod for pod in range(len(left)) if pod != taken)]
        found = mindie_allocations([scene.pool.ids[pod] for pod in order], left[order], one, scene.rules, preference)
        if isinstance(found, NoBlocks) or found[0].pod != 0:
            return False
        allocations.append(found[0]._replace(block_id=block_id, pod=taken))
        left[taken] -= one.block
    return not differences_of(line, scene.pool, assign_nodes(scene.pool, allocations, scene.demand.replicas))


def compare_resched(line: Line, settings: Settings) -> Answer:
    """One gang after a fault.

    It is placed by a round. The reference may move pods that run, which no round does: then only its plan is compared.
    """
    scene = scene_of(line, settings)
    failure = setback_of(line, scene)
    planned = plan_again(scene.pool, scene.demand, scene.rules, failure)
    found: BlockPlan | NoBlocks | StuckBlocks = planned
    faults: Differences = ()
    if not moves_running(failure, planned):
        live = placed_by_round(line, scene, settings)
        faults += differ("plan", said_of(planned, failure), said_of(live, failure), "places that a round gives")
        found = live if isinstance(live, BlockPlan) else planned
    differences = differences_of(line, scene.pool, by_id(found))
    active = () if scene.rules.differs is REFERENCE else decisions_after(scene.pool, scene.demand, scene.rules, failure)
    if isinstance(found, BlockPlan):
        faults += move_faults(scene.pool, scene.demand, failure, found, parity=scene.rules.differs is REFERENCE)
    decided: tuple[str, ...] = ()
    if any(field == "ok" for field, _ in differences) and copies_ok(line):
        decided = tuple(name for name in active if is_owed(name, line, scene, failure, found))
    if decided:
        differences = tuple(difference for difference in differences if difference[0] != "ok")
    skipped = ("unstable",) if unstable(line) else ()
    return Answer(differences + faults, skipped=skipped, active=active, decided=decided)


def moves_running(failure: DisruptedGang, found: BlockPlan | NoBlocks | StuckBlocks) -> bool:
    """A plan has other nodes for pods that run."""
    return isinstance(found, BlockPlan) and any(
        fate is PodFate.RUNS and int(found.rows[rank]) != row for rank, row, fate in positions_of(failure)
    )


def said_of(found: BlockPlan | NoBlocks | StuckBlocks | NoPlaces, failure: DisruptedGang) -> object:
    """Nodes and blocks of a plan, or what is missing and who would have to leave as well."""
    if isinstance(found, BlockPlan):
        return found.rows.tolist(), found.block_ids.tolist(), found.pods.tolist()
    if isinstance(found, NoPlaces):
        lack = found.refusal.blocks
        assert lack is not None
        return lack.rule, lack.nodes_need, lack.nodes_have, list(found.ranks)
    stuck = found.block_ids if isinstance(found, StuckBlocks) else ()
    ranks = [
        rank
        for held in failure.held
        for rank, fate in zip(held.ranks, held.fates, strict=True)
        if held.block_id in stuck and fate is PodFate.RUNS
    ]
    lack_of = found.lack if isinstance(found, StuckBlocks) else found
    return lack_of.lack, lack_of.nodes_need, lack_of.nodes_have, sorted(ranks)


def copies_ok(line: Line) -> bool:
    """Without decisions there is a plan exactly where the reference has one."""
    scene = scene_of(line, PARITY)
    found = plan_again(scene.pool, scene.demand, scene.rules, setback_of(line, scene))
    return bool(isinstance(found, BlockPlan) == line["result"]["ok"])


def is_owed(
    name: str, line: Line, scene: Scene, failure: DisruptedGang, found: BlockPlan | NoBlocks | StuckBlocks
) -> bool:
    """A decision is why there is a plan where the reference has none, or the other way about.

    D-1: the reference has no column for a SuperPoD. D-10: it sets nodes aside for pods that run, so that it lacks them
    for others; or it moves pods that run, where their block lacks more nodes than its SuperPoD has.
    """
    if isinstance(found, BlockPlan):
        return name in {"D-1", "D-10"} and not line["result"]["ok"]
    return name == "D-10" and line["result"]["ok"] and isinstance(found, StuckBlocks) and is_stuck(scene.pool, failure)


def unstable(line: Line) -> bool:
    """Of the plan of a line, only that there is one can be compared."""
    return bool(line["result"]["ok"] and not line["stable"])


def by_id(found: BlockPlan | NoBlocks | StuckBlocks) -> BlockPlan | NoBlocks:
    """What a plan gives to each id: a reference plan may give to one id twice, which counts where its first node is."""
    if not isinstance(found, BlockPlan):
        return found.lack if isinstance(found, StuckBlocks) else found
    allocations: dict[int, BlockAllocation] = {}
    for allocation in found.allocations:
        before = allocations.get(allocation.block_id)
        allocations[allocation.block_id] = (
            allocation if before is None else before._replace(nodes=before.nodes + allocation.nodes)
        )
    return found._replace(allocations=tuple(allocations.values()))


def setback_of(line: Line, scene: Scene) -> DisruptedGang:
    """What became of the gang of a line."""
    job = line["reschedule"]
    rows = rows_of(line)
    home = {node: str(superpod["id"]) for superpod in line["super_pods"] for node in superpod["nodes"]}
    block_ids = {node: int(block_id) for block_id, nodes in job["prior"].items() for node in nodes}
    first = {int(block_id): nodes[0] for block_id, nodes in job["prior"].items()}
    all_return = job["scheduling_tasks"] == line["tasks"]

    def word(task: Mapping[str, Any]) -> PodRecord:
        node = task["node"]
        fate = PodFate.LOST if task["is_fault"] else PodFate.RETURNS if all_return else PodFate.RUNS
        return PodRecord(task["rank"], block_ids[node], home[first[block_ids[node]]], rows[node], fate)

    return DisruptedGang(
        restored([word(task) for task in job["fault_tasks"]], scene.demand, scene.rules.differs),
        is_pod_level(
            scene.demand.variant,
            job["scheduling_tasks"],
            line["tasks"],
            is_rescheduling=job["pod_rescheduling_label"] == ON,
            is_recovering=False,
            sessions=0,
        ),
        failed_nodes=frozenset(rows[node] for node in job["fault_nodes"]),
        waited_ms=RELEASE_WAIT_MS if job["wait_over_10s"] else 0,
    )


def rows_of(line: Line) -> dict[str, int]:
    """Rows of nodes: candidates as the pool has them, the others behind."""
    candidates: list[str] = []
    others: list[str] = []
    for superpod in line["super_pods"]:
        free = {*superpod["free_nodes"]}
        free |= {node for node, chips in superpod.get("partial", {}).items() if chips >= line["chips_per_pod"]}
        for node in superpod["nodes"]:
            (candidates if node in free else others).append(node)
    return {node: row for row, node in enumerate([*candidates, *others])}


def placed_by_round(line: Line, scene: Scene, settings: Settings) -> BlockPlan | NoPlaces:
    """What a round makes of the gang of a line: the new places beside those of the pods that run."""
    job = line["reschedule"]
    tasks = sorted(job["fault_tasks"], key=lambda task: int(task["rank"]))
    all_return = job["scheduling_tasks"] == line["tasks"]
    failure = setback_of(line, scene)
    home = {node: index for index, superpod in enumerate(line["super_pods"]) for node in superpod["nodes"]}
    block_of = {node: int(block_id) for block_id, nodes in job["prior"].items() for node in nodes}
    nodes = [task["node"] for task in tasks]
    ranks = [task["rank"] for task in tasks if all_return or task["is_fault"]]
    ids = sorted(set(block_of.values()))
    table = table_of(line)
    found = new_places(
        Damaged(
            msgspec.structs.replace(settings, super_pod_size=line["super_pod_size"], reserve_nodes=line["reserve"]),
            table,
            request_of(line),
            nodes,
            ranks,
            [task["rank"] for task in tasks if task["is_fault"]],
            block=BlockPlacement(
                variant=scene.demand.variant,
                size=scene.demand.block,
                blocks=ids,
                phases=["fits"] * len(ids),
                superpods=list(scene.pool.ids),
                block_index=pack([ids.index(block_of[node]) + 1 for node in nodes], 2),
                superpod_index=pack([home[node] + 1 for node in nodes], 2),
            ),
            fields={
                "released": ranks,
                "scope": "pod" if failure.is_pod_level else "job",
                "failed_nodes": job["fault_nodes"],
                "waited_ms": failure.waited_ms,
            },
        )
    )
    if isinstance(found, NoPlaces):
        return found
    part = the_block(found)
    for rank, node, block, superpod in zip(
        ranks, found.names(), unpack(part.block_index, 2), unpack(part.superpod_index, 2), strict=True
    ):
        nodes[rank] = node
        block_of[node] = part.blocks[block - 1]
        assert home[node] == scene.pool.ids.index(part.superpods[superpod - 1])
    rows = rows_of(line)
    block_ids = [block_of[node] for node in nodes]
    sizes = Counter((block_of[node], home[node]) for node in nodes)
    return BlockPlan(
        np.array([rows[node] for node in nodes]),
        np.array(block_ids),
        np.array([home[node] for node in nodes]),
        tuple(BlockAllocation(block_id, pod, size, "kept") for (block_id, pod), size in sorted(sizes.items())),
    )
