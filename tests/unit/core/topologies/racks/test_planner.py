"""SuperPoDs with racks: where blocks go, inference services, and what moves after a loss."""

from collections.abc import Mapping, Sequence

import numpy as np

from berth.core.parity import REFERENCE
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
from berth.core.topologies.racks.inference import plan_rack_service
from berth.core.topologies.racks.planner import plan_racks
from berth.core.topologies.racks.rescheduling import MoveScope, PlacedRanks, RackRecovery, recover_racks
from tests.support.plan_decisions import rack_decisions

RULES = BlockRules(size=64)
PARITY = BlockRules(size=64, differs=REFERENCE)
Nodes = Mapping[tuple[int, int], int]
"""Nodes of each SuperPoD and rack."""


def pool_with(nodes: Nodes, *, pods: int = 0) -> CandidatePool:
    """Rows 0, 1, ... in the order given, which is that of SuperPoD and rack."""
    places = [place for place, count in nodes.items() for _ in range(count)]
    known = max([pods, *(pod + 1 for pod, _ in nodes)])
    return pool_of(
        [str(pod) for pod in range(known)],
        np.array([pod for pod, _ in places], np.int64),
        np.arange(len(places)),
        racks=np.array([rack for _, rack in places], np.int64),
    )


def demand(
    block: int, replicas: int, rack_block: int = 1, *, soft: bool = False, ub_memory: bool = False
) -> BlockDemand:
    return BlockDemand("rack", block, replicas, soft=soft, rack_block=rack_block, ub_memory=ub_memory)


def planned(nodes: Nodes, asked: BlockDemand, rules: BlockRules = RULES) -> BlockPlan:
    found = plan_racks(pool_with(nodes), asked, rules)
    assert isinstance(found, BlockPlan), found
    assert found.is_whole or rules.differs is REFERENCE
    return found


def refused(nodes: Nodes, asked: BlockDemand, rules: BlockRules = RULES) -> NoBlocks:
    found = plan_racks(pool_with(nodes), asked, rules)
    assert isinstance(found, NoBlocks), found
    return found


def test_a_small_gang_goes_into_the_rack_that_is_just_large_enough() -> None:
    assert planned({(0, 0): 8, (0, 1): 5, (0, 2): 4}, demand(4, 4)).rows.tolist() == [13, 14, 15, 16]
    assert planned({(0, 0): 8, (0, 1): 5, (0, 2): 3}, demand(4, 4)).rows.tolist() == [8, 9, 10, 11]


def test_the_first_superpod_with_any_such_rack_decides() -> None:
    assert planned({(0, 0): 4, (0, 1): 4, (1, 0): 7}, demand(4, 4)).pods.tolist() == [1] * 4


def test_in_one_rack_the_last_block_gets_the_first_nodes() -> None:
    found = planned({(0, 0): 4}, demand(2, 4))
    assert found.allocations == (BlockAllocation(1, 0, 2, "rack"), BlockAllocation(0, 0, 2, "rack"))
    assert found.rows.tolist() == [2, 3, 0, 1]
    assert found.block_ids.tolist() == [0, 0, 1, 1]


def test_a_hard_gang_of_one_part_needs_one_rack() -> None:
    nodes = {(0, 0): 2, (0, 1): 3, (1, 0): 1}
    assert refused(nodes, demand(4, 4, 4)) == NoBlocks(
        lack="rack",
        block=4,
        blocks_need=1,
        blocks_have=0,
        nodes_need=4,
        nodes_have=6,
        closest=(Near("0", 5, 1), Near("1", 1, 0)),
    )
    assert planned(nodes, demand(4, 4, 2)).allocations == (BlockAllocation(0, 0, 4, "superpod"),)
    soft = planned(nodes, demand(4, 4, 4, soft=True))
    assert soft.allocations == (
        BlockAllocation(0, 0, 2, "multi-superpod-pieces"),
        BlockAllocation(1, 0, 2, "multi-superpod-pieces"),
    )


