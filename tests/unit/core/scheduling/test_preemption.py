"""Gangs that end for others: their places are reserved by the same record, and given once they have left."""

from collections.abc import Iterable, Sequence

import msgspec
import pytest

from berth.core.errors import InvariantError
from berth.core.explain.refusal_text import sentence
from berth.core.scheduling.rules.preemption import LATER_MS, SLACK_MS
from berth.core.state.invariants import check
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import NodeHealth, PodPhase, PodsSeen, TimerSeen
from berth.schemas.intake import Preemption, Task
from berth.schemas.ledger import Round, Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import Queue
from berth.schemas.refusal import RULE
from tests.support.cells import a_job
from tests.support.queue_cells import limits
from tests.unit.core.scheduling.test_scheduler import Seat, restarted

GRACE_MS = Settings().grace_over_ms
KEEPS = Preemption(preemptable=False)


def seat_of(*nodes: str, low: Iterable[str] = ("low",), preempt: int = 2, chips: int = 8) -> Seat:
    """Nodes that gangs of a low priority fill."""
    seat = Seat(*nodes, preempt=preempt)
    for name in low:
        seat.job(a_job(name, chips=chips))
        seat.round(at_ms=1)
    return seat


def gone(seat: Seat, name: str) -> None:
    """The pods of a gang are gone."""
    pods_of(seat, name, PodPhase.GONE)


def pods_of(seat: Seat, name: str, phase: PodPhase, *, chips: int = 0, budgets: Sequence[str] = ()) -> None:
    """The pods of a gang are in a phase."""
    holding = next(holding for holding in seat.state.fold.holdings.values() if holding.name == name)
    nodes = sorted(set(names := holding.placement.names()))
    index = pack([nodes.index(node) for node in names], 4)
    ranks = pack(range(len(names)), 4)
    pods = bytes([phase] * len(names)), pack([chips] * len(names), 8)
    fact = PodsSeen("default", name, holding.uid, holding.attempt, ranks, pack_names(nodes), index, *pods)
    seat.fact(f"pod.default.{name}", msgspec.structs.replace(fact, budgets=list(budgets)))


def made(seat: Seat, at_ms: int) -> Round:
    """A round of which a reader that begins now makes the same record."""
    other = restarted(seat)
    record = seat.round(at_ms=at_ms)
    assert record is not None
    assert other.round(at_ms=at_ms) == record
    check(seat.state)
    return record


def ended(record: Round) -> list[str]:
    return [one.name for one in record.recoveries]


def placed(record: Round) -> dict[str, list[str]]:
    return {one.name: one.placement.names() for one in record.verdicts if one.placement is not None}


def test_a_gang_of_higher_priority_gets_the_place_of_a_lower_one_as_soon_as_its_pods_are_gone() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1))
    record = made(seat, 100)
    (step,) = record.recoveries
    assert (step.name, step.kind, step.scope, step.how, step.ranks, step.until_ms) == (
        "low", "Preempted", "job", "grace", [0], 100 + GRACE_MS,
    )  # fmt: skip
    assert step.cause == "preempted for a job of priority 1, above 0, that needs 8 chips in one node"
    (reserved,) = record.reserved
    assert (reserved.name, [one.uid for one in reserved.awaits]) == ("high", ["uid-low"])
    assert reserved.until_ms == 100 + GRACE_MS + SLACK_MS
    (verdict,) = record.verdicts
    assert verdict.refusal is not None
    assert (verdict.name, verdict.refusal.code, verdict.refusal.ahead) == ("high", RULE, "default/low")
    assert seat.round(at_ms=200) is None
    gone(seat, "low")
    assert [one.again for one in made(seat, 300).releases] == [True]
    assert placed(made(seat, 301)) == {"high": ["a"]}
    assert seat.state.fold.held == {}
    seat.ended("high")
    made(seat, 400)
    assert placed(made(seat, 401)) == {"low": ["a"]}


@pytest.mark.parametrize("nodes", ["ab", "ba"])
def test_of_places_for_which_the_same_gang_ends_the_first_by_name_is_reserved(nodes: str) -> None:
    seat = Seat(*nodes, preempt=2)
    seat.job(a_job("low", chips=8, replicas=2))
    seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, priority=1))
    (reserved,) = made(seat, 100).reserved
    assert reserved.placement.names() == ["a"]


