"""Recoveries of placed gangs in turns: what a fault makes leave, where it goes, and when.

Longer than 400 lines because each case is a whole recovery, from the fault to the last place.
"""

import msgspec
import pytest

from berth.core.scheduling.turn import MissingShards
from berth.schemas.facts import NodeHealth, OutcomeSeen, PodPhase
from berth.schemas.intake import FROM_PODS, Task
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, nodes_in_superpods
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell, Pod
from tests.support.replacements import holding_of


def a_cell(nodes: str = "abcd", **settings: object) -> FaultCell:
    return FaultCell([a_node(name) for name in nodes], **settings)


@pytest.mark.parametrize("labels", [{}, {"fault-scheduling": "off"}, {"fault-scheduling": "grace|force"}])
def test_without_a_label_that_means_something_nothing_happens(labels: dict[str, str]) -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2), labels=labels)
    cell.break_chip("a")
    assert (cell.turns(), cell.phase("j")) == ([], "placed")


@pytest.mark.parametrize("labels", [GRACE, PODS_FIRST, {"fault-scheduling": "force"}])
@pytest.mark.parametrize("rank", [0, 1])
def test_healthy_pods_that_no_controller_makes_anew_stay_whatever_the_labels_say(
    rank: int, labels: dict[str, str]
) -> None:
    cell = a_cell(escalate_job_ms=60_000)
    cell.run(a_job("j", chips=8, replicas=2, origin=FROM_PODS, is_unowned=True), labels=labels)
    cell.break_chip(cell.node_of("j", rank))
    (step,) = cell.turns()
    assert (step.scope, step.ranks) == ("pod", [rank])
    cell.remove("j")
    assert [one.ranks for one in cell.wait(3_600_000)] in ([], [[rank]])
    assert cell.phase("j") == "placed"


def test_a_chip_fault_moves_the_faulty_pod_and_keeps_the_others() -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2))
    before = holding_of(cell.state, "j").placement
    cell.break_chip("b", 0b100)
    (step,) = cell.turns()
    assert (step.step, step.scope, step.how, step.ranks, step.faulty) == (1, "pod", "grace", [1], [1])
    assert step.cause == "pod of rank 1 on b: its chip 2 is unhealthy"
    assert (step.nodes, step.until_ms) == (["b"], cell.now_ms + 900_000)
    assert step.placement is not None
    assert step.placement.names() == ["c"]
    assert cell.state.held("c") == 0xFF, "the new place is reserved"
    cell.remove("j")
    assert cell.turns() == []
    assert (cell.node_of("j", 0), cell.node_of("j", 1)) == ("a", "c")
    assert cell.state.held("b") == 0
    cell.bind("j")
    assert (cell.turns(), cell.phase("j")) == ([], "placed")
    assert holding_of(cell.state, "j").placement.chips_by_rank()[0] == before.chips_by_rank()[0]


def test_a_step_has_a_number_above_those_that_the_binder_took_up_before_the_ledger_was_restored() -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2))
    outcome = OutcomeSeen("default", "j", holding_of(cell.state, "j").uid, 1, "bound", bound=2, step=6, done=6)
    cell.fact(SUBJECTS.fact_outcome("default", "j"), outcome)
    cell.break_chip("b")
    assert [step.step for step in cell.turns()] == [7]


def test_a_rank_whose_pod_was_moved_by_a_lost_record_gets_that_place_before_anything_is_placed() -> None:
    cell = a_cell("abc")
    cell.run(a_job("j", chips=8, replicas=2))
    pods = cell.pods["j"]
    pods[1] = Pod("c", 0xFF, 2)
    cell.say("j")
    cell.ask(a_job("k", chips=8))
    (lost,) = cell.turns()
    assert (lost.step, lost.kind, lost.ranks) == (2, "RecordLost", [1])
    assert (cell.node_of("j", 1), cell.node_of("k", 0)) == ("c", "b")
    cell.break_chip("c", 0b1)
    assert [(step.step, step.faulty) for step in cell.turns()] == [(3, [1])]


def test_a_job_without_pod_level_labels_restarts_beside_the_node_that_failed() -> None:
    cell = a_cell("abc")
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.break_chip("a", 0b1)
    (step,) = cell.turns()
    assert (step.scope, step.ranks, step.faulty, step.placement) == ("job", [0, 1], [0], None)
    assert cell.phase("j") == "ending"
    cell.conditions.clear()
    cell.publish()  # the chip is healthy again: only the recovery speaks against the node
    cell.remove("j")
    cell.turns()
    assert cell.phase("j") == "placed"
    holding = holding_of(cell.state, "j")
    assert (holding.attempt, holding.placement.names()) == (2, ["b", "c"])


