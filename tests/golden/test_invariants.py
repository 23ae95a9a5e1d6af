"""Rules that every plan has to keep: a sound plan breaks none, and each unsound one is noticed."""

from collections.abc import Callable

import numpy as np
import pytest

from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    Phase,
    pool_of,
)
from berth.core.topologies.levels.request import Sizes
from berth.core.topologies.racks.planner import BlockNodes
from berth.core.topologies.superpods.block_history import DisruptedGang, HeldBlock, PodFate
from tests.golden import leaf_invariants, levels
from tests.golden.block_invariants import (
    holds_gang,
    holds_racks,
    is_stuck,
    move_faults,
    piece_faults,
    plan_faults,
    rack_faults,
)
from tests.golden.leaf_invariants import (
    FREE,
    NO_ONE_LEAF,
    Scenery,
    at_lacking_positions,
    below_own_leaf,
    merged_states,
    on_one_leaf,
    position_faults,
    shared_faults,
    tier_faults,
    word_faults,
)

DEFAULT = BlockRules(reserve=0, size=8)


def a_pool(*pods: int, racks: tuple[int, ...] | None = None) -> CandidatePool:
    """Candidates in SuperPoDs, each as the index of its SuperPoD."""
    ids = [str(pod) for pod in range(max(pods) + 1)]
    known = None if racks is None else np.array(racks, np.int64)
    return pool_of(ids, np.array(pods, np.int64), np.arange(len(pods)), racks=known)


def a_plan(rows: list[int], block_ids: list[int], pods: list[int], phase: Phase = "fits") -> BlockPlan:
    sizes: dict[tuple[int, int], int] = {}
    for block_id, pod in zip(block_ids, pods, strict=True):
        sizes[block_id, pod] = sizes.get((block_id, pod), 0) + 1
    allocations = tuple(BlockAllocation(block_id, pod, nodes, phase) for (block_id, pod), nodes in sizes.items())
    return BlockPlan(np.array(rows), np.array(block_ids), np.array(pods), allocations)


POOL = a_pool(0, 0, 0, 1, 1)
HARD = BlockDemand("a3", 2, 4)
SOUND = a_plan([0, 1, 3, 4], [0, 0, 1, 1], [0, 0, 1, 1])


def test_a_sound_plan_of_blocks_breaks_no_rule() -> None:
    assert plan_faults(POOL, HARD, DEFAULT, SOUND) == ()


@pytest.mark.parametrize(
    "plan",
    [
        a_plan([0, 0, 3, 4], [0, 0, 1, 1], [0, 0, 1, 1]),
        a_plan([0, 9, 3, 4], [0, 0, 1, 1], [0, 0, 1, 1]),
        a_plan([0, -1, 3, 4], [0, 0, 1, 1], [0, 0, 1, 1]),
        a_plan([0, 1, 3, 4], [0, 0, 1, 1], [0, 0, 0, 1]),
        a_plan([0, 1, 2, 4], [0, 0, 0, 1], [0, 0, 0, 1]),
        a_plan([0, 1, 3, 4], [0, 0, 2, 2], [0, 0, 1, 1]),
        a_plan([3, 4, 0, 1], [1, 1, 0, 0], [1, 1, 0, 0]),
        SOUND._replace(allocations=(*SOUND.allocations, BlockAllocation(2, 0, 2, "fits"))),
    ],
    ids=["twice", "stranger", "none", "wrong-superpod", "sizes", "ids", "walk", "surplus"],
)
def test_an_unsound_plan_of_blocks_is_noticed(plan: BlockPlan) -> None:
    assert plan_faults(POOL, HARD, DEFAULT, plan)


def test_pieces_come_from_the_superpod_with_the_most_left_and_are_no_larger_than_what_is_missing() -> None:
    want = BlockDemand("a3", 2, 4, soft=True)
    pool = a_pool(0, 1, 2, 2, 2)
    whole, piece = BlockAllocation(0, 2, 2, "fits"), a_plan([2, 3, 0, 4], [0, 0, 1, 2], [2, 2, 0, 2])
    right = (whole, BlockAllocation(1, 0, 1, "pieces"), BlockAllocation(2, 1, 1, "pieces"))
    assert piece_faults(pool, want, piece._replace(allocations=right)) == ()
    assert piece_faults(pool, want, piece._replace(allocations=(whole, right[2], right[1])))
    assert piece_faults(pool, want, piece._replace(allocations=(whole, BlockAllocation(1, 0, 2, "pieces"))))


