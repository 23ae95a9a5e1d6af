"""Queues above their limit are found, and nothing is to be repaired."""

from berth.core.verification.findings import needs_repair
from berth.core.verification.queue_check import over_limits
from berth.schemas.queues.queue import Queue
from tests.support.queue_cells import NPU, Shared, limits


def test_a_queue_whose_limit_was_lowered_is_found_until_its_jobs_have_ended() -> None:
    cell = Shared(4, Queue("a", capability=limits(16)))
    for name in ("a0", "a1"):
        cell.submitted(name, "a")
    cell.round()
    state = cell.seat.state
    assert over_limits(state, stream="LEDGER") == []
    cell.queue(Queue("a", capability=limits(8)))
    (found,) = over_limits(state, stream="LEDGER")
    assert (found.code, found.name, found.sequence) == ("over-capability", "a", state.fold.head)
    assert found.text.startswith(f"queue a holds 16 of 8 {NPU}: its limit was lowered")
    assert not needs_repair([found])
    cell.ended("a0")
    cell.round()
    assert over_limits(state, stream="LEDGER") == []


def test_a_cell_without_queues_has_no_such_finding() -> None:
    assert over_limits(Shared(1).seat.state, stream="LEDGER") == []
