"""The records that released a job are lost, and the fact that its name is free is not: its chips come back."""

from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_scheduler import Seat, restarted


def pods(seat: Seat, phase: PodPhase) -> None:
    """Say that the one pod of the gang on node a, with all its chips, is in a phase."""
    columns = (pack([0], 4), pack_names(["a"]), pack([0], 4), pack([phase], 1), pack([0xFF], 8))
    seat.fact("pod.default.j", PodsSeen("default", "j", "uid-j", 1, *columns))


def an_ended_job() -> Seat:
    """A job whose pod has ended and whose name is free; its release is in no record."""
    seat = Seat("a")
    seat.job(a_job("j", chips=8))
    assert seat.round() is not None
    pods(seat, PodPhase.RUNNING)
    assert seat.round() is None
    pods(seat, PodPhase.SUCCEEDED)
    seat.job(a_job("j", chips=8), state="tombstone")
    return seat


def test_chips_of_a_job_whose_release_is_lost_come_back() -> None:
    seat = an_ended_job()
    other = restarted(seat)
    for one in (seat, other):
        record = one.round()
        assert record is not None
        assert [(release.uid, release.reason) for release in record.releases] == [("uid-j", "succeeded")]
        assert int(one.state.table.used[0]) == 0
        assert not one.state.fold.gangs
    assert seat.state.dump(seat.scheduler.dump()) == other.state.dump(other.scheduler.dump())


def test_nothing_is_kept_of_the_job_after_its_release() -> None:
    late, usual = an_ended_job(), Seat("a")
    late.round()
    usual.job(a_job("j", chips=8))
    usual.round()
    pods(usual, PodPhase.RUNNING)
    pods(usual, PodPhase.SUCCEEDED)
    usual.round()
    usual.job(a_job("j", chips=8), state="tombstone")
    for seat in (late, usual):
        assert not seat.state.pods
        assert not seat.state.jobs
