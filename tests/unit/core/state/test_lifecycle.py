"""What must happen to a placement when its pods, its binding or its job change."""

import msgspec
import pytest

from berth.core.errors import InvariantError
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.invariants import check
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import OutcomeSeen, PodPhase, RankFailure
from berth.schemas.ledger import Release, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.status import SnapshotBody
from tests.support.cells import a_job
from tests.support.gang_lifecycle import Life

P = PodPhase


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ((P.SUCCEEDED, P.SUCCEEDED), "succeeded"),
        ((P.SUCCEEDED, P.FAILED), "failed"),
        ((P.FAILED, P.GONE), "failed"),
        ((P.SUCCEEDED, P.GONE), "vanished"),
    ],
)
def test_a_placement_is_released_when_no_pod_is_left(phases: tuple[PodPhase, ...], reason: str) -> None:
    life = Life()
    life.pods(*phases)
    assert life.due() == life.release(reason)
    assert life.due() == life.release(reason), "until a record says so"
    life.carry_out()
    assert not life.due()
    assert life.state.fold.holdings == {}


@pytest.mark.parametrize(
    "phases",
    [(P.RUNNING, P.TERMINATING), (P.RUNNING,), (P.PENDING, P.PENDING)],
)
def test_a_placement_stays_while_a_pod_is_left_or_not_made_yet(phases: tuple[PodPhase, ...]) -> None:
    life = Life()
    life.pods(*phases)
    assert not life.due()


@pytest.mark.parametrize(
    ("phases", "ranks", "reason"),
    [
        ((P.RUNNING, P.SUCCEEDED), [1], "succeeded"),
        ((P.FAILED, P.RUNNING), [0], "failed"),
        ((P.SUCCEEDED,), [0], "succeeded"),
        ((P.TERMINATING, P.GONE), [1], "vanished"),
    ],
)
def test_a_rank_whose_pod_has_ended_gives_back_its_chips_while_the_others_run(
    phases: tuple[PodPhase, ...], ranks: list[int], reason: str
) -> None:
    life = Life()
    life.pods(*phases)
    part = Release("uid-j", 1, reason, ranks=ranks)  # type: ignore[arg-type]  # a ReleaseReason
    assert life.carry_out() == Due(releases=[part])
    assert not life.due()
    assert [pod.chips for pod in life.state.owned(("uid-j", 1))] == [() if rank in ranks else (0,) for rank in (0, 1)]
    check(life.state)
    assert life.state.fold.gangs["uid-j"].phase == "placed"
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    assert life.carry_out() == life.release("succeeded")
    assert life.state.fold.holdings == {}
    check(life.state)


def test_a_rank_that_was_releasing_leaves_no_trace() -> None:
    life = Life()
    life.pods(P.RUNNING, P.TERMINATING)
    life.pods(P.RUNNING, P.GONE)
    life.carry_out()
    life.pods(P.TERMINATING, P.GONE)
    life.pods(P.RUNNING, P.GONE)
    check(life.state)
    row = life.state.table.row("b")
    assert (int(life.state.table.used[row]), int(life.state.table.releasing[row])) == (0, 0)


def test_ranks_that_are_left_unbound_give_back_their_chips() -> None:
    life = Life()
    life.fact(OutcomeSeen("default", "j", "uid-j", 1, "bound", 1, [RankFailure(1, "taken")]), "outcome.default.j")
    assert life.carry_out() == Due(releases=[Release("uid-j", 1, "bind-failed", ranks=[1])])
    life.pods(P.RUNNING)
    assert not life.due()
    life.pods(P.SUCCEEDED)
    assert life.carry_out() == life.release("succeeded")


def test_a_gang_ends_when_its_bound_ranks_have_ended_and_the_others_were_left_unbound() -> None:
    life = Life()
    life.pods(P.SUCCEEDED)
    life.fact(OutcomeSeen("default", "j", "uid-j", 1, "bound", 1, [RankFailure(1, "taken")]), "outcome.default.j")
    assert life.carry_out() == life.release("succeeded")


def test_a_snapshot_keeps_which_ranks_are_gone() -> None:
    life = Life()
    life.pods(P.RUNNING, P.GONE)
    life.carry_out()
    other = State()
    other.load(decode(life.state.dump(), SnapshotBody))
    assert other.owned(("uid-j", 1)) == life.state.owned(("uid-j", 1))
    check(other)


