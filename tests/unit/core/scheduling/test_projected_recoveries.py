"""Reservations count what recoveries leave, what is reserved for them, and what is held for jobs that start anew."""

from berth.schemas.facts import PodPhase
from berth.schemas.refusal import Refusal
from tests.support.cells import a_job, a_node
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell
from tests.support.replacements import holding_of

_HOLD_MS = 60_000
_LONG_MS = 500_000


def a_cell(nodes: str) -> FaultCell:
    return FaultCell(
        [a_node(name) for name in nodes],
        queue_policy="easy",
        reserve_chips=8,
        hold_places_ms=_HOLD_MS,
        unknown_run_ms=_LONG_MS,
    )


def refusal_of(cell: FaultCell, name: str) -> Refusal:
    found = cell.state.fold.gangs[cell.state.jobs["default", name].uid].refusal
    assert found is not None
    return found


def test_held_places_count_as_used_until_their_deadline() -> None:
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.break_chip("a")
    cell.turns()
    cell.remove("j")
    cell.turns()
    until_ms = cell.now_ms + _HOLD_MS
    cell.ask(a_job("later", chips=8, priority=9, run_ms=1_000))
    cell.turns()
    assert refusal_of(cell, "later").start_ms == until_ms
    cell.wait(_HOLD_MS)
    assert (cell.phase("later"), cell.node_of("later", 0)) == ("placed", "b")


def moving(cell: FaultCell) -> None:
    """Rank 1 of a job leaves b, which is healthy again, for c; the job is to run for a while."""
    cell.run(a_job("j", chips=8, replicas=2, run_ms=_LONG_MS))
    cell.run(a_job("k", chips=8, run_ms=4 * _LONG_MS), labels={})
    assert [cell.node_of("j", rank) for rank in (0, 1)] == ["a", "b"]
    assert cell.node_of("k", 0) == "c"
    cell.break_chip("b")
    (step,) = cell.turns()
    assert step.placement is not None
    assert step.placement.names() == ["d"]
    cell.conditions.clear()
    cell.publish()
    cell.wait(1_000)


def test_places_that_ranks_leave_are_expected_to_be_free_at_once() -> None:
    cell = a_cell("abcd")
    moving(cell)
    cell.ask(a_job("large", chips=8, run_ms=1_000))
    cell.turns()
    assert refusal_of(cell, "large").start_ms == cell.now_ms


def test_places_that_are_reserved_for_ranks_are_free_when_their_job_ends() -> None:
    cell = a_cell("abcd")
    began_ms = cell.now_ms
    moving(cell)
    cell.ask(a_job("large", chips=8, replicas=2, run_ms=1_000))
    cell.turns()
    assert refusal_of(cell, "large").start_ms == began_ms + _LONG_MS


def test_a_job_that_returns_no_longer_holds_places_beside_its_own() -> None:
    cell = a_cell("abc")
    cell.run(a_job("j", chips=8, replicas=2, run_ms=_LONG_MS), labels=GRACE)
    broken, kept = cell.node_of("j", 0), cell.node_of("j", 1)
    cell.break_chip(broken)
    cell.turns()
    cell.remove("j")
    cell.turn()
    cell.ask(a_job("large", chips=8, priority=9, run_ms=1_000))
    cell.turns()
    assert (cell.phase("j"), cell.node_of("j", 1)) == ("placed", kept)
    assert refusal_of(cell, "large").start_ms == cell.now_ms + _LONG_MS


def running(cell: FaultCell) -> None:
    """A job on a and b runs for a while, another one on c for longer; the other nodes are free."""
    cell.run(a_job("j", chips=8, replicas=2, run_ms=_LONG_MS))
    cell.run(a_job("k", chips=8, run_ms=4 * _LONG_MS), labels={})
    assert [cell.node_of("j", 0), cell.node_of("j", 1), cell.node_of("k", 0)] == ["a", "b", "c"]


def test_places_that_a_step_of_the_same_turn_reserves_are_used_until_the_job_ends() -> None:
    cell = a_cell("abcd")
    running(cell)
    began_ms = cell.now_ms
    cell.now_ms += 1_000
    cell.break_chip("b")
    cell.ask(a_job("large", chips=8, run_ms=1_000))
    record = cell.turn()
    assert record is not None
    assert [step.placement.names() for step in record.recoveries if step.placement] == [["d"]]
    assert [verdict.name for verdict in record.verdicts] == ["large"]
    assert refusal_of(cell, "large").start_ms == began_ms + _LONG_MS, "not at once on d"
    cell.turns()
    assert refusal_of(cell, "large").start_ms == began_ms + _LONG_MS, "nor does the next turn find otherwise"


def test_places_that_ranks_leave_in_the_same_turn_are_expected_to_be_free_at_once() -> None:
    cell = a_cell("abcd")
    cell.run(a_job("j", chips=8, replicas=2, run_ms=_LONG_MS), labels={**PODS_FIRST, "fault-retry-times": "3"})
    cell.run(a_job("k", chips=8, run_ms=4 * _LONG_MS), labels={})
    cell.fail("j", 1)
    cell.pods["j"][1].phase = PodPhase.RUNNING
    cell.say("j")
    cell.ask(a_job("large", chips=8, run_ms=1_000))
    record = cell.turn()
    assert record is not None
    assert [step.placement.names() for step in record.recoveries if step.placement] == [["d"]]
    assert refusal_of(cell, "large").start_ms == cell.now_ms, "b is healthy, and its pod is being deleted"


def test_a_job_that_restarts_in_the_same_turn_is_expected_to_end_at_once_with_its_reserved_places() -> None:
    cell = a_cell("abcd")
    running(cell)
    cell.break_chip("b")
    cell.turn()
    assert holding_of(cell.state, "j").reserved()[1].node == "d"
    cell.group("j", GRACE)
    cell.break_chip("a")
    cell.ask(a_job("large", chips=8, run_ms=1_000))
    record = cell.turn()
    assert record is not None
    assert [step.scope for step in record.recoveries] == ["job"]
    assert refusal_of(cell, "large").start_ms == cell.now_ms, "d is free with the record"


def test_a_smaller_job_starts_only_if_it_ends_before_the_place_of_a_step_is_free() -> None:
    cell = a_cell("abcde")
    running(cell)
    cell.break_chip("b")
    cell.ask(a_job("large", chips=8, replicas=2, run_ms=1_000, priority=5))
    cell.ask(a_job("small", chips=8, run_ms=_LONG_MS // 2))
    record = cell.turn()
    assert record is not None
    placed = {verdict.name: verdict.placement is not None for verdict in record.verdicts}
    assert placed == {"large": False, "small": True}, "both places of large are free when j ends"