def test_the_node_that_failed_is_used_if_no_other_is_left() -> None:
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.fail("j")
    cell.group("j", {**GRACE, "fault-retry-times": "1"})
    cell.fail("j", 0)
    cell.turns()
    cell.remove("j")
    cell.turns()
    assert holding_of(cell.state, "j").placement.names() == ["a", "b"]


def test_without_a_place_the_faulty_pod_leaves_and_escalates_once_a_new_pod_waits() -> None:
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    (step,) = cell.turns()
    assert (step.ranks, step.placement) == ([1], None)
    cell.remove("j")
    assert cell.turns() == []
    assert cell.wait(100_000) == [], "no new pod waits"
    cell.wait_for_places("j", 1)
    assert cell.turns() == []
    assert cell.scheduler.next_due_ms == cell.now_ms + 12_000
    assert cell.wait(11_999) == []
    (step,) = cell.wait(1)
    assert (step.scope, step.step, step.cause) == ("job", 2, "the new pod of rank 1 found no place for 12 s")
    assert (cell.phase("j"), cell.scheduler.next_due_ms) == ("ending", 0)


def test_a_further_new_pod_does_not_begin_the_clock_anew() -> None:
    cell = a_cell("abcd")
    cell.run(a_job("j", chips=8, replicas=4))
    for name in "cd":
        cell.break_chip(name)
    (step,) = cell.turns()
    assert (step.ranks, step.placement) == ([2, 3], None)
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 2)
    assert cell.wait(9_000) == []
    cell.wait_for_places("j", 2, 3)
    assert cell.turns() == []
    assert cell.scheduler.next_due_ms == cell.now_ms + 3_000
    assert [(step.scope, step.cause) for step in cell.wait(3_000)] == [
        ("job", "the new pods of ranks 2, 3 found no place for 12 s")
    ]


def test_a_place_that_comes_free_is_given_before_the_limit() -> None:
    cell = a_cell("abc")
    cell.run(a_job("k", chips=8), labels={})
    cell.run(a_job("j", chips=8, replicas=2))
    cell.ask(a_job("waits", chips=8, priority=9))
    cell.turns()
    broken = cell.node_of("j", 1)
    cell.break_chip(broken)
    cell.turns()
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 1)
    cell.wait(5_000)
    freed = cell.node_of("k", 0)
    cell.take_back("k")
    cell.turns()
    cell.remove("k")
    (step,) = cell.turns()
    assert (step.how, step.ranks, step.scope) == ("place", [1], "pod")
    assert cell.node_of("j", 1) == freed, "before the job that waits"
    assert cell.phase("waits") == "waiting"
    cell.bind("j")
    assert cell.wait(100_000) == []


def test_elastic_pending_replacement_for_an_hour_then_placed() -> None:
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2), labels={**GRACE, "process-recover-enable": "on"})
    cell.break_chip("b")
    cell.turns()
    cell.remove("j")
    cell.wait_for_places("j", 1)
    assert cell.wait(3_600_000) == []
    cell.conditions.clear()
    cell.publish()
    (step,) = cell.turns()
    assert (step.how, cell.node_of("j", 1), cell.node_of("j", 0)) == ("place", "b", "a")


@pytest.mark.parametrize(
    "labels", [{**GRACE, "process-recover-enable": "on"}, {**PODS_FIRST, "app": "mindie-ms-controller"}]
)
def test_pods_that_run_without_one_another_get_places_one_by_one(labels: dict[str, str]) -> None:
    cell = a_cell("abc")
    cell.run(a_job("j", chips=8, replicas=3), labels=labels)
    for name in "bc":
        cell.break_chip(name)
    (step,) = cell.turns()
    assert (step.ranks, step.placement) == ([1, 2], None)
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 1, 2)
    assert cell.wait(60_000) == []
    del cell.conditions["c"]
    cell.publish()
    (step,) = cell.turns()
    assert (step.how, step.cause, len(step.ranks)) == ("place", f"the new pod of rank {step.ranks[0]} gets a place", 1)
    assert cell.node_of("j", step.ranks[0]) == "c"
    (left,) = {1, 2} - set(step.ranks)
    assert holding_of(cell.state, "j").unplaced == [left]
    del cell.conditions["b"]
    cell.publish()
    (step,) = cell.turns()
    assert (step.ranks, cell.node_of("j", left)) == ([left], "b")