def test_a_hard_gang_that_no_sum_can_hold_fails_at_once() -> None:
    found = refused({(0, 0): 3, (1, 0): 3}, demand(4, 4))
    assert (found.lack, found.blocks_need, found.blocks_have) == ("blocks", 1, 0)


def test_one_superpod_fills_small_racks_first_in_whole_parts() -> None:
    found = planned({(0, 0): 7, (0, 1): 3, (0, 2): 5, (1, 0): 8, (1, 1): 8}, demand(10, 10, 2))
    assert found.rows.tolist() == [7, 8, 10, 11, 12, 13, 0, 1, 2, 3]


def test_the_superpod_with_the_fewest_nodes_that_can_goes() -> None:
    nodes = {(0, 0): 8, (0, 1): 8, (1, 0): 5, (1, 1): 5, (2, 0): 8, (2, 1): 4}
    assert planned(nodes, demand(10, 10)).pods.tolist() == [1] * 10
    assert planned(nodes, demand(12, 12, 4)).pods.tolist() == [2] * 12


def test_several_superpods_give_blocks_the_fullest_first() -> None:
    found = planned({(0, 0): 8, (0, 1): 1, (1, 0): 8, (1, 1): 8, (2, 0): 8}, demand(4, 24))
    assert [(allocation.block_id, allocation.pod) for allocation in found.allocations] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 0),
        (5, 0),
    ]
    assert {allocation.phase for allocation in found.allocations} == {"multi-superpod"}


def test_more_pods_than_a_superpod_has_nodes_go_to_several_although_one_could() -> None:
    nodes = {(0, rack): 8 for rack in range(2)} | {(1, rack): 8 for rack in range(3)}
    assert planned(nodes, demand(4, 12), BlockRules(size=12)).pods.tolist() == [0] * 12
    assert planned(nodes, demand(4, 12), BlockRules(size=11)).pods.tolist() == [1] * 12


def test_nodes_off_the_network_count_only_inside_one_superpod() -> None:
    pool = pool_with({(0, 0): 8, (0, 1): 8, (1, 0): 8})
    unlinked = np.array([0, 3, 20])
    inside = plan_racks(pool, demand(4, 16), RULES, unlinked=unlinked)
    assert isinstance(inside, BlockPlan)
    assert inside.allocations[0].phase == "superpod"
    across = plan_racks(pool, demand(2, 20), RULES, unlinked=unlinked)
    assert isinstance(across, BlockPlan)
    assert not np.isin(unlinked, across.rows).any()
    found = plan_racks(pool, demand(2, 22), RULES, unlinked=unlinked)
    assert isinstance(found, NoBlocks)
    assert (found.blocks_need, found.blocks_have, found.nodes_have) == (11, 10, 21)


def test_pieces_of_a_soft_gang_get_the_next_ids_and_every_rank_a_node() -> None:
    nodes = {(0, 0): 4, (1, 0): 7, (1, 1): 5}
    found = planned(nodes, demand(8, 16, 8, soft=True))
    assert found.allocations == (
        BlockAllocation(0, 1, 5, "multi-superpod-pieces"),
        BlockAllocation(1, 1, 7, "multi-superpod-pieces"),
        BlockAllocation(2, 0, 4, "multi-superpod-pieces"),
    )
    assert found.block_ids.tolist() == [0] * 5 + [1] * 7 + [2] * 4
    assert found.rows.tolist() == [11, 12, 13, 14, 15, *range(4, 11), 0, 1, 2, 3]


def test_pieces_in_parity_count_down_and_lose_ranks() -> None:
    nodes = {(0, 0): 4, (1, 0): 7, (1, 1): 5}
    found = planned(nodes, demand(8, 16, 8, soft=True), PARITY)
    assert [allocation.block_id for allocation in found.allocations] == [0, 1, 16]
    assert found.rows.tolist() == [11, 12, 13, 14, 15, -1, -1, -1, *range(4, 11), -1]


