"""PodGroups are admitted by their queues: in which order, how many, who is taken back, and what the ledger keeps."""

import pytest

from berth.core.overview.queue_use import waiting_by_queue
from berth.core.queues.admission_turns import PODS_MAX
from berth.core.scheduling.admissions import DECISIONS_MAX, Admissions
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import Preemption, Task
from berth.schemas.ledger import Settings
from berth.schemas.queues.queue import Queue
from berth.schemas.status import SnapshotBody
from tests.support.queue_cells import NPU, Ordered, Shared, limits


def cell_of(*queues: Queue, nodes: int = 4, **settings: object) -> Ordered:
    return Ordered(nodes, *queues, **settings)


@pytest.mark.parametrize("kind", [Shared, Ordered])
def test_a_quota_admits_as_many_minima_as_it_has_room_for(kind: type[Shared]) -> None:
    cell = (
        kind(0, Queue("a", capability=limits(16)), shards=(1, 3))
        if kind is Shared
        else cell_of(Queue("a", capability=limits(16)), nodes=0)
    )
    for number in range(3):
        cell.group(f"g{number}", created_ms=number)
    cell.settle()
    assert cell.decided() == {
        "g0": "",
        "g1": "",
        "g2": f"gangs of queue a need at least 16 of 16 {NPU}; the job asks for 8",
    }
    assert waiting_by_queue(cell.seat.state) == {"a": [2]}, "those that are admitted wait once their pods are requested"


def test_what_is_free_does_not_matter() -> None:
    cell = cell_of(Queue("a", capability=limits(64)), nodes=1)
    for number in range(8):
        cell.group(f"g{number}")
    cell.settle()
    assert set(cell.decided().values()) == {""}


def test_the_highest_priority_is_first_also_if_it_is_raised_while_it_waits() -> None:
    cell = cell_of(Queue("a", capability=limits(8), state="Closed"))
    cell.group("first", created_ms=1)
    cell.group("raised", created_ms=2)
    cell.settle()
    assert cell.decided() == dict.fromkeys(("first", "raised"), "queue a is not open")
    cell.group("raised", created_ms=2, priority=5)
    cell.queue(Queue("a", capability=limits(8)))
    cell.settle()
    assert cell.decided()["raised"] == ""
    assert cell.decided()["first"] != ""


def test_a_higher_priority_is_admitted_beside_a_lower_one_that_was_before() -> None:
    cell = cell_of(Queue("a", capability=limits(8)), nodes=0)
    cell.group("low")
    cell.settle()
    cell.group("high", priority=1)
    cell.settle()
    assert cell.decided() == {"low": "", "high": ""}, "only what comes before it counts, and the lower one stays"


def test_gangs_that_run_and_that_wait_count() -> None:
    cell = cell_of(Queue("a", capability=limits(24)), nodes=1)
    cell.submitted("runs", "a")
    cell.settle()
    cell.submitted("waits", "a")
    for number in range(2):
        cell.group(f"g{number}", created_ms=number)
    cell.settle()
    assert [why == "" for why in cell.decided().values()] == [True, False]
    cell.ended("runs")
    cell.settle()
    assert set(cell.decided().values()) == {""}


def test_a_group_whose_pods_are_requested_counts_once() -> None:
    cell = cell_of(Queue("a", capability=limits(16)), nodes=0)
    cell.group("g0")
    cell.settle()
    cell.submitted("pg-g0", "a")
    cell.group("g1")
    cell.settle()
    assert cell.decided() == {"g0": "", "g1": ""}
    cell.no_group("g0")
    cell.group("g2")
    cell.settle()
    assert [name for name, why in cell.decided().items() if why] == ["g2"]


def test_without_preemption_nobody_is_displaced() -> None:
    for preempt, is_admitted in ((0, False), (1, True)):
        cell = cell_of(Queue("a", capability=limits(8)), nodes=2, preempt=preempt)
        cell.submitted("runs", "a", preemption=Preemption(preemptable=True, is_declared=True))
        cell.settle()
        cell.group("g", priority=5)
        cell.settle()
        assert (cell.decided()["g"] == "") is is_admitted


def test_what_a_gang_has_beyond_its_minimum_does_not_count() -> None:
    cell = cell_of(Queue("a", capability=limits(16)))
    cell.submitted("elastic", "a", tasks=[Task("w", 2, 8)], min_available=1)
    cell.settle()
    cell.group("first", created_ms=1)
    cell.group("second", created_ms=2)
    cell.settle()
    assert (cell.held("a"), cell.decided()["first"]) == (1_600, "")
    assert "need at least 16 of 16" in cell.decided()["second"]