def test_nobody_ends_for_others_unless_it_is_set() -> None:
    seat = seat_of("a", preempt=0)
    seat.job(a_job("high", chips=8, priority=1))
    record = made(seat, 100)
    assert (ended(record), record.reserved) == ([], [])


@pytest.mark.parametrize(
    ("declared", "level", "ends"),
    [
        (None, 2, True),
        (None, 1, False),
        (Preemption(is_declared=True), 1, True),
        (KEEPS, 2, False),
        (Preemption(critical=True), 2, False),
        (Preemption(cooldown_s=60), 2, False),
    ],
)
def test_who_may_end_is_what_the_gang_declares_and_the_setting(
    declared: Preemption | None, level: int, *, ends: bool
) -> None:
    seat = Seat("a", preempt=level)
    seat.job(a_job("low", chips=8, preemption=declared))
    seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, priority=1))
    assert (ended(made(seat, 100)) == ["low"]) is ends


def test_for_a_gang_that_never_preempts_nobody_ends() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1, preemption=Preemption(never=True)))
    assert ended(made(seat, 100)) == []


def test_chips_that_are_left_one_after_another_are_kept_for_the_gang() -> None:
    seat = seat_of("a", low=("one", "two"), chips=4)
    seat.job(a_job("high", chips=8, priority=1))
    assert ended(made(seat, 100)) == ["one", "two"]
    gone(seat, "one")
    made(seat, 200)
    seat.job(a_job("small", chips=1, priority=1))
    assert placed(made(seat, 201)) == {}
    gone(seat, "two")
    made(seat, 300)
    assert placed(made(seat, 301)) == {"high": ["a"]}


def test_a_gang_of_higher_priority_takes_the_place_that_is_reserved_for_another_one() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    seat.job(a_job("higher", chips=8, priority=2))
    record = made(seat, 200)
    assert [(one.name, one.ranks) for one in record.held] == [("high", [])]
    (reserved,) = record.reserved
    assert (reserved.name, [one.uid for one in reserved.awaits], ended(record)) == ("higher", ["uid-low"], [])
    made(seat, 201)
    gone(seat, "low")
    made(seat, 300)
    assert placed(made(seat, 301)) == {"higher": ["a"]}
    seat.ended("higher")
    made(seat, 400)
    assert placed(made(seat, 401)) == {"high": ["a"]}
    assert seat.state.fold.held == {}


def test_a_gang_for_which_nobody_ends_gets_the_place_that_others_leave_for_one_of_lower_priority() -> None:
    seat = seat_of("a")
    seat.job(a_job("waits", chips=8, priority=2, preemption=Preemption(never=True)))
    assert made(seat, 100).reserved == []
    seat.job(a_job("high", chips=8, priority=1))
    assert [one.name for one in made(seat, 200).reserved] == ["high"]
    assert seat.scheduler.queue.retry_at_ms == 200
    seat.fact("timer", TimerSeen(201))
    record = made(seat, 201)
    assert [(one.name, one.ranks) for one in record.held] == [("high", [])]
    assert [one.name for one in record.reserved] == ["waits"]
    made(seat, 202)
    gone(seat, "low")
    made(seat, 300)
    assert placed(made(seat, 301)) == {"waits": ["a"]}


def test_what_others_have_left_already_goes_along_with_the_place() -> None:
    seat = seat_of("a", low=("one", "two"), chips=4)
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    gone(seat, "one")
    made(seat, 200)
    seat.job(a_job("higher", chips=8, priority=2))
    (reserved,) = made(seat, 300).reserved
    assert (reserved.name, [one.uid for one in reserved.awaits]) == ("higher", ["uid-two"])
    gone(seat, "two")
    made(seat, 400)
    assert placed(made(seat, 401)) == {"higher": ["a"]}


