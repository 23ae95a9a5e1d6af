"""Plans of blocks: which nodes are looked at, which are taken first, and which rank gets which."""

import numpy as np
import pytest

from berth.core.cluster.node_groups import group_key
from berth.core.errors import InvariantError
from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    Near,
    NoBlocks,
    pool_of,
)
from berth.core.topologies.blocks.node_assignment import assign_nodes, candidates
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.superpods.planner import plan_blocks
from tests.support.cells import a_node
from tests.support.core_cells import CoreCell
from tests.support.plan_decisions import block_decisions


def a_pool(*counts: int, sub_healthy: tuple[int, ...] = (), idle: list[int] | None = None) -> CandidatePool:
    """SuperPoDs with so many candidates; rows count from 100."""
    pods = np.repeat(np.arange(len(counts)), counts)
    return pool_of(
        [str(pod) for pod in range(len(counts))],
        pods,
        np.arange(len(pods)) + 100,
        racks=np.arange(len(pods)) // 2,
        sub_healthy=np.isin(np.arange(len(pods)) + 100, sub_healthy),
        idle=None if idle is None else np.array(idle),
    )


def planned(pool: CandidatePool, demand: BlockDemand, rules: BlockRules | None = None) -> BlockPlan:
    found = plan_blocks(pool, demand, rules or BlockRules())
    assert isinstance(found, BlockPlan), found
    return found


def test_superpods_go_by_their_number_and_then_by_their_text() -> None:
    names = ["pod-b", "10", "9", "pod-a", "09", "0", "-1", "²"]
    assert sorted(names, key=group_key) == ["0", "09", "9", "10", "-1", "pod-a", "pod-b", "²"]


def test_a_pool_keeps_the_order_of_its_nodes_except_sub_healthy_ones() -> None:
    pods = np.array([1, 0, 1, 0, 1])
    pool = pool_of(
        ["a", "b", "c"], pods, np.array([7, 8, 5, 6, 9]), sub_healthy=np.array([True, False, False, False, False])
    )
    assert pool.rows.tolist() == [8, 6, 5, 9, 7]
    assert pool.starts.tolist() == [0, 2, 5, 5]
    assert pool.counts.tolist() == [2, 3, 0]
    assert pool.racks.tolist() == [-1] * 5
    assert pool.sub_healthy.tolist() == [False, False, False, False, True]


def test_a_pool_without_some_nodes() -> None:
    pool = a_pool(3, 2, 1, idle=[1, 2, 3, 4, 5, 6])
    rest = pool.without(np.array([True, False, False, True, True, False]))
    assert rest.rows.tolist() == [101, 102, 105]
    assert rest.counts.tolist() == [2, 0, 1]
    assert rest.racks.tolist() == [0, 1, 2]
    assert rest.idle is not None
    assert rest.idle.tolist() == [2, 3, 6]
    assert a_pool(1).without(np.array([False])).idle is None


def test_ranks_follow_blocks_and_nodes_follow_the_order_of_their_superpod() -> None:
    plan = planned(a_pool(6, 9), BlockDemand("a3", 4, 8), BlockRules(reserve=2))
    assert plan.allocations == (BlockAllocation(0, 0, 4, "fits"), BlockAllocation(1, 1, 4, "fits"))
    assert plan.rows.tolist() == [100, 101, 102, 103, 106, 107, 108, 109]
    assert plan.block_ids.tolist() == [0] * 4 + [1] * 4
    assert plan.pods.tolist() == [0] * 4 + [1] * 4
    assert plan.is_whole


def test_blocks_of_one_superpod_get_its_nodes_one_after_the_other() -> None:
    plan = planned(a_pool(1, 10), BlockDemand("a3", 4, 8))
    assert plan.rows.tolist() == list(range(101, 109))


def test_ranks_walk_over_blocks_as_long_as_they_are() -> None:
    pool = a_pool(3, 8, 6)
    allocations = [
        BlockAllocation(2, 0, 3, "pieces"),
        BlockAllocation(0, 1, 4, "fits"),
        BlockAllocation(10, 2, 2, "pieces"),
        BlockAllocation(1, 1, 1, "pieces"),
    ]
    plan = assign_nodes(pool, allocations, 9)
    assert plan.block_ids.tolist() == [0] * 4 + [1] + [2] * 3 + [10]
    assert plan.rows.tolist() == [103, 104, 105, 106, 107, 100, 101, 102, 111]
    assert plan.pods.tolist() == [1] * 5 + [0] * 3 + [2]
    assert plan.allocations == tuple(allocations)