def test_room_for_a_gang() -> None:
    assert holds_gang(POOL, HARD)
    assert not holds_gang(POOL, HARD._replace(replicas=6))
    assert not holds_gang(a_pool(0, 0, 0, 1), HARD)
    assert holds_gang(a_pool(0, 0, 0, 1), HARD._replace(soft=True))


def test_room_for_a_gang_with_racks() -> None:
    pool = a_pool(*[0] * 12, racks=(0,) * 3 + (1,) * 3 + (16,) * 6)
    want = BlockDemand("rack", 2, 10, rack_block=2)
    assert holds_racks(pool, want, is_service=False)
    assert not holds_racks(pool, want._replace(replicas=12), is_service=False)
    assert holds_racks(pool, want._replace(replicas=12, soft=True), is_service=False)
    assert not holds_racks(pool, want._replace(replicas=14, soft=True), is_service=False)
    assert holds_racks(pool, want, is_service=True)
    assert not holds_racks(pool, want._replace(replicas=12), is_service=True)
    assert not holds_racks(pool, want._replace(ub_memory=True), is_service=False)


def test_parts_of_blocks_stay_inside_racks() -> None:
    pool = a_pool(0, 0, 0, 0, 1, racks=(0, 0, 1, 1, 0))
    want = BlockDemand("rack", 4, 4, rack_block=2)

    def faults(rows: list[int], *, want: BlockDemand = want, is_service: bool = False) -> object:
        return rack_faults(
            pool, want, [BlockNodes(0, 0, np.array(rows), "superpod")], is_service=is_service, is_exact=True
        )

    assert faults([0, 1, 2, 3]) == ()
    assert faults([0, 1, 2, 4])
    assert faults([0, 1, 2, 2])
    assert faults([0, 1, 2, 3], is_service=True)
    assert faults([0, 2], want=BlockDemand("rack", 2, 2, rack_block=2))
    assert faults([0, 1], want=BlockDemand("rack", 2, 2, rack_block=2)) == ()


def test_pods_that_run_stay_where_they_are_after_a_fault() -> None:
    pool = a_pool(0, 0, 1, 1)
    held = [
        HeldBlock(0, "0", (0, 1), (7, 8), (PodFate.RUNS, PodFate.LOST)),
        HeldBlock(1, "1", (2, 3), (2, 3), (PodFate.RETURNS,) * 2),
    ]
    failure = DisruptedGang(held, is_pod_level=True)
    block_ids, pods = [0, 0, 1, 1], [0, 0, 1, 1]

    def faults(*rows: int) -> object:
        return move_faults(pool, HARD, failure, a_plan(list(rows), block_ids, pods), parity=False)

    assert faults(7, 0, 2, 3) == ()
    assert faults(1, 0, 2, 3)
    assert faults(7, 8, 2, 3)
    assert faults(7, 2, 2, 3)
    assert not is_stuck(pool, failure)
    assert is_stuck(a_pool(1, 1), failure)


SCENERY = Scenery(
    places=2,
    names=["x", "y", "z"],
    nodes=[["x0", "x1"], ["y0", "y1"], ["z0", "z1"]],
    leaf_of={"x0": 0, "x1": 0, "y0": 1, "y1": 1, "z0": 2, "z1": 2},
    slice_of={"x0": 1, "x1": 0, "y0": 0, "y1": 1, "z0": 0, "z1": 1},
    candidates=frozenset({"x0", "x1", "y1", "z0", "q"}),
)


@pytest.mark.parametrize("nodes", [["x0"], ["x0", "x0"], ["x0", "y0"], ["x0", "q"]])
def test_nodes_below_leaves_are_different_candidates(nodes: list[str]) -> None:
    assert leaf_invariants.plan_faults(SCENERY, ["x0", "y1"], 2) == ()
    assert leaf_invariants.plan_faults(SCENERY, nodes, 2)


def test_pods_say_of_their_leaf_what_it_is() -> None:
    shared = {"isSharedTor": "1", "isHealthy": "0", "sharedTorIp": "y"}
    exclusive = {"isSharedTor": "2", "isHealthy": "1"}
    assert word_faults(SCENERY, {"x0": exclusive, "y1": shared}, {"x": 6, "y": 1}) == ()
    assert word_faults(SCENERY, {"x0": FREE, "y1": FREE}, {"x": 2}) == ()
    assert word_faults(SCENERY, {"x0": exclusive, "y1": shared}, {"x": 2, "y": 1})
    assert word_faults(SCENERY, {"x0": exclusive, "y1": shared | {"sharedTorIp": "x"}}, {"x": 6, "y": 1})


