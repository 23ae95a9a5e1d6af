"""Blocks after a fault: which keep their nodes, which are repaired in place, which move, which are deleted first."""

from typing import NamedTuple

from berth.core.parity import REFERENCE
from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, BlockRules, CandidatePool, NoBlocks
from berth.core.topologies.superpods.block_history import (
    DisruptedGang,
    HeldBlock,
    PodFate,
    PodRecord,
    is_pod_level,
    restored,
)
from berth.core.topologies.superpods.rescheduling import RELEASE_WAIT_MS, StuckBlocks, plan_again
from tests.support.plan_decisions import decisions_after
from tests.support.superpods import a_pool, blocks, grants_of, nodes_of

RULES = BlockRules(reserve=0)
PARITY = BlockRules(reserve=0, differs=REFERENCE)


class Case(NamedTuple):
    """What a plan is made of."""

    pool: CandidatePool
    demand: BlockDemand
    rules: BlockRules
    failure: DisruptedGang


def a_case(
    pool: CandidatePool,
    held: list[HeldBlock],
    *,
    block: int = 2,
    soft: bool = False,
    rules: BlockRules = RULES,
    failed_nodes: str = "",
    waited_ms: int = RELEASE_WAIT_MS,
) -> Case:
    replicas = sum(len(one.rows) for one in held)
    is_partial = any(one.runs for one in held)
    failure = DisruptedGang(held, is_partial, frozenset(map(int, failed_nodes.split())), waited_ms)
    return Case(pool, BlockDemand("a3", block, replicas, soft=soft), rules, failure)


def outcome(case: Case) -> str:
    """Nodes and grants; or what is missing, with the blocks that are stuck."""
    found = plan_again(*case)
    if isinstance(found, StuckBlocks):
        return f"stuck {found.block_ids}: {found.lack.nodes_need} of {found.lack.nodes_have}"
    if isinstance(found, NoBlocks):
        return f"{found.lack}: {found.nodes_need} of {found.nodes_have}"
    return f"{nodes_of(found)} | {grants_of(found)}"


def active(case: Case) -> tuple[str, ...]:
    return decisions_after(*case)


