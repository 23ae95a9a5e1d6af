"""Attempts that are found while others own some of their chips: they own the rest, and get those as they are free."""

from berth.core.state.invariants import check
from berth.schemas.columns import pack
from berth.schemas.facts import PodPhase
from berth.schemas.intake import Task
from berth.schemas.ledger import Correction, Release, Verdict
from berth.schemas.placement import Run, placement_of
from tests.unit.core.state.test_regained import RUN, Restored, leaving, moved

P = PodPhase


def two(*chips: int) -> dict[str, bytes]:
    """Columns of a fact with a pod on each node, by their chips as masks."""
    return {"chips": pack(chips, 8)}


def other_owner(life: Restored, *chips: int) -> None:
    """Chips of node a that an attempt owns which is over."""
    other = placement_of(["a"], [chips], [Run(1, len(chips))], resource="r")
    life.round(verdicts=[Verdict("default", "k", "uid-k", 1, other)])


def test_chips_that_have_another_owner_are_not_taken_from_it_and_those_that_have_none_are_owned_at_once() -> None:
    """Else the other nodes of the attempt are free, and are given away."""
    life = Restored(task=Task("worker", 2, 2))
    other_owner(life, 0)
    life.found(*RUN, **two(0b11, 0b11))
    due = life.carry_out()
    assert ([(one.uid, one.attempt) for one in due.regained], due.takes_places) == ([("uid-j", 1)], True)
    assert life.state.fold.holdings["uid-j", 1].placement.chips_by_rank() == [(1,), (0, 1)]
    assert (life.state.held("a"), life.state.held("b")) == (0b11, 0b11)
    assert life.due().short == ["uid-j"]
    check(life.state)


def test_an_attempt_that_owns_a_part_of_its_chips_gets_the_rest_when_they_are_given_back() -> None:
    life = Restored(task=Task("worker", 2, 2))
    other_owner(life, 0, 1, 2)
    life.found(*RUN, **two(0b11, 0b11))
    life.carry_out()
    assert life.state.fold.holdings["uid-j", 1].placement.chips_by_rank() == [(), (0, 1)]
    life.round(releases=[Release("uid-k", 1, "vanished")])
    due = life.carry_out()
    assert (due.corrections, due.short, due.takes_places) == ([Correction("uid-j", 1, [0], [[0, 1]])], [], True)
    assert (life.state.held("a"), life.state.held("b")) == (0b11, 0b11)
    assert not life.due()
    check(life.state)
    life.pods(P.SUCCEEDED, P.SUCCEEDED)
    assert life.carry_out() == life.release("succeeded")
    assert (life.state.held("a"), life.state.held("b")) == (0, 0)


def test_it_does_not_get_more_chips_than_its_job_asks_for() -> None:
    life = Restored(is_placed=True)
    life.found(*RUN, **two(0b11, 0b1))
    assert life.due().corrections == []


def test_chips_of_a_moved_pod_that_have_another_owner_are_not_taken_from_it_and_follow_later() -> None:
    life = Restored(is_placed=True)
    other = placement_of(["b"], [(2,)], [Run(1, 1)], resource="r")
    life.round(verdicts=[Verdict("default", "k", "uid-k", 1, other)])
    life.found(*RUN, **moved(1, 0))
    due = life.carry_out()
    assert ([one.step for one in due.recoveries], due.takes_places) == ([1], True)
    assert life.state.fold.holdings["uid-j", 1].placement.chips_by_rank() == [(), (0,)]
    assert life.due().short == ["uid-j"]
    check(life.state)
    life.round(releases=[Release("uid-k", 1, "vanished")])
    assert life.carry_out().corrections == [Correction("uid-j", 1, [0], [[2]])]
    assert not life.due()
    check(life.state)


def test_a_step_gives_a_rank_that_owns_a_part_of_its_chips_all_that_it_asks_for() -> None:
    life = Restored(task=Task("worker", 2, 2))
    other_owner(life, 0)
    life.found(*RUN, **two(0b11, 0b11))
    life.carry_out()
    own = life.state.fold.holdings["uid-j", 1].placement
    leaving(life, placement_of(["b"], [(2, 3)], [Run(1, 2)], resource=own.resource, groups=own.groups))
    life.round(releases=[Release("uid-j", 1, "fault", ranks=[0])])
    assert life.state.fold.holdings["uid-j", 1].placement.chips_by_rank() == [(2, 3), (0, 1)]
    check(life.state)


def test_a_pod_of_a_rank_that_has_given_back_its_chips_does_not_get_them_again() -> None:
    life = Restored(is_placed=True)
    life.found(P.FAILED, P.RUNNING)
    life.carry_out()
    assert life.state.fold.holdings["uid-j", 1].gone == [0]
    life.found(*RUN)
    assert life.due().corrections == []
