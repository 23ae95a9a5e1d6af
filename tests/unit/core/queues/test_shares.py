"""Limits, entitlements, splits and the order between queues, by hand."""

import pytest

from berth.core.queues.amounts import number_of
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.fair import fair_shares
from berth.core.queues.order import Ratio, borrowed_of, leaves_in_order, next_leaf, share_of
from berth.core.queues.shares import Shares, shares_of
from berth.core.queues.split import Entry, split
from berth.core.queues.tree import tree_of
from berth.schemas.queues.queue import CHIP, DEFAULT, ROOT, Amounts, Queue

NPU = "huawei.com/Ascend910"


def chips(number: int) -> Amounts:
    return {NPU: number * CHIP}


def shares(*queues: Queue, nodes: int = 16) -> Shares:
    return shares_of(tree_of(queues), chips(nodes))


@pytest.mark.parametrize(
    ("amount", "entries", "parts"),
    [
        (10, [Entry("a", 1), Entry("b", 3)], {"a": 2, "b": 8}),
        (10, [Entry("a", 1), Entry("b", 1), Entry("c", 1)], {"a": 4, "b": 3, "c": 3}),
        (10, [Entry("a", 1, floor=6), Entry("b", 1)], {"a": 6, "b": 4}),
        (10, [Entry("a", 1, cap=2), Entry("b", 1)], {"a": 2, "b": 8}),
        (10, [Entry("a", 1, cap=2), Entry("b", 1, cap=3)], {"a": 2, "b": 3}),
        (10, [Entry("a", 1, floor=8), Entry("b", 1, floor=8)], {"a": 8, "b": 8}),
        (12, [Entry("a", 1, floor=6), Entry("b", 1, cap=2), Entry("c", 1)], {"a": 6, "b": 2, "c": 4}),
        (10, [Entry("a", 0, floor=2), Entry("b", 1)], {"a": 2, "b": 8}),
        (10, [], {}),
    ],
)
def test_split_gives_whole_units_by_weight(amount: int, entries: list[Entry], parts: dict[str, int]) -> None:
    assert split(amount, entries) == parts


def test_chips_are_not_broken_where_all_are_whole() -> None:
    assert split(1000, [Entry("a", 1), Entry("b", 2)], unit=CHIP) == {"a": 300, "b": 700}
    assert split(1050, [Entry("a", 1), Entry("b", 2)], unit=CHIP) == {"a": 350, "b": 700}


def test_guarantees_of_siblings_are_kept_free() -> None:
    found = shares(Queue("a", guarantee=chips(6)), Queue("b"), Queue("c", capability=chips(4)))
    assert found.limits == {ROOT: {}, "a": chips(16), "b": chips(10), "c": chips(4), DEFAULT: chips(10)}


def test_without_guarantees_an_unlimited_root_limits_nobody() -> None:
    assert shares(Queue("a")).limits["a"] == {}


def test_a_guarantee_raises_no_limit_above_the_parent() -> None:
    found = shares(Queue("a", capability=chips(4)), Queue("b", parent="a", guarantee=chips(8)))
    assert found.limits["b"] == chips(4)


def test_siblings_that_declare_nothing_share_by_weight() -> None:
    found = shares(Queue("a", weight=1), Queue("b", weight=3), Queue("b1", parent="b"), Queue("b2", parent="b"))
    assert found.entitlements["a"] == chips(4)
    assert found.entitlements["b"] == chips(12)
    assert found.entitlements["b1"] == found.entitlements["b2"] == chips(6)


def test_a_sibling_that_declares_nothing_beside_one_that_does_has_its_guarantee() -> None:
    found = shares(Queue("a", deserved=chips(8)), Queue("b", guarantee=chips(2)))
    assert found.entitlements["a"] == chips(8)
    assert found.entitlements["b"] == chips(2)


def test_an_undeclared_default_is_entitled_to_nothing() -> None:
    assert shares(Queue("a")).entitlements[DEFAULT] == {NPU: 0}
    assert shares(Queue("a"), Queue(DEFAULT)).entitlements[DEFAULT] == chips(8)


def test_an_entitlement_is_within_the_limit() -> None:
    assert shares(Queue("a", capability=chips(4), deserved=chips(8))).entitlements["a"] == chips(4)