def test_a_soft_gang_without_enough_nodes_is_refused() -> None:
    found = refused({(0, 0): 4, (1, 0): 7}, demand(4, 12, 4, soft=True))
    assert (found.lack, found.nodes_need, found.nodes_have) == ("nodes", 12, 3)


def test_memory_is_shared_inside_one_domain_of_sixteen_racks() -> None:
    nodes = {(0, 14): 8, (0, 15): 2, (0, 16): 8, (0, 17): 4}
    found = planned(nodes, demand(5, 10, ub_memory=True))
    assert found.allocations == (BlockAllocation(0, 0, 5, "ub-memory"), BlockAllocation(1, 0, 5, "ub-memory"))
    assert found.rows.tolist() == [8, 9, *range(8)]
    assert planned(nodes, demand(6, 12, 2, ub_memory=True)).rows.tolist() == [18, 19, 20, 21, *range(10, 18)]
    assert refused(nodes, demand(14, 14, ub_memory=True)).lack == "rack"
    assert planned(nodes, demand(14, 14)).is_whole


def test_of_superpods_with_as_many_nodes_the_smallest_domain_shares_memory() -> None:
    nodes = {(0, 0): 8, (0, 1): 8, (1, 0): 8, (1, 1): 4, (1, 16): 4}
    assert planned(nodes, demand(10, 10, ub_memory=True)).pods.tolist() == [1] * 10


def test_a_small_gang_that_shares_memory_goes_as_any_other() -> None:
    found = planned({(0, 0): 3, (0, 16): 3}, demand(3, 6, ub_memory=True))
    assert {allocation.phase for allocation in found.allocations} == {"superpod"}


def test_an_oversized_superpod_is_used_and_fails_in_parity_only() -> None:
    nodes = {(0, 0): 8, (0, 1): 8, (1, 0): 4}
    assert planned(nodes, demand(4, 4), BlockRules(size=15)).pods.tolist() == [1] * 4
    found = refused(nodes, demand(4, 4), BlockRules(size=15, differs=REFERENCE))
    assert (found.lack, found.limit) == ("size", 15)
    assert rack_decisions(pool_with(nodes), demand(4, 4), BlockRules(size=15)) == ("D-1",)
    assert rack_decisions(pool_with(nodes), demand(4, 4), BlockRules(size=16)) == ()


def test_nodes_of_an_unknown_rack_are_no_candidates() -> None:
    assert refused({(0, -1): 8}, demand(4, 4)).nodes_have == 0
    assert planned({(0, -1): 4, (0, 0): 4}, demand(4, 4)).rows.tolist() == [4, 5, 6, 7]


def test_nothing_at_all_is_a_refusal() -> None:
    assert isinstance(plan_racks(pool_with({}), demand(4, 4), RULES), NoBlocks)
    assert isinstance(plan_racks(pool_with({}), demand(16, 16, ub_memory=True), RULES), NoBlocks)
    assert isinstance(plan_rack_service(pool_with({}), demand(4, 4), ()), NoBlocks)


def test_a_single_pod_goes_where_the_fewest_chips_are_idle_ill_or_not() -> None:
    pool = pool_with({(0, 0): 2, (1, 0): 1})._replace(
        idle=np.array([8, 4, 4]), sub_healthy=np.array([False, False, True])
    )
    found = plan_racks(pool, demand(1, 1), RULES)
    assert isinstance(found, BlockPlan)
    assert found.rows.tolist() == [1]
    found = plan_racks(pool._replace(idle=np.array([8, 8, 4])), demand(1, 1), RULES)
    assert isinstance(found, BlockPlan)
    assert found.rows.tolist() == [2]


def served(nodes: Nodes, asked: BlockDemand, hosts: Sequence[tuple[str, int]] = ()) -> BlockPlan:
    found = plan_rack_service(pool_with(nodes), asked, hosts)
    assert isinstance(found, BlockPlan), found
    return found


