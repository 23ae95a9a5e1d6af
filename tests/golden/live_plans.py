"""Gangs of the families after a loss, through everything that decides: request, shapes, scoring, round, new places."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.cluster.node_table import NodeTable
from berth.core.gangs import Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.replacements import NoPlaces, plan_replacements, replacement_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import gang_of
from berth.core.topologies.blocks.placed import BlockPlacement
from berth.core.topologies.leaving import LeavingPods
from berth.core.topologies.registry import indexes_of
from berth.core.topologies.switches.demand import SWITCHES
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex
from berth.core.topologies.switches.occupancy.leaf_states import LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import unpack
from berth.schemas.facts import JobSeen, NodeHealth
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeCondition
from berth.schemas.placement import Placement, Run, placement_of
from tests.golden.harness import Line
from tests.support.cells import a_job, a_node
from tests.support.placed_parts import groups_of, the_switch

PRODUCTS: Final = {
    "a3x16": ("superpod910a3x16", "chip2-node16-sp"),
    "a3x8": ("superpod910a3x8", "chip2-node8-sp"),
    "850": ("superpod850x8", "chip8-node8-sp"),
    "ra64": ("superpod950x8", "chip8-node8-ra64-sp"),
}


class Damaged(NamedTuple):
    """A placed gang that lost pods, and the rest of its cluster.

    Attributes:
        settings: Settings of the epoch.
        table: Nodes; what nobody may take is held.
        request: The gang.
        nodes: Node of each rank; a name that the table lacks for one that is gone.
        ranks: Ranks that get new places.
        faulty: Those of them that are faulty.
        switch: Its leaf switches.
        block: Its SuperPoDs.
        leaves: Leaf switches and the jobs on them.
        fields: Further fields of the leaving pods.
    """

    settings: Settings
    table: NodeTable
    request: JobRequest
    nodes: Sequence[str]
    ranks: Sequence[int]
    faulty: Sequence[int]
    switch: SwitchPlacement | None = None
    block: BlockPlacement | None = None
    leaves: tuple[LeafTable, LeafOccupancy] | None = None
    fields: Mapping[str, Any] = {}


def full_table(nodes: Sequence[str], free: Sequence[str], product: str) -> NodeTable:
    """Nodes of a product, of which all but some are full."""
    table = NodeTable()
    table.apply_nodes(pack_nodes("all", [a_node(name, product) for name in sorted(set(nodes))]))
    everything = (1 << NODE_PRODUCTS[product].chips) - 1
    for name in sorted(set(nodes) - set(free)):
        table.hold(ChangesBuilder(), table.row(name), everything, cpu_milli=0, memory_mib=0)
    return table


def free_of(superpod: Mapping[str, Mapping[str, int]], chips: int) -> dict[str, int]:
    """Free chips of the nodes that have any."""
    return dict.fromkeys(superpod["free_nodes"], chips) | dict(superpod.get("partial", {}))


def table_of(line: Line) -> NodeTable:
    """Nodes of a line."""
    product, _ = PRODUCTS[line["policy"]]
    chips, sick = NODE_PRODUCTS[product].chips, set(line.get("sub_healthy", ()))
    table = NodeTable()
    for superpod in line["super_pods"]:
        domain, racks, free = f"superpod-{superpod['id']}", superpod.get("racks", {}), free_of(superpod, chips)
        names = sorted(superpod.get("nodes", free))
        place = {name: index for index, name in enumerate(superpod.get("nodes", free))}
        nodes = [
            a_node(name, product, superpod=str(superpod["id"]), rack=str(racks.get(name, "")), position=place[name])
            for name in names
        ]
        table.apply_nodes(pack_nodes(domain, nodes))
        ill = [NodeCondition(name, level=NodeHealth.SUB_HEALTHY) for name in names if name in sick]
        table.apply_health(pack_health(domain, ill))
        for name in names:
            table.hold(
                ChangesBuilder(), table.row(name), (1 << chips) - (1 << free.get(name, 0)), cpu_milli=0, memory_mib=0
            )
    return table


def request_of(line: Line) -> JobRequest:
    """The job of a line."""
    product, policy = PRODUCTS[line["policy"]]
    job = line.get("infer", {})
    annotations = {"huawei.com/schedule_policy": policy, "sp-block": str(line["sp_block_npu"])}
    annotations |= {key: str(job[key]) for key in ("sp-fit",) if job.get(key)}
    if "ra_block_npu" in line:
        annotations["ra-block"] = str(line["ra_block_npu"])
    if line.get("note") == "ubmemory scene":
        annotations["huawei.com/schedule_ubmemory"] = "true"
    labels = dict.fromkeys(job.get("mindie_labels", ()), "x") | {"super-pod-affinity": line["affinity"]}
    labels["inferserviceid"] = job.get("inferserviceid", "")
    return a_job(
        "j",
        product=product,
        chips=line["chips_per_pod"],
        replicas=line["tasks"],
        annotations=annotations,
        labels={key: value for key, value in labels.items() if value},
    )


def gang_of_request(request: JobRequest, settings: Settings) -> Gang:
    """Gang of an accepted request."""
    seen = JobSeen(
        request.namespace, request.name, request.uid, "accepted", intake_seq=1, accepted_seq=1, request=request
    )
    return gang_of(seen, request, attempt=0, settings=settings)


def new_places(damaged: Damaged) -> Placement | NoPlaces:
    """What a round gives to the lost pods."""
    gang = gang_of_request(damaged.request, damaged.settings)
    scorer = Scorer(damaged.table, SoftShareTable(damaged.table), damaged.settings)
    chips = damaged.request.tasks[0].chips
    placement = placement_of(
        list(damaged.nodes),
        [tuple(range(chips))] * len(damaged.nodes),
        [Run(len(damaged.nodes), chips)],
        resource=gang.resource,
        groups=groups_of(damaged.switch, damaged.block),
    )
    leaving = LeavingPods(gang, placement, damaged.ranks, damaged.faulty, **damaged.fields)
    asks = replacement_counts([leaving], {})
    views = {shape: scorer.candidates(shape, count) for shape, count in asks.items()}
    indexes = indexes_of(damaged.table)
    if damaged.leaves is not None:
        indexes[SWITCHES] = LeafIndex(*damaged.leaves)
    placement_round = PlacementRound(scorer, views, asks, indexes=indexes)
    return plan_replacements(placement_round.parts(), leaving)


def rank_states(placement: Placement) -> list[tuple[str, int]]:
    """Leaf of each rank, and the state that its pod reports."""
    part = the_switch(placement)
    return [
        (part.leaves[index - 1], state) for index, state in zip(unpack(part.leaf_index, 2), part.states, strict=True)
    ]


def with_uid(request: JobRequest, uid: str) -> JobRequest:
    """The request under another uid."""
    return msgspec.structs.replace(request, uid=uid)
