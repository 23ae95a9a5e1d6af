"""What a search for victims counts of queues: as their sums have it, and as the round leaves them."""

from berth.core.preemption.model import Preemptor, Terms, VictimSet
from berth.core.preemption.search import Search
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.rules.search_ground import changed_by, ground_of, nothing_changes
from berth.schemas.intake import Task
from berth.schemas.ledger import Epoch, Release, Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, on
from tests.support.fault_cells import FaultCell
from tests.support.preemption_cells import NPU, PreemptionCell, chips, gang_of_request, leaves
from tests.support.queue_cells import limits
from tests.unit.core.scheduling.test_preemption import ended, gone, made, placed
from tests.unit.core.scheduling.test_scheduler import Seat
from tests.unit.core.scheduling.test_surplus_victims import elastic, shows, taken_up


def seat_of(*names: str, queues: tuple[Queue, ...], **settings: object) -> Seat:
    seat = Seat(*names, **{"preempt": 2, "queues": 2, "queue_policy": "skip", **settings})
    for queue in queues:
        seat.fact(f"queue.{queue.name}", QueueSeen(queue))
    return seat


def held(seat: Seat, queue: str) -> int:
    tree = seat.state.queues.tree()
    assert tree is not None
    return seat.state.queues.usage(tree).held(queue, NPU) // 100


def test_a_gang_that_was_placed_before_queues_were_in_force_is_one_of_the_default_queue() -> None:
    cell = PreemptionCell(leaves(1, 2), queues=0, preempt=2)
    cell.place(a_job("old", chips=8, replicas=2, priority=9))
    settings = Settings(queue_policy="skip", queues=2, preempt=2)
    fold = cell.state.fold
    epoch = Epoch(
        fold.epoch + 1, fold.head, cell.state.facts_seq, cell.now_ms, "test", settings, rules=rules_of(settings)
    )
    cell.scheduler.begin(cell.folded(epoch).changes)
    cell.queue(Queue("default", deserved=chips(16)))
    cell.queue(Queue("ads"))
    cell.ask(a_job("p", chips=8, queue="ads"))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    assert cell.scheduler.decide(opening).round.recoveries == []


def test_ranks_that_come_back_in_the_round_count() -> None:
    queues = (Queue("wide", capability=limits(20), deserved=limits(20)), Queue("z", reclaimable=False))
    seat = seat_of("a", "b", "c", queues=queues)
    seat.job(elastic(queue="wide", priority=5))
    made(seat, 1)
    shows(seat, "low")
    seat.job(a_job("zz", chips=8, queue="z"))
    made(seat, 2)
    seat.job(a_job("high", chips=8, priority=9, queue="wide"))
    made(seat, 100)
    taken_up(seat, "low")
    for at_ms in (200, 201, 202):
        seat.round(at_ms=at_ms)
    seat.ended("high")
    made(seat, 400)
    seat.fact("queue.z", QueueSeen(Queue("z")))
    seat.job(a_job("p", chips=8, priority=3, queue="wide"))
    record = made(seat, 401)
    assert [(one.name, one.how, one.ranks) for one in record.recoveries] == [("low", "place", [2, 3])]
    assert (record.reserved, held(seat, "wide")) == ([], 16)


def test_a_gang_that_moves_in_the_round_counts_once() -> None:
    cell = FaultCell([a_node(name) for name in "abcdefgh"], queues=2, preempt=2, queue_policy="skip")
    for queue in (
        Queue("oth", deserved=chips(16), reclaimable=False), Queue("ads", deserved=chips(32)),
        Queue("res", deserved=chips(8)),
    ):  # fmt: skip
        cell.fact(SUBJECTS.fact_queue(queue.name), QueueSeen(queue))
    cell.run(a_job("e", chips=8, replicas=2, queue="ads", priority=5))
    for name, pods in (("v", 1), ("w", 1), ("x", 2)):
        cell.now_ms += 1000
        cell.run(a_job(name, chips=8, replicas=pods, queue="ads"))
    cell.now_ms += 1000
    cell.run(a_job("y", chips=8, queue="oth"))
    cell.break_chip("b")
    cell.ask(a_job("p", chips=8, queue="res"))
    assert [one.name for one in cell.turns() if one.kind == "Reclaimed"] == ["x"], "the others are within"


