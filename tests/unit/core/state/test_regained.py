"""Attempts that a restored ledger does not know, although their pods run: they get the places of their pods."""

import msgspec
import pytest

from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.core.state.lifecycle import Due, examine
from berth.schemas.columns import pack
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen, JobState, PodPhase
from berth.schemas.ledger import Release, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.refusal import Refusal
from berth.schemas.status import SnapshotBody
from tests.support.cells import a_job
from tests.support.gang_lifecycle import Life

P = PodPhase
RUN = (P.RUNNING, P.RUNNING)


class Restored(Life):
    """A cell whose ledger is older than its pods."""

    def __init__(self, *, is_placed: bool = False, attempt: int = 1, corrections: int = 1, replicas: int = 2) -> None:
        self.replicas = replicas
        super().__init__(attempt=attempt, corrections=corrections, is_placed=is_placed)

    def job(self, state: JobState, uid: str = "uid-j") -> None:
        seq = self.state.intake_seq + 1
        request = a_job("j", replicas=self.replicas)
        seen = JobSeen("default", "j", uid, state, seq, 1, request=request, after_seq=seq - 1)
        self.fact(seen, "job.default.j")

    def found(self, *phases: PodPhase, attempt: int = 1, **changes: object) -> None:
        fact = msgspec.structs.replace(self.pods_fact(*phases), attempt=attempt, **changes)
        self.fact(fact, "pod.default.j")


@pytest.mark.parametrize("attempt", [1, 3])
def test_an_attempt_gets_the_places_of_its_pods(attempt: int) -> None:
    life = Restored()
    life.found(*RUN, attempt=attempt)
    found = life.carry_out()
    assert [(one.uid, one.attempt) for one in found.regained] == [("uid-j", attempt)]
    holding = life.state.fold.holdings["uid-j", attempt]
    assert (holding.placement.names(), holding.placement.chips_by_rank()) == (["a", "b"], [(0,), (0,)])
    assert (life.state.held("a"), life.state.held("b"), holding.foreign) == (1, 1, False)
    assert life.state.fold.gangs["uid-j"].phase == "placed"
    assert not life.due()
    check(life.state)
    life.attempt = attempt
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    assert life.carry_out() == life.release("succeeded")
    assert life.state.held("a") == 0


def test_pods_that_have_ended_get_nothing() -> None:
    life = Restored()
    life.found(P.RUNNING, P.SUCCEEDED)
    life.carry_out()
    assert life.state.fold.holdings["uid-j", 1].placement.chips_by_rank() == [(0,), ()]
    assert life.carry_out() == Due(releases=[Release("uid-j", 1, "succeeded", ranks=[1])])
    assert (life.state.held("a"), life.state.held("b")) == (1, 0)


def test_an_attempt_that_the_ledger_knows_has_ended_when_pods_of_a_later_one_run() -> None:
    life = Restored(is_placed=True)
    life.found(*RUN, attempt=2, chips=pack([0b10, 0b10], 8))
    first = life.carry_out()
    assert first == Due(releases=[Release("uid-j", 1, "vanished", again=True)], outlived=["uid-j"])
    assert first.takes_places
    assert life.state.held("a") == 0
    assert [(one.uid, one.attempt) for one in life.carry_out().regained] == [("uid-j", 2)]
    assert life.state.held("a") == 0b10
    check(life.state)


def test_a_later_attempt_of_which_no_pod_lives_ends_nothing() -> None:
    life = Restored(is_placed=True)
    life.found(P.GONE, P.SUCCEEDED, attempt=2)
    assert not life.due()


@pytest.mark.parametrize(
    "changes",
    [
        {"uid": "another"},
        {"foreign": True, "attempt": 0},
        {"phase": pack([P.SUCCEEDED, P.GONE], 1)},
        {"rank": pack([0, 2], 4)},
        {"chips": pack([0b11, 1], 8)},
    ],
)
def test_pods_of_another_or_none_or_too_few_regain_nothing(changes: dict[str, object]) -> None:
    life = Restored()
    life.fact(msgspec.structs.replace(life.pods_fact(*RUN), **changes), "pod.default.j")
    assert life.due().regained == []


def test_ranks_of_which_nothing_is_known_leave_the_attempt_as_it_is() -> None:
    life = Restored(replicas=3)
    life.found(*RUN)
    assert not life.due()


def test_a_job_that_is_cancelled_regains_nothing() -> None:
    life = Restored()
    life.job("cancelled")
    life.found(*RUN)
    assert not life.due()


def test_an_earlier_attempt_than_the_next_one_is_not_regained() -> None:
    life = Restored()
    life.round(verdicts=[Verdict("default", "j", "uid-j", 3, None, Refusal("no-room"))])
    life.found(*RUN, attempt=2)
    assert not life.due()
    life.found(*RUN, attempt=3)
    assert [one.attempt for one in life.due().regained] == [3]


def test_chips_that_have_another_owner_are_not_taken_from_it() -> None:
    life = Restored()
    other = placement_of(["a"], [(0, 1)], [Run(1, 2)], resource="r")
    life.round(verdicts=[Verdict("default", "k", "uid-k", 1, other)])
    life.found(*RUN)
    due = life.due()
    assert (bool(due), due.short, due.takes_places) == (False, ["uid-j"], False)
    life.round(releases=[Release("uid-k", 1, "vanished")])
    due = life.due()
    assert [(one.uid, one.attempt) for one in due.regained] == [("uid-j", 1)]
    assert due.short == []


def test_a_record_that_gives_back_chips_of_pods_that_run_gives_no_places() -> None:
    """Some of what these pods have may be free already."""
    due = Due(releases=[Release("uid-k", 1, "vanished")])
    assert not due.takes_places
    due.short = ["uid-j"]
    assert due.takes_places


def test_without_the_corrections_it_waits_as_before() -> None:
    life = Restored(corrections=0)
    life.found(*RUN)
    assert not life.due()
    life = Restored(is_placed=True, corrections=0)
    life.found(*RUN, attempt=2)
    assert not life.due()


def test_a_start_finds_them_too() -> None:
    life = Restored()
    life.found(*RUN)
    started = State(keeps=True)
    loaded = started.load(decode(life.state.dump(), SnapshotBody))
    assert [one.uid for one in examine(started, loaded.changes.gangs_to_examine).due.regained] == ["uid-j"]


def test_a_fact_about_the_job_may_come_after_those_about_its_pods() -> None:
    life = Restored()
    pods = msgspec.structs.replace(life.pods_fact(*RUN), gang="k", uid="uid-k", chips=pack([0b10, 0b10], 8))
    life.fact(pods, "pod.default.k")
    assert not life.due()
    job = JobSeen("default", "k", "uid-k", "accepted", 2, 1, request=a_job("k", replicas=2), after_seq=1)
    life.fact(job, "job.default.k")
    assert [one.uid for one in life.due().regained] == ["uid-k"]