def test_a_gang_that_gets_the_place_of_others_takes_no_reservation_from_the_next_one() -> None:
    seat = Seat("a", "b", preempt=2, queue_policy="easy", reserve_chips=8)
    seat.job(a_job("low", chips=8, replicas=2))
    seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, priority=1))
    assert [one.name for one in made(seat, 100).reserved] == ["high"]
    seat.begin(preempt=2, queue_policy="easy", reserve_chips=8)  # all are tried again
    seat.job(a_job("next", chips=8, replicas=2))
    starts = {one.name: one.refusal.start_ms > 0 for one in made(seat, 101).verdicts if one.refusal is not None}
    assert starts == {"high": False, "next": True}


def test_what_others_have_left_of_a_reserved_place_counts_for_reservations() -> None:
    seat = Seat("a", "b", preempt=2, queue_policy="easy", reserve_chips=16)
    for name in ("one", "two"):
        seat.job(a_job(name, chips=8))
        seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, replicas=2, priority=1))
    (reserved,) = made(seat, 100).reserved
    seat.job(a_job("later", chips=8, replicas=2))
    made(seat, 101)
    gone(seat, "one")
    seat.job(a_job("later", chips=8, replicas=2), state="cancelled")
    made(seat, 200)
    seat.job(a_job("last", tasks=[Task("worker", 2, 8, 1)]))
    starts = {one.name: one.refusal.start_ms for one in made(seat, 201).verdicts if one.refusal is not None}
    assert starts == {"one": 0, "last": reserved.until_ms}


def test_a_gang_of_equal_priority_does_not_take_a_reserved_place() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    seat.job(a_job("equal", chips=8, priority=1))
    record = made(seat, 200)
    assert (record.held, record.reserved) == ([], [])


def test_where_others_may_end_a_reserved_place_is_left_alone() -> None:
    seat = seat_of("a", "b", low=("one", "two"))
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    seat.job(a_job("higher", chips=8, priority=2))
    record = made(seat, 200)
    assert (record.held, [one.name for one in record.reserved]) == ([], ["higher"])
    assert len(ended(record)) == 1


def test_what_is_free_of_the_place_is_kept_at_once() -> None:
    seat = seat_of("a", low=("low",), chips=4)
    seat.job(a_job("high", chips=8, priority=1))
    assert ended(made(seat, 100)) == ["low"]
    seat.job(a_job("small", chips=1))
    assert placed(made(seat, 200)) == {}


def test_of_two_gangs_for_one_place_the_first_in_order_gets_it() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1))
    seat.job(a_job("higher", chips=8, priority=2))
    record = made(seat, 100)
    assert (ended(record), [one.name for one in record.reserved]) == (["low"], ["higher"])


def test_a_gang_that_is_cancelled_leaves_its_place_and_those_that_were_told_to_leave_leave() -> None:
    seat = seat_of("a")
    high = a_job("high", chips=8, priority=1)
    seat.job(high)
    made(seat, 100)
    seat.job(high, state="cancelled")
    record = made(seat, 200)
    assert [(one.name, one.ranks) for one in record.held] == [("high", [])]
    gone(seat, "low")
    made(seat, 300)
    assert placed(made(seat, 301)) == {"low": ["a"]}


def test_a_place_whose_node_fails_is_no_longer_reserved_and_the_gang_is_tried_at_once() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    seat.ill("a", NodeHealth.NO_NEW_WORK)
    record = made(seat, 200)
    assert [(one.name, one.ranks) for one in record.held] == [("high", [])]
    assert seat.state.fold.held == {}


def test_gangs_that_do_not_leave_in_time_keep_the_gang_waiting_for_a_while() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    late_ms = 100 + GRACE_MS + SLACK_MS
    record = made(seat, late_ms)
    (verdict,) = record.verdicts
    assert verdict.refusal is not None
    assert verdict.refusal.retry_ms == late_ms + Settings().preempt_backoff_s * 1_000
    assert sentence(verdict.refusal) == (
        "the pod of rank 0 of default/low on a was told to end at 1970-01-01T00:00:00Z and has not: the place that was"
        " reserved for this job is given up, and it is tried again at 1970-01-01T00:20:30Z"
    )
    assert seat.state.fold.held == {}