def test_pods_that_need_one_another_get_places_together() -> None:
    cell = a_cell("abc")
    cell.run(a_job("j", chips=8, replicas=3))
    for name in "bc":
        cell.break_chip(name)
    cell.turns()
    cell.remove("j")
    cell.turns()
    del cell.conditions["c"]
    cell.publish()
    assert cell.turns() == []
    del cell.conditions["b"]
    cell.publish()
    assert [step.ranks for step in cell.turns()] == [[1, 2]]


def test_process_recover_on_then_pause_then_on() -> None:
    labels = {**GRACE, "process-recover-enable": "on"}
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2), labels=labels)
    cell.break_chip("b")
    cell.turns()
    cell.remove("j")
    cell.wait_for_places("j", 1)
    assert cell.wait(270_000) == []
    cell.group("j", {**labels, "process-recover-enable": "pause"})
    (step,) = cell.turns()
    assert step.scope == "job"
    cell.remove("j")
    cell.turns()
    cell.group("j", labels)
    assert (cell.turns(), cell.phase("j")) == ([], "waiting")


def test_faulty_pods_are_marked_for_another_component_once() -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2), labels={"fault-scheduling": "external-force"})
    cell.break_chip("b")
    (step,) = cell.turns()
    assert (step.how, step.ranks, step.kind) == ("mark", [1], "CardUnhealthy")
    assert (cell.wait(1_000_000), cell.phase("j")) == ([], "placed")
    cell.publish()
    assert cell.turns() == []
    cell.break_chip("a")
    (step,) = cell.turns()
    assert step.ranks == [0, 1]


def test_retry_counter_2_to_0() -> None:
    cell = a_cell("abc")
    cell.run(a_job("j", chips=8, replicas=2), labels={**GRACE, "fault-retry-times": "2"})
    for left in (1, 0):
        cell.fail("j", 1, exit_code=7)
        (step,) = cell.turns()
        assert (step.kind, step.scope, step.retries_left) == ("pod-failed", "job", left)
        assert step.cause.endswith("a container ended with exit code 7")
        cell.remove("j")
        cell.turns()
        assert cell.phase("j") == "placed"
        cell.bind("j")
        assert cell.turns() == []
    cell.fail("j", 1)
    assert cell.turns() == []
    cell.fail("j", 0, 1)
    cell.turns()
    assert cell.phase("j") == "failed"


def test_a_job_whose_pods_all_failed_restarts_as_long_as_it_may() -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2), labels={**GRACE, "fault-retry-times": "1"})
    cell.fail("j", 0, 1)
    (step,) = cell.turns()
    assert (step.scope, step.faulty, step.retries_left) == ("job", [0, 1], 0)
    assert (cell.phase("j"), holding_of(cell.state, "j").attempt) == ("placed", 2)


def test_a_failed_pod_is_replaced_and_not_released_for_good() -> None:
    cell = a_cell("ab")
    labels = {**PODS_FIRST, "fault-retry-times": "3"}
    cell.run(a_job("j", chips=8, replicas=2), labels=labels)
    cell.fail("j", 1)
    (step,) = cell.turns()
    assert (step.ranks, step.retries_left) == ([1], 2)
    assert step.placement is not None
    assert step.placement.names() == ["b"], "nothing is wrong with its node, and no other is free"
    cell.remove("j")
    cell.turns()
    cell.bind("j")
    assert (cell.turns(), cell.node_of("j", 1)) == ([], "b")


@pytest.mark.parametrize("way", ["not ready", "gone", "evict"])
def test_a_node_that_fails_makes_its_pods_faulty(way: str) -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2))
    cell.wait(1_000)
    if way == "gone":
        del cell.nodes["b"]
        cell.publish()
    elif way == "evict":
        cell.break_chip("b", 0, NodeHealth.EVICT)
    else:
        cell.change("b", ready=False)
    (step,) = cell.turns()
    assert (step.kind, step.ranks) == ("NodeUnhealthy", [1])


def test_a_node_that_is_not_ready_counts_after_a_while() -> None:
    cell = a_cell(not_ready_ms=40_000)
    cell.run(a_job("j", chips=8, replicas=2))
    cell.wait(100_000)
    cell.change("b", ready=False)
    assert cell.turns() == []
    assert cell.scheduler.next_due_ms == cell.now_ms + 40_000
    assert cell.wait(39_999) == []
    assert [step.ranks for step in cell.wait(1)] == [[1]]


