"""Which SuperPoDs give blocks: the printed orders, the three queues, pieces, and each documented decision."""

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.blocks.demand import Variant
from berth.core.topologies.blocks.model import BlockAllocation, BlockRules, Near, NoBlocks
from berth.core.topologies.superpods.block_selection import OpenBlocks, select
from tests.support.plan_decisions import selection_decisions

BOTH = pytest.mark.parametrize("parity", [False, True])


def chosen(
    free: Mapping[int, int] | Iterable[int],
    *,
    block: int = 8,
    blocks: int = 1,
    reserve: int = 2,
    size: int = 48,
    soft: bool = False,
    parity: bool = False,
    variant: Variant = "a3",
) -> tuple[BlockAllocation, ...] | NoBlocks:
    """What is selected for a new gang; SuperPoDs are named by what they have free."""
    counts = list(free)
    open_blocks = OpenBlocks(variant, block, range(blocks), blocks * block, blocks, soft=soft)
    return select(
        [f"f{count}" for count in counts],
        np.array(counts),
        open_blocks,
        BlockRules(reserve, size, REFERENCE if parity else OWN),
    )


def given(found: tuple[BlockAllocation, ...] | NoBlocks) -> list[tuple[int, int, int, str]]:
    """Grants as (block, SuperPoD, nodes, phase)."""
    assert not isinstance(found, NoBlocks), found
    return [(allocation.block_id, allocation.pod, allocation.nodes, allocation.phase) for allocation in found]


def order_of_picks(block: int, reserve: int, blocks: int, *, parity: bool) -> list[int]:
    """Pick, remove, repeat: one SuperPoD of each count from 1 to 48; the one that gets block 0 is taken away."""
    left, picked = list(range(1, 49)), []
    while not isinstance(found := chosen(left, block=block, reserve=reserve, blocks=blocks, parity=parity), NoBlocks):
        first = next(allocation for allocation in found if allocation.block_id == 0)
        picked.append(left.pop(first.pod))
    return picked


def zigzag(*columns: int, rows: int) -> list[int]:
    return [column + row for row in range(rows) for column in columns]


@BOTH
def test_printed_order_of_the_first_description(*, parity: bool) -> None:
    expected = [*zigzag(18, 26, rows=8), *range(34, 49), 17, 16, 15, 14, 13, 12, 11, 9, 10]
    assert expected[:6] == [18, 26, 19, 27, 20, 28]
    assert order_of_picks(8, 10, 2, parity=parity) == expected


@BOTH
def test_printed_order_is_also_that_of_three_blocks_without_the_small_ones(*, parity: bool) -> None:
    picked = order_of_picks(8, 2, 3, parity=parity)
    assert picked[:39] == [*zigzag(10, 18, 26, rows=8), *range(34, 49)]
    assert [count for count in picked if count >= 18] == [*zigzag(18, 26, rows=8), *range(34, 49)]


@BOTH
@pytest.mark.parametrize(
    ("block", "reserve", "blocks", "expected"),
    [
        (16, 2, 2, [*zigzag(18, 34, rows=15), 33, 17]),
        (16, 2, 1, [*range(18, 49), 17, 16]),
        (8, 2, 2, [*zigzag(10, 18, rows=8), *range(26, 49), 9]),
    ],
)
def test_other_readings_of_the_printed_order(
    *, parity: bool, block: int, reserve: int, blocks: int, expected: list[int]
) -> None:
    assert order_of_picks(block, reserve, blocks, parity=parity) == expected


@BOTH
def test_second_queue_falls_by_remainder_and_then_by_count(*, parity: bool) -> None:
    picked = order_of_picks(8, 10, 1, parity=parity)
    assert picked[-10:] == [17, 16, 15, 14, 13, 12, 11, 9, 10, 8]


@BOTH
def test_how_many_blocks_are_open_is_looked_up_at_every_cell(*, parity: bool) -> None:
    assert given(chosen([18, 26], blocks=2, reserve=10, parity=parity)) == [(0, 0, 8, "fits"), (1, 1, 8, "larger")]
    assert given(chosen([26, 19], blocks=2, reserve=10, parity=parity)) == [(0, 0, 8, "fits"), (1, 0, 8, "fits")]


@BOTH
def test_without_a_reserve_a_superpod_of_just_a_block_fits(*, parity: bool) -> None:
    assert given(chosen([9, 8], reserve=0, parity=parity)) == [(0, 1, 8, "fits")]
    assert given(chosen([9, 8], reserve=1, parity=parity)) == [(0, 0, 8, "fits")]
    assert given(chosen([16, 8], blocks=3, reserve=0, parity=parity)) == [
        (0, 1, 8, "fits"),
        (1, 0, 8, "fits"),
        (2, 0, 8, "fits"),
    ]