def test_a_service_goes_beside_its_siblings() -> None:
    nodes = {(0, 0): 8, (0, 1): 8, (1, 0): 8, (1, 1): 4, (1, 2): 5}
    assert served(nodes, demand(2, 2), [("1", 1)]).rows.tolist() == [24, 25]
    assert served(nodes, demand(2, 2), [("1", 1), ("1", 2)]).rows.tolist() == [28, 29]
    assert served(nodes, demand(5, 5), [("1", 1)]).rows.tolist() == [16, 17, 18, 19, 20]
    assert served(nodes, demand(2, 2), [("9", 0)]).pods.tolist() == [0, 0]


def test_a_new_service_goes_where_most_racks_are_idle() -> None:
    nodes = {(0, 0): 8, (0, 1): 7, (1, 0): 8, (1, 1): 8, (2, 0): 8}
    assert served(nodes, demand(2, 2)).pods.tolist() == [1, 1]
    assert served({(0, 0): 6, (1, 0): 6, (1, 1): 2}, demand(2, 2)).pods.tolist() == [1, 1]


def test_later_blocks_of_a_service_go_beside_the_first() -> None:
    found = served({(0, 0): 8, (0, 1): 8, (1, 0): 8}, demand(3, 12))
    assert [(allocation.block_id, allocation.pod, allocation.phase) for allocation in found.allocations] == [
        (0, 0, "service"),
        (1, 0, "service"),
        (2, 0, "service"),
        (3, 0, "service"),
    ]
    assert found.rows.tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]


def test_a_block_of_a_service_needs_one_rack() -> None:
    found = plan_rack_service(pool_with({(0, 0): 5, (0, 1): 5}), demand(4, 12), ())
    assert isinstance(found, NoBlocks)
    assert (found.lack, found.blocks_need, found.blocks_have) == ("service", 3, 2)


