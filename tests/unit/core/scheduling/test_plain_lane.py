"""The lane of jobs without chips: they wait behind nobody, block nobody, and leave reservations what they count."""

import pytest

from berth.core.scheduling.reservations import FOREVER_MS
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from tests.support.cells import a_job
from tests.unit.core.placement.test_chooser import nodes_by_job, on
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.core.scheduling.test_scheduler_policies import told

POLICIES = ("fifo", "skip", "easy", "conservative")
NODE_CPU = 192_000


def plain(name: str, cpu: int = 1_000, *, pods: int = 1, **changes: object) -> JobRequest:
    return a_job(name, tasks=[Task("web", pods, 0, cpu)], **changes)  # type: ignore[arg-type]  # fields of a request


def large(name: str, *, cpu: int = 0, pods: int = 2, **changes: object) -> JobRequest:
    return a_job(name, tasks=[Task("worker", pods, 8, cpu)], **changes)  # type: ignore[arg-type]  # as above


def seat_of(*nodes: str, **settings: object) -> Seat:
    return Seat(*nodes, **{"reserve_chips": 16, "unknown_run_ms": 100_000} | settings)


def placed(record: Round | None) -> list[str]:
    return [one.name for one in (record.verdicts if record is not None else []) if one.placement is not None]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_without_chips_waits_behind_no_job_that_waits_for_chips(policy: str) -> None:
    seat = seat_of("a", "b", queue_policy=policy)
    seat.job(large("runs"))
    seat.round()
    seat.job(large("head", priority=5))
    seat.job(large("next"))
    seat.round()
    seat.job(plain("web"))
    record = seat.round()
    assert placed(record) == ["web"]
    assert seat.round() is None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_without_chips_that_finds_no_room_blocks_nobody(policy: str) -> None:
    seat = seat_of("a", "b", queue_policy=policy)
    seat.job(plain("huge", 200_000, priority=9))
    assert told(seat.round()) == {"huge": ("no-room", 0)}
    seat.job(large("two"))
    assert placed(seat.round()) == ["two"]
    seat.job(plain("small"))
    seat.job(plain("other", 500))
    assert sorted(placed(seat.round())) == ["other", "small"]
    assert seat.round() is None


def test_a_round_takes_from_both_lanes_with_the_bounds_of_a_round_each() -> None:
    seat = seat_of("a", "b", round_gangs_max=2)
    for number in range(3):
        seat.job(plain(f"p{number}", priority=9))
        seat.job(a_job(f"c{number}"))
    assert [name for name, _ in seat.verdicts()] == ["c0", "c1", "p0", "p1"]
    assert [name for name, _ in seat.verdicts()] == ["c2", "p2"]


def test_jobs_without_chips_keep_their_order_among_themselves() -> None:
    seat = seat_of("a", queue_policy="fifo")
    for name, priority in (("low", 0), ("high", 3), ("mid", 1)):
        seat.job(plain(name, 100_000, priority=priority))
    assert list(seat.verdicts()) == [("high", True), ("mid", False), ("low", False)]
    seat.ended("high")
    seat.round()
    assert list(seat.verdicts()) == [("mid", True), ("low", False)]


def reserved(policy: str = "easy", *, cpu: int = 100_000, **settings: object) -> Seat:
    """Two nodes: one is full until 50,005, and a job of both has a reservation from then on."""
    seat = seat_of("a", "b", queue_policy=policy, **settings)
    seat.job(on("a", "runs", tasks=[Task("worker", 1, 8, 100_000)], run_ms=50_000))
    seat.round(at_ms=5)
    seat.job(large("head", cpu=cpu))
    assert told(seat.round(at_ms=6)) == {"head": ("no-room", 50_005)}
    return seat


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_a_job_without_chips_takes_no_cpu_that_a_reservation_counts(policy: str) -> None:
    seat = reserved(policy)
    # Free now are 92,000 on a and 192,000 on b; the reservation counts 100,000 on each, which a gets back by then.
    seat.job(plain("fits", 92_000, pods=2))
    assert placed(seat.round(at_ms=7)) == ["fits"]
    assert nodes_by_job(seat)["fits"] == ["a", "b"] or nodes_by_job(seat)["fits"] == ["b", "a"]
    seat.job(plain("more", 1_000))
    assert told(seat.round(at_ms=8)) == {"more": ("reserved", 50_005)}
    refusal = seat.state.fold.gangs["uid-more"].refusal
    assert refusal is not None
    assert (refusal.ahead, refusal.nodes_fit, refusal.nodes_total) == ("default/head", 1, 2)
    assert seat.round(at_ms=9) is None
    seat.ended("runs")
    record = seat.round(at_ms=10)
    while record is not None and "head" not in placed(record):
        record = seat.round(at_ms=10)
    assert record is not None
    assert sorted(nodes_by_job(seat)["head"]) == ["a", "b"]


