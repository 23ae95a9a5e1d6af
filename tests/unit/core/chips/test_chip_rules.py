"""Nodes that fit or do not, in the order of the checks; scores and choices of each rule."""

import numpy as np
import pytest

from berth.core.chips.affinity import class_of, classes_of
from berth.core.chips.chip_rules import ChipColumns, ChipRow, ChipRule, compile_rule
from berth.core.chips.picking import ids_of
from berth.products.catalogue import FORMS
from berth.schemas.ledger import Settings
from berth.schemas.refusal import NodeReason

ALL_8 = 0xFF
ALL_16 = 0xFFFF
PARITY = Settings(reference_parity=True)


def a_rule(name: str, chips: int, *, pods: int = 1, settings: Settings | None = None) -> ChipRule:
    return compile_rule(FORMS[name], chips=chips, distributed=pods > 1, settings=settings or Settings())


def a_node(free: int, *, network_known: bool = True, unsettled: bool = False, **other: int) -> ChipRow:
    numbers = {"network": 0, "unhealthy": 0, "allocatable": 64, "idle": free.bit_count(), "capacity": 64} | other
    return ChipRow(free, network_known=network_known, unsettled=unsettled, **numbers)


def reason(rule: ChipRule, node: ChipRow, *, labelled: bool = True) -> NodeReason:
    return NodeReason(rule.evaluate_one(node, labelled=labelled)[0])


def test_instability_is_seen_before_all_else() -> None:
    rule = a_rule("module910bx8", 2, pods=2)
    assert reason(rule, a_node(0b111, idle=2)) is NodeReason.UNSTABLE
    assert reason(rule, a_node(0b1, idle=9, capacity=8)) is NodeReason.UNSTABLE
    assert reason(rule, a_node(0b1, idle=-1)) is NodeReason.UNSTABLE
    assert reason(rule, a_node(0, idle=-1)) is NodeReason.UNSTABLE


def test_too_few_idle_is_a_shortage_even_with_an_empty_or_overlong_list() -> None:
    rule = a_rule("half910x4", 4, pods=2)
    assert reason(rule, a_node(0, idle=3)) is NodeReason.SHORTAGE
    assert reason(rule, a_node(0, idle=4)) is NodeReason.NO_CHIP_LIST
    assert reason(rule, a_node(0b11111, idle=5)) is NodeReason.TOO_MANY_CHIPS
    assert reason(rule, a_node(0b11111, idle=5, network_known=False)) is NodeReason.TOO_MANY_CHIPS
    assert reason(rule, a_node(0b1111, network_known=False)) is NodeReason.NO_CHIP_LIST


def test_a_list_is_measured_before_network_unhealthy_chips_are_dropped() -> None:
    rule = a_rule("half910x4", 4, pods=2)
    assert reason(rule, a_node(0b11111, network=0b1)) is NodeReason.TOO_MANY_CHIPS
    assert reason(rule, a_node(0b1111, network=0b1111)) is NodeReason.SHORTAGE
    assert reason(a_rule("half910x4", 4), a_node(0b1111, network=0b1111, network_known=False)) is NodeReason.FITS


def test_fewer_usable_than_idle_is_a_shortage() -> None:
    assert reason(a_rule("module910x8", 4), a_node(0b111, idle=8)) is NodeReason.SHORTAGE
    assert reason(a_rule("chip4-node8", 4), a_node(0b111, idle=8)) is NodeReason.SHORTAGE


@pytest.mark.parametrize(
    ("name", "chips", "free", "expected"),
    [
        ("module910x8", 2, 0b0001_0001, NodeReason.TOPOLOGY),
        ("module910x8", 3, ALL_8, NodeReason.TOPOLOGY),
        ("module910bx16", 8, 0x7F7F, NodeReason.TOPOLOGY),
        ("module910bx16", 9, ALL_16, NodeReason.TOPOLOGY),
        ("module910a3x16", 2, 0x5555, NodeReason.TOPOLOGY),
        ("chip4-node8", 4, 0x77, NodeReason.TOPOLOGY_HELPED),
        ("chip4-node8", 6, 0x77, NodeReason.FITS),
        ("310-card", 2, 0x1111, NodeReason.TOPOLOGY_HELPED),
        ("310-card", 5, ALL_16, NodeReason.TOPOLOGY_HELPED),
        ("310p-duo-card", 2, 0x5555, NodeReason.TOPOLOGY_HELPED),
        ("310p-duo-card", 3, ALL_16, NodeReason.TOPOLOGY_HELPED),
        ("310p-duo-chip-distributed", 4, 0b1_0101_0111, NodeReason.TOPOLOGY_HELPED),
    ],
)
def test_topology_failures_say_whether_preemption_can_help(
    name: str, chips: int, free: int, expected: NodeReason
) -> None:
    assert reason(a_rule(name, chips), a_node(free)) is expected


