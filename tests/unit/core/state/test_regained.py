"""Attempts and steps that a restored ledger does not know, although pods run: they get the places of these pods."""

from typing import Any

import msgspec
import pytest

from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.holdings.pod_phases import STEP_MAX, next_step
from berth.core.state.invariants import check
from berth.core.state.lifecycle import examine
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode
from berth.schemas.facts import JobSeen, JobState, OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.intake import Task
from berth.schemas.ledger import Release, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal
from berth.schemas.status import SnapshotBody
from tests.support.cells import a_job
from tests.support.gang_lifecycle import Life

P = PodPhase
RUN = (P.RUNNING, P.RUNNING)


class Restored(Life):
    """A cell whose ledger is older than its pods."""

    def __init__(
        self,
        *,
        is_placed: bool = False,
        attempt: int = 1,
        replicas: int = 2,
        task: Task | None = None,
    ) -> None:
        self.task = task or Task("worker", replicas, 1)
        super().__init__(attempt=attempt, is_placed=is_placed)

    def job(self, state: JobState, uid: str = "uid-j", **changes: Any) -> None:  # noqa: ANN401 - fields of the fact
        super().job(state, uid, **{"request": a_job("j", tasks=[self.task]), **changes})

    def found(self, *phases: PodPhase, **changes: object) -> None:
        fact = msgspec.structs.replace(self.pods_fact(*phases), **{"attempt": 1, **changes})
        self.fact(fact, "pod.default.j")


def moved(*steps: int, nodes: tuple[str, str] = ("b", "b"), chips: tuple[int, int] = (0b100, 1)) -> dict[str, bytes]:
    """Columns of a fact whose first pod was moved."""
    names = sorted(set(nodes))
    index = pack([names.index(node) for node in nodes], 4)
    return {"nodes": pack_names(names), "node_index": index, "chips": pack(chips, 8), "steps": pack(steps, 4)}


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
        {"rank": pack([0, 0], 4)},
        {"chips": pack([0b11, 1], 8)},
    ],
)
def test_pods_of_another_or_none_or_too_few_regain_nothing(changes: dict[str, object]) -> None:
    life = Restored()
    life.fact(msgspec.structs.replace(life.pods_fact(*RUN), **changes), "pod.default.j")
    assert life.due().regained == []


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_job_that_is_found_without_one_of_its_pods_owns_the_places_of_the_others_and_starts_anew(rank: int) -> None:
    life = Restored(replicas=3)
    rest = [one for one in range(3) if one != rank]
    life.found(*RUN, rank=pack(rest, 4))
    assert [one.uid for one in life.carry_out().regained] == ["uid-j"]
    assert (life.state.held("a"), life.state.held("b")) == (1, 1)
    due = life.carry_out()
    (step,) = due.recoveries
    assert (step.step, step.scope, step.how, step.ranks, step.faulty) == (1, "job", "force", [rank], [])
    assert (life.state.held("a"), life.state.held("b")) == (1, 1), "until its pods are gone"
    check(life.state)
    life.found(P.GONE, P.GONE, rank=pack(rest, 4))
    life.outcome("evicted")
    assert life.carry_out().releases == [Release("uid-j", 1, "fault", again=True)]
    assert (life.state.held("a"), life.state.held("b")) == (0, 0)
    gang = life.state.fold.gangs["uid-j"]
    assert (gang.phase, gang.attempt) == ("waiting", 2)


def test_so_does_a_job_without_chips() -> None:
    life = Restored(task=Task("worker", 3, 0, cpu_milli=500))
    life.found(*RUN, rank=pack([0, 2], 4), chips=pack([0, 0], 8))
    assert life.carry_out().regained
    runs = life.state.fold.holdings["uid-j", 1].placement.runs
    assert [(run.chips, run.cpu_milli) for run in runs] == [(0, 500), (0, 0), (0, 500)]
    assert [step.ranks for step in life.carry_out().recoveries] == [[1]]


def test_a_rank_that_asks_for_nothing_lacks_nothing() -> None:
    life = Restored(task=Task("worker", 3, 0))
    life.found(*RUN, rank=pack([0, 2], 4), chips=pack([0, 0], 8))
    assert life.carry_out().regained
    assert not life.due()