def test_nodes_that_are_gone_do_not_count_in_the_first_second_of_an_epoch() -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2))
    del cell.nodes["b"]
    cell.publish()
    cell.begin()
    assert cell.turns() == []
    cell.run(a_job("k", chips=8))  # a record of the epoch does not end its first second
    assert cell.wait(900) == []
    assert [step.ranks for step in cell.wait(100)] == [[1]]


def test_a_second_fault_while_it_recovers() -> None:
    cell = a_cell("abcdef")
    cell.run(a_job("j", chips=8, replicas=4))
    cell.break_chip("b")
    (first,) = cell.turns()
    cell.now_ms += 500
    cell.break_chip("d")
    (second,) = cell.turns()
    assert (second.step, second.ranks, second.since_ms) == (2, [3], first.since_ms)
    cell.remove("j")
    cell.turns()
    cell.bind("j")
    assert cell.turns() == []
    assert [cell.node_of("j", rank) for rank in range(4)] == ["a", "e", "c", "f"]


def test_a_fault_of_a_reserved_node() -> None:
    cell = a_cell("abcd")
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    (first,) = cell.turns()
    assert first.placement is not None
    (node,) = first.placement.names()
    cell.break_chip(node)
    (second,) = cell.turns()
    assert (second.ranks, second.placement is not None) == ([1], True)
    assert cell.state.held(node) == 0
    cell.remove("j")
    cell.turns()
    assert cell.node_of("j", 1) not in {"b", node}


def test_a_fault_of_a_place_whose_pod_is_not_bound_yet() -> None:
    cell = a_cell("abcd")
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    cell.turns()
    cell.remove("j")
    cell.turns()
    node = cell.node_of("j", 1)
    cell.break_chip(node)
    (step,) = cell.turns()
    assert step.ranks == [1]
    cell.remove("j")
    cell.bind("j", [])
    cell.turns()
    assert cell.node_of("j", 1) not in {"b", node}


def without_a_pod() -> FaultCell:
    """A job whose pods have left one after the other; no new one is bound yet, and facts say that none is there."""
    cell = a_cell("abcdef")
    cell.run(a_job("j", chips=8, replicas=2))
    cell.wait(10_000)
    cell.pods["j"][0].marks = {"training.kubeflow.org/replica-type": "worker"}
    cell.say("j")
    for rank in (1, 0):
        cell.break_chip(cell.node_of("j", rank))
        assert [step.ranks for step in cell.turns()] == [[rank]]
        cell.remove("j")
        cell.say("j")
        cell.turns()
    return cell


def test_a_job_whose_new_pods_are_still_to_come_has_not_vanished() -> None:
    """Also where its controller never makes them: it ends with its owner."""
    cell = without_a_pod()
    assert (cell.wait(3_600_000), cell.phase("j"), cell.scheduler.next_due_ms) == ([], "placed", 0)
    other = cell.reloaded()
    cell.bind("j")
    assert (cell.wait(100_000), cell.phase("j"), holding_of(cell.state, "j").attempt) == ([], "placed", 1)
    other.take_back("j")
    other.turns()
    assert holding_of(other.state, "j").ending == "cancelled"
    other.remove("j")
    other.turns()
    assert (other.state.fold.holdings, other.phase("j"), other.scheduler.next_due_ms) == ({}, "cancelled", 0)


def test_a_job_whose_new_pods_were_bound_and_are_gone_has_vanished_once_facts_had_time_to_show_them() -> None:
    cell = without_a_pod()
    cell.now_ms += 1_000
    holding = holding_of(cell.state, "j")
    outcome = OutcomeSeen("default", "j", holding.uid, 1, "bound", bound=2, step=2, done=2, at_ms=cell.now_ms)
    cell.fact(SUBJECTS.fact_outcome("default", "j"), outcome)
    assert (cell.turns(), cell.phase("j")) == ([], "placed")
    assert cell.scheduler.next_due_ms == cell.now_ms + 10_000
    cell.wait(9_999)
    assert cell.phase("j") == "placed"
    cell.wait(1)
    assert holding_of(cell.state, "j").ending == "vanished"


def test_cancel_during_recovery_leaves_nothing() -> None:
    cell = a_cell("abcd")
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    cell.turns()
    cell.take_back("j")
    cell.turns()
    assert cell.phase("j") == "ending"
    cell.remove("j")
    cell.turns()
    assert [cell.state.held(node) for node in "abcd"] == [0, 0, 0, 0]
    assert (cell.wait(1_000_000), cell.scheduler.next_due_ms) == ([], 0)


