"""The tables of the first descriptions, literally: affinity examples, and groups A to D of the 910A."""

from berth.core.chips.chip_rules import ChipRow, compile_rule
from berth.products.catalogue import FORMS, RINGS_OF_8
from berth.schemas.ledger import Settings
from berth.schemas.refusal import NodeReason

RING = FORMS["module910x8"]


def score_of(left: int, right: int, *, chips: int, health: int = 8) -> int | None:
    """Raw score of a 910A node whose rings have so many free chips; None where it does not fit."""
    mask = (1 << left) - 1 | ((1 << right) - 1) << 4
    rule = compile_rule(RING, chips=chips, distributed=False, settings=Settings())
    reason, score = rule.evaluate_one(
        ChipRow(mask, 0, network_known=True, unhealthy=8 - health, allocatable=health, idle=left + right, capacity=8)
    )
    return None if reason != NodeReason.FITS else score


def test_node_a_with_a_ring_of_one_is_better_than_node_b_with_rings_of_two_and_three() -> None:
    assert score_of(1, 0, chips=1) == 263
    assert score_of(2, 3, chips=1) == 251


def test_rows_of_the_affinity_score_list() -> None:
    assert RINGS_OF_8[5] == (8, 8, 8, 8, 8, 0, 1, 2)
    assert RINGS_OF_8[3] == (8, 8, 8, 0, 1, 2, 3, 4)


GROUPS: dict[int, list[tuple[int, tuple[int, ...]]]] = {
    1: [(1, (0, 1, 2, 3, 4)), (3, (0, 2, 3, 4)), (2, (0, 2, 4)), (4, (0, 4))],
    2: [(2, (0, 1, 2, 3, 4)), (4, (0, 1, 3, 4)), (3, (0, 1))],
    4: [(4, (0, 1, 2, 3, 4))],
}
"""By chips asked: groups A, B, C, D as (free chips of the serving ring, free chips of the other ring)."""


def cells(chips: int) -> list[list[tuple[int, int, int]]]:
    """Each group's cells as (score, serving ring, other ring), in the order of the table."""
    table = []
    for ring, others in GROUPS[chips]:
        row = []
        for other in others:
            score = score_of(ring, other, chips=chips)
            assert score is not None, (chips, ring, other)
            assert score_of(other, ring, chips=chips) == score, "left and right are alike"
            row.append((score, ring, other))
        table.append(row)
    return table


def check_table(chips: int) -> None:
    """Priority falls from group to group, and inside a group as the other ring has more."""
    flat = [cell for row in cells(chips) for cell in row]
    scores = [score for score, _, _ in flat]
    assert scores == sorted(scores, reverse=True), flat
    assert len(set(scores)) == len(scores), flat


def test_one_chip_cell_by_cell() -> None:
    check_table(1)


def test_two_chips_cell_by_cell() -> None:
    check_table(2)


def test_four_chips_cell_by_cell() -> None:
    check_table(4)


def test_eight_chips_need_the_whole_node() -> None:
    assert score_of(4, 4, chips=8) == 256
    assert score_of(4, 3, chips=8) is None
    assert score_of(3, 4, chips=8) is None


def test_whole_nodes_for_jobs_of_many_come_from_group_a_only() -> None:
    assert [score_of(left, right, chips=8) for left in range(5) for right in range(5)].count(None) == 24


def test_every_state_outside_the_table_is_no_fit_or_in_an_earlier_group() -> None:
    listed = {
        chips: {pair for row in cells(chips) for _, ring, other in row for pair in ((ring, other), (other, ring))}
        for chips in GROUPS
    }
    for chips in GROUPS:
        for left in range(5):
            for right in range(5):
                fits = score_of(left, right, chips=chips) is not None
                gap = chips == 2 and (left, right) == (3, 3)
                assert fits == ((left, right) in listed[chips] or gap), (chips, left, right)


def test_rings_of_three_and_three_for_two_chips_are_class_three() -> None:
    third_class = score_of(3, 0, chips=2)
    three_three = score_of(3, 3, chips=2)
    assert third_class is not None
    assert three_three == 8 * (4 * 8 - 2) + 2 == 242
    assert three_three < third_class
    lowest_of_second = score_of(4, 4, chips=2)
    assert lowest_of_second is not None
    assert three_three < lowest_of_second


def test_a_node_with_a_bad_chip_comes_after_every_node_without() -> None:
    for chips, groups in GROUPS.items():
        healthy = [score for row in cells(chips) for score, _, _ in row]
        worn = [
            score_of(ring, other, chips=chips, health=7)
            for ring, others in groups
            for other in others
            if ring + other <= 7
        ]
        assert max(score for score in worn if score is not None) < min(healthy)


def test_policies_in_their_order_of_priority() -> None:
    one = [score_of(ring, 0, chips=1) for ring in (1, 3, 2, 4)]
    two = [score_of(ring, 0, chips=2) for ring in (2, 4, 3)]
    assert one == sorted(one, key=lambda score: -(score or 0))
    assert two == sorted(two, key=lambda score: -(score or 0))
    assert [score_of(ring, 0, chips=4) for ring in (1, 2, 3)] == [None] * 3
    fuller, emptier = score_of(1, 0, chips=1), score_of(1, 4, chips=1)
    assert fuller is not None
    assert emptier is not None
    assert fuller > emptier, "used nodes come first, so that fragments get fewer"