class TestWholeJob:
    def test_intact_blocks_keep_their_nodes_and_a_damaged_one_is_rebuilt_around_its_healthy_nodes(self) -> None:
        pool = a_pool("00 01 02 11 12 20 21")
        assert outcome(a_case(pool, blocks("00r 01r", "10x 11r"))) == "00 01 12 11 | 0:0x2 kept, 1:1x2 rebuilt"

    def test_a_damaged_block_without_room_moves_as_a_whole(self) -> None:
        pool = a_pool("00 01 02 11 20 21")
        assert outcome(a_case(pool, blocks("00r 01r", "10x 11r"))) == "00 01 20 21 | 0:0x2 kept, 1:2x2 fits"

    def test_a_node_that_failed_for_the_gang_is_taken_last(self) -> None:
        pool = a_pool("00 01 02 03")
        assert outcome(a_case(pool, blocks("00x 01r"), failed_nodes="00 02")).startswith("03 01 ")
        pool = a_pool("00 01 02")
        assert outcome(a_case(pool, blocks("00x 01r"), failed_nodes="00 02")).startswith("00 01 ")

    def test_healthy_nodes_come_before_sub_healthy_ones_and_these_before_those_that_failed(self) -> None:
        assert outcome(
            a_case(a_pool("00 01 02 03", sub_healthy="02"), blocks("00x 01r"), failed_nodes="00")
        ).startswith("03 01 ")
        assert outcome(a_case(a_pool("00 01 02", sub_healthy="02"), blocks("00x 01r"), failed_nodes="00")).startswith(
            "02 01 "
        )

    def test_a_piece_of_a_soft_gang_is_rebuilt_where_its_failed_node_is_a_candidate_again(self) -> None:
        pool = a_pool("00 01 02 03 10 11 12 20")
        held = blocks("00x 01r 02r", "10r 11x", "20r", first=(0, 2, 3))
        found = outcome(a_case(pool, held, block=3, soft=True, failed_nodes="00 11"))
        assert found == "03 01 02 10 12 20 | 0:0x3 rebuilt, 2:1x2 rebuilt, 3:2x1 kept"
        pool = a_pool("00 01 02 10 11 20")
        assert outcome(a_case(pool, held, block=3, soft=True, failed_nodes="00 11")).startswith("00 01 02 10 11 20 ")

    def test_a_gang_waits_ten_seconds_for_its_healthy_nodes(self) -> None:
        pool = a_pool("00 01 12 13 20 21")
        held = blocks("00r 01r", "10x 11r")
        assert outcome(a_case(pool, held, waited_ms=RELEASE_WAIT_MS - 1)) == "wait: 1 of 0"
        assert outcome(a_case(pool, held)) == "00 01 12 13 | 0:0x2 kept, 1:1x2 rebuilt"

    def test_it_does_not_wait_for_nodes_that_failed(self) -> None:
        pool = a_pool("00 01 11 12")
        assert (
            outcome(a_case(pool, blocks("00r 01r", "10x 11r"), waited_ms=0))
            == "00 01 12 11 | 0:0x2 kept, 1:1x2 rebuilt"
        )

    def test_too_few_candidates_for_all(self) -> None:
        assert outcome(a_case(a_pool("00 01 02"), blocks("00r 01r", "10x 11r"))) == "nodes: 4 of 3"

    def test_a_hard_gang_without_room_for_the_block(self) -> None:
        assert outcome(a_case(a_pool("00 01 11 20 30"), blocks("00r 01r", "10x 11r"))) == "blocks: 2 of 3"

    def test_a_soft_gang_goes_on_in_pieces_whose_ids_follow(self) -> None:
        pool = a_pool("00 01 11 20")
        held = blocks("00r 01r", "10x 11r")
        assert outcome(a_case(pool, held, soft=True)) == "00 01 11 20 | 0:0x2 kept, 1:1x1 pieces, 2:2x1 pieces"

    def test_two_blocks_do_not_get_the_same_free_node(self) -> None:
        pool = a_pool("01 03 04 20 21")
        assert outcome(a_case(pool, blocks("00x 01r", "02x 03r"))) == "03 01 20 21 | 0:0x2 rebuilt, 1:2x2 fits"