def test_an_admitted_group_whose_request_is_rejected_keeps_no_room() -> None:
    cell = cell_of(Queue("a", capability=limits(8)))
    cell.group("wrong", priority=5)
    cell.group("right")
    cell.settle()
    assert cell.decided()["right"] != ""
    cell.fact("job.team.pg-wrong", JobSeen("team", "pg-wrong", "u", "rejected", 1))
    cell.settle()
    assert cell.decided() == {"right": "", "wrong": ""}


def test_the_newest_of_two_groups_of_a_request_is_its_group_whichever_was_told_of_last() -> None:
    cell = cell_of(Queue("a", state="Closed"))
    cell.submitted("j", "a")
    cell.group("new", created_ms=2, job="j")
    cell.group("old", created_ms=1, job="j")
    cell.settle()
    assert cell.decided() == {"new": "queue a is not open"}
    cell.no_group("old")
    cell.queue(Queue("a"))
    cell.settle()
    assert cell.decided() == {"new": ""}


def test_a_group_whose_pods_are_requested_is_taken_back_by_its_queue_alone() -> None:
    cell = cell_of(Queue("a", capability=limits(16)), nodes=0)
    cell.group("g0")
    cell.settle()
    cell.submitted("pg-g0", "a")
    cell.settle()
    cell.queue(Queue("a", capability=limits(4), state="Closed"))
    cell.settle()
    assert cell.decided() == {"g0": "queue a is not open"}
    cell.queue(Queue("a", capability=limits(4)))
    cell.settle()
    assert cell.decided() == {"g0": ""}, "its gang is refused by the limit, and it has its pods"


@pytest.mark.parametrize(("preempt", "is_admitted"), [(0, False), (2, True)])
def test_borrowers_do_not_count_if_they_could_be_displaced(preempt: int, *, is_admitted: bool) -> None:
    cell = cell_of(
        Queue("lab", capability=limits(16)),
        Queue("a", parent="lab", deserved=limits(8)),
        Queue("b", parent="lab", deserved=limits(8)),
        nodes=2,
        preempt=preempt,
    )
    cell.submitted("b0", "b")
    cell.submitted("b1", "b")
    cell.settle()
    cell.group("g", "a")
    cell.settle()
    assert (cell.decided()["g"] == "") is is_admitted
    cell.group("never", "a", may_displace=False)
    cell.settle()
    assert cell.decided()["never"] != ""


def test_an_admitted_one_is_taken_back_when_its_queue_closes_and_admitted_again() -> None:
    cell = cell_of(Queue("lab"), Queue("a", parent="lab", capability=limits(8)), nodes=0)
    cell.group("g")
    cell.settle()
    cell.queue(Queue("lab", state="Closing"))
    cell.settle()
    assert cell.decided() == {"g": "queue a is not open"}
    cell.queue(Queue("lab"))
    cell.settle()
    assert cell.decided() == {"g": ""}


def test_a_limit_that_is_cut_takes_nothing_back() -> None:
    cell = cell_of(Queue("a", capability=limits(16)), nodes=0)
    cell.group("g0")
    cell.group("g1")
    cell.settle()
    cell.queue(Queue("a", capability=limits(4)))
    cell.group("g2")
    cell.settle()
    found = cell.decided()
    assert (found["g0"], found["g1"]) == ("", "")
    assert found["g2"] == f"the job asks for 8 {NPU}, queue a may never hold more than 4"


@pytest.mark.parametrize(("queue", "chips", "is_back"), [("a", 12, True), ("a", 4, False), ("b", 8, True)])
def test_a_changed_minimum_or_queue_takes_one_back_that_does_not_fit(queue: str, chips: int, *, is_back: bool) -> None:
    cell = cell_of(Queue("a", capability=limits(16)), Queue("b", capability=limits(4)), nodes=0)
    cell.group("g", created_ms=9)
    cell.group("other")
    cell.settle()
    cell.group("g", queue, chips, created_ms=9)
    cell.settle()
    assert (cell.decided()["g"] != "") is is_back
    assert cell.decided()["other"] == ""


def test_one_that_was_admitted_before_queues_were_in_force_stays() -> None:
    cell = cell_of(Queue("a", capability=limits(8)), nodes=0)
    for name in ("g0", "g1"):
        cell.group(name, is_admitted=True)
    cell.settle()
    assert cell.decided() == {"g0": "", "g1": ""}
    cell.group("g1", chips=16, is_admitted=True)
    cell.settle()
    assert cell.decided()["g1"] != ""


