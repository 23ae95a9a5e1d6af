"""What recoveries ask of the binder, from the ledger and its own outcomes."""

import msgspec
import pytest

from berth.core.state.ledger import GangRecord, LedgerFold
from berth.schemas.facts import OutcomeSeen, OutcomeState, RankFailure
from berth.schemas.ledger import Epoch, Eviction, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.recovery import How, Recovery, Scope
from berth.services.binder.cluster import Leave
from berth.services.binder.recoveries.recovery_work import leaves_of, manner_of_end, marks_of
from berth.services.binder.work import Attempt, Clearing, Work

KEY = ("u", 1)
CAUSE = "pod of rank 1: its chip 0 on node n1 is unhealthy"


def places(*nodes: str) -> Placement:
    return placement_of(list(nodes), [(0,)] * len(nodes), [Run(len(nodes), 1)], resource="huawei.com/Ascend910")


class History:
    """A gang of three pods that is placed, and a ledger that grows."""

    def __init__(self, *, bound: bool = True) -> None:
        self.work = Work()
        self.last: Recovery | None = None
        self.sequence = 1
        self.work.apply_record(1, self.work.fold.encoded(Epoch(1, 0, 0, 0, "me", Settings())))
        self.round(verdicts=[Verdict("ns", "job", "u", 1, places("n0", "n1", "n2"))])
        if bound:
            self.outcome(bound=3)

    @property
    def attempt(self) -> Attempt:
        return self.work.attempts[KEY]

    def round(self, **parts: object) -> list[tuple[str, int]]:
        record = Round(1, self.sequence, 0, 0, self.sequence, **parts)  # type: ignore[arg-type]  # fields of the record
        self.sequence += 1
        return self.work.apply_record(self.sequence, self.work.fold.encoded(record))

    def recover(
        self,
        *ranks: int,
        how: How = "force",
        scope: Scope = "pod",
        nodes: tuple[str, ...] = (),
        until_ms: int = 0,
        faulty: tuple[int, ...] = (),
    ) -> list[tuple[str, int]]:
        step = self.attempt.holding.step + 1
        placement = places(*nodes) if nodes else None
        found = Recovery(
            "ns", "job", "u", 1, step, "CardUnhealthy", CAUSE, scope, how, list(ranks), list(faulty or ranks[:1]), 5,
            until_ms, placement,
        )  # fmt: skip
        self.last = found
        return self.round(recoveries=[found])

    def release(self, *ranks: int) -> list[tuple[str, int]]:
        return self.round(releases=[Release("u", 1, "fault", ranks=list(ranks))])

    def outcome(
        self,
        state: OutcomeState = "bound",
        *,
        bound: int = 3,
        step: int = 0,
        done: int = 0,
        failed: tuple[int, ...] = (),
    ) -> None:
        failures = [RankFailure(rank, "no") for rank in failed]
        self.work.apply_outcome(OutcomeSeen("ns", "job", "u", 1, state, bound, failures, step=step, done=done))

    def verb(self, now_ms: int = 10) -> str | None:
        step = self.work.next_step(KEY, now_ms)
        return None if step is None else step.verb

    def restarted(self) -> "History":
        """The same, by a binder that starts from a snapshot and from the outcomes on the bus."""
        after = History()
        after.work = Work()
        after.work.restore(self.work.fold.dump())
        outcome = self.work.outcome_of(self.attempt)
        if outcome is not None:
            after.work.apply_outcome(outcome)
        after.work.settle()
        after.sequence = self.sequence
        return after


@pytest.fixture(params=[False, True], ids=["same", "restarted"])
def again(request: pytest.FixtureRequest) -> bool:
    """Whether the binder is restarted before each look."""
    return bool(request.param)


def seen(history: History, again: bool) -> History:  # noqa: FBT001 - a fixture
    return history.restarted() if again else history


def test_ranks_that_leave_are_deleted_then_bound_once_they_are_released(again: bool) -> None:  # noqa: FBT001
    history = History()
    assert history.verb() is None
    assert history.recover(1, nodes=("n5",)) == [KEY]
    found = seen(history, again)
    assert found.verb() == "recover"
    assert leaves_of(found.attempt, 10) == {1: Leave(1, "n1", at_once=True, reason=CAUSE)}
    history.outcome(step=1)
    found = seen(history, again)
    assert (found.verb(), leaves_of(found.attempt, 10)) == (None, {})
    assert found.work.to_bind(found.attempt) == []
    assert history.release(1) == [KEY, KEY]
    found = seen(history, again)
    assert (found.verb(), found.work.to_bind(found.attempt)) == ("bind", [1])
    assert found.attempt.placement.names() == ["n0", "n5", "n2"]
    history.outcome(step=1, done=1)
    found = seen(history, again)
    assert (found.verb(), found.work.to_bind(found.attempt)) == (None, [])