class TestPods:
    def test_only_lost_positions_get_other_nodes(self) -> None:
        pool = a_pool("02 12 20 21")
        assert outcome(a_case(pool, blocks("00 01", "10x 11"))) == "00 01 12 11 | 0:0x2 kept, 1:1x2 replaced"

    def test_a_pod_that_returns_gets_its_own_node_back_if_it_is_free(self) -> None:
        assert outcome(a_case(a_pool("11 12 13"), blocks("00 01", "10x 11r 13"), block=3)).startswith("00 01 12 11 13 ")
        assert outcome(a_case(a_pool("12 14"), blocks("00 01", "10x 11r 13"), block=3)).startswith("00 01 12 14 13 ")
        assert outcome(a_case(a_pool("01"), blocks("00 01r"))) == "00 01 | 0:0x2 kept"

    def test_a_block_with_running_pods_and_no_node_beside_them_is_stuck(self) -> None:
        pool = a_pool("02 20 21")
        assert outcome(a_case(pool, blocks("00 01", "10x 11"))) == "stuck (1,): 1 of 0"
        assert outcome(a_case(a_pool("12"), blocks("10x 11", "13x 14"))) == "stuck (1,): 1 of 0"

    def test_the_reference_lists_other_nodes_for_pods_that_run(self) -> None:
        pool = a_pool("02 03 20 21 22 23")
        held = blocks("00x 01x", "10x 11")
        assert outcome(a_case(pool, held, rules=PARITY)) == "02 03 20 21 | 0:0x2 rebuilt, 1:2x2 larger"
        assert active(a_case(pool, held)) == ("D-10",)
        assert outcome(a_case(pool, held)) == "stuck (1,): 1 of 0"

    def test_the_reference_rebuilds_blocks_with_new_nodes_for_pods_that_run(self) -> None:
        pool = a_pool("12 13 20 21")
        held = blocks("10x 11")
        assert outcome(a_case(pool, held, rules=PARITY)) == "12 13 | 0:1x2 rebuilt"
        assert outcome(a_case(pool, held)) == "12 11 | 0:1x2 replaced"
        assert active(a_case(pool, held)) == ("D-10",)

    def test_the_reference_sees_that_too_few_nodes_are_free_unless_a_block_returns_as_a_whole(self) -> None:
        pool = a_pool("20 21")
        assert outcome(a_case(pool, blocks("00 01", "10x 11"), rules=PARITY)) == "home: 1 of 0"
        assert active(a_case(pool, blocks("00 01", "10x 11"))) == ()

    def test_a_block_of_which_all_pods_are_lost_is_rebuilt_or_moves(self) -> None:
        held = blocks("00 01", "10x 11x")
        assert outcome(a_case(a_pool("12 13 20 21"), held)) == "00 01 12 13 | 0:0x2 kept, 1:1x2 rebuilt"
        assert outcome(a_case(a_pool("12 20 21"), held)) == "00 01 20 21 | 0:0x2 kept, 1:2x2 fits"

    def test_a_block_that_can_move_leaves_its_nodes_to_one_that_cannot(self) -> None:
        pool = a_pool("04 05 20 21")
        assert outcome(a_case(pool, blocks("00x 01x", "02x 03"))) == "20 21 04 03 | 1:0x2 replaced, 0:2x2 fits"

    def test_a_new_piece_takes_the_rank_that_is_open_and_no_id_of_one_that_stays(self) -> None:
        pool = a_pool("21")
        held = blocks("00 01 02", "10", "11x", "30")
        demand = BlockDemand("a3", 3, 6, soft=True)
        failure = DisruptedGang(held, is_pod_level=True)
        found = plan_again(pool, demand, RULES, failure)
        assert isinstance(found, BlockPlan)
        assert nodes_of(found) == "00 01 02 10 21 30"
        assert found.block_ids.tolist() == [0, 0, 0, 1, 4, 3]
        assert "D-8" in decisions_after(pool, demand, RULES, failure)
        copied = plan_again(pool, demand, PARITY, failure)
        assert isinstance(copied, BlockPlan)
        assert nodes_of(copied) == "00 01 02 10 30 21"
        assert copied.block_ids.tolist() == [0, 0, 0, 1, 3, 3]

    def test_more_than_one_pod_is_not_placed_in_pieces_while_others_run(self) -> None:
        pool = a_pool("20 21 30")
        assert outcome(a_case(pool, blocks("00x 01x 02x", "10 11 12"), block=3, soft=True)) == "blocks: 3 of 3"

    def test_nothing_is_taken_beyond_what_is_missing(self) -> None:
        pool = a_pool("20 21")
        held = blocks("00 01", "10x", "30", first=[0, 1, 2])
        demand = BlockDemand("a3", 2, 4, soft=True)
        found = plan_again(pool, demand, RULES, DisruptedGang(held, is_pod_level=True))
        assert isinstance(found, BlockPlan)
        assert nodes_of(found) == "00 01 20 30"
        assert "D-5" in decisions_after(pool, demand, RULES, DisruptedGang(held, is_pod_level=True))
        copied = plan_again(pool, demand, PARITY, DisruptedGang(held, is_pod_level=True))
        assert isinstance(copied, BlockPlan)
        assert sum(allocation.nodes for allocation in copied.allocations) == 5

    def test_an_id_that_has_no_nodes_and_needs_none_is_not_opened(self) -> None:
        pool = a_pool("12")
        held = blocks("00 01", "10x 11", first=[0, 2])
        assert outcome(a_case(pool, held)) == "00 01 12 11 | 0:0x2 kept, 2:1x2 replaced"
        assert outcome(a_case(pool, held, rules=PARITY)) == "blocks: 0 of 0"
        assert active(a_case(pool, held)) == ("D-3",)

    def test_a_lost_piece_is_found_anew_without_its_id(self) -> None:
        pool = a_pool("00 30")
        held = blocks("01 02", "10x", "20", first=[0, 1, 2])
        assert outcome(a_case(pool, held, soft=True)) == "01 02 00 20 | 0:0x2 kept, 2:2x1 kept, 1:0x1 pieces"

    def test_nothing_to_do(self) -> None:
        assert outcome(a_case(a_pool(""), blocks("00 01"))) == "00 01 | 0:0x2 kept"

    def test_no_candidate_at_all(self) -> None:
        assert outcome(a_case(a_pool(""), blocks("00 01x"))) == "nodes: 1 of 0"

    def test_an_unknown_superpod_has_no_free_nodes(self) -> None:
        assert outcome(a_case(a_pool("00 01", superpods=1), blocks("70x 71"))) == "stuck (0,): 1 of 0"
        assert outcome(a_case(a_pool("00 01", superpods=1), blocks("70x 71x"))) == "00 01 | 0:0x2 fits"


