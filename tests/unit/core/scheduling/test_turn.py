"""Steps of a turn: each value is used once, changes are handed over whole, and asking for offers is bounded."""

from collections.abc import Callable

import pytest

from berth.core.changes import Changes
from berth.core.errors import InvariantError
from berth.core.placement.round_demand import NeedMoreError
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import ASKS_MAX, Asking, MissingShards, OffersExhaustedError, Opening
from berth.core.state.ledger import Folded
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_scheduler import Seat, restarted


@pytest.fixture
def seat() -> Seat:
    """A node and a job that waits."""
    found = Seat("a", "b")
    found.job(a_job("one", chips=8))
    return found


def opened(seat: Seat) -> Opening:
    opening = seat.scheduler.open(5).opening
    assert opening is not None
    return opening


def choose_twice(scheduler: Scheduler, opening: Opening) -> None:
    views = {shape: scheduler.scorer.candidates(shape, count) for shape, count in opening.asks.items()}
    scheduler.choose(opening, views, opening.asks, MissingShards())
    scheduler.choose(opening, views, opening.asks, MissingShards())


def record_twice(scheduler: Scheduler, opening: Opening) -> None:
    views = {shape: scheduler.scorer.candidates(shape, count) for shape, count in opening.asks.items()}
    choice = scheduler.choose(opening, views, opening.asks, MissingShards())
    scheduler.record(choice)
    scheduler.record(choice)


def decide_twice(scheduler: Scheduler, opening: Opening) -> None:
    scheduler.decide(opening)
    scheduler.decide(opening)


def adopt_twice(scheduler: Scheduler, opening: Opening) -> None:
    recorded = scheduler.decide(opening)
    state = scheduler.state
    scheduler.adopt(recorded, state.apply_record(state.fold.head + 1, state.fold.encoded(recorded.round)))
    scheduler.adopt(recorded, Folded())


def adopt_what_was_taken_back(scheduler: Scheduler, opening: Opening) -> None:
    recorded = scheduler.decide(opening)
    scheduler.take_back(recorded)
    scheduler.adopt(recorded, Folded())


def follow_twice(scheduler: Scheduler, opening: Opening) -> None:
    scheduler.follow(Folded(), opening)
    scheduler.follow(Folded(), opening)


def open_twice(scheduler: Scheduler, _: Opening) -> None:
    scheduler.open(6)


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (choose_twice, "round 1: the Opening of a turn was used before"),
        (record_twice, "round 1: the Choice of a turn was used before"),
        (decide_twice, "round 1: the Opening of a turn was used before"),
        (adopt_twice, "round 1: the turn was ended before"),
        (adopt_what_was_taken_back, "round 1: the turn was ended before"),
        (follow_twice, "round 1: the turn was ended before"),
        (open_twice, "round 1: the turn before is still open"),
    ],
)
def test_a_step_on_a_value_that_was_used_is_refused(
    seat: Seat, misuse: Callable[[Scheduler, Opening], None], words: str
) -> None:
    with pytest.raises(InvariantError) as error:
        misuse(seat.scheduler, opened(seat))
    assert str(error.value) == words


def test_the_next_turn_opens_once_the_one_before_has_ended(seat: Seat) -> None:
    seat.scheduler.take_back(opened(seat))
    seat.scheduler.take_back(seat.scheduler.decide(opened(seat)))
    assert dict(seat.verdicts()) == {"one": True}
    assert seat.scheduler.open(6).opening is None
    assert seat.scheduler.open(7).opening is None


def test_a_record_of_another_does_not_end_a_turn(seat: Seat) -> None:
    recorded = seat.scheduler.decide(opened(seat))
    seat.scheduler.follow(Folded(void="it is no record"))
    seat.scheduler.take_back(recorded)
    assert dict(seat.verdicts()) == {"one": True}


def test_changes_that_were_not_handed_over_are_noticed(seat: Seat) -> None:
    fold = seat.state.fold
    recorded = seat.scheduler.decide(opened(seat))
    folded = seat.state.apply_record(fold.head + 1, seat.state.fold.encoded(recorded.round))
    seat.scheduler.adopt(recorded, Folded(gangs=folded.gangs, taken=folded.taken))
    with pytest.raises(InvariantError, match="round 2: changes of facts or records were not handed over"):
        seat.scheduler.open(6)
    seat.scheduler.note(folded.changes)
    assert seat.scheduler.open(6).opening is None


def test_offers_are_asked_for_a_bounded_number_of_times(seat: Seat) -> None:
    opening = opened(seat)
    (shape,) = opening.asks
    asking = Asking(opening)
    counts: list[int] = []

    def never_enough() -> None:
        counts.append(asking.asks[shape])
        raise NeedMoreError(shape, 2 * asking.asks[shape])

    for _ in range(ASKS_MAX - 1):
        assert asking.tried(never_enough) is None
    with pytest.raises(OffersExhaustedError, match=f"round 1 ran out of offers {ASKS_MAX} times"):
        asking.tried(never_enough)
    assert counts == [2**power for power in range(ASKS_MAX)]
    assert opening.asks == {shape: 1}, "the opening stays as it is"


def test_a_snapshot_before_a_turn_keeps_what_changed_and_leads_to_the_same_record() -> None:
    seat = Seat("a", "b", "c", queue_policy="easy", reserve_chips=16, unknown_run_ms=10, corrections=1)
    seat.job(a_job("endless", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("large", chips=8, replicas=3))
    seat.job(a_job("small", chips=8))
    assert seat.round(at_ms=100) is not None
    seat.scheduler.note(
        Changes(
            capacity_gained={0: None},
            chips_taken={1: 0xF0},
            chips_returned={2: None},
            capacity_lost=True,
            nodes_changed=True,
            leaf_opened=True,
            queue_unblocked=True,
        )
    )
    before = seat.scheduler.dump()
    other = restarted(seat)
    assert other.scheduler.dump() == before
    assert (before.capacity_gained, before.chips_returned) == (["a"], ["c"])
    assert dict(before.chips_taken)["b"] & 0xF0 == 0xF0
    assert (before.capacity_lost, before.nodes_changed, before.leaf_opened, before.queue_unblocked) == (
        True,
        True,
        True,
        True,
    )
    record = seat.round(at_ms=101)
    assert record is not None
    assert other.round(at_ms=101) == record
    assert other.scheduler.dump() == seat.scheduler.dump()


def test_a_snapshot_before_a_turn_lets_go_who_was_held_for_a_job_that_is_cancelled() -> None:
    seat = Seat("a", "b", "c", queue_policy="easy", reserve_chips=16, unknown_run_ms=100, corrections=1)
    seat.job(a_job("endless", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("large", chips=8, replicas=3))
    seat.job(a_job("small", chips=8, run_ms=1000))
    assert seat.round(at_ms=5) is not None
    assert seat.scheduler.queue.is_holding
    seat.job(a_job("large", chips=8, replicas=3), state="cancelled")
    other = restarted(seat)
    record = seat.round(at_ms=6)
    assert record is not None
    assert [verdict.name for verdict in record.verdicts if verdict.placement is not None] == ["small"]
    assert other.round(at_ms=6) == record
