"""Attempts that share a uid or a name: facts of one do not touch the other, and what each returns is counted once."""

import pytest

from berth.core.errors import InvariantError
from berth.core.state.due import Due
from berth.core.state.invariants import check
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import JobSeen, OutcomeSeen, PodPhase, PodsSeen, RankFailure, TimerSeen
from berth.schemas.ledger import Adoption, Eviction, Release
from berth.schemas.placement import Run, placement_of
from tests.support.cells import a_job
from tests.support.gang_lifecycle import Life
from tests.unit.core.state.test_adoption import foreign
from tests.unit.core.state.test_ledger import Ledger, placed

P = PodPhase


def used(life: Life, node: str) -> tuple[int, int]:
    """Chips of a node that are used, and those that are releasing."""
    row = life.state.table.row(node)
    return int(life.state.table.used[row]), int(life.state.table.releasing[row])


def test_what_becomes_of_adopted_pods_says_nothing_of_a_gang_with_their_uid() -> None:
    ledger = Ledger()
    ledger.verdict("u", placed())
    ledger.round(adoptions=[Adoption("ns", "alien", "u", placed("m"))])
    gang = ledger.fold.gangs["u"]
    ledger.round(evictions=[Eviction("u", 0, "cancelled")])
    assert (gang.phase, ledger.fold.holdings["u", 0].ending) == ("placed", "cancelled")
    ledger.release("u", "failed", attempt=0)
    assert (gang.phase, gang.attempt, list(ledger.fold.holdings)) == ("placed", 1, [("u", 1)])


def test_only_jobs_of_berth_that_succeed_tell_how_long_their_like_run() -> None:
    ledger = Ledger()
    ledger.round(adoptions=[Adoption("ns", "alien", "a", placed())])
    ledger.release("a", "succeeded", attempt=0)
    ledger.verdict("u", placed())
    ledger.release("u", "failed")
    assert ledger.fold.run_times.dump() == []
    ledger.verdict("v", placed())
    ledger.release("v", "succeeded")
    assert ledger.fold.run_times.estimate_ms("ns", 1) == 1


def test_a_gang_whose_name_is_free_again_is_known_as_long_as_it_holds_chips() -> None:
    ledger = Ledger()
    ledger.verdict("runs", placed())
    ledger.fold.forget("runs", facts_seq=1)
    ledger.round()
    assert list(ledger.fold.gangs) == ["runs"]
    ledger.round(evictions=[Eviction("runs", 1, "cancelled")])
    ledger.round()
    assert list(ledger.fold.gangs) == ["runs"]
    ledger.release("runs", "cancelled")
    assert ledger.fold.gangs == {}


def test_a_gang_is_forgotten_by_the_first_record_that_knows_the_fact() -> None:
    ledger = Ledger()
    ledger.verdict("waits")
    ledger.fold.forget("waits", facts_seq=103)
    for facts_seq, known in ((102, ["waits"]), (103, [])):
        ledger.round()
        assert (ledger.fold.facts_seq, list(ledger.fold.gangs)) == (facts_seq, known)


def test_a_rank_that_was_given_back_is_not_given_back_beside_another() -> None:
    ledger = Ledger()
    ledger.verdict("u", placement_of(["a", "b", "c"], [(0,)] * 3, [Run(3, 1)], resource="r"))
    ledger.round(releases=[Release("u", 1, "failed", ranks=[0])])
    with pytest.raises(InvariantError, match="gives a rank back twice"):
        ledger.round(releases=[Release("u", 1, "failed", ranks=[0, 1])])
    with pytest.raises(InvariantError, match="gives back ranks that it does not have"):
        ledger.round(releases=[Release("u", 1, "failed", ranks=[3])])


def test_pods_and_outcomes_of_an_earlier_attempt_say_nothing() -> None:
    life = Life(attempt=2)
    life.attempt = 1
    life.pods(P.GONE, P.GONE)
    assert not life.due()
    life.outcome("failed", attempt=1)
    assert not life.due()
    life.attempt = 2
    life.pods(P.GONE, P.GONE)
    assert life.due() == life.release("vanished")