def test_a_place_is_reserved_once_more_where_pods_are_not_deleted_at_once() -> None:
    seat = Seat("a", preempt=2, preempt_force=False, preempt_backoff_s=60)
    seat.job(a_job("low", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, priority=1))
    (step,) = made(seat, 100).recoveries
    assert (step.how, step.until_ms) == ("grace", 0)
    lasts_ms = GRACE_MS + SLACK_MS
    record = made(seat, 100 + lasts_ms)
    (reserved,) = record.reserved
    assert (reserved.is_prolonged, reserved.until_ms) == (True, 100 + 2 * lasts_ms)
    assert [one.refusal is not None and sentence(one.refusal) for one in record.verdicts] == [
        "default/low did not end in time; its place is reserved once more for as long"
    ]
    assert [held.until_ms for held in seat.state.fold.held.values()] == [100 + 2 * lasts_ms]
    late_ms = 100 + 2 * lasts_ms
    record = made(seat, late_ms)
    (verdict,) = record.verdicts
    assert (verdict.refusal is not None and verdict.refusal.retry_ms, record.reserved) == (late_ms + 60_000, [])
    assert seat.state.fold.held == {}


def test_who_leaves_within_the_longer_time_makes_room() -> None:
    seat = Seat("a", preempt=2, preempt_force=False)
    seat.job(a_job("low", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, priority=1))
    made(seat, 100)
    late_ms = 100 + GRACE_MS + SLACK_MS
    made(seat, late_ms)
    gone(seat, "low")
    made(seat, late_ms + 1)
    assert placed(made(seat, late_ms + 2)) == {"high": ["a"]}


def test_a_gang_ends_for_others_so_often_in_an_hour_at_most() -> None:
    seat = Seat("a", preempt=2, evictions_per_hour=1)
    seat.job(a_job("low", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, priority=1))
    assert ended(made(seat, 100)) == ["low"]
    gone(seat, "low")
    made(seat, 200)
    made(seat, 201)
    seat.ended("high")
    made(seat, 300)
    made(seat, 301)
    seat.job(a_job("next", chips=8, priority=1))
    assert ended(made(seat, 400)) == []


def test_a_gang_waits_until_another_has_run_for_long_enough() -> None:
    seat = Seat("a", preempt=2, preempt_min_run_s=60)
    seat.job(a_job("low", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("high", chips=8, priority=1))
    assert ended(made(seat, 100)) == []
    later_ms = 100 + LATER_MS
    assert seat.scheduler.queue.retry_at_ms == later_ms
    seat.fact("timer", TimerSeen(later_ms))
    assert ended(made(seat, later_ms)) == ["low"]


def test_a_queue_gets_back_what_it_is_entitled_to_from_one_that_borrows() -> None:
    """Their jobs have equal priorities."""
    seat = Seat("a", "b", preempt=2, queues=1)
    for queue in (Queue("ads"), Queue("research", deserved=limits(8))):
        seat.fact(f"queue.{queue.name}", QueueSeen(queue))
    for name in ("one", "two"):
        seat.job(a_job(name, chips=8, queue="ads"))
        made(seat, 1)
    seat.job(a_job("mine", chips=8, queue="research"))
    record = made(seat, 100)
    (step,) = record.recoveries
    assert (step.name, step.kind) == ("one", "Reclaimed")
    assert step.cause == (
        "reclaimed for a job of another queue that needs 8 chips in one node:"
        " its queue has 0 of 8 huawei.com/Ascend910, this one has 16 of 0 huawei.com/Ascend910"
    )
    seat.job(a_job("more", chips=8, queue="research"))
    assert ended(made(seat, 200)) == []


def test_a_place_is_reserved_for_a_gang_that_waits_alone() -> None:
    seat = seat_of("a")
    seat.job(a_job("high", chips=8, priority=1))
    opening = seat.scheduler.open(100).opening
    assert opening is not None
    record = seat.scheduler.decide(opening).round
    (reserved,) = record.reserved
    twice = Round(
        record.epoch, record.base_seq, record.facts_seq, 100, record.number, record.verdicts,
        recoveries=record.recoveries, reserved=[reserved, reserved],
    )  # fmt: skip
    with pytest.raises(InvariantError, match="holds places twice"):
        seat.state.apply_record(seat.state.fold.head + 1, seat.state.fold.encoded(twice))