@pytest.mark.parametrize("ranks", [[2], [0, 0], [1]])
def test_a_rank_is_given_back_once_and_only_by_its_attempt(ranks: list[int]) -> None:
    life = Life()
    life.round(releases=[Release("uid-j", 1, "vanished", ranks=[1])])
    with pytest.raises(InvariantError):
        life.round(releases=[Release("uid-j", 1, "vanished", ranks=ranks)])


@pytest.mark.parametrize("column", ["exit_codes", "steps"])
def test_a_fact_whose_column_of_pods_is_cut_is_not_applied(column: str) -> None:
    life = Life()
    fact = msgspec.structs.replace(life.pods_fact(P.RUNNING, P.RUNNING), **{column: bytes(5)})
    reason = life.state.apply_fact("berth.c.fact.pod.default.j", life.state.facts_seq + 1, encode(fact)).error
    assert reason == f"{column}: 5 bytes, expected 8 or none"


def test_pods_of_another_attempt_or_job_say_nothing() -> None:
    life = Life(attempt=2)
    life.attempt = 1
    life.pods(P.GONE, P.GONE)
    life.pods(P.GONE, P.GONE, uid="other")
    life.outcome("failed", attempt=1)
    assert not life.due()


def test_a_cancelled_job_is_evicted_once_and_released_when_its_pods_have_gone() -> None:
    life = Life()
    life.pods(P.RUNNING, P.RUNNING)
    life.job("cancelled")
    assert life.carry_out() == life.eviction("cancelled")
    assert not life.due()
    life.pods(P.TERMINATING, P.TERMINATING)
    assert not life.due()
    life.pods(P.SUCCEEDED, P.GONE)
    assert life.carry_out() == life.release("cancelled")
    assert life.state.fold.gangs["uid-j"].phase == "cancelled"


def test_a_job_that_ends_because_of_what_is_seen_of_it_is_withdrawn_and_its_pods_run_to_their_end() -> None:
    life = Life()
    life.pods(P.RUNNING, P.RUNNING)
    life.job("cancelled", inferred=True)
    assert life.carry_out() == life.eviction("withdrawn")
    assert not life.due()
    life.outcome("evicted")
    assert not life.due(), "its pods have the chips"
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    assert life.carry_out() == life.release("cancelled")


def test_pods_that_are_requested_anew_under_the_name_withdraw_the_request_before() -> None:
    life = Life()
    life.pods(P.RUNNING, P.RUNNING)
    life.job("accepted", "uid-other", request=msgspec.structs.replace(a_job("j"), uid="uid-other", origin="pods"))
    assert life.carry_out() == life.eviction("withdrawn")


def test_a_cancelled_job_whose_pods_were_never_seen_is_released_when_the_binder_says_evicted() -> None:
    life = Life()
    life.job("cancelled")
    life.carry_out()
    life.outcome("evicted")
    assert life.carry_out() == life.release("cancelled")


@pytest.mark.parametrize("bound", [False, True])
def test_a_gang_of_which_no_pod_is_seen_any_more_is_ended_first_for_others_may_be_about_to_be_bound(
    *, bound: bool
) -> None:
    life = Life()
    life.pods(P.PENDING)
    life.pods()
    if bound:
        life.outcome("bound", bound=2)
    assert life.carry_out() == life.eviction("vanished")
    life.pods(P.TERMINATING, P.TERMINATING)
    life.outcome("evicted", bound=2)
    assert not life.due()
    life.pods()
    assert life.carry_out() == life.release("vanished")
    assert life.state.fold.gangs["uid-j"].phase == "vanished"


@pytest.mark.parametrize("phase", [P.SUCCEEDED, P.FAILED])
def test_an_evicted_gang_of_which_some_ranks_never_had_a_pod_is_released(phase: PodPhase) -> None:
    life = Life()
    life.pods(phase)
    life.carry_out()
    life.outcome("failed", bound=1)
    assert life.carry_out() == life.eviction("bind-failed")
    assert not life.due()
    life.outcome("evicted", bound=1)
    assert life.carry_out() == life.release("bind-failed", again=True)
    assert life.state.fold.holdings == {}
    check(life.state)


def test_a_rank_that_is_said_to_be_unbound_keeps_its_chips_while_its_pod_is_seen() -> None:
    life = Life()
    life.pods(P.RUNNING, P.TERMINATING)
    life.fact(OutcomeSeen("default", "j", "uid-j", 1, "bound", 1, [RankFailure(1, "no pod")]), "outcome.default.j")
    assert not life.due()
    life.pods(P.RUNNING, P.GONE)
    assert life.carry_out() == Due(releases=[Release("uid-j", 1, "vanished", ranks=[1])])