def test_only_the_gangs_on_nodes_that_changed_are_examined() -> None:
    cell = a_cell("abcd")
    cell.run(*(a_job(name, chips=8) for name in ("j", "k", "l")))
    cell.scheduler.to_examine.clear()
    cell.break_chip("b")
    names = [cell.state.name_of[uid][1] for uid in cell.scheduler.to_examine]
    assert [cell.node_of(name, 0) for name in names] == ["b"]
    cell.scheduler.to_examine.clear()
    cell.change("c", ready=False)
    names = [cell.state.name_of[uid][1] for uid in cell.scheduler.to_examine]
    assert [cell.node_of(name, 0) for name in names] == ["c"]
    cell.scheduler.to_examine.clear()
    cell.publish()
    assert not cell.scheduler.to_examine


@pytest.mark.parametrize("turns_before", range(6))
def test_scheduler_restart_in_each_state(turns_before: int) -> None:
    """Whenever a snapshot is loaded, the rest of the story is the same."""

    def story(cell: FaultCell, restarts: bool) -> tuple[FaultCell, list[str]]:  # noqa: FBT001  # a parameter of the test
        told: list[str] = []
        for number in range(6):
            if restarts and number == turns_before:
                cell = cell.reloaded()
            match number:
                case 0:
                    cell.break_chip("b")
                case 1:
                    cell.remove("j")
                case 2:
                    cell.wait_for_places("j", 1)
                case 3:
                    cell.now_ms += 6_000
                case 4:
                    cell.now_ms += 6_000
                case _:
                    cell.remove("j")
            found = cell.turns()
            told.append(f"{[(one.step, one.scope, one.how, one.ranks) for one in found]} {cell.phase('j')}")
        return cell, told

    cells = []
    for restarts in (False, True):
        cell = a_cell("ab")
        cell.run(a_job("j", chips=8, replicas=2))
        cells.append(story(cell, restarts))
    assert cells[0][1] == cells[1][1]
    assert cells[0][0].state.dump() == cells[1][0].state.dump()
    assert "(2, 'job', 'grace', [0, 1])" in cells[0][1][4]


def test_plan_before_delete_keeps_a_job_that_has_no_place() -> None:
    cell = a_cell("ab", plan_before_delete=True)
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.break_chip("b")
    assert (cell.turns(), cell.phase("j")) == ([], "placed")
    assert cell.wait(60_000) == []
    assert cell.wait(3_600_000) == []
    assert (cell.phase("j"), cell.scheduler.next_due_ms) == ("placed", 0)


def test_plan_before_delete_restarts_a_job_once_there_is_a_place() -> None:
    cell = a_cell("ab", plan_before_delete=True)
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.break_chip("b")
    cell.wait(10_000)
    cell.nodes["c"] = a_node("c")
    cell.publish()
    (step,) = cell.turns()
    assert step.scope == "job"
    cell.remove("j")
    cell.turns()
    assert holding_of(cell.state, "j").placement.names() == ["a", "c"]


def test_plan_before_delete_keeps_the_place_of_a_pod_that_ended_for_the_next_attempt() -> None:
    """The ended pod releases its place before the others are deleted."""
    cell = a_cell("ab", plan_before_delete=True)
    cell.run(a_job("j", chips=8, replicas=2), labels={**GRACE, "fault-retry-times": "3"})
    cell.ask(a_job("k", chips=8))
    cell.fail("j", 1, exit_code=137)
    (step,) = cell.turns()
    assert step.scope == "job"
    cell.wait(1_000)
    assert cell.phase("k") == "waiting"
    cell.remove("j")
    cell.turns()
    assert (cell.phase("k"), holding_of(cell.state, "j").placement.names()) == ("waiting", ["a", "b"])


def test_plan_before_delete_ends_no_healthy_pod_while_no_place_exists() -> None:
    """One broken chip and no spare node: after 12 s all pods of the job were deleted."""
    cell = a_cell("abc", plan_before_delete=True)
    cell.run(a_job("j", chips=8, replicas=3))
    cell.break_chip("b")
    (step,) = cell.turns()
    assert (step.scope, step.ranks) == ("pod", [1])
    cell.remove("j")
    cell.wait_for_places("j", 1)
    assert [*cell.turns(), *cell.wait(6_000), *cell.wait(6_000), *cell.wait(3_600_000)] == []
    assert (cell.phase("j"), holding_of(cell.state, "j").attempt) == ("placed", 1)
    cell.nodes["d"] = a_node("d")
    cell.publish()
    (step,) = cell.turns()
    assert step.placement is not None
    assert (step.how, step.placement.names()) == ("place", ["d"])