@pytest.mark.parametrize(("attempts_max", "again"), [(2, True), (1, False)])
def test_a_gang_that_was_evicted_is_placed_again_until_its_attempts_are_used_up(
    attempts_max: int, *, again: bool
) -> None:
    life = Life(attempts_max=attempts_max)
    life.outcome("failed", bound=1)
    assert life.carry_out() == life.eviction("bind-failed")
    life.outcome("evicted", bound=1)
    assert life.carry_out() == life.release("bind-failed", again=again)


def test_ranks_that_the_placement_does_not_have_give_nothing_back() -> None:
    life = Life()
    three = PodsSeen(
        "default", "j", "uid-j", 1, pack(range(3), 4), pack_names(["a", "b", "c"]), pack(range(3), 4),
        pack([P.RUNNING, P.RUNNING, P.SUCCEEDED], 1), pack([1] * 3, 8),
    )  # fmt: skip
    life.fact(three, "pod.default.j")
    assert not life.due()
    life = Life()
    failed = [RankFailure(2, "no such rank")]
    life.fact(OutcomeSeen("default", "j", "uid-j", 1, "bound", 2, failed), "outcome.default.j")
    assert not life.due()


def test_pods_of_ranks_that_the_placement_does_not_have_end_no_attempt() -> None:
    life = Life()
    phases = pack([P.SUCCEEDED] * 2, 1)
    fact = PodsSeen(
        "default", "j", "uid-j", 1, pack([0, 2], 4), pack_names(["a", "b"]), pack([0, 1], 4), phases, pack([1] * 2, 8)
    )
    life.fact(fact, "pod.default.j")
    assert [release.ranks for release in life.due().releases] == [[0]], "rank 1 was never seen"


def test_adopted_pods_are_not_ended_by_a_job_that_has_their_name() -> None:
    life = Life()
    life.fact(foreign("alien", ("c", 0b1, P.RUNNING)), "pod.other.alien")
    life.carry_out()
    request = a_job("alien", namespace="other")
    seen = JobSeen("other", "alien", "uid-alien", "cancelled", 2, 1, request=request, after_seq=1)
    life.fact(seen, "job.other.alien")
    assert not life.due()
    life.fact(foreign("alien", ("c", 0b1, P.GONE)), "pod.other.alien")
    assert life.due() == Due(releases=[Release("alien", 0, "vanished")])


def test_chips_of_pods_that_are_adopted_anew_while_they_terminate_stay_releasing() -> None:
    life = Life()
    for mask in (0b1, 0b11):
        life.fact(foreign("alien", ("c", mask, P.TERMINATING)), "pod.other.alien")
        assert life.carry_out().adoptions
        assert used(life, "c") == (0, mask)
        check(life.state)


def test_chips_of_a_pod_are_releasing_exactly_while_it_terminates() -> None:
    life = Life()
    life.pods(P.TERMINATING, P.RUNNING)
    assert (used(life, "a"), used(life, "b")) == ((0, 1), (1, 0))
    life.pods(P.RUNNING, P.RUNNING)
    assert (used(life, "a"), used(life, "b")) == ((1, 0), (1, 0))
    life.pods(P.TERMINATING, P.RUNNING)
    assert (used(life, "a"), used(life, "b")) == ((0, 1), (1, 0))


def test_a_tick_that_is_older_does_not_set_the_clock_back() -> None:
    life = Life()
    for at_ms, time_ms in ((700, 700), (500, 700), (701, 701)):
        life.fact(TimerSeen(at_ms), "timer")
        assert life.state.time_ms == time_ms


@pytest.mark.parametrize(
    ("intake_seq", "after_seq", "counts"), [(1, 0, False), (3, 2, False), (2, 1, True), (4, 1, True)]
)
def test_a_verdict_counts_once_and_only_behind_the_one_before_it(
    intake_seq: int, after_seq: int, *, counts: bool
) -> None:
    life = Life()
    assert life.state.intake_seq == 1
    seen = JobSeen("default", "j", "uid-j", "cancelled", intake_seq, 1, request=a_job("j"), after_seq=after_seq)
    life.fact(seen, "job.default.j")
    assert life.state.jobs["default", "j"].state == ("cancelled" if counts else "accepted")
    assert life.state.intake_seq == (intake_seq if counts else 1)
