"""Facts of another uid under one name: the attempt whose facts they replace is examined again, as from a snapshot."""

import pytest

from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.ledger import Release
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_scheduler import Seat, restarted


def pods(seat: Seat, uid: str, phase: PodPhase, *, attempt: int = 1) -> None:
    """Say that the one pod of a gang on node a, with all its chips, is in a phase."""
    fact = PodsSeen(
        "default", "j", uid, attempt, pack([0], 4), pack_names(["a"]), pack([0], 4), pack([phase], 1), pack([0xFF], 8)
    )
    seat.fact("pod.default.j", fact)


def an_ending(**settings: object) -> Seat:
    """A gang whose pod terminates; the binder has deleted all that it made."""
    seat = Seat("a", **settings)
    seat.job(a_job("j", chips=8))
    assert seat.round() is not None
    pods(seat, "uid-j", PodPhase.TERMINATING)
    seat.fact("outcome.default.j", OutcomeSeen("default", "j", "uid-j", 1, "evicted", 1))
    assert seat.round() is None, "its pod is still there"
    return seat


def releases(seat: Seat) -> list[Release]:
    record = seat.round()
    return record.releases if record is not None else []


def test_an_attempt_gives_its_chips_back_when_pods_of_another_uid_take_its_name() -> None:
    seat = an_ending()
    pods(seat, "uid-other", PodPhase.RUNNING)
    other = restarted(seat)
    assert [(release.uid, release.reason) for release in releases(seat)] == [("uid-j", "vanished")]
    assert [(release.uid, release.reason) for release in releases(other)] == [("uid-j", "vanished")]
    assert seat.state.dump(seat.scheduler.dump()) == other.state.dump(other.scheduler.dump())


def test_chips_are_used_and_not_releasing_once_nothing_is_known_of_their_pods() -> None:
    seat = Seat("a")
    seat.job(a_job("j", chips=8))
    seat.round()
    pods(seat, "uid-j", PodPhase.TERMINATING)
    pods(seat, "uid-other", PodPhase.RUNNING)
    columns = [(int(one.state.table.used[0]), int(one.state.table.releasing[0])) for one in (seat, restarted(seat))]
    assert columns == [(0xFF, 0), (0xFF, 0)]
    pods(seat, "uid-j", PodPhase.TERMINATING)
    assert (int(seat.state.table.used[0]), int(seat.state.table.releasing[0])) == (0, 0xFF)


@pytest.mark.parametrize("state", ["bound", "evicted"])
def test_an_outcome_of_another_uid_is_looked_at_as_well(state: str) -> None:
    seat = Seat("a")
    seat.job(a_job("j", chips=8))
    seat.round()
    seat.fact("outcome.default.j", OutcomeSeen("default", "j", "uid-j", 1, "failed", 0))
    seat.fact("outcome.default.j", OutcomeSeen("default", "j", "uid-other", 1, state, 1))  # type: ignore[arg-type]  # a state
    other = restarted(seat)
    assert releases(seat) == releases(other) == []


def test_a_job_that_lost_its_name_by_a_verdict_and_a_tombstone_is_ended_as_a_start_from_a_snapshot_does() -> None:
    seat = Seat("a")
    seat.job(a_job("j", chips=8))
    seat.round()
    seat.job(a_job("j", chips=8, uid="uid-stale"), state="rejected")
    seat.job(a_job("j", chips=8, uid="uid-stale"), state="tombstone")
    assert seat.round() is None
    seat.job(a_job("j", chips=8, uid="uid-third"))
    other = restarted(seat)
    record = seat.round()
    assert other.round() == record
    assert record is not None
    assert [(eviction.uid, eviction.reason) for eviction in record.evictions] == [("uid-j", "cancelled")]


def test_a_job_that_has_the_uid_of_one_that_is_over_waits_from_then_on() -> None:
    seat = an_ending()
    seat.job(a_job("j", chips=8), state="cancelled")
    seat.job(a_job("j", chips=8, uid="uid-second"))
    seat.job(a_job("k", chips=8, uid="uid-j"))
    pods(seat, "uid-j", PodPhase.GONE)
    record = seat.round()
    assert record is not None
    assert [release.uid for release in record.releases] == ["uid-j"]
    other = restarted(seat)
    assert seat.round() == other.round()
    assert "uid-j" in seat.state.name_of
    assert seat.scheduler.dump() == other.scheduler.dump()


def test_a_job_that_lost_its_name_and_has_it_again_waits_once_its_attempt_is_over() -> None:
    seat = an_ending()
    seat.job(a_job("j", chips=8, uid="uid-stale"), state="rejected")
    seat.job(a_job("j", chips=8))
    pods(seat, "uid-j", PodPhase.SUCCEEDED)
    assert [release.uid for release in releases(seat)] == ["uid-j"]
    other = restarted(seat)
    record = seat.round()
    assert record is not None
    assert [verdict.uid for verdict in record.verdicts] == ["uid-j"]
    assert other.round() == record