def test_a_queue_has_no_more_pods_that_wait_than_its_bound_but_one_large_job() -> None:
    cell = cell_of(Queue("a"), Queue("b"), nodes=0)
    cell.group("g0", chips=0, pods=PODS_MAX + 1)
    cell.group("g1", chips=0, pods=1, created_ms=2)
    cell.group("other", "b")
    cell.settle()
    assert cell.decided() == {
        "g0": "",
        "g1": "queue a has 10,001 pods of jobs that wait, and this job has 1: at most 10,000",
        "other": "",
    }
    cell.no_group("g0")
    cell.settle()
    assert cell.decided() == {"g1": "", "other": ""}


def test_in_a_fifo_queue_none_is_admitted_behind_one_that_waits() -> None:
    cell = cell_of(Queue("a", capability=limits(16), is_fifo=True), nodes=0)
    for name, chips in (("g0", 8), ("g1", 16), ("g2", 8)):
        cell.group(name, chips=chips, created_ms=int(name[1:]))
    cell.settle()
    found = cell.decided()
    assert (found["g0"], found["g1"] != "") == ("", True)
    assert found["g2"] == "queue a serves its jobs in order (dequeueStrategy fifo), and one before this one waits"


def test_nor_behind_one_for_which_too_many_pods_wait() -> None:
    cell = cell_of(Queue("a", is_fifo=True))
    cell.group("in", created_ms=1, pods=PODS_MAX - 1)
    cell.group("large", created_ms=2, pods=2)
    cell.group("small", created_ms=3, pods=1)
    cell.settle()
    assert [name for name, why in cell.decided().items() if why] == ["large", "small"]


def test_queues_have_turns_below_a_common_limit() -> None:
    cell = cell_of(Queue("lab", capability=limits(16)), Queue("a", parent="lab"), Queue("b", parent="lab"), nodes=2)
    for number in range(4):
        cell.group(f"a{number}", "a", created_ms=number)
    cell.group("b0", "b", created_ms=9)
    cell.settle()
    assert [name for name, why in cell.decided().items() if not why] == ["a0", "b0"]


@pytest.mark.parametrize("queues", [0, 1])
def test_where_no_queue_is_in_force_nothing_is_decided(queues: int) -> None:
    cell = Shared(4, *([Queue("a")] if not queues else []))
    cell.begin(Settings(queues=queues))
    head = cell.seat.state.fold.head
    cell.group("g")
    cell.settle()
    assert (cell.decided(), cell.seat.state.fold.head) == ({}, head)


def test_one_that_is_gone_is_forgotten_with_the_next_record() -> None:
    cell = cell_of(Queue("a"), nodes=1)
    cell.group("g")
    cell.settle()
    cell.no_group("g")
    cell.settle()
    cell.submitted("other", "a")
    cell.settle()
    assert cell.decided() == {}
    cell.group("g")
    cell.settle()
    assert cell.decided() == {"g": ""}


def test_nothing_is_looked_for_without_a_change() -> None:
    cell = cell_of(Queue("a", capability=limits(8)), nodes=0)
    cell.group("g0")
    cell.group("g1")
    cell.settle()
    head = cell.seat.state.fold.head
    assert not cell.seat.scheduler.has_work
    assert cell.seat.scheduler.open(9).opening is None
    cell.group("g1")
    assert not cell.seat.scheduler.has_work, "the fact says nothing new"
    cell.settle()
    assert cell.seat.state.fold.head == head


def test_a_record_has_a_bounded_number_of_decisions_and_the_next_ones_the_others() -> None:
    cell = cell_of(Queue("a", capability=limits(8)), nodes=0)
    count = DECISIONS_MAX + 10
    for number in range(count):
        cell.group(f"g{number:05}", created_ms=number)
    head = cell.seat.state.fold.head
    cell.settle()
    assert len(cell.decided()) == count
    assert [name for name, why in cell.decided().items() if not why] == ["g00000"]
    assert cell.seat.state.fold.head - head >= 2


def test_a_snapshot_holds_what_was_decided_and_its_reader_decides_the_same() -> None:
    cell = cell_of(Queue("a", capability=limits(16)), nodes=0)
    for number in range(3):
        cell.group(f"g{number}", created_ms=number)
    cell.settle()
    cell.no_group("g0")
    body = decode(cell.seat.state.dump(cell.seat.scheduler.dump()), SnapshotBody)
    state = State(keeps=True)
    loaded = state.load(body)
    scheduler = Scheduler(state)
    assert loaded.waiting is not None
    scheduler.load(loaded.waiting, loaded.changes)
    assert state.dump(scheduler.dump()) == cell.seat.state.dump(cell.seat.scheduler.dump())
    own = Admissions(cell.seat.state, cell.seat.scheduler.queue).due()
    assert Admissions(state, scheduler.queue).due() == own
    assert [(one.name, one.refusal) for one in own] == [("g2", None)]