def test_a_rank_whose_pod_has_ended_does_not_start_the_job_anew() -> None:
    life = Restored(replicas=3)
    life.found(P.RUNNING, P.SUCCEEDED, P.RUNNING, **three())
    assert life.carry_out().regained
    assert life.carry_out() == Due(releases=[Release("uid-j", 1, "succeeded", ranks=[1])])
    life.found(P.RUNNING, P.RUNNING, rank=pack([0, 2], 4), chips=pack([1, 0b10], 8))
    assert not life.due()


def three() -> dict[str, bytes]:
    """Columns of a fact with three pods."""
    index = pack([0, 1, 1], 4)
    return {"rank": pack(range(3), 4), "node_index": index, "chips": pack([1, 1, 0b10], 8)}


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


def test_an_attempt_waits_for_no_chips_once_pods_of_another_uid_take_its_name() -> None:
    life = Restored()
    other = placement_of(["a"], [(0, 1)], [Run(1, 2)], resource="r")
    life.round(verdicts=[Verdict("default", "k", "uid-k", 1, other)])
    life.found(*RUN)
    assert life.due().short == ["uid-j"]
    life.found(*RUN, uid="uid-old")
    assert life.state.short == {}


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_an_attempt_does_not_wait_for_chips_of_others_once_its_job_is_cancelled_or_the_ledger_knows_it(
    *, is_cancelled: bool
) -> None:
    life = Restored()
    other = placement_of(["a"], [(0, 1)], [Run(1, 2)], resource="r")
    life.round(verdicts=[Verdict("default", "k", "uid-k", 1, other)])
    life.found(*RUN)
    assert life.due().short == ["uid-j"]
    if is_cancelled:
        life.job("cancelled")
    else:
        own = placement_of(["a", "b"], [(2,), (0,)], [Run(2, 1)], resource="r")
        life.round(verdicts=[Verdict("default", "j", "uid-j", 1, own)])
    assert life.due().short == []


def test_a_record_that_gives_back_chips_of_pods_that_run_gives_no_places() -> None:
    """Some of what these pods have may be free already."""
    due = Due(releases=[Release("uid-k", 1, "vanished")])
    assert not due.takes_places
    due.short = ["uid-j"]
    assert due.takes_places


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


def test_a_rank_gets_the_place_of_its_pod_that_was_bound_for_a_step_that_the_ledger_does_not_know() -> None:
    life = Restored(is_placed=True)
    life.found(*RUN, **moved(3, 0))
    due = life.carry_out()
    assert due.takes_places
    assert [(one.step, one.how, one.ranks, one.faulty) for one in due.recoveries] == [(3, "force", [0], [])]
    assert due.releases == [Release("uid-j", 1, "fault", ranks=[0])]
    assert due.given == [due.recoveries[0].placement]
    assert (life.state.held("a"), life.state.held("b")) == (0, 0b101)
    holding = life.state.fold.holdings["uid-j", 1]
    assert (holding.step, holding.steps, holding.gone, holding.moves) == (3, {0: 3}, [], [])
    assert not life.due()
    check(life.state)
    life.found(P.SUCCEEDED, P.RUNNING, **moved(3, 0))
    assert life.carry_out() == Due(releases=[Release("uid-j", 1, "succeeded", ranks=[0])])
    assert life.state.held("b") == 1


def test_steps_are_found_one_after_another() -> None:
    """The later step has the place that the earlier one has left."""
    life = Restored(is_placed=True)
    life.found(*RUN, **moved(4, 2, chips=(0b1, 0b10)))
    assert [(one.step, one.ranks) for one in life.carry_out().recoveries] == [(2, [1])]
    assert [(one.step, one.ranks) for one in life.carry_out().recoveries] == [(4, [0])]
    assert (life.state.held("a"), life.state.held("b")) == (0, 0b11)
    assert not life.due()
    check(life.state)


def test_ranks_of_one_step_may_have_changed_places() -> None:
    life = Restored(is_placed=True)
    life.found(*RUN, **moved(2, 2, nodes=("b", "a"), chips=(1, 1)))
    assert [one.ranks for one in life.carry_out().recoveries] == [[0, 1]]
    assert life.state.fold.holdings["uid-j", 1].placement.names() == ["b", "a"]
    check(life.state)