def test_a_step_without_places_is_carried_out_once_its_ranks_are_released(again: bool) -> None:  # noqa: FBT001
    history = History()
    history.recover(1, 2)
    history.outcome(step=1)
    assert seen(history, again).verb() == "bind", "nothing is to be bound: the outcome says so"
    history.outcome(step=1, done=1)
    history.release(1, 2)
    found = seen(history, again)
    assert (found.verb(), found.work.to_bind(found.attempt)) == (None, [])
    history.recover(2, how="place", nodes=("n7",))
    found = seen(history, again)
    assert found.verb() == "recover"
    assert leaves_of(found.attempt, 10) == {
        1: Leave(3, "", at_once=True, reason=CAUSE),
        2: Leave(2, "", at_once=True, reason=CAUSE),
    }, "ended pods that are left are deleted, so that others are made"
    history.outcome(step=2, done=1)
    found = seen(history, again)
    assert (found.verb(), found.work.to_bind(found.attempt)) == ("bind", [2])


def test_a_failed_pod_that_was_released_at_once_is_deleted_all_the_same(again: bool) -> None:  # noqa: FBT001
    history = History()
    history.recover(1, nodes=("n1",))
    history.release(1)
    found = seen(history, again)
    assert found.verb() == "recover"
    assert leaves_of(found.attempt, 10) == {1: Leave(1, "", at_once=True, reason=CAUSE)}


def test_with_grace_pods_that_are_late_are_deleted_at_once(again: bool) -> None:  # noqa: FBT001
    history = History()
    history.recover(1, 2, how="grace", until_ms=1_000)
    assert {leave.at_once for leave in leaves_of(history.attempt, 10).values()} == {False}
    history.outcome(step=1)
    history.outcome(step=1, done=1)
    history.release(2)
    found = seen(history, again)
    assert (found.verb(999), found.work.due_in_s(KEY, 400)) == (None, 0.6)
    assert found.work.pending() == [KEY]
    assert found.verb(1_000) == "recover"
    assert leaves_of(found.attempt, 1_000) == {1: Leave(1, "n1", at_once=True, reason=CAUSE)}
    found.attempt.forced[1] = 1
    assert (found.verb(1_000), found.work.due_in_s(KEY, 400)) == (None, None)


def test_a_later_step_may_hurry_ranks_that_leave_already(again: bool) -> None:  # noqa: FBT001
    history = History()
    history.recover(1, how="grace", until_ms=1_000)
    history.outcome(step=1, done=1)
    history.recover(0, 1, how="force", scope="rank-block")
    found = seen(history, again)
    assert leaves_of(found.attempt, 10) == {
        0: Leave(2, "n0", at_once=True, reason=CAUSE),
        1: Leave(2, "n1", at_once=True, reason=CAUSE),
    }
    history.outcome(step=2, done=2)
    assert seen(history, again).work.due_in_s(KEY, 10) is None


def test_a_mark_names_the_faulty_pods_and_moves_nothing(again: bool) -> None:  # noqa: FBT001
    history = History()
    assert history.recover(1, 2, how="mark", faulty=(2,)) == [KEY]
    found = seen(history, again)
    assert (found.verb(), marks_of(found.attempt)) == ("recover", ([2], "CardUnhealthy"))
    assert leaves_of(found.attempt, 10) == {}
    history.outcome(step=1)
    assert seen(history, again).verb() == "bind"
    history.outcome(step=1, done=1)
    found = seen(history, again)
    assert (found.verb(), marks_of(found.attempt)) == (None, None)


def test_a_replacement_that_cannot_be_bound_waits_for_another_place(again: bool) -> None:  # noqa: FBT001
    history = History()
    history.recover(1, 2, nodes=("n5", "n6"))
    history.outcome(step=1)
    history.release(1, 2)
    history.outcome(step=1, failed=(1,))
    found = seen(history, again)
    assert found.work.to_bind(found.attempt) == [2], "the other one goes on"
    assert found.work.failures_of(found.attempt) == [RankFailure(1, "no")]
    history.release(1)
    found = seen(history, again)
    assert found.work.failures_of(found.attempt) == []
    assert found.work.to_bind(found.attempt) == [2]
    history.recover(1, how="place", nodes=("n8",))
    found = seen(history, again)
    assert (found.verb(), found.work.failures_of(found.attempt)) == ("recover", [])
    history.outcome(step=2)
    found = seen(history, again)
    assert found.work.to_bind(found.attempt) == [1, 2]


