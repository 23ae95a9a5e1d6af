"""Gangs of the families of racks and levels, placed by a round, that lose pods: what their new places keep.

The vectors have no losses for them. The rules are those of the reference pages, as for a new gang.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest

from berth.core.changes import ChangesBuilder
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.node_packing import pack_nodes
from berth.core.cluster.node_table import NodeTable
from berth.core.gangs import Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.replacements import NoPlaces, plan_replacements, replacement_counts
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.state.holdings.moves import merged_placement
from berth.core.topologies.blocks.demand import blocks_of
from berth.core.topologies.leaving import LeavingPods
from berth.core.topologies.levels.request import read_sizes
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import unpack
from berth.schemas.ledger import Settings
from berth.schemas.placement import Placement
from berth.schemas.recovery import Scope
from tests.golden.folder import DATA, vectors_folder
from tests.golden.harness import Line, family_of, read_lines, vector_files
from tests.golden.levels import plan_faults
from tests.golden.live_plans import gang_of_request, request_of, table_of
from tests.support.cells import a_job, a_node
from tests.support.placed_parts import the_block

FAMILIES_HERE: Final = ("superpod_rack", "multilevel")
FILES: Final = [
    path
    for folder in (DATA, vectors_folder())
    if folder.is_dir()
    for path in vector_files(folder)
    if family_of(path) in FAMILIES_HERE
]
SCOPES: Final[tuple[Scope, ...]] = ("pod", "rank-block", "superpod", "job")
PRODUCT: Final = "superpod910a3x16"


class Cluster(NamedTuple):
    """Nodes of a line and its gang."""

    scorer: Scorer
    gang: Gang


def cluster_of(line: Line) -> Cluster:
    """A line as a round sees it."""
    if "super_pods" in line:
        settings, table, request = Settings(super_pod_size=line["super_pod_size"]), table_of(line), request_of(line)
    else:
        table, chips = NodeTable(), NODE_PRODUCTS[PRODUCT].chips
        known = dict(NODE_PRODUCTS[PRODUCT].labels)
        nodes = [a_node(node["name"], PRODUCT, labels=known | node["labels"]) for node in line["nodes"]]
        table.apply_nodes(pack_nodes("all", sorted(nodes, key=lambda node: node.name)))
        for node in line["nodes"]:
            if not node["free"]:
                hold(table, node["name"], (1 << chips) - 1)
        levels = [f'"level{n}": {{"label": "l{n}"}}' for n in range(1, line["resource_levels"] + 1)]
        settings = Settings(resource_levels=f'{{"default": {{{", ".join(levels)}}}}}')
        sizes = ",".join(f"{name}={size}" for name, size in line["affinity_config"].items())
        annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": sizes}
        request = a_job("j", product=PRODUCT, chips=chips, replicas=line["tasks"], annotations=annotations)
    scorer = Scorer(table, SoftShareTable(table), settings)
    return Cluster(scorer, gang_of_request(request, settings))


def hold(table: NodeTable, name: str, mask: int) -> None:
    """Let somebody own chips of a node."""
    table.hold(ChangesBuilder(), table.row(name), mask, cpu_milli=0, memory_mib=0)


def placed(cluster: Cluster) -> Placement | None:
    """Place the gang; its nodes are held then."""
    scorer, gang = cluster
    asks = candidate_counts([gang])
    views = {shape: scorer.candidates(shape, count) for shape, count in asks.items()}
    placement = PlacementRound(scorer, views, asks).choose([gang]).verdicts[0].placement
    for name, chips in zip(placement.names(), placement.chips_by_rank(), strict=True) if placement is not None else ():
        hold(scorer.table, name, sum(1 << chip for chip in chips))
    return placement


def replaced(cluster: Cluster, placement: Placement, ranks: Sequence[int], scope: Scope) -> Placement | NoPlaces:
    """New places of ranks of which the first one is faulty; its chips are unhealthy."""
    scorer, gang = cluster
    leaving = LeavingPods(gang, placement, sorted(ranks), ranks[:1], (), scope, steps=SCOPES.index(scope))
    asks = replacement_counts([leaving], {})
    views = {shape: scorer.candidates(shape, count) for shape, count in asks.items()}
    parts = PlacementRound(scorer, views, asks).parts()
    return plan_replacements(parts, leaving)


def rack_places(table: NodeTable, placement: Placement) -> dict[int, list[tuple[int, int]]]:
    """SuperPoD and rack of each pod of each block, by rank."""
    part = the_block(placement)
    found: dict[int, list[tuple[int, int]]] = {}
    for name, block in zip(placement.names(), unpack(part.block_index, 2), strict=True):
        row = table.row_of[name]
        found.setdefault(part.blocks[block - 1], []).append((int(table.superpod[row]), int(table.rack[row])))
    return found


def check(cluster: Cluster, line: Line, before: Placement, after: Placement) -> None:
    """The gang with its new places keeps the rules that it kept before."""
    table, blocks = cluster.scorer.table, blocks_of(cluster.gang.demand)
    assert blocks is not None
    names = after.names()
    assert len(set(names)) == len(names)
    if blocks.levels:
        labels = {name: table.labels(table.row_of[name]) for name in names}
        depth = line["resource_levels"]
        paths = {
            table.row_of[name]: [
                hash(tuple(labels[name][f"l{n}"] for n in range(depth, k - 1, -1))) for k in range(depth, 0, -1)
            ]
            for name in names
        }
        sizes = read_sizes(",".join(f"{name}={size}" for name, size in line["affinity_config"].items()))
        assert not plan_faults([table.row_of[name] for name in names], paths, sizes, line["tasks"])
        return
    old, new = rack_places(table, before), rack_places(table, after)
    for block, cells in new.items():
        assert len({superpod for superpod, _ in cells}) == 1
        size = blocks.rack_size
        if block not in old:  # a piece of a soft gang
            continue
        was_whole = all(len(set(old[block][at : at + size])) == 1 for at in range(0, len(old[block]), size))
        if was_whole and len(cells) == len(old[block]) == blocks.size:
            assert all(len(set(cells[at : at + size])) == 1 for at in range(0, len(cells), size)), (block, cells)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_gangs_that_lose_a_pod_keep_their_rules(path: Path) -> None:
    told: dict[str, int] = {}
    for line in read_lines(path):
        cluster = cluster_of(line)
        before = placed(cluster)
        if before is None:
            continue
        table = cluster.scorer.table
        rank = line["tasks"] // 2
        row = table.row_of[before.names()[rank]]
        table.unhealthy[row] = table.chips[row]
        for scope in SCOPES:
            ranks = [rank] if scope != "job" else [rank, *(other for other in range(line["tasks"]) if other != rank)]
            found = replaced(cluster, before, ranks, scope)
            told[told_of(found, scope)] = told.get(told_of(found, scope), 0) + 1
            if isinstance(found, NoPlaces):
                assert found.refusal.code == "no-blocks"
                if found.ranks:
                    more = replaced(cluster, before, [rank, *found.ranks], "job")
                    assert isinstance(more, Placement), line["id"]
                    check(cluster, line, before, whole(before, sorted([rank, *found.ranks]), more))
                continue
            check(cluster, line, before, whole(before, sorted(ranks), found))
            if scope == "pod" and line.get("affinity_config", {}).get("level1") != 1:
                assert is_near(cluster, line, before.names()[rank], found.names()[0])
    assert told["places pod"]
    assert told["places job"]
    if path.parent != DATA:
        assert {"none pod", "named pod"} <= told.keys(), told


def told_of(found: Placement | NoPlaces, scope: str) -> str:
    if isinstance(found, NoPlaces):
        return f"{'named' if found.ranks else 'none'} {scope}"
    return f"places {scope}"


def whole(before: Placement, ranks: Sequence[int], found: Placement) -> Placement:
    """All places of the gang."""
    return merged_placement(before, {rank: (found, index) for index, rank in enumerate(ranks)})


def is_near(cluster: Cluster, line: Line, old: str, new: str) -> bool:
    """Two nodes are in one rack, or in one group of level 1."""
    table = cluster.scorer.table
    was, now = table.row_of[old], table.row_of[new]
    if "super_pods" in line:
        return bool(table.superpod[was] == table.superpod[now] and table.rack[was] == table.rack[now])
    names: list[Mapping[str, str]] = [table.labels(was), table.labels(now)]
    return len({tuple(labels[f"l{n}"] for n in range(1, line["resource_levels"] + 1)) for labels in names}) == 1


def test_unhealthy_chips_of_a_test_are_seen() -> None:
    cluster = cluster_of(next(iter(read_lines(DATA / "multilevel.jsonl"))))
    before = placed(cluster)
    assert before is not None
    table = cluster.scorer.table
    row = table.row_of[before.names()[0]]
    table.unhealthy[row] = table.chips[row]
    assert not np.any(table.free[row])
    found = replaced(cluster, before, [0], "job")
    assert isinstance(found, NoPlaces) or found.names() != [before.names()[0]]
