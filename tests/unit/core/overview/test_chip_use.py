"""How full a cell is: each chip counts once, as what it is for."""

from random import Random

import pytest

from berth.core.overview.chip_use import cell_use, is_whole_free
from berth.schemas.facts import NodeHealth
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.programs.lists import PlaceUse
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell


def parts(use: PlaceUse) -> tuple[int, int, int, int, int, int]:
    return (use.chips, use.used, use.free, use.unhealthy, use.drained, use.withheld)


def drain(cell: CoreCell, name: str, since_ms: int) -> None:
    cell.fact(SUBJECTS.fact_drain("node", name), DrainSeen("node", name, since_ms))


def test_chips_are_used_or_free() -> None:
    cell = CoreCell([a_node("a"), a_node("b")])
    cell.place(a_job("j", chips=2))
    use = cell_use(cell.state.table, 1)
    assert parts(use.total) == (16, 2, 14, 0, 0, 0)
    assert (use.total.nodes, use.total.nodes_ready, use.total.nodes_free) == (2, 2, 1)


def test_chips_that_pods_have_are_used_whatever_is_wrong_with_them() -> None:
    cell = CoreCell([a_node("a")])
    cell.place(a_job("j", chips=2))
    cell.conditions["a"] = NodeCondition("a", unhealthy=0b11111111)
    cell.publish()
    assert parts(cell_use(cell.state.table, 1).total) == (8, 2, 0, 6, 0, 0)


@pytest.mark.parametrize("level", [NodeHealth.NO_NEW_WORK, NodeHealth.EVICT])
def test_chips_of_a_node_that_takes_no_work_are_unhealthy(level: NodeHealth) -> None:
    cell = CoreCell([a_node("a")])
    cell.conditions["a"] = NodeCondition("a", level=level)
    cell.publish()
    use = cell_use(cell.state.table, 1)
    assert (parts(use.total), use.total.nodes_ready) == ((8, 0, 0, 8, 0, 0), 0)


def test_chips_of_a_node_that_is_not_ready_are_unhealthy() -> None:
    cell = CoreCell([a_node("a", ready=False)])
    assert parts(cell_use(cell.state.table, 1).total) == (8, 0, 0, 8, 0, 0)


def test_chips_of_a_cordoned_node_are_drained() -> None:
    cell = CoreCell([a_node("a", cordoned=True)])
    assert parts(cell_use(cell.state.table, 1).total) == (8, 0, 0, 0, 8, 0)


def test_a_drain_counts_from_its_beginning_on() -> None:
    cell = CoreCell([a_node("a")])
    drain(cell, "a", 5_000)
    assert parts(cell_use(cell.state.table, 4_999).total) == (8, 0, 8, 0, 0, 0)
    assert parts(cell_use(cell.state.table, 5_000).total) == (8, 0, 0, 0, 8, 0)


def test_chips_that_the_node_does_not_offer_are_withheld() -> None:
    cell = CoreCell([a_node("a")])
    cell.conditions["a"] = NodeCondition("a", withheld=0b1)
    cell.publish()
    assert parts(cell_use(cell.state.table, 1).total) == (8, 0, 7, 0, 0, 1)


def test_chips_that_nobody_has_named_are_used() -> None:
    cell = CoreCell([a_node("a", chips_others=3)])
    use = cell_use(cell.state.table, 1)
    assert (parts(use.total), use.total.nodes_free) == ((8, 3, 5, 0, 0, 0), 0)


def test_places_are_by_name_and_only_those_that_have_nodes() -> None:
    nodes = [a_node("a", leaf="l-2"), a_node("b", leaf="l-1"), a_node("c", superpod="s"), a_node("d", leaf="l-1")]
    cell = CoreCell(nodes)
    del cell.nodes["c"]
    cell.publish()
    use = cell_use(cell.state.table, 1)
    assert [(one.name, one.nodes, one.chips) for one in use.leaves] == [("l-1", 2, 16), ("l-2", 1, 8)]
    assert (use.superpods, [one.nodes for one in use.products]) == ([], [3])
    assert [is_whole_free(one) for one in use.leaves] == [True, True]


def test_a_cell_without_nodes_has_nothing() -> None:
    assert cell_use(CoreCell([]).state.table, 1).total == PlaceUse()


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_each_place_add_up_and_those_of_all_places_are_the_total(seed: int) -> None:
    dice = Random(seed)  # noqa: S311  # cells that follow from a seed
    nodes = [
        a_node(
            f"n{number}",
            leaf=dice.choice(["l-1", "l-2", "l-3"]),
            ready=dice.random() < 0.8,
            cordoned=dice.random() < 0.2,
            chips_others=dice.choice([0, 0, 0, 2, 8]),
        )
        for number in range(12)
    ]
    cell = CoreCell(nodes)
    for number in range(12):
        if dice.random() < 0.5:
            cell.conditions[f"n{number}"] = NodeCondition(
                f"n{number}",
                unhealthy=dice.getrandbits(8),
                withheld=dice.getrandbits(8),
                level=dice.choice([NodeHealth.OK, NodeHealth.SUB_HEALTHY, NodeHealth.EVICT]),
            )
    cell.publish()
    for number in range(4):
        cell.ask(a_job(f"j{number}", chips=dice.choice([1, 2, 8])))
        cell.decide()
        drain(cell, f"n{dice.randrange(12)}", 1)
    use = cell_use(cell.state.table, 1)
    for one in (use.total, *use.leaves, *use.products):
        assert one.chips == one.used + one.free + one.unhealthy + one.drained + one.withheld
        assert min(parts(one)) >= 0
        assert one.nodes_free <= one.nodes_ready <= one.nodes
    for places in (use.leaves, use.products):
        assert [sum(column) for column in zip(*map(parts, places), strict=True)] == list(parts(use.total))
