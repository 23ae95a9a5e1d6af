"""New places for pods of placed gangs: what holds for every cell, every gang and every loss."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from berth.core.cluster.node_packing import SWITCHES
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.offers import merge
from berth.core.placement.replacements import NoPlaces, plan_replacements, replacement_counts
from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.scoring import Candidates
from berth.core.state.cell_fork import CellFork
from berth.core.state.holdings.moves import merged_placement
from berth.core.state.invariants import check
from berth.core.state.ledger import pods_of
from berth.core.topologies.blocks.demand import blocks_of
from berth.core.topologies.blocks.model import rack_number
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.leaving import LeavingPods
from berth.core.topologies.levels.level_map import node_path
from berth.core.topologies.levels.request import levels_of
from berth.core.topologies.switches.demand import label_of
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.core.topologies.switches.placed import switch_of
from berth.schemas.columns import unpack
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Release
from berth.schemas.nodes import NodeCondition
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery, Scope
from tests.support import superpod_worlds, switch_worlds
from tests.support.cells import a_job
from tests.support.core_cells import SUBJECTS, CoreCell
from tests.support.replacements import gang_of_cell, holding_of

SCOPES: Final[tuple[Scope, ...]] = ("pod", "rank-block", "superpod", "level", "job")
FAULTS: Final = ("chip", "chips", "node", "none")


class Story(msgspec.Struct, frozen=True):
    """Jobs that are placed, and what one of them loses.

    Numbers choose among what is there, modulo its count.
    """

    jobs: list[tuple[str, int, int]]
    gang: int
    leaving: list[int]
    faulty: list[int]
    gone: list[int]
    faults: list[tuple[str, int]]
    scope: Scope
    steps: int
    failed: list[int]


def numbers(most: int, size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), max_size=size)


def stories(*kinds: str) -> st.SearchStrategy[Story]:
    """Stories with jobs of some kinds."""
    return st.builds(
        Story,
        jobs=st.lists(
            st.tuples(st.sampled_from(kinds), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=6
        ),
        gang=st.integers(0, 11),
        leaving=st.lists(st.integers(0, 20), min_size=1, max_size=6),
        faulty=numbers(20, 4),
        gone=numbers(20, 2),
        faults=st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 50)), max_size=16),
        scope=st.sampled_from(SCOPES),
        steps=st.integers(0, 3),
        failed=numbers(50, 2),
    )


def a_switch_job(number: int, kind: str, one: int, two: int) -> JobRequest:
    if kind == "plain":
        return a_job(f"j{number}", chips=(8, 4, 1)[one % 3], replicas=1 + two % 4)
    label = "normal-schema" if kind == "common" else "large-model-schema"
    tasks = [Task("worker", 1 + one % 7, 8)]
    if two % 3 == 1:
        tasks.insert(one % 2, Task("master", 1 + one % 2, 0, 1_000))
    return a_job(f"j{number}", tasks=tasks, labels={"tor-affinity": label})


def told(cell: CoreCell, story: Story) -> LeavingPods | None:
    """The loss of a story; None if no job is placed."""
    cell.decide()
    holdings = sorted(cell.state.fold.holdings.values(), key=lambda one: one.name)
    if not holdings:
        return None
    holding = holdings[story.gang % len(holdings)]
    pods = holding.placement.pods()
    ranks = sorted({number % pods for number in story.leaving})
    gone = sorted({number % pods for number in story.gone})
    if gone and len(gone) < pods:
        cell.release(Release(holding.uid, holding.attempt, "failed", ranks=gone))
    names = sorted(cell.nodes)
    for what, number in story.faults:
        nodes = holding.placement.names() if number % 2 else names
        name = nodes[number % len(nodes)]
        conditions = {
            "chip": NodeCondition(name, unhealthy=1),
            "chips": NodeCondition(name, unhealthy=cell.nodes[name].chips),
            "node": NodeCondition(name, level=NodeHealth.NO_NEW_WORK),
        }
        if what in conditions:
            cell.conditions[name] = conditions[what]
    cell.publish()
    holding = holding_of(cell.state, holding.name)
    return LeavingPods(
        gang_of_cell(cell, holding.name),
        holding.placement,
        ranks,
        sorted({number % pods for number in story.faulty} & set(ranks)),
        holding.gone,
        story.scope,
        story.steps,
        [names[number % len(names)] for number in story.failed],
    )


def views_of(cell: CoreCell, asks: Mapping[Shape, int], *, shards: int) -> dict[Shape, Candidates]:
    """Candidates of all nodes, or merged from those of some shards."""
    state, scorer = cell.state, cell.scheduler.scorer
    rows = np.arange(len(state.table))

    def found(shape: Shape, count: int) -> Candidates:
        if not shards:
            return scorer.candidates(shape, len(rows))
        parts = [scorer.candidates(shape, count, without=rows % shards != shard) for shard in range(shards)]
        return merge(state.table, parts, missing_nodes=0)

    return {shape: found(shape, count) for shape, count in asks.items()}


def a_round(cell: CoreCell, asks: Mapping[Shape, int], *, shards: int) -> PlacementRound:
    state = cell.state
    return PlacementRound(
        cell.scheduler.scorer,
        views_of(cell, asks, shards=shards),
        asks,
        indexes=state.indexes,
        colocation=state.colocation,
    )


def given_places(cell: CoreCell, leaving: LeavingPods, *, shards: int = 0) -> Placement | NoPlaces:
    """New places, with more candidates as long as the round asks for them."""
    asks = replacement_counts([leaving], {})
    while True:
        parts = a_round(cell, asks, shards=shards).parts()
        try:
            found = plan_replacements(parts, leaving)
        except NeedMoreError as error:
            asks = {**asks, error.shape: error.count}
            continue
        if isinstance(found, NoPlaces):
            scorer = cell.scheduler.scorer
            assert all(state == scorer.row_state(row) for row, state in parts.nodes.states.items()), "it took nothing"
        return found


def check_places(cell: CoreCell, leaving: LeavingPods, found: Placement) -> None:
    """Every pod has a place that is free or its own, on a node that takes it; faulty nodes come last."""
    table, scorer = cell.state.table, cell.scheduler.scorer
    old, new = pods_of(leaving.placement), pods_of(found)
    shapes = [shape for shape, pods in leaving.gang.request_class for _ in range(pods)]
    assert len(new) == len(leaving.ranks)
    taken: Counter[tuple[str, int]] = Counter()
    for rank, pod in zip(leaving.ranks, new, strict=True):
        row = table.row_of[pod.node]
        shape, was = shapes[rank], old[rank]
        assert len(pod.chips) == shape.chips
        assert (pod.cpu_milli, pod.memory_mib) == (shape.cpu_milli, shape.memory_mib)
        taken.update((pod.node, chip) for chip in pod.chips)
        returns = rank not in leaving.released and (pod.node, pod.chips) == (was.node, was.chips)
        healthy = int(table.chips[row]) & ~int(table.unhealthy[row])
        assert not pod.mask & ~healthy
        assert table.level[row] < NodeHealth.NO_NEW_WORK
        if not returns:
            assert not pod.mask & ~int(table.free[row]), "its chips are free"
            assert not scorer.evaluate_one(shape, row, scorer.row_state(row))[0]
        if shape.is_planned:
            staying = {old[r].node for r in range(len(old)) if shapes[r].is_planned and is_staying(leaving, r)}
            assert pod.node not in staying
    assert not [place for place, pods in taken.items() if pods > 1]
    planned = [pod.node for rank, pod in zip(leaving.ranks, new, strict=True) if shapes[rank].is_planned]
    assert len(planned) == len(set(planned))
    if len(leaving.ranks) == 1 and not shapes[leaving.ranks[0]].is_planned and leaving.faulty:
        avoided = {old[leaving.ranks[0]].node, *leaving.failed_nodes}
        reasons, _ = scorer.evaluate(shapes[leaving.ranks[0]])
        others = {table.names[row] for row in np.flatnonzero(reasons == 0).tolist()} - avoided
        assert new[0].node not in avoided or not others


def check_fold(cell: CoreCell, leaving: LeavingPods, found: Placement) -> None:
    """The ledger takes the places: no chip has two owners, and once the pods are gone the places are theirs."""
    gang = leaving.gang
    holding = holding_of(cell.state, gang.name)
    merged_before = merged_placement(
        leaving.placement, {rank: (found, index) for index, rank in enumerate(leaving.ranks)}
    )
    step = Recovery(
        gang.namespace, gang.name, gang.uid, gang.attempt, 1, "CardUnhealthy", "a chip is unhealthy", "pod", "force",
        list(leaving.ranks), sorted(leaving.faulty), 1, placement=found,
    )  # fmt: skip
    cell.recover(step)
    check(cell.state)
    fork = CellFork(cell.state)
    fork.lift(holding)
    fork.lay(holding)
    check(fork)
    check(cell.state)
    owners = [rank for rank in leaving.ranks if rank not in leaving.released]
    if owners:
        cell.release(Release(gang.uid, gang.attempt, "fault", ranks=owners))
    check(cell.state)
    holding = holding_of(cell.state, gang.name)
    assert told_of(holding.placement) == told_of(merged_before)
    assert not set(holding.gone) & set(leaving.ranks)
    assert not holding.moves


def told_of(placement: Placement) -> object:
    """Node, chips, leaf, block and SuperPoD of each rank. Rules of a plan depend on the order of releases."""
    switch, block = switch_of(placement), block_of(placement)
    leaves = [] if switch is None else [*unpack(switch.leaf_index, 2)]
    return (
        placement.names(),
        placement.chips_by_rank(),
        [] if switch is None else [("", *switch.leaves)[index] for index in leaves],
        [] if block is None else [(-1, *block.blocks)[index] for index in unpack(block.block_index, 2)],
        [] if block is None else [("", *block.superpods)[index] for index in unpack(block.superpod_index, 2)],
    )


def is_staying(leaving: LeavingPods, rank: int) -> bool:
    return rank not in leaving.ranks and rank not in leaving.released


def merged(leaving: LeavingPods, found: Placement) -> dict[int, tuple[str, int]]:
    """Node and block of each planned rank that has a place."""
    shapes = [shape for shape, pods in leaving.gang.request_class for _ in range(pods)]

    def places(placement: Placement, ranks: list[int]) -> dict[int, tuple[str, int]]:
        part = block_of(placement)
        columns = unpack(part.block_index, 2) if part is not None else [0] * placement.pods()
        ids = [part.blocks[index - 1] if part is not None and index else -1 for index in columns]
        rows = zip(ranks, placement.names(), ids, strict=True)
        return {rank: (node, block) for rank, node, block in rows if shapes[rank].is_planned}

    before = places(leaving.placement, list(range(leaving.placement.pods())))
    kept = {rank: place for rank, place in before.items() if is_staying(leaving, rank)}
    return kept | places(found, list(leaving.ranks))


def check_none(leaving: LeavingPods, found: NoPlaces) -> None:
    assert found.refusal.code != "internal", found.refusal
    assert found.refusal.pods_need == len(leaving.ranks)
    assert list(found.ranks) == sorted(set(found.ranks))
    assert all(is_staying(leaving, rank) for rank in found.ranks)


def check_same(cell: CoreCell, leaving: LeavingPods, found: Placement | NoPlaces) -> None:
    """Another round, and candidates of shards, give the same."""
    assert given_places(cell, leaving) == found
    for shards in (1, 3):
        other = given_places(cell, leaving, shards=shards)
        if isinstance(found, Placement) or isinstance(other, Placement):
            assert other == found
        else:
            assert list(other.ranks) == list(found.ranks)


@given(story=stories("common", "model", "plain"), way=switch_worlds.WAYS)
def test_places_below_leaves(story: Story, way: switch_worlds.Way) -> None:
    cell = CoreCell(switch_worlds.nodes(), **way.settings | {"round_gangs_max": 100})
    fact = switch_worlds.topology(is_single_layer=way.is_single_layer, last=switch_worlds.PLACES)
    cell.fact(SUBJECTS.fact_topology(SWITCHES), fact)
    cell.ask(*(a_switch_job(number, *job) for number, job in enumerate(story.jobs)))
    leaving = told(cell, story)
    if leaving is None:
        return
    found = given_places(cell, leaving)
    check_same(cell, leaving, found)
    if isinstance(found, NoPlaces):
        event(f"none {bool(found.ranks)}")
        check_none(leaving, found)
        if found.ranks:
            whole = sorted((*leaving.ranks, *found.ranks))
            other = given_places(cell, leaving._replace(ranks=whole, scope="job"))
            assert isinstance(other, Placement), "the ranks that it names are enough"
        return
    event("places")
    check_places(cell, leaving, found)
    check_fold(cell, leaving, found)
    if label_of(leaving.gang.demand) and not way.parity:
        leaves = leaf_index_of(cell.state.indexes).leaves
        shapes = [shape for shape, pods in leaving.gang.request_class for _ in range(pods)]
        names = leaving.placement.names()
        before = {leaves.leaf_of(names[rank]) for rank, shape in enumerate(shapes) if shape.is_planned}
        after = {leaves.leaf_of(node) for node, _ in merged(leaving, found).values()}
        if len(before) == 1 and (way.is_single_layer or way.version == "2.0"):
            assert len(after) == 1


@given(
    story=stories("hard", "hard", "soft", "service", "mindie", "levels", "levels", "plain"), way=superpod_worlds.WAYS
)
def test_places_in_superpods_racks_and_levels(story: Story, way: superpod_worlds.Way) -> None:
    cell = CoreCell(superpod_worlds.nodes(), **way.settings | {"round_gangs_max": 100})
    requests = (superpod_worlds.a_request(number, superpod_worlds.Step(*job)) for number, job in enumerate(story.jobs))
    cell.ask(*requests)
    leaving = told(cell, story)
    if leaving is None:
        return
    found = given_places(cell, leaving)
    check_same(cell, leaving, found)
    if isinstance(found, NoPlaces):
        event(f"none {leaving.gang.form} {found.refusal.blocks and found.refusal.blocks.rule} {bool(found.ranks)}")
        check_none(leaving, found)
        lack = found.refusal.blocks
        assert way.parity or lack is None or lack.rule != "incomplete" or found.ranks
        blocks = blocks_of(leaving.gang.demand)
        if found.ranks and blocks is not None and (blocks.levels or blocks.rack_size):
            wider = leaving._replace(ranks=sorted((*leaving.ranks, *found.ranks)), scope="job")
            assert isinstance(given_places(cell, wider), Placement), "the ranks that it names are enough"
        return
    event(f"places {leaving.gang.form} {leaving.scope}")
    check_places(cell, leaving, found)
    if not way.parity and blocks_of(leaving.gang.demand) is not None:
        check_blocks(cell, leaving, found)
    check_fold(cell, leaving, found)


def check_blocks(cell: CoreCell, leaving: LeavingPods, found: Placement) -> None:
    """Blocks are inside SuperPoDs, parts inside racks, pods of a level inside a group."""
    table, request = cell.state.table, blocks_of(leaving.gang.demand)
    assert request is not None
    after = merged(leaving, found)
    ranks = [rank for rank, shape in enumerate(shapes_of(leaving)) if blocks_of(shape.demand) is not None]
    place = {rank: index for index, rank in enumerate(ranks)}
    assert len({node for node, _ in after.values()}) == len(after)
    if request.levels:
        config = levels_of(cell.state.fold.settings.resource_levels)
        for level, size in enumerate(request.levels, start=1):
            groups: dict[int, set[tuple[str, ...]]] = {}
            for rank, (node, _) in after.items():
                labels = table.labels(table.row_of[node])
                path = node_path(config, labels).path
                groups.setdefault(place[rank] // size, set()).add(path[: len(path) - level + 1])
            assert all(len(found_groups) == 1 for found_groups in groups.values()), groups
        return
    blocks: dict[int, list[int]] = {}
    for rank, (_, block) in sorted(after.items()):
        blocks.setdefault(block, []).append(rank)
    for block, members in blocks.items():
        rows = [table.row_of[after[rank][0]] for rank in members]
        assert len({int(table.superpod[row]) for row in rows}) == 1, block
        assert len(members) <= request.size
        if request.rack_size and not request.soft and len(members) == request.size:
            racks = [rack_number(table.racks[int(table.rack[row])]) for row in rows]
            parts = [set(racks[at : at + request.rack_size]) for at in range(0, len(racks), request.rack_size)]
            assert all(len(part) == 1 for part in parts), (block, racks)
    if not request.soft and not leaving.released:
        assert all(len(members) == request.size for members in blocks.values())


def shapes_of(leaving: LeavingPods) -> list[Shape]:
    return [shape for shape, pods in leaving.gang.request_class for _ in range(pods)]