def test_a_job_is_below_no_more_shared_leaves_than_allowed() -> None:
    assert shared_faults(SCENERY, ["x0", "y0", "z0"], {"x": 1, "y": 5, "z": 2}, 2) == ()
    assert shared_faults(SCENERY, ["x0", "y0", "z0"], {"x": 1, "y": 5, "z": 2}, 1)
    assert shared_faults(SCENERY, ["x0", "z0"], {"x": 1, "y": 5, "z": 2}, 1) == ()


def test_what_pods_say_is_merged_without_order() -> None:
    two, one, sub_healthy = ({"isSharedTor": word} for word in "210")
    jobs = [{"nodes": ["x0", "y0", "z0"], "annotations": {"x0": two, "y0": two, "z0": two}}]
    jobs += [{"nodes": ["x1", "y1", "q"], "annotations": {"x1": one, "y1": sub_healthy | {"isHealthy": "1"}, "q": one}}]
    assert merged_states(jobs, SCENERY) == {"x": 1, "y": 5, "z": 2}


def test_a_padding_job_stays_below_one_leaf_or_waits() -> None:
    across = {"ok": True, "error": "", "chosen_nodes": ["x1", "y1"], "pod_annotations": {}}
    inside = across | {"chosen_nodes": ["x1", "x0"]}
    assert on_one_leaf(SCENERY, inside, 2) == inside
    assert on_one_leaf(SCENERY, across, 2)["chosen_nodes"] == ["x1", "x0"]
    few = SCENERY._replace(candidates=frozenset({"x0", "y1"}))
    assert on_one_leaf(few, across, 2) == {"ok": False, "error": NO_ONE_LEAF, "switch_before": {}}
    lost = across | {"switch_before": {"x": {"isSharedTor": 2, "isHealthy": 1}}}
    assert not on_one_leaf(SCENERY, lost, 2)["ok"]


def test_lost_pods_without_a_spine_stay_below_their_leaf() -> None:
    expected = {"ok": True, "error": "", "chosen_nodes": ["z0"], "rejected": {}, "pod_annotations": {}}
    found = below_own_leaf(SCENERY, expected, ["x1"], [1])
    assert (found["ok"], found["chosen_nodes"]) == (True, ["x0"])
    assert set(found["rejected"]) == {"y1", "z0", "q"}
    assert not below_own_leaf(SCENERY, expected, ["y0"], [1, 2])["ok"]
    assert below_own_leaf(SCENERY, expected, ["stranger"], [1]) == expected


def test_lost_pods_of_1_0_go_to_positions_that_the_job_lacks() -> None:
    closed, _, most = at_lacking_positions(SCENERY, ["y0", "x1"], [2], {0})
    assert (closed["ok"], set(closed["rejected"]), most) == (True, {"q", "x0", "x1", "z0"}, 2)
    room, used, most = at_lacking_positions(SCENERY, ["y0"], [1], set())
    assert set(room["rejected"]) == {"q", "x1", "z0"}
    assert position_faults(SCENERY, room["rejected"], used, most, ["y1"]) == ()
    assert position_faults(SCENERY, room["rejected"], used, most, ["x1"])
    assert position_faults(SCENERY, {"q"}, used, 2, ["z0"])
    assert not at_lacking_positions(SCENERY, ["y0"], [1], {0, 1, 2})[0]["ok"]


@pytest.mark.parametrize(("nodes", "is_sound"), [(["y1", "x0"], True), (["x0", "y1"], False), (["y1", "z0"], False)])
def test_lost_pods_of_2_0_go_below_exclusive_leaves_first(nodes: list[str], is_sound: bool) -> None:  # noqa: FBT001
    faults = tier_faults(SCENERY, ["x1", "y0"], {"x": 1, "y": 2}, nodes, {"x1"})
    assert (faults == ()) is is_sound


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        ([0, 1, 2], (2, 4)),
        ([0, 1, 2, 2], (2, 4)),
        ([0, 1, 2, 9], (2, 4)),
        ([0, 1, 2, 4], (2, 4)),
        ([0, 1, 4, 5], (2, 4)),
    ],
)
def test_groups_of_a_level_have_whole_parts(rows: list[int], sizes: Sizes) -> None:
    paths = {row: (row // 4, row // 2) for row in range(8)}
    check: Callable[[list[int]], object] = lambda rows: levels.plan_faults(rows, paths, sizes, 4)  # noqa: E731
    assert check([0, 1, 2, 3]) == ()
    assert check(rows)
