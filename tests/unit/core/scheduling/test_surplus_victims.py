"""Elastic gangs give up ranks beyond their minimum for others, and get them back once nobody before them waits."""

import pytest

from berth.core.explain.job_status import status_of
from berth.core.scheduling.rules.preemption import SLACK_MS
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Preemption
from berth.schemas.ledger import Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.recovery import Awaited
from tests.support.cells import a_job
from tests.support.queue_cells import NPU, limits
from tests.unit.core.scheduling.test_preemption import ended, made, placed
from tests.unit.core.scheduling.test_scheduler import Seat

GRACE_MS = Settings().grace_over_ms


def elastic(name: str = "low", *, pods: int = 4, least: int = 2, chips: int = 4, **more: object) -> JobRequest:
    return a_job(name, chips=chips, replicas=pods, min_available=least, **more)  # type: ignore[arg-type]  # as below it


def seat_of(*nodes: str, job: JobRequest | None = None, **settings: object) -> Seat:
    """Nodes on which a gang runs of which some pods may leave."""
    seat = Seat(*nodes, **{"preempt": 2, **settings})
    seat.job(job if job is not None else elastic())
    made(seat, 1)
    shows(seat, "low")
    return seat


def shows(seat: Seat, name: str) -> None:
    """The pods of a gang run where its ranks are; those that leave, and are not among them, are gone."""
    holding = next(holding for holding in seat.state.fold.holdings.values() if holding.name == name)
    ranks = [rank for rank in range(holding.placement.pods()) if rank not in {*holding.gone, *holding.leaving()}]
    names = [holding.placement.names()[rank] for rank in ranks]
    nodes = sorted(set(names))
    steps = pack([holding.step_of(rank) for rank in ranks], 4)
    fact = PodsSeen(
        "default", name, holding.uid, holding.attempt, pack(ranks, 4), pack_names(nodes),
        pack([nodes.index(node) for node in names], 4), pack([PodPhase.RUNNING] * len(ranks), 1),
        pack([0] * len(ranks), 8), steps=steps,
    )  # fmt: skip
    seat.fact(f"pod.default.{name}", fact)


def taken_up(seat: Seat, name: str) -> None:
    """The binder has deleted the pods that leave."""
    holding = next(holding for holding in seat.state.fold.holdings.values() if holding.name == name)
    fact = OutcomeSeen("default", name, holding.uid, holding.attempt, "bound", at_ms=1, step=holding.step)
    seat.fact(f"outcome.default.{name}", fact)
    shows(seat, name)


def words(seat: Seat, name: str) -> str:
    status = status_of(seat.state, ("default", name), at_ms=1)
    assert status is not None
    return status.sentence


def test_ranks_beyond_the_minimum_leave_alone_and_come_back_when_there_is_room() -> None:
    seat = seat_of("a", "b")
    seat.job(a_job("high", chips=8, priority=1))
    record = made(seat, 100)
    (step,) = record.recoveries
    assert (step.name, step.kind, step.scope, step.how, step.ranks, step.faulty) == (
        "low", "Preempted", "pod", "grace", [2, 3], [],
    )  # fmt: skip
    (reserved,) = record.reserved
    assert reserved.awaits == [Awaited("uid-low", 1, [2, 3])]
    assert reserved.until_ms == 100 + GRACE_MS + SLACK_MS
    assert words(seat, "low") == f"gives up ranks 2,3: {step.cause}"
    assert words(seat, "high") == "its place is reserved; it starts once default/low has made room"
    taken_up(seat, "low")
    record = made(seat, 200)
    assert [one.ranks for one in record.releases] == [[2, 3]]
    assert words(seat, "low") == f"gave up ranks 2,3: {step.cause}"
    assert placed(made(seat, 201)) == {"high": ["b"]}
    nothing = seat.round(at_ms=300)
    assert nothing is not None
    assert nothing.recoveries == []  # there is no room for them
    assert seat.round(at_ms=301) is None
    seat.ended("high")
    made(seat, 400)
    (step,) = made(seat, 401).recoveries
    assert (step.name, step.scope, step.how, step.ranks) == ("low", "pod", "place", [2, 3])
    holding = seat.state.fold.holdings["uid-low", 1]
    assert (holding.gone, holding.given_up, holding.placement.names()) == ([], [], ["a", "a", "b", "b"])
    shows(seat, "low")
    assert words(seat, "low") == ""