def test_an_evicted_gang_whose_pods_are_still_seen_is_not_released() -> None:
    life = Life()
    life.pods(P.RUNNING, P.RUNNING)
    life.job("cancelled")
    life.carry_out()
    life.outcome("evicted")
    assert not life.due()


def test_a_job_whose_name_another_has_is_evicted() -> None:
    life = Life()
    life.job("accepted", uid="uid-other")
    assert life.due() == life.eviction("cancelled")


def test_a_gang_of_which_nothing_was_bound_is_released_at_once() -> None:
    life = Life()
    life.outcome("failed")
    assert life.carry_out() == life.release("bind-failed", again=True)
    assert life.state.fold.gangs["uid-j"].attempt == 2


@pytest.mark.parametrize("seen", [True, False])
def test_a_gang_of_which_a_part_was_bound_is_evicted_first(*, seen: bool) -> None:
    life = Life()
    if seen:
        life.pods(P.RUNNING)
    life.outcome("failed", bound=0 if seen else 1)
    assert life.carry_out() == life.eviction("bind-failed")
    assert not life.due()
    life.outcome("evicted")
    if seen:
        life.pods()
    assert life.carry_out() == life.release("bind-failed", again=True)


def fail_after(life: Life, *pauses_s: int) -> list[bool]:
    """Let attempts fail, each some seconds after the one before; returns whether another one follows each."""
    again: list[bool] = []
    for pause_s in pauses_s:
        if not life.state.fold.holdings:
            life.place(life.attempt + 1)
        life.at_ms += pause_s * 1000
        life.outcome("failed")
        again += [release.again for release in life.carry_out().releases]
    return again


def test_a_gang_is_placed_again_until_its_attempts_are_used_up() -> None:
    life = Life(attempts_max=3)
    assert fail_after(life, 0, 60, 60) == [True, True, False]
    assert life.state.fold.gangs["uid-j"].phase == "failed"


def test_attempts_that_fail_within_a_minute_count_once() -> None:
    """Case a/05: five attempts were used up within 40 ms."""
    life = Life(attempts_max=3)
    assert fail_after(life, *[0, *[1] * 58]) == [True] * 59
    assert fail_after(life, 2, 59, 1) == [True, True, False]


def test_a_clock_that_is_set_back_begins_another_minute() -> None:
    life = Life(attempts_max=3)
    life.at_ms = 10_000_000
    assert fail_after(life, 0, -9_000, 60) == [True, True, False]


def test_an_attempt_that_follows_a_failed_one_waits_longer_and_longer() -> None:
    life = Life(attempts_max=3)
    pauses: list[int] = []
    for pause_s in (0, 1, 1, 2, 4, 8, 16):
        fail_after(life, pause_s)
        gang = life.state.fold.gangs["uid-j"]
        pauses.append((gang.retry_ms - life.at_ms) // 1000)
        assert (gang.pauses_at(life.at_ms), gang.pauses_at(gang.retry_ms)) == (True, False)
        assert not gang.pauses_at(life.at_ms - 3_600_000), "the clock was set back"
    assert pauses == [1, 1, 2, 4, 8, 16, 32]


def test_a_cancelled_gang_that_could_not_be_bound_is_not_tried_again() -> None:
    life = Life()
    life.job("cancelled")
    life.outcome("failed")
    assert life.carry_out() == life.release("cancelled")
    assert life.state.fold.gangs["uid-j"].phase == "cancelled"


def test_a_bound_gang_needs_nothing() -> None:
    life = Life()
    life.outcome("bound", bound=2)
    assert not life.due()


def test_an_attempt_whose_nodes_take_its_pods_no_more_does_not_count() -> None:
    life = Life(attempts_max=1)
    for attempt in (1, 2, 3):
        life.attempt = attempt
        life.outcome("failed", given_back=True)
        assert life.carry_out() == life.release("given-back", again=True)
        gang = life.state.fold.gangs["uid-j"]
        assert (gang.phase, gang.attempt, gang.given_back) == ("waiting", attempt + 1, attempt)
        placement = placement_of(["a", "b"], [(0,), (0,)], [Run(2, 1)], resource="r")
        life.round(verdicts=[Verdict("default", "j", "uid-j", attempt + 1, placement)])
    life.attempt = 4
    life.outcome("failed")
    assert life.carry_out() == life.release("bind-failed", again=False), "this one counts"


def test_an_attempt_of_a_job_that_was_cancelled_is_not_decided_anew_when_it_is_given_back() -> None:
    life = Life()
    life.job("cancelled")
    life.outcome("failed", given_back=True)
    assert life.carry_out() == life.release("cancelled")