@BOTH
def test_reserves_are_given_up_last(*, parity: bool) -> None:
    assert given(chosen([9, 48, 8], blocks=6, parity=parity)) == [
        *[(block_id, 1, 8, "fits") for block_id in range(5)],
        (5, 0, 8, "reserve"),
    ]


@BOTH
def test_alike_superpods_go_by_their_order(*, parity: bool) -> None:
    open_blocks = OpenBlocks("a3", 8, range(2), 16, 2, soft=False)
    found = select(
        ["b", "a", "c"], np.array([12, 12, 12]), open_blocks, BlockRules(2, 48, REFERENCE if parity else OWN)
    )
    assert given(found) == [(0, 0, 8, "fits"), (1, 1, 8, "fits")]


@BOTH
@pytest.mark.parametrize("variant", ["a3", "850"])
def test_a_hard_gang_does_not_see_superpods_below_a_block(*, parity: bool, variant: Variant) -> None:
    found = chosen([9, 7, 7], blocks=2, parity=parity, variant=variant)
    assert found == NoBlocks(
        lack="blocks",
        block=8,
        blocks_need=2,
        blocks_have=1,
        nodes_need=16,
        nodes_have=23,
        closest=(Near("f9", 9, 1), Near("f7", 7, 0), Near("f7", 7, 0)),
    )
    pieces = given(chosen([17, 9, 5], blocks=3, reserve=10, parity=True, variant=variant))
    assert 2 not in {pod for _, pod, _, _ in pieces}


@BOTH
def test_a_refusal_names_the_three_superpods_with_the_most_to_give(*, parity: bool) -> None:
    found = chosen([3, 0, 9, 6, 9, 1], blocks=4, parity=parity)
    assert isinstance(found, NoBlocks)
    assert found.closest == (Near("f9", 9, 1), Near("f9", 9, 1), Near("f6", 6, 0))
    found = chosen([0, 3, 0], parity=parity)
    assert isinstance(found, NoBlocks)
    assert found.closest == (Near("f3", 3, 0),)


@BOTH
def test_a_soft_gang_whose_pods_partly_run_is_not_split_for_want_of_blocks(*, parity: bool) -> None:
    open_blocks = OpenBlocks("a3", 8, [1, 2], 16, 3, soft=True, is_partial=True)
    found = select(["a", "b"], np.array([10, 7]), open_blocks, BlockRules(2, 48, REFERENCE if parity else OWN))
    assert isinstance(found, NoBlocks)
    assert (found.lack, found.blocks_need, found.blocks_have) == ("blocks", 2, 1)
    whole = open_blocks._replace(is_partial=False)
    assert (
        len(
            given(select(["a", "b"], np.array([10, 7]), whole, BlockRules(2, 48, differs=REFERENCE if parity else OWN)))
        )
        > 1
    )


@BOTH
def test_pieces_take_the_open_ids_and_then_new_ones(*, parity: bool) -> None:
    found = given(chosen([5, 9, 6, 6], blocks=3, soft=True, parity=parity))
    assert [block_id for block_id, _, _, _ in found] == list(range(len(found)))
    assert [phase for _, _, _, phase in found] == ["reserve", *["pieces"] * (len(found) - 1)]
    assert len(found) > 3
    open_blocks = OpenBlocks("a3", 8, [1], 8, 7, soft=True)
    later = select(["a", "b"], np.array([5, 3]), open_blocks, BlockRules(2, 48, REFERENCE if parity else OWN))
    assert [block_id for block_id, _, _, _ in given(later)] == [1, 7]


def test_d1_a_superpod_may_be_larger_than_its_size() -> None:
    for variant in ("a3", "850"):
        assert given(chosen([20], size=12, variant=variant)) == [(0, 0, 8, "larger")]
        found = chosen([20], size=12, parity=True, variant=variant)
        assert isinstance(found, NoBlocks)
        assert (found.lack, found.limit, found.closest) == ("size", 12, (Near("f20", 20, 2),))


def test_d1_the_reference_fails_for_a3_only_beyond_its_table_and_for_850_beyond_the_size() -> None:
    assert given(chosen([17], size=15, parity=True)) == [(0, 0, 8, "fits")]
    assert isinstance(chosen([17], size=15, parity=True, variant="850"), NoBlocks)
    assert isinstance(chosen([18], size=15, parity=True), NoBlocks)
    hidden = chosen([7, 8], size=6, block=8, parity=True, variant="850")
    assert isinstance(hidden, NoBlocks)


