"""New places of pods that leave a gang: their own ones if they can return, nodes of faulty pods last."""

import msgspec

from berth.core.placement.replacements import NoPlaces, plan_replacements
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import Task
from berth.schemas.ledger import Release
from berth.schemas.nodes import NodeCondition
from berth.schemas.placement import Placement
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell
from tests.support.replacements import holding_of, leaving_of, replaced, round_of


def a_cell(nodes: str = "abcd", **settings: object) -> CoreCell:
    return CoreCell([a_node(name) for name in nodes], **settings)  # type: ignore[arg-type]  # fields of the settings


def placed(found: Placement | NoPlaces) -> Placement:
    assert isinstance(found, Placement), found
    return found


def refused(found: Placement | NoPlaces) -> NoPlaces:
    assert isinstance(found, NoPlaces), found
    return found


def make_unhealthy(cell: CoreCell, node: str, chips: int = 0, *, level: NodeHealth = NodeHealth.OK) -> None:
    cell.conditions[node] = NodeCondition(node, unhealthy=chips, level=level)
    cell.publish()


def test_a_faulty_pod_gets_the_best_other_node() -> None:
    cell = a_cell()
    cell.ask(a_job("j", chips=8, replicas=2))
    cell.decide()
    assert holding_of(cell.state, "j").placement.names() == ["a", "b"]
    found = placed(replaced(cell, leaving_of(cell, "j", [1])))
    assert (found.names(), found.chips_by_rank()) == (["c"], [tuple(range(8))])
    assert [(run.pods, run.chips) for run in found.runs] == [(1, 8)]


def test_a_pod_without_a_fault_returns_to_its_node_and_chips() -> None:
    cell = a_cell()
    cell.ask(a_job("j", chips=2, replicas=3))
    cell.decide()
    before = holding_of(cell.state, "j").placement
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1, 2], faulty=[1])))
    assert before.names() == ["a", "a", "a"]
    assert found.names() == ["a", "b", "a"]
    assert [found.chips_by_rank()[rank] for rank in (0, 2)] == [before.chips_by_rank()[rank] for rank in (0, 2)]


def test_a_pod_without_a_fault_whose_chip_is_unhealthy_does_not_return() -> None:
    cell = a_cell("ab")
    cell.ask(a_job("j", chips=4))
    cell.decide()
    make_unhealthy(cell, "a", 1)
    assert placed(replaced(cell, leaving_of(cell, "j", [0], faulty=[]))).names() == ["b"]


def test_nodes_of_faulty_pods_come_last_and_are_used_when_no_other_takes_the_pod() -> None:
    cell = a_cell("ab")
    cell.ask(a_job("j", chips=4), a_job("k", chips=4))
    cell.decide()
    leaving = leaving_of(cell, "j", [0])
    assert placed(replaced(cell, leaving)).names() == ["b"]
    assert placed(replaced(cell, leaving._replace(failed_nodes=["b"]))).names() == ["a"]


def test_a_faulty_pod_returns_to_its_healthy_chips_only_when_no_other_node_takes_it() -> None:
    cell = a_cell("ab")
    cell.ask(a_job("j", chips=8))
    cell.decide()
    before = holding_of(cell.state, "j").placement
    leaving = leaving_of(cell, "j", [0])
    assert placed(replaced(cell, leaving)).names() == ["b"]
    make_unhealthy(cell, "b", 1)
    found = placed(replaced(cell, leaving))
    assert (found.names(), found.chips_by_rank()) == (before.names(), before.chips_by_rank())
    make_unhealthy(cell, "a", 4)
    assert refused(replaced(cell, leaving)).refusal.pods_have == 0


def test_without_room_the_refusal_counts_the_pods_that_leave() -> None:
    cell = a_cell("abc")
    cell.ask(a_job("j", chips=8, replicas=3))
    cell.decide()
    for node in "ab":
        make_unhealthy(cell, node, 1)
    refusal = refused(replaced(cell, leaving_of(cell, "j", [0, 1]))).refusal
    assert (refusal.code, refusal.pods_need, refusal.pods_have, refusal.nodes_total) == ("no-room", 2, 0, 3)


def test_what_a_failed_attempt_took_is_returned_and_what_a_place_took_is_kept() -> None:
    cell = a_cell("abcd")
    cell.ask(a_job("j", chips=8, replicas=2), a_job("k", chips=8))
    cell.decide()
    for node in "abc":
        make_unhealthy(cell, node, 1)
    both, one = leaving_of(cell, "j", [0, 1]), leaving_of(cell, "k", [0])
    parts = round_of(cell.state, cell.scheduler.scorer, [both, one]).parts()
    assert refused(plan_replacements(parts, both)).refusal.pods_have == 1
    assert placed(plan_replacements(parts, one)).names() == ["d"]
    assert refused(plan_replacements(parts, one)).refusal.pods_have == 0
    parts = round_of(cell.state, cell.scheduler.scorer, [both, one]).parts()
    assert placed(plan_replacements(parts, one)).names() == ["d"]
    parts.nodes.roll_back_gang()
    assert placed(plan_replacements(parts, one)).names() == ["d"]


def test_a_rank_that_owns_nothing_any_more_gets_chips_that_are_free() -> None:
    cell = a_cell("a")
    cell.ask(a_job("j", chips=4, replicas=2))
    cell.decide()
    cell.release(Release("uid-j", 1, "failed", ranks=[1]))
    cell.ask(a_job("k", chips=4))
    cell.decide()
    assert refused(replaced(cell, leaving_of(cell, "j", [1], faulty=[]))).refusal.pods_have == 0
    cell.release(Release("uid-k", 1, "succeeded"))
    found = placed(replaced(cell, leaving_of(cell, "j", [1], faulty=[])))
    assert found.chips_by_rank() == [(4, 5, 6, 7)]


def test_a_pod_without_chips_goes_near_the_pods_with_chips() -> None:
    cell = CoreCell([a_node(name) for name in "abcd"])
    job = a_job("j", chips=8, replicas=1)
    cell.ask(msgspec.structs.replace(job, tasks=[Task("worker", 1, 8), Task("leader", 1, 0, cpu_milli=1000)]))
    cell.decide()
    assert holding_of(cell.state, "j").placement.names() == ["a", "a"]
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1], faulty=[0])))
    assert found.names() == ["b", "a"]
    found = placed(replaced(cell, leaving_of(cell, "j", [0, 1])))
    assert found.names() == ["b", "b"]
    assert [(run.pods, run.chips, run.cpu_milli) for run in found.runs] == [(1, 8, 0), (1, 0, 1000)]