def test_plan_before_delete_restarts_a_job_whose_ranks_fit_in_places_of_one_another() -> None:
    """Rank 1 needs a whole node, as rank 2 can leave; that can go where the chip of rank 1 is broken."""
    cell = a_cell("abc", plan_before_delete=True, hold_places_ms=60_000)
    cell.run(a_job("j", tasks=[Task("large", 2, 8), Task("small", 1, 4)]))
    before = [cell.node_of("j", rank) for rank in range(3)]
    cell.break_chip(before[1])
    (step,) = cell.turns()
    assert (step.scope, step.ranks, step.placement) == ("pod", [1], None)
    cell.remove("j")
    cell.wait_for_places("j", 1)
    assert [*cell.turns(), *cell.wait(11_999)] == []
    (step,) = cell.wait(1)
    assert (step.scope, step.ranks) == ("job", [0, 1, 2])
    cell.remove("j")
    cell.turns()
    assert cell.phase("j") == "placed"
    assert cell.node_of("j", 2) == before[1]


def test_plan_before_delete_restarts_a_job_whose_master_must_move_with_its_block() -> None:
    """The SuperPoD of its block has no other node, another one has two."""
    *first, other, another = nodes_in_superpods((4, 2), "superpod910a3x16")
    cell = FaultCell(first, reserve_nodes=0, plan_before_delete=True)
    annotations = {"sp-block": "32", "huawei.com/schedule_policy": "chip2-node16-sp"}
    tasks = [Task("master", 1, 16), Task("worker", 3, 16)]
    cell.run(a_job("j", product="superpod910a3x16", annotations=annotations, tasks=tasks))
    cell.nodes |= {node.name: node for node in (other, another)}
    cell.break_chip(cell.node_of("j", 1))
    (step,) = cell.turns()
    assert (step.scope, step.ranks, step.placement) == ("pod", [1], None)
    cell.remove("j")
    cell.wait_for_places("j", 1)
    (step,) = [*cell.turns(), *cell.wait(6_000), *cell.wait(6_000)]
    assert (step.scope, step.ranks) == ("job", [0, 1, 2, 3])
    cell.remove("j")
    cell.turns()
    assert [cell.node_of("j", rank)[0] for rank in range(4)] == ["1", "1", "0", "0"]


def test_plan_before_delete_restarts_a_job_at_once_whose_first_pod_must_move_with_its_block() -> None:
    *first, other, another = nodes_in_superpods((4, 2), "superpod910a3x16")
    cell = FaultCell(first, reserve_nodes=0, plan_before_delete=True)
    annotations = {"sp-block": "32", "huawei.com/schedule_policy": "chip2-node16-sp"}
    tasks = [Task("master", 1, 16), Task("worker", 3, 16)]
    cell.run(a_job("j", product="superpod910a3x16", annotations=annotations, tasks=tasks))
    cell.break_chip(cell.node_of("j", 0))
    assert (cell.turns(), cell.phase("j")) == ([], "placed")
    cell.nodes |= {node.name: node for node in (other, another)}
    cell.publish()
    (step,) = cell.turns()
    assert (step.scope, step.ranks) == ("job", [0, 1, 2, 3])


def two_broken(**settings: object) -> FaultCell:
    """Two jobs of two pods that only restart as a whole, each with a broken chip, and no spare node."""
    cell = a_cell("abcd", plan_before_delete=True, **settings)
    cell.run(a_job("old", uid="z", chips=8, replicas=2), a_job("new", uid="a", chips=8, replicas=2), labels=GRACE)
    cell.break_chip(cell.node_of("old", 0))
    cell.break_chip(cell.node_of("new", 0))
    assert cell.turns() == []
    return cell


def add(cell: FaultCell, name: str) -> list[str]:
    """A node comes; jobs that take steps of a recovery."""
    cell.nodes[name] = a_node(name)
    cell.publish()
    return [step.name for step in cell.turns()]


