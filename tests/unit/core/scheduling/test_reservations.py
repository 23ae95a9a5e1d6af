"""When a large gang is expected to start: after evictions, while pods terminate, after a round that is not stored."""

from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_scheduler import Seat
from tests.unit.core.scheduling.test_scheduler_policies import told


def a_seat() -> Seat:
    """A job of one second on one of two nodes."""
    seat = Seat("a", "b", queue_policy="easy", reserve_chips=16, unknown_run_ms=5_000)
    seat.job(a_job("first", chips=8, run_ms=1_000))
    seat.round(at_ms=1)
    return seat


def terminating(seat: Seat) -> None:
    (holding,) = seat.state.fold.holdings.values()
    (node,) = holding.placement.names()
    fact = PodsSeen(
        "default", "first", holding.uid, 1, pack([0], 4), pack_names([node]), pack([0], 4),
        pack([PodPhase.TERMINATING], 1), pack([0xFF], 8),
    )  # fmt: skip
    seat.fact("pod.default.first", fact)


def test_a_large_gang_starts_when_the_one_that_runs_has_run_as_long_as_it_says() -> None:
    seat = a_seat()
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}


def test_chips_of_pods_that_terminate_are_given_back_as_others_are() -> None:
    seat = a_seat()
    terminating(seat)
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}


def test_an_attempt_that_is_being_deleted_is_expected_to_end_at_once() -> None:
    seat = a_seat()
    seat.job(a_job("first", chips=8, run_ms=1_000), state="cancelled")
    record = seat.round(at_ms=50)
    assert record is not None
    assert [eviction.uid for eviction in record.evictions] == ["uid-first"]
    seat.job(a_job("large", chips=8, replicas=2))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100)}


def test_placements_of_a_round_that_was_never_stored_delay_no_reservation() -> None:
    seat = a_seat()
    seat.job(a_job("other", chips=8, run_ms=50_000, priority=1))
    seat.job(a_job("large", chips=8, replicas=2))
    opening = seat.scheduler.open(100).opening
    assert opening is not None
    assert told(seat.scheduler.decide(opening).round) == {"large": ("no-room", 50_100)}
    seat.scheduler.take_back(opening)
    seat.job(a_job("other", chips=8, run_ms=50_000, priority=1), state="cancelled")
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1_001)}