def test_no_more_ranks_leave_than_are_needed_and_the_last_ones_first() -> None:
    seat = seat_of("a", "b")
    seat.job(a_job("high", chips=4, priority=1))
    (step,) = made(seat, 100).recoveries
    assert step.ranks == [3]


def test_a_gang_gives_up_its_surplus_once_and_then_it_ends_as_a_whole() -> None:
    seat = seat_of("a", "b")
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    seat.job(a_job("more", chips=8, priority=1))
    record = made(seat, 101)
    assert (ended(record), record.reserved) == ([], [])  # while ranks of it leave nothing more is asked of it
    taken_up(seat, "low")
    made(seat, 200)
    record = made(seat, 201)
    assert placed(record) == {"high": ["b"]}
    seat.job(a_job("third", chips=8, priority=1))
    (step,) = made(seat, 202).recoveries
    assert (step.name, step.scope, step.ranks) == ("low", "job", [0, 1])


@pytest.mark.parametrize(
    "job",
    [
        elastic(least=0),
        elastic(least=4),
        elastic(origin="ascend-job"),
        elastic(labels={"ring-controller.atlas": "ascend-910b", "accelerator-type": "module-910b-8"}),
    ],
    ids=["no minimum", "all are needed", "an AscendJob", "a rank table"],
)
def test_others_end_as_a_whole(job: JobRequest) -> None:
    seat = seat_of("a", "b", job=job)
    seat.job(a_job("high", chips=4, priority=1))
    (step,) = made(seat, 100).recoveries
    assert (step.scope, step.ranks) == ("job", [0, 1, 2, 3])


def test_a_minimum_run_time_protects_the_gang_and_not_its_surplus() -> None:
    seat = seat_of("a", "b", job=elastic(preemption=Preemption(cooldown_s=3_600)))
    seat.job(a_job("high", chips=8, priority=1))
    (step,) = made(seat, 100).recoveries
    assert (step.scope, step.ranks) == ("pod", [2, 3])


def test_ranks_come_back_after_gangs_that_are_before_them_and_before_others() -> None:
    seat = seat_of("a", "b")
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    taken_up(seat, "low")
    made(seat, 200)
    made(seat, 201)
    seat.job(a_job("next", chips=8, priority=1, preemption=Preemption(never=True)))
    seat.job(a_job("last", chips=8))
    made(seat, 300)
    seat.ended("high")
    made(seat, 400)
    record = made(seat, 401)
    assert (ended(record), placed(record)) == ([], {"next": ["b"]})
    seat.ended("next")
    made(seat, 500)
    record = made(seat, 501)
    assert (ended(record), placed(record)) == (["low"], {})


def test_the_queue_is_not_charged_for_what_left_and_lets_it_back_in() -> None:
    seat = Seat("a", "b", preempt=2, queues=1)
    seat.fact("queue.wide", QueueSeen(Queue("wide", capability=limits(16))))
    seat.job(elastic(queue="wide"))
    made(seat, 1)
    shows(seat, "low")
    seat.job(a_job("high", chips=8, priority=1, queue="wide"))
    made(seat, 100)
    shares = seat.state.queues.shares()
    assert shares is not None
    usage = seat.state.queues.usage(shares.tree)
    assert usage.held("wide", NPU) == limits(16)[NPU]  # half of the first, and what is reserved
    taken_up(seat, "low")
    made(seat, 200)
    made(seat, 201)
    seat.fact("queue.wide", QueueSeen(Queue("wide", capability=limits(12))))
    seat.ended("high")
    made(seat, 400)
    (step,) = made(seat, 401).recoveries
    assert step.ranks == [2]  # the queue has no room for both
