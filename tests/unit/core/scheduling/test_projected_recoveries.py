"""Reservations count what recoveries leave, what is reserved for them, and what is held for jobs that start anew."""

from berth.schemas.refusal import Refusal
from tests.support.cells import a_job, a_node
from tests.support.fault_cells import GRACE, FaultCell

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