def after(
    nodes: Nodes, rows: Sequence[int], lost: Sequence[int], scope: MoveScope, asked: BlockDemand
) -> RackRecovery | NoBlocks:
    """What becomes of a gang at ``rows`` when some of them are lost."""
    pool = pool_with(nodes)
    pods = np.repeat(np.arange(len(pool.ids)), pool.counts)
    held = np.array(rows)
    placed = PlacedRanks(held, np.arange(len(rows)) // asked.block, pods[held], pool.racks[held])
    return recover_racks(pool.without(np.isin(pool.rows, lost)), asked, RULES, placed, scope)


def moved(nodes: Nodes, rows: Sequence[int], lost: Sequence[int], scope: MoveScope, asked: BlockDemand) -> RackRecovery:
    found = after(nodes, rows, lost, scope, asked)
    assert isinstance(found, RackRecovery), found
    return found


TWO_RACKS: Nodes = {(0, 0): 5, (0, 1): 8, (1, 0): 8}


def test_first_a_lost_pod_gets_another_node_of_its_rack() -> None:
    found = moved(TWO_RACKS, [0, 1, 2, 3], [1], "pod", demand(4, 4, 2))
    assert found.plan.rows.tolist() == [0, 4, 2, 3]
    assert (found.moved.tolist(), found.given_up.tolist()) == ([1], [])
    assert found.plan.allocations == (BlockAllocation(0, 0, 1, "replaced"),)
    none = after(TWO_RACKS, [0, 1, 2, 3], [1, 2], "pod", demand(4, 4, 2))
    assert isinstance(none, NoBlocks)
    assert none.lack == "rack"


def test_then_its_part_moves_inside_its_superpod() -> None:
    found = moved(TWO_RACKS, [0, 1, 2, 3], [1, 4], "part", demand(4, 4, 2))
    assert found.plan.rows.tolist() == [5, 6, 2, 3]
    assert (found.moved.tolist(), found.given_up.tolist()) == ([0, 1], [0])
    home = moved(TWO_RACKS, [0, 1, 2, 3], [1], "part", demand(4, 4, 2))
    assert (home.plan.rows.tolist(), home.given_up.tolist()) == ([0, 4, 2, 3], [])


def test_a_part_goes_to_the_smallest_rack_that_has_room_in_its_domain() -> None:
    nodes: Nodes = {(0, 0): 2, (0, 1): 8, (0, 2): 4, (0, 16): 3}
    rows = [0, 1, *range(2, 10)]
    assert moved(nodes, rows, [0], "part", demand(2, 10, 2)).plan.rows.tolist()[:2] == [14, 15]
    assert moved(nodes, rows, [0], "part", demand(2, 10, 2, ub_memory=True)).plan.rows.tolist()[:2] == [10, 11]
    assert isinstance(after(TWO_RACKS, range(13), [0], "part", demand(1, 13)), NoBlocks)


def test_then_its_block_moves_anywhere_and_others_stay() -> None:
    asked = demand(4, 8, 4)
    found = moved(TWO_RACKS, [0, 1, 2, 3, 5, 6, 7, 8], [1, 2], "block", asked)
    assert found.plan.rows.tolist() == [9, 10, 11, 12, 5, 6, 7, 8]
    assert found.given_up.tolist() == [0, 3]
    assert found.plan.block_ids.tolist() == [0] * 4 + [1] * 4
    assert found.plan.allocations == (BlockAllocation(0, 0, 4, "rack"),)


def test_a_piece_may_become_other_pieces() -> None:
    nodes: Nodes = {(0, 0): 4, (0, 1): 2, (1, 0): 1, (1, 1): 1}
    pool = pool_with(nodes)
    asked = demand(3, 6, 3, soft=True)
    placed = PlacedRanks(
        np.array([0, 1, 2, 4, 5, 6]),
        np.array([0, 0, 0, 1, 1, 2]),
        np.array([0, 0, 0, 0, 0, 1]),
        np.array([0, 0, 0, 1, 1, 0]),
    )
    found = recover_racks(pool.without(pool.rows == 4), asked, RULES, placed, "block")
    assert isinstance(found, RackRecovery)
    assert found.plan.rows.tolist() == [0, 1, 2, 3, 5, 6]
    assert found.plan.block_ids.tolist() == [0, 0, 0, 3, 4, 2]
    assert found.given_up.tolist() == []


def test_in_the_end_the_gang_is_placed_anew() -> None:
    found = moved(TWO_RACKS, [0, 1, 2, 3], [1, 2], "job", demand(4, 4, 4))
    assert found.plan.rows.tolist() == [13, 14, 15, 16]
    assert found.given_up.tolist() == [0, 3]
    same = moved(TWO_RACKS, [3, 2, 0, 1], [], "job", demand(4, 4, 4))
    assert (same.plan.rows.tolist(), same.moved.tolist()) == ([3, 2, 0, 1], [])


def test_pods_that_are_being_deleted_hold_everything_up() -> None:
    pool = pool_with(TWO_RACKS)
    placed = PlacedRanks(*(np.array(values) for values in ([0, 99], [0, 0], [0, 0], [0, 0])))
    found = recover_racks(pool, demand(2, 2), RULES, placed, "pod", ending=True)
    assert isinstance(found, NoBlocks)
    assert (found.lack, found.nodes_need) == ("wait", 1)


def test_a_part_keeps_the_nodes_of_its_own_that_are_sound() -> None:
    found = moved({(0, 0): 6, (1, 0): 8}, [0, 1, 2, 3], [1], "part", demand(4, 4, 2))
    assert found.plan.rows.tolist() == [0, 4, 2, 3]


def test_a_rack_of_which_a_block_was_given_is_not_idle_any_more() -> None:
    nodes = {(0, 0): 8, (0, 1): 8, (0, 2): 7, (0, 3): 7, (1, 0): 8, (1, 1): 8}
    assert served(nodes, demand(8, 16), [("0", 9), ("1", 9)]).pods.tolist() == [0] * 8 + [1] * 8