def test_an_attempt_that_is_found_knows_the_steps_of_its_pods() -> None:
    life = Restored()
    life.found(*RUN, **moved(3, 0, nodes=("a", "b"), chips=(1, 1)))
    assert life.carry_out().regained
    assert [one.step for one in life.carry_out().recoveries] == [3]
    assert (life.state.held("a"), life.state.held("b")) == (1, 1)
    assert not life.due()
    check(life.state)


def leaving(life: Restored, placement: Placement | None) -> None:
    step = Recovery("default", "j", "uid-j", 1, 1, "CardUnhealthy", "", "pod", "grace", [0], [0], 5, 9, placement)
    life.round(recoveries=[step])


def test_a_rank_that_leaves_was_released_if_its_new_pod_runs() -> None:
    life = Restored(is_placed=True)
    leaving(life, placement_of(["b"], [(2,)], [Run(1, 1)], resource="r"))
    life.found(*RUN)
    assert not life.due()
    life.found(*RUN, **moved(1, 0))
    assert life.carry_out() == Due(releases=[Release("uid-j", 1, "fault", ranks=[0])])
    assert (life.state.held("a"), life.state.held("b")) == (0, 0b101)
    assert not life.due()
    check(life.state)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_rank_that_leaves_or_has_left_gets_the_place_of_a_step_that_is_not_known(*, is_gone: bool) -> None:
    life = Restored(is_placed=True)
    leaving(life, placement_of(["b"], [(2,)], [Run(1, 1)], resource="r") if not is_gone else None)
    if is_gone:
        life.round(releases=[Release("uid-j", 1, "fault", ranks=[0])])
        assert life.state.fold.holdings["uid-j", 1].unplaced == [0]
    life.found(*RUN, **moved(2, 0, chips=(0b10, 1)))
    due = life.carry_out()
    assert [one.step for one in due.recoveries] == [2]
    assert due.releases == ([] if is_gone else [Release("uid-j", 1, "fault", ranks=[0])])
    assert (life.state.held("a"), life.state.held("b")) == (0, 0b11)
    assert not life.state.fold.holdings["uid-j", 1].recovers
    check(life.state)


@pytest.mark.parametrize(
    ("changes", "phases"),
    [
        ({}, (P.GONE, P.RUNNING)),
        ({"chips": (0b1100, 1)}, RUN),
        ({"steps": (STEP_MAX + 1, 0)}, RUN),
    ],
)
def test_pods_that_have_ended_or_are_of_another_size_or_of_an_impossible_step_move_nothing(
    changes: dict[str, tuple[int, int]], phases: tuple[PodPhase, ...]
) -> None:
    life = Restored(is_placed=True)
    columns = moved(*changes.get("steps", (1, 0)), chips=changes.get("chips", (0b100, 1)))
    life.found(*phases, **columns)
    assert life.due().recoveries == []


def test_a_pod_that_has_ended_does_not_hide_the_step_of_another() -> None:
    life = Restored(is_placed=True)
    life.found(P.GONE, P.RUNNING, **moved(1, 2, chips=(0b100, 0b10)))
    assert [(one.step, one.ranks) for one in life.due().recoveries] == [(2, [1])]


def test_an_attempt_that_ends_takes_no_step() -> None:
    life = Restored(is_placed=True)
    life.job("cancelled")
    assert life.carry_out().evictions
    life.found(*RUN, **moved(1, 0))
    assert not life.due()


def test_the_next_step_is_above_those_that_pods_and_the_binder_know() -> None:
    holding = Restored(is_placed=True).state.fold.holdings["uid-j", 1]
    seen = PodsSeen("default", "j", "uid-j", 1, steps=pack([0, 4], 4))
    outcome = OutcomeSeen("default", "j", "uid-j", 1, "bound", 2, step=6)
    assert [next_step(holding, *known) for known in ((None, None), (seen, None), (seen, outcome))] == [1, 5, 7]
    beyond = OutcomeSeen("default", "j", "uid-j", 1, "bound", 2, step=STEP_MAX + 1)
    assert next_step(holding, None, beyond) == 1