def test_a_gang_that_is_over_in_the_round_counts_no_more() -> None:
    below = [Queue(name, parent="lab", deserved=limits(8)) for name in "xy"]
    queues = (
        Queue("lab", deserved=limits(16)), *below, Queue("res", deserved=limits(8)),
        Queue("oth", deserved=limits(8), reclaimable=False),
    )  # fmt: skip
    seat = seat_of("a", "b", "c", "d", queues=queues)
    halves = [Task(f"t-{node}", 1, 4, node_selector=on(node)) for node in "cd"]
    jobs = [a_job(f"x{at}", chips=8, queue="x", node_selector=on(node)) for at, node in ((1, "a"), (2, "b"))]
    jobs += [a_job("y1", queue="y", tasks=halves), a_job("o1", queue="oth", tasks=halves)]
    for at_ms, job in enumerate(jobs, start=1):
        seat.job(job)
        made(seat, at_ms)
    seat.ended("y1")
    seat.job(a_job("p", chips=8, queue="res"))
    record = made(seat, 100)
    assert (ended(record), held(seat, "lab")) == ([], 16), "the queue is at its entitlement then"


def test_a_rank_that_waits_for_a_place_is_charged_to_its_gang() -> None:
    for lost in ([], [1]):
        cell = PreemptionCell(leaves(1, 2), Queue("ads", capability=chips(16)), preempt=2)
        cell.place(a_job("v", chips=8, replicas=2, queue="ads"))
        if lost:
            cell.release(Release("uid-v", 1, "fault", ranks=lost))
        round_ = nothing_changes(cell.state, cell.scheduler.new_scorer(), cell.now_ms, lambda _: None)
        gang = gang_of_request(cell.state, a_job("p", chips=8, replicas=2, queue="ads", priority=9))
        found = Search(ground_of(round_, changed_by(round_)), Terms()).find(Preemptor(gang))
        assert isinstance(found, VictimSet)
        assert [one.uid for one in found.victims] == ["uid-v"]


def test_a_limit_that_is_the_entitlement_counts_once() -> None:
    queues = (Queue("q", capability=chips(10), deserved=chips(10)), Queue("other"))
    cell = PreemptionCell(leaves(1, 3), *queues)
    cell.runs(a_job("v1", chips=2, replicas=3, queue="q", node_selector=on("0-1")), surplus=(2, 1))
    cell.runs(a_job("v2", chips=4, queue="q", priority=1, node_selector=on("0-2")))
    cell.runs(a_job("keeps", chips=4, queue="other", node_selector=on("0-2")), is_preemptable=False)
    assert cell.victims(a_job("p", chips=8, queue="q", priority=9)) == ["v1", "v2"]


def test_those_that_ended_for_others_count_for_their_queue_while_they_wait() -> None:
    queues = (Queue("ads"), Queue("res", deserved=limits(24)))
    seat = seat_of("a", "b", "c", queues=queues, queue_evictions_per_hour=1)
    for at_ms, name in enumerate(("v1", "v2", "v3"), start=1):
        seat.job(a_job(name, chips=8, queue="ads"))
        made(seat, at_ms)
    seat.job(a_job("p0", chips=8, queue="res"))
    (first,) = ended(made(seat, 1000))
    gone(seat, first)
    made(seat, 1010)
    assert placed(made(seat, 1011)) == {"p0": ["a"]}
    seat.job(a_job("p1", chips=8, queue="res"))
    assert ended(made(seat, 2000)) == []