def test_a_recovery_before_the_gang_is_bound_takes_its_ranks_out(again: bool) -> None:  # noqa: FBT001
    history = History(bound=False)
    history.recover(1, nodes=("n5",))
    found = history  # no outcome is on the bus: a restart begins at the same point
    assert (found.verb(), list(leaves_of(found.attempt, 10))) == ("recover", [1])
    found.attempt.taken_up = 1
    assert (found.verb(), found.work.to_bind(found.attempt)) == ("bind", [0, 2])
    history.outcome(bound=2, step=1)
    assert seen(history, again).verb() is None
    history.release(1)
    found = seen(history, again)
    assert (found.verb(), found.work.to_bind(found.attempt)) == ("bind", [1])


@pytest.mark.parametrize(("how", "manner"), [("grace", "grace"), ("force", "force")])
def test_a_whole_job_leaves_as_the_step_says(how: How, manner: str, again: bool) -> None:  # noqa: FBT001
    history = History()
    history.recover(0, 1, 2, how=how, scope="job", until_ms=1_000 if how == "grace" else 0)
    found = seen(history, again)
    assert (found.verb(), manner_of_end(found.attempt, 10)) == ("evict", manner)
    history.outcome("evicted")
    found = seen(history, again)
    assert found.verb(999) is None
    if how == "force":
        return
    assert (found.verb(1_000), manner_of_end(found.attempt, 1_000)) == ("evict", "force")
    assert (found.work.due_in_s(KEY, 400), found.work.pending()) == (0.6, [KEY])
    found.attempt.is_forced = True
    assert found.verb(1_000) is None


def clearing(attempt: int) -> Clearing:
    return Clearing("ns", "job", "u", attempt)


def test_a_job_that_starts_anew_is_cleared_of_pods_that_had_ended_before(again: bool) -> None:  # noqa: FBT001
    """All of them had failed, so that the ledger has released the attempt before the binder has ended it."""
    history = History()
    history.recover(0, 1, 2, scope="job")
    assert history.round(releases=[Release("u", 1, "fault", again=True)]) == [("u", 2)]
    found = seen_anew(history, again)
    assert found.work.next_step(("u", 2)) == clearing(2)
    assert found.work.pending() == [("u", 2)]
    # It is placed before that is done: that comes first.
    found.round(verdicts=[Verdict("ns", "job", "u", 2, places("n0", "n1", "n2"))])
    assert found.work.next_step(("u", 2)) == clearing(2)
    del found.work.clearings["u", 2]
    step = found.work.next_step(("u", 2))
    assert step is not None
    assert step.verb == "bind"


def test_what_the_binder_has_ended_itself_or_what_is_over_needs_no_clearing() -> None:
    history = History()
    history.recover(0, 1, 2, scope="job")
    history.outcome("evicted")
    assert history.round(releases=[Release("u", 1, "fault", again=True)]) == []
    assert (history.work.clearings, history.work.pending()) == ({}, [])
    history = History()
    history.recover(0, 1, 2, scope="job")
    history.round(releases=[Release("u", 1, "cancelled")])
    assert history.work.pending() == []
    history = History()
    history.round(evictions=[Eviction("u", 1, "bind-failed")])
    history.round(releases=[Release("u", 1, "bind-failed", again=True)])
    assert history.work.pending() == []


def seen_anew(history: History, again: bool) -> History:  # noqa: FBT001 - a fixture
    """The history, by a binder that starts from a snapshot of a dispatcher if asked to."""
    if not again:
        return history
    whole = LedgerFold()
    whole.load(history.work.fold.dump())
    record = GangRecord("ns", "job", "u", attempt=2, recovery=history.last)
    dump = msgspec.structs.replace(whole.dump(), gangs=[record])
    after = History()
    after.work = Work()
    after.work.restore(dump)
    after.work.settle()
    after.sequence = history.sequence
    return after


def test_a_job_that_is_cancelled_while_it_recovers_ends_as_ever(again: bool) -> None:  # noqa: FBT001
    history = History()
    history.recover(1, how="grace", until_ms=1_000, nodes=("n5",))
    history.outcome(step=1)
    history.round(evictions=[Eviction("u", 1, "cancelled")])
    found = seen(history, again)
    assert (found.verb(), manner_of_end(found.attempt, 2_000)) == ("evict", "plain")
    assert found.work.due_in_s(KEY, 10) is None
    history.outcome("evicted", step=1)
    assert seen(history, again).verb(2_000) is None


@pytest.mark.parametrize("scope", ["pod", "job"])
def test_pods_that_are_never_to_be_deleted_at_once_are_only_told_to_end(scope: Scope) -> None:
    history = History()
    history.recover(1, how="grace", scope=scope, until_ms=0)
    late_ms = 1_000_000_000
    attempt = history.attempt
    if scope == "job":
        assert manner_of_end(attempt, late_ms) == "grace"
    else:
        assert [leave.at_once for leave in leaves_of(attempt, late_ms).values()] == [False]
        assert attempt.overdue(late_ms) == {}
    assert attempt.overdue_at_ms == 0
