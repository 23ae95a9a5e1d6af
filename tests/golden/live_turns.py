"""What the scheduler's turns make of lines: facts go in, records come out, and the ledger has the places.

The families call the planners themselves; here everything in between takes part: candidates, the queue, records, folds.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from berth.core.parity import REFERENCE, differs
from berth.core.topologies.blocks.model import BlockDemand, BlockRules, CandidatePool
from berth.core.topologies.racks.planner import BlockNodes
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import unpack
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeDescription
from berth.schemas.placement import Placement
from tests.golden.harness import Differences, Line, differ
from tests.golden.live_plans import PRODUCTS, free_of, request_of
from tests.golden.live_recoveries import Standing, stand
from tests.golden.racks import UB_MEMORY, differences_of
from tests.golden.superpods import pool_of_line
from tests.support.cells import a_job, a_node
from tests.support.fault_cells import FaultCell
from tests.support.placed_parts import the_block
from tests.support.plan_decisions import rack_decisions

LEVELS_PRODUCT: Final = "superpod910a3x16"
TREE: Final = "default"


def settings_of(settings: Settings, **more: object) -> dict[str, Any]:
    """Settings of a cell: those of a run, and those of the line."""
    return {"reference_parity": settings.reference_parity, **more}


def placed(cell: FaultCell, name: str) -> Placement | None:
    """What a job is placed on; None while it waits or when it was refused."""
    return next((one.placement for one in cell.state.fold.holdings.values() if one.name == name), None)


def nodes_of(line: Line, product: str) -> list[NodeDescription]:
    """Nodes of a line in SuperPoDs; those that are not free take no pods."""
    found = []
    for superpod in line["super_pods"]:
        free = free_of(superpod, NODE_PRODUCTS[product].chips)
        racks = superpod.get("racks", {})
        for position, name in enumerate(superpod.get("nodes", free)):
            where = {"superpod": str(superpod["id"]), "rack": str(racks.get(name, "")), "position": position}
            found.append(a_node(name, product, cordoned=name not in free, **where))
    return found


def rack_differences(line: Line, settings: Settings) -> Differences:
    """A job in racks that one turn places."""
    product, _ = PRODUCTS[line["policy"]]
    sizes = {"super_pod_size": line["super_pod_size"], "reserve_nodes": line["reserve"]}
    cell = FaultCell(nodes_of(line, product), **settings_of(settings, **sizes))
    for name, left in partial_of(line).items():
        request = a_job(f"on-{name}", product=product, chips=NODE_PRODUCTS[product].chips - left)
        stand(cell, Standing(request, [name]))
    cell.ask(request_of(line))
    cell.turns()
    placement, pool = placed(cell, "j"), pool_of_line(line)
    if settings.reference_parity and placement is None and is_incomplete(cell):
        return ()  # decision D-23: the gang waits, where the reference leaves ranks without a node
    is_ok = differ("ok", line["result"]["ok"], placement is not None)
    if placement is None or is_ok:
        return is_ok
    chips = NODE_PRODUCTS[product].chips
    demand = BlockDemand(
        "rack",
        line["sp_block"],
        line["tasks"],
        soft=line["affinity"] == "soft",
        rack_block=line["ra_block_npu"] // chips,
        ub_memory=line.get("note") == UB_MEMORY,
    )
    rules = BlockRules(line["reserve"], line["super_pod_size"], differs(settings))
    serves = bool(line.get("infer", {}).get("inferserviceid"))
    active = () if serves or rules.differs is REFERENCE else rack_decisions(pool, demand, rules)
    return differences_of(line, pool, demand, blocks_of(line, placement, pool), rules, active)[0]


def partial_of(line: Line) -> dict[str, int]:
    """Free chips of nodes that others use in part."""
    return {name: left for superpod in line["super_pods"] for name, left in superpod.get("partial", {}).items()}


def is_incomplete(cell: FaultCell) -> bool:
    """The only job of a cell was refused because its plan lacks nodes for some ranks."""
    ((verdict,),) = [record.verdicts for record in cell.records]
    blocks = verdict.refusal.blocks if verdict.refusal is not None else None
    return blocks is not None and blocks.rule == "incomplete"


def blocks_of(line: Line, placement: Placement, pool: CandidatePool) -> list[BlockNodes]:
    """Blocks of a placement with rows of the pool of a line."""
    part = the_block(placement)
    left = partial_of(line)
    names = [
        one.name
        for one in nodes_of(line, PRODUCTS[line["policy"]][0])
        if not one.cordoned and left.get(one.name, line["chips_per_pod"]) >= line["chips_per_pod"]
    ]
    rows: dict[tuple[int, int], list[int]] = {}
    for name, block, pod in zip(
        placement.names(), unpack(part.block_index, 2), unpack(part.superpod_index, 2), strict=True
    ):
        key = part.blocks[block - 1], pool.ids.index(part.superpods[pod - 1])
        rows.setdefault(key, []).append(names.index(name))
    return [BlockNodes(block, pod, np.array(taken), "fits") for (block, pod), taken in sorted(rows.items())]


def level_differences(line: Line, settings: Settings) -> Differences:
    """A job with levels that one turn places."""
    levels: dict[str, dict[str, object]] = {
        f"level{number}": {"label": f"l{number}"} for number in range(1, line["resource_levels"] + 1)
    }
    levels["level1"]["reservedNode"] = line["reserved_node_level1"]
    basics = NODE_PRODUCTS[LEVELS_PRODUCT].labels
    nodes = [
        a_node(one["name"], LEVELS_PRODUCT, cordoned=not one["free"], labels=dict(basics) | one["labels"])
        for one in line["nodes"]
    ]
    cell = FaultCell(nodes, **settings_of(settings, resource_levels=json.dumps({TREE: levels})))
    sizes = ",".join(f"{name}={size}" for name, size in line["affinity_config"].items())
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": sizes}
    cell.ask(
        a_job(
            "j",
            product=LEVELS_PRODUCT,
            chips=line["chips_per_pod"],
            replicas=line["tasks"],
            annotations=annotations,
        )
    )
    cell.turns()
    placement = placed(cell, "j")
    expected = line["result"]["ok"]
    is_ok = differ("ok", expected, placement is not None) if expected or line["stable"] else ()
    if placement is None or is_ok or not (expected and line["stable"]):
        return is_ok
    groups: Mapping[str, tuple[str, ...]] = {
        one["name"]: tuple(one["labels"][f"l{number}"] for number in range(1, line["resource_levels"] + 1))
        for one in line["nodes"]
        if one["free"]
    }
    free, taken = Counter(groups.values()), Counter(groups[name] for name in placement.names())
    got = [[free[group], count] for group, count in taken.items()]
    return differ("level1_free_taken", sorted(line["canonical"]["level1_free_taken"]), sorted(got))
