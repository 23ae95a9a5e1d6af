"""What may go wrong while a job recovers: bounded work, and no reservation and no timer remains afterwards."""

from collections.abc import Callable

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_health
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell
from tests.support.replacements import holding_of

HOUR = 60
"""Minutes in which nobody does anything."""
Story = Callable[[FaultCell], None]


def running(nodes: str, **settings: object) -> FaultCell:
    """A job of three pods, and the labels with which single pods leave first."""
    cell = FaultCell([a_node(name) for name in nodes], **settings)
    cell.run(a_job("j", chips=8, replicas=3))
    cell.wait(10_000)
    return cell


def lose(cell: FaultCell, *ranks: int) -> None:
    """Chips of ranks fail, and their pods leave."""
    for rank in ranks:
        cell.break_chip(cell.node_of("j", rank))
    cell.turns()


def a_pod_that_never_terminates(cell: FaultCell) -> None:
    lose(cell, 1)


def a_controller_that_never_recreates_the_pod(cell: FaultCell) -> None:
    lose(cell, 1)
    cell.remove("j")
    cell.turns()


def a_new_pod_with_a_wrong_rank(cell: FaultCell) -> None:
    a_controller_that_never_recreates_the_pod(cell)
    cell.wait_for_places("j", 0, 7)


def a_second_fault_of_the_same_gang(cell: FaultCell) -> None:
    lose(cell, 1)
    lose(cell, 2)
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 1)


def a_fault_of_a_reserved_node(cell: FaultCell) -> None:
    lose(cell, 1)
    for share in list(holding_of(cell.state, "j").reserved().values()):
        cell.lose(share.node)
    cell.turns()


def a_reserved_node_that_is_lost_again_and_again(cell: FaultCell) -> None:
    lose(cell, 1)
    for _ in range(4):
        for share in list(holding_of(cell.state, "j").reserved().values()):
            cell.break_chip(share.node, 0, NodeHealth.EVICT)
            cell.turns()


def a_fault_that_comes_and_goes(cell: FaultCell) -> None:
    for _ in range(10):
        cell.break_chip(cell.node_of("j", 1))
        cell.turns()
        cell.conditions.clear()
        cell.publish()
        cell.wait(1_000)


def a_fault_of_an_unknown_chip(cell: FaultCell) -> None:
    cell.break_chip(cell.node_of("j", 1), 1 << 40)
    cell.turns()


def a_fault_of_an_unknown_node(cell: FaultCell) -> None:
    conditions = [NodeCondition("nobody", unhealthy=1, level=NodeHealth.EVICT, updated_ms=cell.now_ms)]
    cell.fact(SUBJECTS.fact_health("all"), pack_health("all", conditions, at_ms=cell.now_ms))
    cell.turns()


def a_recovery_before_any_fault(cell: FaultCell) -> None:
    cell.conditions["a"] = NodeCondition("a", recovering=1, updated_ms=cell.now_ms)
    cell.publish()
    cell.turns()
    cell.conditions.clear()
    cell.publish()
    cell.turns()


def a_new_pod_before_any_fault(cell: FaultCell) -> None:
    cell.wait_for_places("j", 1)
    cell.turns()


def an_old_report(cell: FaultCell) -> None:
    """That of a fault comes again after its end, in the same turn as the newest one."""
    lose(cell, 1)
    node = cell.node_of("j", 1)
    broken = cell.conditions.pop(node)
    cell.publish()
    cell.conditions[node] = msgspec.structs.replace(broken, updated_ms=1)
    cell.publish()
    del cell.conditions[node]
    cell.publish()
    cell.turns()


def contradicting_labels_while_it_recovers(cell: FaultCell) -> None:
    lose(cell, 1)
    cell.group("j", {**PODS_FIRST, "fault-scheduling": "grace|force"})
    lose(cell, 2)
    cell.remove("j")
    cell.turns()


def a_cancellation_before_the_pod_is_gone(cell: FaultCell) -> None:
    lose(cell, 1)
    cell.take_back("j")
    cell.turns()


def a_cancellation_while_the_new_pod_waits(cell: FaultCell) -> None:
    a_controller_that_never_recreates_the_pod(cell)
    cell.wait_for_places("j", 1)
    cell.turns()
    cell.take_back("j")
    cell.turns()


def a_cancellation_while_the_whole_job_restarts(cell: FaultCell) -> None:
    lose(cell, 0)
    cell.wait(60_000)
    if cell.recoveries:
        cell.remove("j")
        cell.turns()
    cell.take_back("j")
    cell.turns()


HARMLESS: tuple[Story, ...] = (
    a_fault_of_an_unknown_chip,
    a_fault_of_an_unknown_node,
    a_recovery_before_any_fault,
    a_new_pod_before_any_fault,
)
"""Stories in which nothing is to be done."""
STORIES: tuple[Story, ...] = (
    *HARMLESS,
    an_old_report,
    contradicting_labels_while_it_recovers,
    a_cancellation_before_the_pod_is_gone,
    a_cancellation_while_the_new_pod_waits,
    a_cancellation_while_the_whole_job_restarts,
    a_pod_that_never_terminates,
    a_controller_that_never_recreates_the_pod,
    a_new_pod_with_a_wrong_rank,
    a_second_fault_of_the_same_gang,
    a_fault_of_a_reserved_node,
    a_reserved_node_that_is_lost_again_and_again,
    a_fault_that_comes_and_goes,
)