def test_d3_reserves_are_given_up_again_and_again_so_that_a_hard_gang_stays_whole() -> None:
    counts = [17, 9]
    assert given(chosen(counts, blocks=3, reserve=10)) == [
        (0, 0, 8, "reserve"),
        (1, 1, 8, "reserve"),
        (2, 0, 8, "reserve"),
    ]
    split = given(chosen(counts, blocks=3, reserve=10, parity=True))
    assert split == [(0, 0, 8, "reserve"), (1, 1, 8, "reserve"), (2, 1, 1, "pieces"), (3, 0, 8, "pieces")]


def test_d3_the_reference_on_850_uses_up_an_id_where_a_hard_gang_finds_less_than_a_block() -> None:
    split = given(chosen([17, 9], blocks=3, reserve=10, parity=True, variant="850"))
    assert split == [(0, 0, 8, "reserve"), (1, 1, 8, "reserve"), (3, 0, 8, "pieces")]


def test_d3_a_plan_that_the_reference_leaves_incomplete_is_made_whole() -> None:
    assert [row[2] for row in given(chosen([26], blocks=3, reserve=20, parity=True))] == [8, 8]
    assert given(chosen([26], blocks=3, reserve=20)) == [(block_id, 0, 8, "reserve") for block_id in range(3)]


@pytest.mark.parametrize("soft", [False, True])
def test_d3_a_plan_without_a_node_for_some_pod_is_refused(*, soft: bool) -> None:
    open_blocks = OpenBlocks("a3", 8, [0], 20, 1, soft=soft)
    found = select(["a", "b"], np.array([10, 5]), open_blocks, BlockRules())
    assert isinstance(found, NoBlocks)
    assert (found.lack, found.nodes_need, found.nodes_have) == ("incomplete", 20, 15 if soft else 8)
    copied = select(["a", "b"], np.array([10, 5]), open_blocks, BlockRules(differs=REFERENCE))
    assert isinstance(copied, tuple)
    assert sum(allocation.nodes for allocation in copied) < 20


def test_d4_pieces_are_taken_until_none_is_missing() -> None:
    open_blocks = OpenBlocks("a3", 8, [], 11, 3, soft=True)
    found = select(["a", "b"], np.array([12, 2]), open_blocks, BlockRules())
    assert given(found) == [(3, 0, 8, "pieces"), (4, 1, 2, "pieces"), (5, 0, 1, "pieces")]
    copied = select(["a", "b"], np.array([12, 2]), open_blocks, BlockRules(differs=REFERENCE))
    assert isinstance(copied, tuple)
    assert sum(allocation.nodes for allocation in copied) == 10
    assert "D-4" in selection_decisions(["a", "b"], np.array([12, 2]), open_blocks, BlockRules())


def test_d5_no_piece_is_larger_than_what_is_missing() -> None:
    counts = [9, 7, 6]
    corrected = given(chosen(counts, blocks=2, reserve=0, soft=True))
    assert corrected == [(0, 0, 8, "fits"), (1, 1, 7, "pieces"), (2, 2, 1, "pieces")]
    copied = given(chosen(counts, blocks=2, reserve=0, soft=True, parity=True))
    assert copied == [(0, 0, 8, "fits"), (1, 1, 7, "pieces"), (2, 2, 6, "pieces")]


def test_d6_pieces_come_from_the_superpod_with_the_most_left() -> None:
    counts = range(1, 9)
    corrected = given(chosen(counts, blocks=4, reserve=4, soft=True))
    assert [counts[pod] for _, pod, _, _ in corrected] == [8, 7, 6, 5, 4, 3]
    assert corrected[-1] == (5, 2, 2, "pieces")
    copied = given(chosen(counts, blocks=4, reserve=4, soft=True, parity=True))
    assert [counts[pod] for _, pod, _, _ in copied] == [8, 4, 5, 1, 6, 2, 7]


@pytest.mark.parametrize(
    ("counts", "options", "names"),
    [
        ([18, 26], {"blocks": 2, "reserve": 10}, ()),
        ([20], {"size": 12, "variant": "850"}, ("D-1",)),
        ([26], {"blocks": 3, "reserve": 20}, ("D-3", "D-4")),
        ([9, 7, 6], {"blocks": 2, "reserve": 0, "soft": True}, ("D-5",)),
        ([8, 4, 5, 1, 6, 2, 7], {"blocks": 4, "reserve": 4, "soft": True}, ("D-5", "D-6")),
    ],
)
def test_the_decisions_in_force_are_told(counts: list[int], options: dict[str, object], names: tuple[str, ...]) -> None:
    block, blocks = 8, int(str(options.get("blocks", 1)))
    variant: Variant = "850" if "variant" in options else "a3"
    open_blocks = OpenBlocks(variant, block, range(blocks), blocks * block, blocks, soft=bool(options.get("soft")))
    rules = BlockRules(int(str(options.get("reserve", 2))), int(str(options.get("size", 48))))
    assert selection_decisions([str(count) for count in counts], np.array(counts), open_blocks, rules) == names