class TestLevel:
    def test_a3_asks_whether_some_pods_run(self) -> None:
        for records in (True, False):
            flags = {"is_rescheduling": records, "is_recovering": records}
            assert is_pod_level("a3", 3, 4, sessions=0, **flags)
            assert not is_pod_level("a3", 4, 4, sessions=0, **flags)

    def test_850_asks_the_labels(self) -> None:
        def level(sessions: int, *, is_rescheduling: bool = False, is_recovering: bool = False) -> bool:
            return is_pod_level(
                "850", 1, 4, is_rescheduling=is_rescheduling, is_recovering=is_recovering, sessions=sessions
            )

        assert not level(0)
        assert level(11, is_rescheduling=True)
        assert not level(12, is_rescheduling=True)
        assert level(12, is_recovering=True)


class TestRestored:
    WANT = BlockDemand("a3", 2, 4)

    def test_positions_follow_the_ranks_whatever_the_order_in_which_pods_were_found(self) -> None:
        records = [
            PodRecord(rank, rank // 2, str(rank // 2), 10 * (rank // 2) + rank % 2, PodFate.RUNS)
            for rank in (3, 0, 2, 1)
        ]
        assert restored(records, self.WANT) == blocks("00 01", "10 11")

    def test_the_reference_keeps_the_order_in_which_it_found_them(self) -> None:
        records = [
            PodRecord(rank, rank // 2, str(rank // 2), 10 * (rank // 2) + rank % 2, PodFate.RUNS)
            for rank in (3, 0, 2, 1)
        ]
        first, second = restored(records, self.WANT, REFERENCE)
        assert (first.rows, second.rows) == ((0, 1), (11, 10))

    def test_a_rank_of_which_nothing_is_known_returns_to_its_block(self) -> None:
        records = [
            PodRecord(0, 0, "0", 0, PodFate.RUNS),
            PodRecord(1, 0, "0", 1, PodFate.RUNS),
            PodRecord(3, 1, "1", 11, PodFate.RUNS),
        ]
        held = restored(records, self.WANT)
        assert held == blocks("00 01", "?x 11")
        assert outcome(a_case(a_pool("05 12"), held)) == "00 01 12 11 | 0:0x2 kept, 1:1x2 replaced"

    def test_a_block_of_which_nothing_is_known_is_open(self) -> None:
        records = [PodRecord(0, 0, "0", 0, PodFate.RUNS), PodRecord(1, 0, "0", 1, PodFate.RUNS)]
        held = restored(records, self.WANT)
        found = plan_again(a_pool("20 21"), self.WANT, RULES, DisruptedGang(held, is_pod_level=True))
        assert isinstance(found, BlockPlan)
        assert nodes_of(found) == "00 01 20 21"


def test_a_rank_of_which_nothing_is_known_is_not_put_into_a_block_that_has_all_its_nodes() -> None:
    records = [
        PodRecord(0, 0, "0", 0, PodFate.RUNS),
        PodRecord(2, 0, "0", 1, PodFate.RUNS),
        PodRecord(3, 1, "0", 2, PodFate.RUNS),
    ]
    found = restored(records, BlockDemand("a3", 2, 4))
    assert [(held.block_id, tuple(held.ranks)) for held in found] == [(0, (0, 2)), (1, (3,))]
