"""Gangs of the families after a loss, through everything that decides: request, shapes, scoring, round, new places."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.node_packing import pack_nodes
from berth.core.cluster.node_table import NodeTable
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.replacements import LeavingPods, NoPlaces, plan_replacements, replacement_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import Gang, gang_of
from berth.core.state.superpod_index import BlockInputs
from berth.core.switches.occupancy.leaf_states import LeafOccupancy
from berth.core.switches.occupancy.leaf_table import LeafTable
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import unpack
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.placement import BlockPart, Placement, Run, SwitchPart, placement_of
from tests.support.cells import a_node


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
        blocks: SuperPoDs.
        fields: Further fields of the leaving pods.
    """

    settings: Settings
    table: NodeTable
    request: JobRequest
    nodes: Sequence[str]
    ranks: Sequence[int]
    faulty: Sequence[int]
    switch: SwitchPart | None = None
    block: BlockPart | None = None
    leaves: tuple[LeafTable, LeafOccupancy] | None = None
    blocks: BlockInputs | None = None
    fields: Mapping[str, Any] = {}


def full_table(nodes: Sequence[str], free: Sequence[str], product: str) -> NodeTable:
    """Nodes of a product, of which all but some are full."""
    table = NodeTable()
    table.apply_nodes(pack_nodes("all", [a_node(name, product) for name in sorted(set(nodes))]))
    everything = (1 << NODE_PRODUCTS[product].chips) - 1
    for name in sorted(set(nodes) - set(free)):
        table.hold(ChangesBuilder(), table.row(name), everything, cpu_milli=0, memory_mib=0)
    return table


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
        switch=damaged.switch,
        block=damaged.block,
    )
    leaving = LeavingPods(gang, placement, damaged.ranks, damaged.faulty, **damaged.fields)
    asks = replacement_counts([leaving], {})
    table = damaged.leaves[0] if damaged.leaves is not None else None
    views = {shape: scorer.candidates(shape, count, leaves=table) for shape, count in asks.items()}
    placement_round = PlacementRound(scorer, views, asks, leaves=damaged.leaves, blocks=damaged.blocks)
    return plan_replacements(placement_round.parts(), leaving)


def rank_states(placement: Placement) -> list[tuple[str, int]]:
    """Leaf of each rank, and the state that its pod reports."""
    part = placement.switch
    assert part is not None
    return [
        (part.leaves[index - 1], state) for index, state in zip(unpack(part.leaf_index, 2), part.states, strict=True)
    ]


def with_uid(request: JobRequest, uid: str) -> JobRequest:
    """The request under another uid."""
    return msgspec.structs.replace(request, uid=uid)