def test_ranks_beyond_the_nodes_get_none_and_the_plan_says_so() -> None:
    plan = assign_nodes(a_pool(3), [BlockAllocation(0, 0, 2, "fits")], 3)
    assert plan.rows.tolist() == [100, 101, -1]
    assert plan.block_ids.tolist() == [0, 0, -1]
    assert not plan.is_whole
    assert assign_nodes(a_pool(3), [], 1).rows.tolist() == [-1]


def test_the_reference_leaves_ranks_without_a_node_and_ours_does_not() -> None:
    pool, demand = a_pool(26), BlockDemand("a3", 8, 24)
    copied = planned(pool, demand, BlockRules(reserve=20, differs=REFERENCE))
    assert copied.rows.tolist() == [*range(100, 116), *[-1] * 8]
    assert planned(pool, demand, BlockRules(reserve=20)).is_whole
    assert block_decisions(pool, demand, BlockRules(reserve=20)) == ("D-3", "D-4")


def test_healthy_nodes_are_taken_before_sub_healthy_ones() -> None:
    plan = planned(a_pool(6, sub_healthy=(100, 103)), BlockDemand("a3", 4, 4))
    assert plan.rows.tolist() == [101, 102, 104, 105]
    plan = planned(a_pool(6, sub_healthy=(100, 103, 105)), BlockDemand("a3", 4, 4))
    assert plan.rows.tolist() == [101, 102, 104, 100]


def test_one_pod_goes_where_the_fewest_chips_are_idle() -> None:
    pool = a_pool(3, 2, idle=[16, 4, 16, 6, 4])
    assert candidates(pool, BlockDemand("a3", 1, 1)).rows.tolist() == [101, 104]
    assert candidates(pool, BlockDemand("a3", 1, 2)).rows.tolist() == [100, 101, 102, 103, 104]
    assert planned(pool, BlockDemand("a3", 1, 1)).rows.tolist() == [101]


@pytest.mark.parametrize("parity", [False, True])
def test_one_pod_goes_to_a_healthy_node_of_those_with_the_fewest_idle_chips(*, parity: bool) -> None:
    pool = a_pool(3, 2, sub_healthy=(101, 104), idle=[16, 4, 4, 16, 4])
    assert planned(pool, BlockDemand("a3", 1, 1), BlockRules(differs=REFERENCE if parity else OWN)).rows.tolist() == [
        102
    ]
    assert planned(pool, BlockDemand("850", 1, 1), BlockRules(differs=REFERENCE if parity else OWN)).rows.tolist() == [
        102
    ]
    pool = a_pool(3, 2, sub_healthy=(101, 102), idle=[16, 4, 4, 16, 16])
    assert planned(pool, BlockDemand("a3", 1, 1), BlockRules(differs=REFERENCE if parity else OWN)).rows.tolist() == [
        101
    ]


def test_health_plays_no_part_for_one_pod_with_racks() -> None:
    pool = a_pool(3, sub_healthy=(100,), idle=[4, 4, 8])
    assert candidates(pool, BlockDemand("rack", 1, 1)).rows.tolist() == [101, 100]
    assert candidates(pool, BlockDemand("a3", 1, 1)).rows.tolist() == [101]


@pytest.mark.parametrize("soft", [False, True])
def test_fewer_candidates_than_pods(*, soft: bool) -> None:
    found = plan_blocks(a_pool(5, 8, 1), BlockDemand("a3", 4, 16, soft=soft), BlockRules())
    assert found == NoBlocks(
        lack="nodes",
        block=4,
        blocks_need=4,
        blocks_have=3,
        nodes_need=16,
        nodes_have=14,
        closest=(Near("1", 8, 2), Near("0", 5, 1), Near("2", 1, 0)),
    )
    assert block_decisions(a_pool(5, 8, 1), BlockDemand("a3", 4, 16, soft=soft), BlockRules()) == ()


def test_an_empty_pool() -> None:
    found = plan_blocks(a_pool(), BlockDemand("a3", 1, 1), BlockRules())
    assert isinstance(found, NoBlocks)
    assert (found.lack, found.nodes_need, found.nodes_have, found.closest) == ("nodes", 1, 0, ())


def test_racks_are_planned_elsewhere() -> None:
    with pytest.raises(InvariantError, match="racks"):
        plan_blocks(a_pool(5), BlockDemand("rack", 1, 2), BlockRules())


def test_each_node_of_a_superpod_is_in_it_the_first_one_included() -> None:
    nodes = [a_node(f"n{pod}", superpod=str(pod), rack="3" if pod else "") for pod in range(3)]
    cell = CoreCell([*nodes, a_node("alone")])
    places = [SuperpodMap(cell.state.table).places_of([name]) for name in ("n0", "n1", "n2", "alone", "gone")]
    assert places == [[("0", -1)], [("1", 3)], [("2", 3)], [], []]
