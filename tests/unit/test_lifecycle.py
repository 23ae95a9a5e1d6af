"""What must happen to a placement when its pods, its binding or its job change."""

import msgspec
import pytest

from berth.core.errors import InvariantError
from berth.core.invariants import check
from berth.core.lifecycle import Due, due
from berth.core.state import State
from schemas.columns import pack, pack_names
from schemas.envelope import decode, encode
from schemas.facts import JobSeen, JobState, OutcomeSeen, OutcomeState, PodPhase, PodsSeen, RankFailure
from schemas.ledger import Epoch, Eviction, Release, Round, Settings, Verdict
from schemas.message import Message
from schemas.placement import Run, placement_of
from schemas.status import SnapshotBody
from tests.support.cells import a_job

P = PodPhase


class Life:
    """A gang of two pods on nodes a and b, placed for the ``attempt``-th time."""

    def __init__(self, *, attempt: int = 1, attempts_max: int = 3) -> None:
        self.state = State(keeps=True)
        self.attempt = attempt
        self.state.apply_record(1, encode(Epoch(1, 0, 0, 0, "h", Settings(attempts_max=attempts_max))))
        self.job("accepted")
        placement = placement_of(["a", "b"], [(0,), (0,)], [Run(2, 1)], resource="r")
        self.round(verdicts=[Verdict("default", "j", "uid-j", attempt, placement)])
        assert not self.due()

    def fact(self, message: Message, kind: str) -> None:
        assert self.state.apply_fact(f"berth.c.fact.{kind}", self.state.facts_seq + 1, encode(message)) == ""

    def job(self, state: JobState, uid: str = "uid-j") -> None:
        seq = self.state.intake_seq + 1
        self.fact(JobSeen("default", "j", uid, state, seq, 1, request=a_job("j"), after_seq=seq - 1), "job.default.j")

    def pods(self, *phases: PodPhase, uid: str = "uid-j") -> None:
        count = len(phases)
        fact = PodsSeen(
            "default",
            "j",
            uid,
            self.attempt,
            pack(range(count), 4),
            pack_names(["a", "b"]),
            pack(range(count), 4),
            pack(phases, 1),
            pack([1] * count, 8),
        )
        self.fact(fact, "pod.default.j")

    def outcome(self, state: OutcomeState, *, bound: int = 0, attempt: int = 0) -> None:
        fact = OutcomeSeen("default", "j", "uid-j", attempt or self.attempt, state, bound)
        self.fact(fact, "outcome.default.j")

    def round(self, **parts: object) -> None:
        head = self.state.fold.head
        record = Round(1, head, self.state.facts_seq, 50, head, **parts)  # type: ignore[arg-type]
        self.state.apply_record(head + 1, encode(record))

    def due(self) -> Due:
        return due(self.state)

    def carry_out(self) -> Due:
        found = self.due()
        self.round(evictions=found.evictions, releases=found.releases, adoptions=found.adoptions)
        return found

    def release(self, reason: str, *, again: bool = False) -> Due:
        return Due(releases=[Release("uid-j", self.attempt, reason, again)])  # type: ignore[arg-type]

    def eviction(self, reason: str) -> Due:
        return Due(evictions=[Eviction("uid-j", self.attempt, reason)])


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


@pytest.mark.parametrize(("attempt", "again"), [(1, True), (2, True), (3, False)])
def test_a_gang_is_placed_again_until_its_attempts_are_used_up(attempt: int, *, again: bool) -> None:
    life = Life(attempt=attempt, attempts_max=3)
    life.outcome("failed")
    assert life.carry_out() == life.release("bind-failed", again=again)
    assert life.state.fold.gangs["uid-j"].phase == ("waiting" if again else "failed")


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


def foreign(uid: str, *pods: tuple[str, int, PodPhase], attempt: int = 0) -> PodsSeen:
    nodes = sorted({node for node, _, _ in pods})
    return PodsSeen(
        "other",
        uid,
        uid,
        attempt,
        pack(range(len(pods)), 4),
        pack_names(nodes),
        pack([nodes.index(node) for node, _, _ in pods], 4),
        pack([phase for _, _, phase in pods], 1),
        pack([mask for _, mask, _ in pods], 8),
        resource="r",
        cpu_milli=9,
        foreign=True,
    )


def test_pods_of_another_scheduler_are_adopted_and_released() -> None:
    life = Life()
    life.fact(foreign("alien", ("c", 0b101, P.RUNNING), ("c", 0b10, P.PENDING)), "pod.other.alien")
    found = life.carry_out()
    assert [adoption.uid for adoption in found.adoptions] == ["alien"]
    placement = life.state.fold.holdings["alien", 0].placement
    assert (placement.names(), placement.chips_by_rank()) == (["c", "c"], [(0, 2), (1,)])
    assert life.state.held("c") == 0b111
    assert not life.due()
    life.fact(foreign("alien"), "pod.other.alien")
    assert life.carry_out() == Due(releases=[Release("alien", 0, "vanished")])
    assert life.state.held("c") == 0


