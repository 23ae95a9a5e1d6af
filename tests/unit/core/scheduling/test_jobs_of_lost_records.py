"""Jobs whose records are lost, and whose pods run: they get no other places while nobody knows whose the pods are."""

import pytest

from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_scheduler import Seat, restarted


def claim(seat: Seat, phase: PodPhase, *, pod: str = "p", uid: str = "uid-j", name: str = "j") -> None:
    """What the inventory says of a pod that may be one of job ``j``; a pod that is gone has no row."""
    rows = [] if phase == PodPhase.GONE else [0]
    fact = PodsSeen(
        "default", f"pod/{pod}", f"uid-{pod}", 0, pack(rows, 4), pack_names(["a"]), pack(rows, 4),
        pack([phase] * len(rows), 1), pack([0b11] * len(rows), 8), resource="huawei.com/Ascend910", foreign=True,
        job=name if rows else "", job_uid=uid if rows else "",
    )  # fmt: skip
    seat.fact(f"pod.default.pod=2F{pod}", fact)


@pytest.mark.parametrize("is_known_before", [False, True])
@pytest.mark.parametrize("policy", ["skip", "fifo", "easy", "conservative"])
def test_a_job_of_which_pods_may_run_gets_no_other_places(policy: str, *, is_known_before: bool) -> None:
    """Its records are lost: the inventory says of which job the pods are once it knows the verdict on the job."""
    seat = Seat("a", "b", queue_policy=policy)
    if is_known_before:
        seat.job(a_job("j", chips=2))
    for pod in ("p", "q"):
        claim(seat, PodPhase.RUNNING, pod=pod)
    record = seat.round()
    assert record is not None
    assert [one.uid for one in record.adoptions] == ["uid-p", "uid-q"]
    if not is_known_before:
        seat.job(a_job("j", chips=2))
    seat.job(a_job("other", chips=2))
    assert list(seat.verdicts()) == [("other", True)]
    other = restarted(seat)
    for one in (seat, other):
        assert not one.scheduler.has_work
        claim(one, PodPhase.GONE)
        assert list(one.verdicts()) == []
        claim(one, PodPhase.SUCCEEDED, pod="q")
        assert list(one.verdicts()) == [("j", True)]
    assert seat.scheduler.dump() == other.scheduler.dump()


def test_a_pod_that_says_it_is_of_another_job_of_that_name_keeps_nobody_waiting() -> None:
    seat = Seat("a", "b")
    claim(seat, PodPhase.RUNNING, uid="uid-of-old-j")
    seat.round()
    seat.job(a_job("j", chips=2))
    assert list(seat.verdicts()) == [("j", True)]


def test_a_pod_may_turn_out_to_be_of_a_job_and_of_none_again() -> None:
    seat = Seat("a", "b")
    claim(seat, PodPhase.RUNNING, uid="uid-k", name="k")
    seat.round()
    claim(seat, PodPhase.RUNNING)
    seat.job(a_job("j", chips=2))
    seat.job(a_job("k", chips=2))
    assert list(seat.verdicts()) == [("k", True)]
    claim(seat, PodPhase.RUNNING, uid="", name="")
    assert list(seat.verdicts()) == [("j", True)]