def test_chips_that_the_form_cannot_have_mean_another_product() -> None:
    assert reason(a_rule("module910x8", 1), a_node(1 << 8)) is NodeReason.TOO_MANY_CHIPS
    assert reason(a_rule("module910bx16", 1), a_node(1 << 16)) is NodeReason.TOO_MANY_CHIPS
    assert reason(a_rule("module910a3x8", 1), a_node(1 << 63)) is NodeReason.TOO_MANY_CHIPS
    assert reason(a_rule("chip1-node8", 1), a_node((1 << 9) - 1)) is NodeReason.TOO_MANY_CHIPS


def test_a_missing_label_counts_last() -> None:
    rule = a_rule("310p-duo-chip", 2)
    assert reason(rule, a_node(0b11), labelled=False) is NodeReason.NODE_LABEL
    assert reason(rule, a_node(0b1), labelled=False) is NodeReason.SHORTAGE
    assert reason(a_rule("310p", 1), a_node(0b1), labelled=False) is NodeReason.FITS


@pytest.mark.parametrize(
    ("name", "chips", "free", "score", "picked"),
    [
        ("half910x4", 2, 0b1110, 400 - 3, (1, 2)),
        ("card910x2", 1, 0b11, 800 - 2, (0,)),
        ("chip1-node16", 5, ALL_16, 1600 - 16, (0, 1, 2, 3, 4)),
        ("310p", 2, 1 << 63 | 1 << 40, 6400 - 2, (40, 63)),
        ("310p-duo-chip", 3, 0b11_10_11_01, 0, (0, 5, 2)),
        ("310-chip", 2, 1 << 63 | 0b11, 6400 - 3, (63, 0)),
        ("310-card", 1, 0xF << 60 | 0b111, 8 * 3, (0,)),
        ("310-card", 4, 0xF << 60 | 0b111, 8 * 4, (60, 61, 62, 63)),
        ("310p-duo-card", 1, 1 << 41 | 0b11, 16, (41,)),
        ("310p-duo-card", 2, 1 << 41 | 0b11, 16, (0, 1)),
        ("module910a3x16", 1, 0b1111, 16 * (32 - 3 - 16), (0,)),
        ("module910a3x16", 1, 0b1011, 16 * (32 - 2), (3,)),
        ("module910a3x16", 6, 0b11_10_11_11, 16 * (32 - 1), (0, 1, 2, 3, 6, 7)),
        ("chip4-node16", 1, ALL_16, 64 * (64 - (16 * 3 + 15)), (0,)),
        ("chip4-node16", 3, 0b111 << 16 | 0b111, 64 * (64 - 3), (0, 1, 2)),
        ("chip4-node16", 12, 0xFFF7, 64 * (64 - 3), tuple(range(4, 16))),
        ("chip4-node16", 5, 0b111 << 16 | 0b111, 16 * (16 - 1), (0, 1, 2, 16, 17)),
        ("chip4-node8", 2, 0b0011_0111, 16 * (16 - (8 + 3)), (4, 5)),
        ("310p-duo-chip-distributed", 3, 0b1111, 8 * (16 - 9), (0, 1, 2)),
        ("310p-duo-chip-distributed", 3, 0b11_10_01_00, 8 * (16 - 2), (2, 6, 7)),
    ],
)
def test_scores_and_choices(name: str, chips: int, free: int, score: int, picked: tuple[int, ...]) -> None:
    rule = a_rule(name, chips)
    assert rule.evaluate_one(a_node(free)) == (NodeReason.FITS, score)
    assert rule.pick(free, 0) == picked


def test_box16_trades_health_against_affinity_one_for_one() -> None:
    rule = a_rule("module910bx16", 4)
    worn = rule.evaluate_one(a_node(0xF, allocatable=15, capacity=16))
    whole = rule.evaluate_one(a_node(0x1F, allocatable=16, capacity=16))
    assert worn[1] == 16 * 15 + 12
    assert whole[1] == 16 * (16 - 1) + 11


def test_meshes_above_id_15_do_not_count_as_meshes() -> None:
    assert reason(a_rule("chip4-node16", 4), a_node(0xF << 16)) is NodeReason.TOPOLOGY_HELPED
    assert reason(a_rule("chip4-node16", 5), a_node(0x1F << 16)) is NodeReason.FITS


def test_unhealthy_310p_chips_count_by_default_and_not_for_the_reference() -> None:
    node = a_node(0b1, unhealthy=2)
    assert a_rule("310p", 1).evaluate_one(node)[1] == 6400 - 200 - 1
    assert a_rule("310p", 1, settings=PARITY).evaluate_one(node)[1] == 6400 - 1
    assert a_rule("310-chip", 1).evaluate_one(node)[1] == 6400 - 1