@pytest.mark.parametrize("hold_places_ms", [0, 60_000])
def test_plan_before_delete_restarts_one_of_two_jobs_with_one_spare_node(hold_places_ms: int) -> None:
    """Both restarted in the same turn, and one of them had no place."""
    cell = two_broken(hold_places_ms=hold_places_ms)
    assert add(cell, "e") == ["old"]
    assert (cell.phase("old"), cell.phase("new")) == ("ending", "placed")
    assert cell.wait(1_000) == []
    cell.remove("old")
    assert (cell.turns(), cell.phase("old"), cell.phase("new")) == ([], "placed", "placed")
    assert "e" in holding_of(cell.state, "old").placement.names()
    cell.bind("old")
    assert cell.wait(3_600_000) == []
    assert add(cell, "f") == ["new"]
    cell.remove("new")
    cell.turns()
    assert "f" in holding_of(cell.state, "new").placement.names()


def test_plan_before_delete_restarts_both_of_two_jobs_with_two_spare_nodes() -> None:
    cell = two_broken()
    cell.nodes["e"] = a_node("e")
    assert add(cell, "f") == ["old", "new"]


def test_new_work_gets_no_place_for_which_a_job_restarts() -> None:
    """Neither what waits when the job restarts, nor what is asked for while its pods end or wait."""
    cell = two_broken()
    cell.ask(a_job("waits", chips=8, priority=9))
    cell.turns()
    assert add(cell, "e") == ["old"]
    cell.ask(a_job("later", chips=8, priority=9))
    cell.turns()
    cell.remove("old")
    cell.turns()
    assert "e" in holding_of(cell.state, "old").placement.names()
    assert [cell.state.fold.gangs[cell.state.jobs["default", name].uid].phase for name in ("waits", "later")] == [
        "waiting"
    ] * 2


def test_a_place_for_which_a_job_restarts_is_free_when_the_job_is_cancelled() -> None:
    cell = two_broken()
    assert add(cell, "e") == ["old"]
    cell.take_back("old")
    cell.turns()
    cell.remove("old")
    assert [step.name for step in cell.turns()] == ["new"]


def test_a_place_for_which_a_job_restarts_is_not_held_when_it_breaks() -> None:
    cell = two_broken()
    assert add(cell, "e") == ["old"]
    cell.break_chip("e")
    cell.turns()
    cell.remove("old")
    cell.turns()
    assert cell.phase("old") == "waiting"
    assert add(cell, "f") == []
    assert sorted(holding_of(cell.state, "old").placement.names()) == ["b", "f"]


def test_a_place_for_which_a_job_restarts_stays_reserved_while_its_pods_end_one_by_one() -> None:
    cell = two_broken()
    assert add(cell, "e") == ["old"]
    cell.pods["old"][0].phase = PodPhase.GONE
    cell.say("old")
    assert cell.wait(1_000) == []
    assert cell.state.held("e") == 0xFF
    copy = cell.reloaded()
    for one in (cell, copy):
        one.remove("old")
        one.turns()
    assert holding_of(cell.state, "old").placement == holding_of(copy.state, "old").placement
    assert sorted(holding_of(cell.state, "old").placement.names()) == ["b", "e"]


def test_plan_before_delete_lets_faulty_pods_leave_and_healthy_ones_stay() -> None:
    cell = a_cell("ab", plan_before_delete=True)
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    (step,) = cell.turns()
    assert (step.scope, step.ranks) == ("pod", [1])


def test_at_most_so_many_jobs_restart_for_one_cause() -> None:
    cell = a_cell("a", restarts_at_once=2, restart_share_percent=100)
    cell.run(*(a_job(f"j{number}", chips=1) for number in range(5)), labels=GRACE)
    cell.break_chip("a", 0, NodeHealth.EVICT)
    assert [step.name for step in cell.turns()] == ["j0", "j1"]
    assert [one.subject for one in cell.scheduler.watch.held_back] == ["default/j2", "default/j3", "default/j4"]
    cell.remove("j0")
    assert [step.name for step in cell.turns()] == ["j2"]


def test_a_report_that_would_restart_too_many_jobs_restarts_none() -> None:
    cell = a_cell("ab", restarts_at_once=2, restart_share_percent=20)
    cell.run(*(a_job(f"j{number}", chips=1) for number in range(8)), labels=GRACE)
    cell.break_chip("a", 0b111)
    assert cell.turns() == []
    (held, *_) = cell.scheduler.watch.held_back
    assert held.reason.startswith("CardUnhealthy would restart 3 of 8 jobs, more than 20 percent, and ")
    cell.break_chip("a", 0b11)
    assert len(cell.turns()) == 2
    parity = a_cell("a", restarts_at_once=2, reference_parity=True)
    parity.run(*(a_job(f"j{number}", chips=1) for number in range(8)), labels=GRACE)
    parity.break_chip("a", 0, NodeHealth.EVICT)
    assert len(parity.turns()) == 8


