"""What a queue says of a gang that waits: the tree and the numbers of now, whatever the record has."""

from berth.core.explain.current_reasons import CurrentReasons
from berth.core.explain.explainer import explain_now
from berth.schemas.intake import Task
from berth.schemas.ledger import Verdict
from berth.schemas.queues.queue import Queue
from tests.support.queue_cells import NPU, Shared, limits


def told(cell: Shared, reasons: CurrentReasons, name: str) -> str:
    (record,) = (one for one in cell.seat.state.fold.gangs.values() if one.name == name)
    assert record.refusal is not None
    reasons.begin(10)
    return reasons.of(record.uid, record.refusal, 10).sentence


def test_the_numbers_are_those_of_now_and_who_waits_has_news() -> None:
    cell = Shared(4, Queue("a", capability=limits(16)))
    cell.submitted("a0", "a")
    cell.submitted("wide", "a", chips=8, replicas=2)
    cell.round()
    reasons = CurrentReasons(cell.seat.scheduler)
    assert told(cell, reasons, "wide") == f"queue a holds 8 of 16 {NPU}; the job asks for 16"
    assert reasons.take(9) == [("team", "wide")]
    cell.submitted("a2", "a")
    cell.round()
    assert told(cell, reasons, "wide") == f"queue a holds 16 of 16 {NPU}; the job asks for 16"
    assert ("team", "wide") in reasons.take(9)
    told(cell, reasons, "wide")
    assert reasons.take(9) == []


def test_a_job_that_is_requested_anew_has_the_numbers_of_its_new_request() -> None:
    cell = Shared(4, Queue("a", capability=limits(16)))
    for name in ("like", "wide"):
        cell.submitted(name, "a", chips=8, replicas=4)
    cell.round()
    reasons = CurrentReasons(cell.seat.scheduler)
    assert told(cell, reasons, "wide") == f"the job asks for 32 {NPU}, queue a may never hold more than 16"
    cell.submitted("wide", "a", chips=8, replicas=3)
    cell.round()
    assert told(cell, reasons, "wide") == f"the job asks for 24 {NPU}, queue a may never hold more than 16"


def test_what_is_wrong_with_the_queue_is_told_as_it_is_now() -> None:
    cell = Shared(4, Queue("a", parent="lab"))
    cell.submitted("a0", "a")
    cell.round()
    reasons = CurrentReasons(cell.seat.scheduler)
    assert told(cell, reasons, "a0") == "queue a is not valid: its parent lab does not exist"
    cell.queue(Queue("lab", state="Closed"))
    assert told(cell, reasons, "a0") == "queue a is Closed (its parent lab is Closed)"
    cell.queue(Queue("lab"))
    assert told(cell, reasons, "a0") == "there is room for it now, and it is tried in one of the next rounds"


def test_who_waits_behind_another_in_a_fifo_queue_says_so_although_there_is_room() -> None:
    cell = Shared(2, Queue("a", is_fifo=True, capability=limits(8)))
    cell.submitted("wide", "a", replicas=2)
    cell.submitted("small", "a", chips=1)
    assert cell.round() == [("wide", "queues"), ("small", "queues")]
    reasons = CurrentReasons(cell.seat.scheduler)
    for _ in range(2):
        reasons.begin(1_000)
        reasons.advance(9)
    behind = "waits behind team/wide, which is before it in its queue (dequeueStrategy fifo)"
    assert told(cell, reasons, "small") == behind


def test_a_heavy_gang_that_pauses_says_what_is_wrong_with_its_queue() -> None:
    cell = Shared(50, Queue("a", state="Closed"))
    cell.submitted("many", "a", tasks=[Task(f"t{cpu}", 1, 1, cpu_milli=cpu) for cpu in range(1, 301)])
    assert cell.round() == [("many", "queues")]
    assert cell.round(6) == []
    assert "uid-many" not in cell.seat.scheduler.queue
    assert told(cell, CurrentReasons(cell.seat.scheduler), "many") == "queue a is Closed"


def test_an_explanation_does_not_say_that_room_on_nodes_would_help() -> None:
    cell = Shared(4, Queue("a", capability=limits(8)))
    cell.submitted("a0", "a")
    cell.submitted("a1", "a")
    cell.round()
    state = cell.seat.state
    record = state.fold.gangs["uid-a1"]
    verdict = Verdict(record.namespace, record.name, record.uid, 1, None, record.refusal)
    found = explain_now(state, verdict, ledger_seq=state.fold.head, at_ms=10)
    assert found is not None
    assert found.sentence == f"queue a holds 8 of 8 {NPU}; the job asks for 8"
    assert found.unblocking is None