def test_health_first_is_off_under_reference_parity() -> None:
    both = Settings(reference_parity=True, health_first=True)
    node = a_node(0b1, allocatable=8)
    assert a_rule("chip4-node8", 1, settings=both).evaluate_one(node) == a_rule("chip4-node8", 1).evaluate_one(node)


def test_equal_questions_get_the_same_rule() -> None:
    assert a_rule("module910bx16", 6) is a_rule("module910bx16", 6)
    with pytest.raises(ValueError, match="at least 1"):
        a_rule("module910bx16", 0)


def test_no_nodes_give_no_answers() -> None:
    masks, flags, counts = np.zeros(0, np.uint64), np.zeros(0, np.bool_), np.zeros(0, np.int16)
    empty = ChipColumns(masks, masks, flags, counts, counts, counts, counts, counts, flags)
    reasons, scores = a_rule("module910x8", 1).evaluate(empty)
    assert reasons.dtype == np.uint8
    assert scores.dtype == np.int32
    assert reasons.size == scores.size == 0


def test_ids_of_a_mask() -> None:
    assert ids_of(1 << 63 | 0b101) == (0, 2, 63)
    assert ids_of(0) == ()


def both_ways(rule: ChipRule, nodes: list[ChipRow]) -> list[tuple[int, int]]:
    """Reason and score of nodes, which one by one are the same as in columns."""
    masks = (np.array([node[field] for node in nodes], np.uint64) for field in (0, 1))
    numbers = [np.array([node[field] for node in nodes], np.int16) for field in (3, 4, 5, 6, 7)]
    known, unsettled = (np.array([node[field] for node in nodes], np.bool_) for field in (2, 8))
    free, network = masks
    unhealthy, allocatable, idle, capacity, others = numbers
    columns = ChipColumns(free, network, known, unhealthy, allocatable, idle, capacity, others, unsettled)
    reasons, scores = rule.evaluate(columns)
    found = list(zip(reasons.tolist(), scores.tolist(), strict=True))
    assert found == [rule.evaluate_one(node) for node in nodes]
    return found


def test_columns_see_what_single_rows_see_before_they_look_where_chips_lie() -> None:
    nodes = [a_node(0b1, idle=9, capacity=8), a_node(0b111, idle=2), a_node(0xF, network_known=False), a_node(0xF)]
    found = [NodeReason(reason) for reason, _ in both_ways(a_rule("half910x4", 1, pods=2), nodes)]
    assert found == [NodeReason.UNSTABLE, NodeReason.UNSTABLE, NodeReason.NO_CHIP_LIST, NodeReason.FITS]


def test_chips_that_nobody_has_named_are_not_given_and_do_not_bar_the_node() -> None:
    nodes = [a_node(ALL_8, idle=2, others=6), a_node(ALL_8, idle=1, others=7), a_node(ALL_8, idle=2, others=5)]
    found = [NodeReason(reason) for reason, _ in both_ways(a_rule("module910x8", 2), nodes)]
    assert found == [NodeReason.FITS, NodeReason.SHORTAGE, NodeReason.UNSTABLE]


@pytest.mark.parametrize(("form", "part", "whole"), [("module910x8", 2, 4), ("module910a3x16", 1, 2)])
def test_whole_rings_and_pairs_wait_while_chips_of_others_may_be_named_soon(form: str, part: int, whole: int) -> None:
    nodes = [a_node(0b1110_1111, idle=5, others=2, unsettled=unsettled, capacity=16) for unsettled in (True, False)]
    at_once, in_groups = a_rule(form, part), a_rule(form, whole)
    assert [reason for reason, _ in both_ways(at_once, nodes)] == [NodeReason.FITS] * 2
    assert [reason for reason, _ in both_ways(in_groups, nodes)] == [NodeReason.UNSTABLE, NodeReason.FITS]


def test_a_single_chip_of_a3_scores_less_where_it_breaks_a_pair() -> None:
    found = both_ways(a_rule("module910a3x16", 1), [a_node(0b0011, capacity=16), a_node(0b0101, capacity=16)])
    assert [reason for reason, _ in found] == [0, 0]
    assert found[0][1] < found[1][1]


def test_chips_that_the_network_does_not_reach_are_not_picked_for_pods_that_need_it() -> None:
    for pods, chips in ((1, (0,)), (2, (1,))):
        rule = a_rule("half910x4", 1, pods=pods)
        assert rule.pick(0b1111, 0b0001) == chips


@pytest.mark.parametrize(
    ("free", "chips", "grade"), [(0b0011, 1, 16), (0b0101, 1, 0), (0b0111, 1, 0), (0b0101, 2, 255)]
)
def test_pairs_are_graded_alike_one_by_one_and_in_columns(free: int, chips: int, grade: int) -> None:
    form = FORMS["module910a3x16"]
    assert class_of(form, free, chips=chips, distributed=False) == grade
    assert classes_of(form, np.array([free], np.uint64), chips=chips, distributed=False).tolist() == [grade]