def test_turns_that_are_taken_back_forget_nothing() -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    for _ in range(3):
        opening = cell.scheduler.open(cell.now_ms).opening
        assert opening is not None
        cell.scheduler.take_back(opening)
    assert [step.ranks for step in cell.turns()] == [[1]]


def test_a_turn_that_time_opened_and_that_is_taken_back_is_opened_again() -> None:
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    cell.turns()
    cell.remove("j")
    cell.turns()
    cell.wait_for_places("j", 1)
    cell.turns()
    cell.now_ms += 12_000
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    cell.scheduler.take_back(opening)
    assert [step.scope for step in cell.turns()] == ["job"]


def test_sub_health_leaves_by_its_strategy() -> None:
    cell = a_cell()
    cell.run(a_job("j", chips=8, replicas=2), labels={**PODS_FIRST, "subHealthyStrategy": "forceExit"})
    cell.break_chip("b", 0, NodeHealth.SUB_HEALTHY, sub_healthy=0b10)
    (step,) = cell.turns()
    assert (step.kind, step.how, step.ranks) == ("SubHealthFault", "force", [1])


@pytest.mark.parametrize("nodes", ["abcd", "ab"], ids=["on another node", "on its own node"])
def test_a_terminating_pod_of_a_released_rank_is_not_faulty_again(nodes: str) -> None:
    cell = a_cell(nodes)
    cell.run(a_job("j", chips=8, replicas=2), labels={**PODS_FIRST, "fault-retry-times": "5"})
    cell.fail("j", 1)
    assert len(cell.turns()) == 1
    cell.pods["j"][1] = msgspec.structs.replace(cell.pods["j"][1], phase=PodPhase.FAILED)
    for _ in range(3):
        cell.say("j")
        assert cell.turns() == []


def test_a_rank_without_a_place_gets_one_once_the_shards_answer_again() -> None:
    cell = a_cell("abc", shard_retry_ms=700)
    cell.run(a_job("j", chips=8, replicas=2))
    cell.break_chip("b")
    silent = MissingShards(1, [0])
    first = cell.turn(silent)
    assert first is not None
    assert [(step.how, step.placement) for step in first.recoveries] == [("grace", None)]
    assert cell.turn(silent) is None
    assert cell.scheduler.next_due_ms == cell.now_ms + 700
    (step,) = cell.wait(700)
    assert (step.how, step.placement is not None) == ("place", True)


def test_a_gang_that_the_settings_of_a_new_epoch_forbid_gets_no_places() -> None:
    cell = a_cell("abc", strict_label_values=False)
    cell.run(a_job("j", chips=8, replicas=2, labels={"subHealthyStrategy": "stranger"}))
    cell.begin(strict_label_values=True)
    cell.wait(1_000)
    name = cell.node_of("j", 1)
    del cell.nodes[name]
    cell.publish()
    (step,) = cell.turns()
    assert (step.ranks, step.placement) == ([1], None)


def test_a_sub_healthy_rank_does_not_go_where_it_is_sub_healthy_again() -> None:
    """Its PodGroup has the strategy, its request does not; once it moved from one such node to the next for ever."""
    cell = a_cell("abc")
    cell.run(a_job("j", chips=8, replicas=2), labels={**PODS_FIRST, "subHealthyStrategy": "forceExit"})
    cell.conditions["c"] = NodeCondition("c", level=NodeHealth.SUB_HEALTHY)
    cell.break_chip("b", 0, NodeHealth.SUB_HEALTHY)
    (step,) = cell.turns()
    assert (step.kind, step.ranks, step.placement) == ("SubHealthFault", [1], None)


def test_an_epoch_with_other_settings_looks_at_all_placed_gangs() -> None:
    """A reader that begins at a snapshot of it looks at all, too."""
    cell = a_cell("ab", not_ready_ms=3_600_000)
    cell.run(a_job("j", chips=8), labels=GRACE)
    cell.lose(cell.node_of("j", 0), way="unready")
    assert cell.wait(60_000) == []
    cell.begin()
    assert cell.turns() == []
    assert [step.kind for step in cell.wait(60_000)] == ["NodeUnhealthy"]