def test_pods_of_another_scheduler_that_are_gone_leave_nothing_behind() -> None:
    life = Life()
    before = decode(life.state.dump(), SnapshotBody).facts
    life.fact(foreign("alien", ("a", 0b11, P.RUNNING)), "pod.other.alien")
    life.carry_out()
    assert life.state.short
    life.fact(foreign("alien"), "pod.other.alien")
    life.carry_out()
    assert (life.state.pods, life.state.foreign, life.state.short) == ({}, {}, {})
    assert decode(life.state.dump(), SnapshotBody).facts == before


def test_pods_that_are_gone_before_their_adoption_is_read_are_released_all_the_same() -> None:
    life = Life()
    life.fact(foreign("alien", ("c", 0b1, P.RUNNING)), "pod.other.alien")
    known, found = life.state.facts_seq, life.due()
    life.fact(foreign("alien"), "pod.other.alien")
    head = life.state.fold.head
    for number, adoptions in enumerate(([], found.adoptions), start=1):
        record = Round(1, head, known, 50, number, adoptions=adoptions)
        head += 1
        life.state.apply_record(head, encode(record))
    other = State(keeps=True)
    other.load(decode(life.state.dump(), SnapshotBody))
    assert due(other).releases == [Release("alien", 0, "vanished")]
    assert life.carry_out() == Due(releases=[Release("alien", 0, "vanished")])
    assert life.state.held("c") == 0
    assert life.state.pods == {}


def test_pods_of_a_job_that_is_over_are_kept_until_its_name_is_free() -> None:
    life = Life()
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    life.carry_out()
    assert list(life.state.pods) == [("default", "j")]
    job = life.state.jobs["default", "j"]
    life.fact(msgspec.structs.replace(job, state="tombstone", request=None), "job.default.j")
    assert life.state.pods == {}
    life.pods(P.SUCCEEDED, P.SUCCEEDED)  # late
    life.round()
    assert life.state.pods == {}


def test_what_others_own_is_not_adopted_and_two_strangers_do_not_get_one_chip() -> None:
    life = Life()  # owns chip 0 of a and b
    life.fact(foreign("one", ("a", 0b11, P.RUNNING), ("c", 0b1, P.RUNNING)), "pod.other.one")
    life.fact(foreign("two", ("a", 0b111, P.RUNNING)), "pod.other.two")
    adopted = {adoption.uid: adoption.placement.chips_by_rank() for adoption in life.carry_out().adoptions}
    assert adopted == {"one": [(1,), (0,)], "two": [(2,)]}


def test_a_stranger_whose_chips_turn_out_to_be_others_is_adopted_anew_in_one_record() -> None:
    life = Life()
    life.fact(foreign("one", ("c", 0b11, P.RUNNING)), "pod.other.one")
    life.carry_out()
    life.fact(foreign("one", ("c", 0b110, P.RUNNING)), "pod.other.one")
    found = life.carry_out()
    assert found.releases == [Release("one", 0, "vanished")]
    assert [adoption.placement.chips_by_rank() for adoption in found.adoptions] == [[(1, 2)]]
    assert not life.due()
    assert [pod.mask for pod in life.state.owned(("one", 0))] == [0b110]
    check(life.state)


def test_a_stranger_gets_the_chips_that_its_rival_gives_back() -> None:
    life = Life()  # owns chip 0 of a and b
    life.fact(foreign("one", ("a", 0b11, P.RUNNING)), "pod.other.one")
    life.carry_out()
    assert [pod.mask for pod in life.state.owned(("one", 0))] == [0b10]
    assert not life.due()
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    life.carry_out()
    life.carry_out()
    assert [pod.mask for pod in life.state.owned(("one", 0))] == [0b11]
    assert not life.due()
    check(life.state)


def test_pods_that_have_ended_are_adopted_without_chips_or_not_at_all() -> None:
    life = Life()
    life.fact(foreign("half", ("c", 0b1, P.FAILED), ("c", 0b1, P.RUNNING)), "pod.other.half")
    life.fact(foreign("dead", ("c", 0b10, P.SUCCEEDED)), "pod.other.dead")
    adopted = {adoption.uid: adoption.placement for adoption in life.carry_out().adoptions}
    assert list(adopted) == ["half"]
    assert adopted["half"].chips_by_rank() == [(), (0,)]
    assert [run.cpu_milli for run in adopted["half"].runs] == [0, 9]


def test_what_is_more_than_a_record_should_hold_is_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.core.lifecycle._SIZE_MAX", 2)
    life = Life()
    life.fact(foreign("one", ("c", 0b1, P.RUNNING), ("c", 0b10, P.RUNNING)), "pod.other.one")
    life.fact(foreign("two", ("c", 0b100, P.RUNNING)), "pod.other.two")
    adopted = [[adoption.uid for adoption in life.carry_out().adoptions] for _ in range(2)]
    assert adopted == [["one"], ["two"]]
    assert not life.due()