def test_memory_that_a_reservation_counts_is_left_free_too() -> None:
    seat = seat_of("a", "b", queue_policy="easy")
    seat.job(on("a", "runs", tasks=[Task("worker", 1, 8, 0, 1_000_000)], run_ms=50_000))
    seat.round(at_ms=5)
    seat.job(a_job("head", tasks=[Task("worker", 2, 8, 0, 1_000_000)]))
    seat.round(at_ms=6)
    seat.job(a_job("web", tasks=[Task("web", 1, 0, 0, 500_001)]))
    assert told(seat.round(at_ms=7)) == {"web": ("reserved", 50_005)}
    seat.job(a_job("less", tasks=[Task("web", 1, 0, 0, 500_000)]))
    assert placed(seat.round(at_ms=8)) == ["less"]


def test_a_job_without_chips_that_ends_before_the_reservation_begins_may_take_what_it_counts() -> None:
    seat = reserved()
    seat.job(plain("long", 150_000, run_ms=60_000))
    assert told(seat.round(at_ms=7)) == {"long": ("reserved", 50_005)}
    seat.job(plain("short", 150_000, run_ms=49_000))
    assert placed(seat.round(at_ms=8)) == ["short"]


def test_after_a_short_job_started_others_of_the_round_leave_free_what_is_still_counted() -> None:
    seat = reserved()
    seat.job(plain("short", 92_000, run_ms=1_000, priority=2))
    seat.job(plain("short-too", 92_000, run_ms=1_000, priority=2))
    seat.job(plain("forever", 90_000))
    assert sorted(placed(seat.round(at_ms=7))) == ["forever", "short", "short-too"]


def test_a_job_without_chips_that_fits_nowhere_sleeps_although_room_is_reserved() -> None:
    seat = reserved()
    seat.job(plain("huge", 193_000))
    assert told(seat.round(at_ms=7)) == {"huge": ("no-room", 0)}
    refusal = seat.state.fold.gangs["uid-huge"].refusal
    assert refusal is not None
    assert refusal.nodes_fit == 0


def test_it_is_tried_again_when_the_reservation_is_gone() -> None:
    seat = reserved()
    seat.job(plain("web", 150_000))
    assert told(seat.round(at_ms=7)) == {"web": ("reserved", 50_005)}
    other = restarted(seat)
    for one in (seat, other):
        assert one.round(at_ms=8) is None
        one.job(large("head", cpu=100_000), state="cancelled")
        assert placed(one.round(at_ms=9)) == ["web"]


def test_several_of_a_class_are_refused_for_one_reservation_in_one_round() -> None:
    seat = reserved()
    for number in range(3):
        seat.job(plain(f"w{number}", 150_000))
    assert told(seat.round(at_ms=7)) == dict.fromkeys(("w0", "w1", "w2"), ("reserved", 50_005))
    seat.job(plain("late", 150_000))
    assert told(seat.round(at_ms=8)) == {"late": ("reserved", 50_005)}


def test_what_jobs_give_back_before_a_reservation_begins_is_not_left_free() -> None:
    seat = reserved(cpu=92_000)
    seat.job(plain("web", 92_000))
    seat.job(plain("api", 92_000))
    seat.round(at_ms=7)
    assert sorted(name for name in nodes_by_job(seat) if name != "runs") == ["api", "web"]
    seat.job(plain("more", 8_001))
    assert told(seat.round(at_ms=8)) == {"more": ("reserved", 50_005)}
    seat.job(plain("less", 8_000))
    assert placed(seat.round(at_ms=9)) == ["less"]


def test_a_service_runs_forever_and_no_reservation_waits_for_its_end() -> None:
    seat = seat_of("a", "b", queue_policy="easy")
    seat.job(on("a", "web", tasks=[Task("web", 1, 0, 150_000)]))
    seat.round(at_ms=5)
    seat.job(large("head", cpu=100_000))
    assert told(seat.round(at_ms=6)) == {"head": ("no-room", 0)}
    seat.job(on("b", "job", tasks=[Task("web", 1, 0, 150_000)], run_ms=1_000))
    seat.round(at_ms=7)
    seat.job(on("b", "one", tasks=[Task("worker", 1, 8, 100_000)]))
    seat.job(large("one-more", cpu=0))
    record = seat.round(at_ms=8)
    assert placed(record) == ["one-more"]
    assert all(start_ms < FOREVER_MS for _, start_ms in told(record).values())


def test_a_job_with_chips_and_a_master_waits_as_jobs_with_chips_do() -> None:
    seat = seat_of("a", queue_policy="fifo")
    for name in ("runs", "head"):
        seat.job(large(name, pods=1))
    seat.round()
    seat.job(a_job("mixed", tasks=[Task("master", 1, 0), Task("worker", 1, 1)]))
    assert told(seat.round()) == {"mixed": ("behind", 0)}


@pytest.mark.parametrize("policy", POLICIES)
def test_cpu_that_becomes_free_wakes_a_job_without_chips(policy: str) -> None:
    seat = seat_of("a", queue_policy=policy)
    seat.job(plain("one", 150_000))
    seat.job(plain("two", 150_000))
    assert list(seat.verdicts()) == [("one", True), ("two", False)]
    seat.ill("a", NodeHealth.SUB_HEALTHY)
    assert seat.round() is None
    seat.ended("one")
    seat.round()
    assert placed(seat.round()) == ["two"]