def has_nothing_left(cell: FaultCell) -> bool:
    table, fold = cell.state.table, cell.state.fold
    owned = sum((int(table.used[row]) | int(table.releasing[row])).bit_count() for row in range(len(table)))
    reserved = [cell.state.held(name) for name in table.names]
    return not (owned or any(reserved) or fold.holdings or fold.held or cell.state.faults.lost.dump())


@pytest.mark.parametrize("spares", ["", "xyzuv"], ids=["without a free node", "with free nodes"])
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("planned", [False, True])
def test_of_bad_input_nothing_remains(story: Story, spares: str, planned: bool) -> None:  # noqa: FBT001  # a parameter
    cell = running(f"abc{spares}", plan_before_delete=planned, hold_places_ms=60_000)
    story(cell)
    waits = planned and not spares and story is a_cancellation_while_the_whole_job_restarts  # it has no places
    assert bool(cell.recoveries) == (story not in HARMLESS and not waits)
    before = len(cell.records)
    for _ in range(HOUR):
        cell.wait(60_000)
    assert len(cell.records) - before <= 4, "bounded work"
    assert cell.scheduler.next_due_ms == 0
    if cell.state.jobs["default", "j"].state != "cancelled":
        cell.take_back("j")
    cell.turns()
    for _ in range(3):
        if cell.state.fold.holdings:
            cell.remove("j")
            cell.turns()
    cell.wait(60_000)
    assert has_nothing_left(cell)
    assert (cell.scheduler.next_due_ms, cell.scheduler.to_examine, cell.scheduler.watch.held_back) == (0, {}, [])
    assert has_nothing_left(cell.reloaded())
    cell.conditions.clear()
    cell.publish()
    cell.ask(a_job("next", chips=8, replicas=len(cell.nodes)))
    cell.turns()
    assert (cell.phase("next"), cell.phase("j") in {"cancelled", "waiting"}) == ("placed", True), "all nodes are free"


def test_a_new_pod_with_a_wrong_rank_starts_no_clock() -> None:
    cell = running("abc")
    a_new_pod_with_a_wrong_rank(cell)
    assert (cell.wait(3_600_000), cell.scheduler.next_due_ms) == ([], 0)
    cell.wait_for_places("j", 1)
    cell.turns()
    assert cell.scheduler.next_due_ms == cell.now_ms + 12_000


def test_a_new_pod_that_waits_for_hours_is_not_starved_by_later_jobs_and_moves_nobody() -> None:
    """Elastic training goes on with fewer pods meanwhile."""
    cell = FaultCell([a_node(name) for name in "abc"])
    cell.run(a_job("j", chips=8, replicas=2), labels={**PODS_FIRST, "process-recover-enable": "on"})
    cell.run(a_job("other", chips=8), labels={})
    cell.wait(10_000)
    places = holding_of(cell.state, "j").placement.names()
    lose(cell, 1)
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 1)
    for hour in range(5):
        cell.ask(a_job(f"later-{hour}", chips=8, priority=9))
        for _ in range(HOUR):
            assert cell.wait(60_000) == []
    assert {cell.phase(f"later-{hour}") for hour in range(5)} == {"waiting"}
    freed = cell.node_of("other", 0)
    cell.take_back("other")
    cell.turns()
    cell.remove("other")
    (step,) = cell.turns()
    assert (step.how, step.ranks) == ("place", [1])
    assert holding_of(cell.state, "j").placement.names() == [places[0], freed]
    assert step.since_ms == cell.now_ms - 5 * 3_600_000
    assert holding_of(cell.state, "j").attempt == 1


@pytest.mark.parametrize(("chips", "replicas"), [(8, 1), (4, 3), (3, 2)])
@pytest.mark.parametrize("labels", [GRACE, PODS_FIRST])
def test_a_job_that_asks_for_other_pods_by_now_recovers_with_those_that_it_has(
    chips: int, replicas: int, labels: dict[str, str]
) -> None:
    cell = FaultCell([a_node(name) for name in "abcd"], hold_places_ms=60_000)
    cell.run(a_job("j", chips=3, replicas=3), labels=labels)
    cell.ask(a_job("j", chips=chips, replicas=replicas))  # with the same uid
    cell.turns()
    cell.break_chip(cell.node_of("j", 2), mask=0xFF)
    (step,) = cell.turns()
    assert step.ranks == ([2] if labels is PODS_FIRST else [0, 1, 2])
    if labels is GRACE:
        cell.remove("j")
        cell.turns()
        cell.turns()
        (run,) = holding_of(cell.state, "j").placement.runs
        assert (run.pods, run.chips) == (replicas, chips)
