"""Changes of nodes that wake waiting gangs, or release held ones: each is noted by itself, and nothing else is."""

from collections.abc import Callable

import msgspec
import pytest

from berth.core.changes import Changes
from berth.core.cluster.node_table import NodeTable
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_node
from tests.unit.core.cluster.test_node_table import Facts


def changed(before: Callable[[Facts], None], after: Callable[[Facts], None]) -> tuple[Changes, NodeTable]:
    """What the second step changed, and the table after it."""
    facts = Facts()
    before(facts)
    facts.news()
    after(facts)
    return facts.news(), facts.table


def a_plain_node(facts: Facts) -> None:
    facts.nodes("d", a_node("a", superpod="s", rack="rack-1"))


@pytest.mark.parametrize("place", [{"superpod": "t", "rack": "rack-1"}, {"superpod": "s", "rack": "rack-2"}])
def test_a_node_that_moves_gains_capacity(place: dict[str, str]) -> None:
    node = msgspec.structs.replace(a_node("a"), **place)
    changes, _ = changed(a_plain_node, lambda facts: facts.nodes("d", node))
    assert list(changes.capacity_gained) == [0]
    assert not changes.capacity_lost
    again, _ = changed(a_plain_node, a_plain_node)
    assert not again.capacity_gained


def test_chips_that_become_as_many_as_kubernetes_gives_end_a_contradiction() -> None:
    """More free chips than Kubernetes would give bar a node; two of them fail, and it may be used."""

    def contradictory(facts: Facts) -> None:
        facts.nodes("d", a_node("a", allocatable=6))
        facts.health("d", NodeCondition("a"))

    changes, table = changed(contradictory, lambda facts: facts.health("d", NodeCondition("a", unhealthy=0b11)))
    assert (int(table.free[0]).bit_count(), int(table.idle[0])) == (6, 6)
    assert list(changes.capacity_gained) == [0]


@pytest.mark.parametrize(
    ("before", "after"), [((2, False), (1, False)), ((1, True), (1, False))], ids=["fewer", "not named soon"]
)
def test_chips_that_others_leave_or_that_nobody_will_name_make_room(
    before: tuple[int, bool], after: tuple[int, bool]
) -> None:
    def others(of: tuple[int, bool]) -> Callable[[Facts], None]:
        return lambda facts: facts.nodes("d", a_node("a", chips_others=of[0], is_unsettled=of[1]))

    changes, table = changed(others(before), others(after))
    assert (list(changes.capacity_gained), changes.capacity_lost) == ([0], False)
    assert (int(table.idle[0]), int(table.free[0]).bit_count()) == (8 - after[0], 8)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(lambda facts: facts.nodes("d", a_node("a", chips_others=1)), id="chips of others"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", chips=0b1111, allocatable=8)), id="chips"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", allocatable=7)), id="allocatable"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", cpu_milli=1)), id="cpu"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", memory_mib=1)), id="memory"),
        pytest.param(lambda facts: facts.nodes("d"), id="presence"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", unhealthy=1)), id="unhealthy"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", network_unhealthy=1)), id="network"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", withheld=1)), id="withheld"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", network_known=False)), id="list"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", level=NodeHealth.SUB_HEALTHY)), id="level"),
        pytest.param(lambda facts: facts.health("d"), id="word"),
    ],
)
def test_a_node_that_is_less_than_it_was_is_noted(after: Callable[[Facts], None]) -> None:
    def before(facts: Facts) -> None:
        facts.nodes("d", a_node("a"))
        facts.health("d", NodeCondition("a"))

    assert changed(before, after)[0].capacity_lost
    assert not changed(before, before)[0].capacity_lost


def test_chips_that_the_node_does_not_list_are_not_free() -> None:
    facts = Facts()
    facts.nodes("d", a_node("a"))
    facts.health("d", NodeCondition("a", withheld=0b11))
    assert facts.free("a") == 0b1111_1100
    facts.health("d", NodeCondition("a"))
    assert facts.free("a") == 0xFF


def test_chips_released_on_a_node_that_is_gone_are_no_improvement() -> None:
    def before(facts: Facts) -> None:
        facts.nodes("d", a_node("a"))
        facts.hold(0, 0b1, cpu_milli=5)
        facts.nodes("d")

    changes, _ = changed(before, lambda facts: facts.let_go(0, 0b1, cpu_milli=5))
    assert not changes.capacity_gained


def test_chips_that_were_free_and_are_not_are_noted_as_they_were() -> None:
    changes, _ = changed(a_plain_node, lambda facts: facts.hold(0, 0b1))
    assert changes.chips_taken == {0: 0xFF}
    assert not changes.capacity_lost


def test_a_node_of_which_its_new_domain_speaks_gains_capacity() -> None:
    """Nobody spoke of its health before, which bars it where health must be known."""

    def before(facts: Facts) -> None:
        facts.nodes("d", a_node("a"))
        facts.health("e", NodeCondition("a"))

    changes, table = changed(before, lambda facts: facts.nodes("e", a_node("a")))
    assert bool(table.spoken[0])
    assert list(changes.capacity_gained) == [0]


def test_free_chips_that_the_network_does_not_reach_any_more_are_noted_with_those_that_were_free() -> None:
    def before(facts: Facts) -> None:
        facts.nodes("d", a_node("a"))
        facts.hold(0, 0b1)

    changes, _ = changed(before, lambda facts: facts.health("d", NodeCondition("a", network_unhealthy=0b11)))
    assert changes.chips_taken == {0: 0xFE}
    changes, _ = changed(before, lambda facts: facts.health("d", NodeCondition("a", network_unhealthy=0b1)))
    assert changes.chips_taken == {}, "that one was not free"


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", unhealthy=1)), id="unhealthy"),
        pytest.param(lambda facts: facts.health("d", NodeCondition("a", withheld=1)), id="withheld"),
        pytest.param(lambda facts: facts.nodes("d", a_node("a", chips=0xFE, allocatable=7)), id="gone"),
    ],
)
def test_chips_that_go_are_noted_for_those_who_share(after: Callable[[Facts], None]) -> None:
    def before(facts: Facts) -> None:
        facts.nodes("d", a_node("a"))

    assert list(changed(before, after)[0].chips_returned) == [0]