def test_what_no_node_has_is_limited_and_deserved_by_nobody() -> None:
    found = shares_of(tree_of([Queue("a", capability=chips(4), deserved=chips(4))]), {"cpu": 1000})
    assert found.limits["a"] == chips(4)
    assert found.entitlements["a"] == {"cpu": 0}


def test_more_deserved_than_there_is_is_said() -> None:
    found = shares(Queue("a", deserved=chips(12)), Queue("b", deserved=chips(12)))
    assert found.oversubscribed == {ROOT: chips(8)}


def usage_of(found: Shares, **held: int) -> Usage:
    return Usage(found.tree, [Holding(name, name, chips(number)) for name, number in held.items()])


def test_share_and_borrowed_are_exact() -> None:
    found = shares(Queue("a", weight=3), Queue("b"))
    usage = usage_of(found, a=4, b=6)
    assert share_of(found, usage, "a") == Ratio(1, 3)
    assert share_of(found, usage, "b") == Ratio(3, 2)
    assert share_of(found, usage, DEFAULT) is None
    assert borrowed_of(found, usage, "b") == Ratio(2, 16)
    assert borrowed_of(found, usage_of(found, a=14), "a") == Ratio(2, 16 * 3)


def test_entitled_queues_come_before_borrowers() -> None:
    found = shares(Queue("a", weight=3), Queue("b"), Queue(DEFAULT, weight=4))
    assert leaves_in_order(found, usage_of(found, a=5, b=3)) == [DEFAULT, "a", "b"]
    assert leaves_in_order(found, usage_of(found, a=12, b=3, default=1)) == [DEFAULT, "b", "a"]


def test_a_queue_at_its_entitlement_is_a_borrower_of_nothing() -> None:
    found = shares(Queue("a", created=5))
    assert leaves_in_order(found, usage_of(found, a=15)) == ["a", DEFAULT]
    assert leaves_in_order(found, usage_of(found, a=16)) == [DEFAULT, "a"]


def test_the_priority_of_a_leaf_counts_at_its_fork_alone() -> None:
    queues = [Queue("a"), Queue("a1", parent="a", priority=9), Queue("a2", parent="a"), Queue("b", priority=1)]
    found = shares(*queues)
    assert leaves_in_order(found, usage_of(found)) == ["b", "a1", "a2", DEFAULT]


def test_the_next_turn_is_of_a_leaf_with_gangs_that_are_awake() -> None:
    found = shares(Queue("a"), Queue("a1", parent="a"), Queue("a2", parent="a"), Queue("b"))
    usage = usage_of(found, a1=1)
    assert next_leaf(found, usage, {ROOT, "a", "a1", "a2"}) == "a2"
    assert next_leaf(found, usage, {ROOT, "a", "a1", "b"}) == "b"
    assert next_leaf(found, usage, ()) is None


def test_leaving_gangs_do_not_count_in_a_share() -> None:
    found = shares(Queue("a"))
    usage = Usage(found.tree, [Holding("g", "a", chips(8), is_leaving=True)])
    assert share_of(found, usage, "a") == Ratio(0, 1)
    assert usage.leaving(ROOT, NPU) == 8 * CHIP


def test_fair_shares_are_among_those_that_ask() -> None:
    found = shares(Queue("a", weight=3), Queue("b"), Queue("c", guarantee=chips(2)))
    assert fair_shares(found, {"a": chips(4), "b": chips(32)}) == {"a": chips(4), "b": chips(12)}


@pytest.mark.parametrize(
    ("dimension", "amount", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 4000, "4"),
        ("memory", 2048, "2Gi"),
        ("memory", 1536, "1536Mi"),
        ("memory", 0, "0Mi"),
        (NPU, 800, "8"),
        (NPU, 825, "8.25"),
        (NPU, 2_214_400, "22,144"),
        ("cpu", 12_345_678, "12,345.678"),
    ],
)
def test_amounts_are_written_exactly(dimension: str, amount: int, text: str) -> None:
    assert number_of(dimension, amount) == text


def test_ratios_are_compared_exactly_where_their_nearest_numbers_are_equal() -> None:
    large = 1 << 60
    assert Ratio(large, large + 1) < Ratio(large + 1, large + 2)
    assert Ratio(large, large + 1) != Ratio(large + 1, large + 2)
    assert Ratio(1, 3) == Ratio(large, 3 * large)
