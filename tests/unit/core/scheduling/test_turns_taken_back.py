"""Turns that are taken back leave the state as it was. And events that wake or release gangs, each by itself."""

from collections.abc import Callable

import pytest

from berth.core.cluster.node_packing import SWITCHES
from berth.core.state.ledger import Folded
from berth.schemas.facts import Leaf, NodeHealth, TopologySeen
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_scheduler import Seat
from tests.unit.core.scheduling.test_scheduler_policies import foreign, told


def topology(*leaves: str) -> TopologySeen:
    """Leaves by the letters of their nodes."""
    return TopologySeen(SWITCHES, [Leaf(f"leaf{name}", "", list(name)) for name in leaves], places=2)


def seat_with_held() -> Seat:
    """A large gang that waits for a job without end, and a small one that is held for its sake."""
    seat = Seat("a", "b", queue_policy="easy", reserve_chips=16, unknown_run_ms=10)
    seat.ill("b", NodeHealth.OK)
    seat.job(a_job("endless", chips=8))
    seat.round(at_ms=1)
    seat.job(a_job("large", chips=8, replicas=2))
    seat.job(a_job("small", chips=8))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 100), "small": ("reserved", 100)}
    assert [one.uid for one in seat.scheduler.dump().held] == ["uid-small"]
    return seat


def seat_below_leaves() -> Seat:
    """A gang that must be below one leaf and finds none that has two nodes."""
    seat = Seat("a", "b")
    seat.fact("topology.switch", topology("a", "b"))
    seat.round()
    labels = a_job("x").labels | {"tor-affinity": "large-model-schema"}
    seat.job(a_job("pair", chips=8, replicas=2, labels=labels))
    assert told(seat.round()) == {"pair": ("no-leaf", 0)}
    return seat


def worse(seat: Seat) -> None:
    """A node that is free gets worse; no node gets better."""
    seat.ill("b", NodeHealth.SUB_HEALTHY)


def leave(seat: Seat) -> None:
    """The large gang, which slept, is cancelled."""
    seat.job(a_job("large", chips=8, replicas=2), state="cancelled")


@pytest.mark.parametrize("change", [worse, leave])
def test_a_gang_released_in_a_turn_that_is_taken_back_is_held_as_before(change: Callable[[Seat], None]) -> None:
    seat = seat_with_held()
    change(seat)
    seat.scheduler.sync()
    before = seat.scheduler.dump()
    assert before.capacity_lost or before.queue_unblocked
    opening = seat.scheduler.open(101).opening
    assert opening is not None
    assert (seat.scheduler.dump().held, seat.scheduler.dump().capacity_lost, seat.scheduler.dump().queue_unblocked) == (
        [],
        False,
        False,
    )
    seat.scheduler.take_back(opening)
    assert seat.scheduler.dump() == before


def test_leaves_that_open_wake_a_gang_that_waits_for_them_also_after_a_turn_that_was_taken_back() -> None:
    seat = seat_below_leaves()
    seat.fact("topology.switch", topology("ab"))
    before = seat.scheduler.dump()
    assert (before.leaf_opened, before.capacity_gained) == (True, [])
    opening = seat.scheduler.open(6).opening
    assert opening is not None
    assert not seat.scheduler.dump().leaf_opened
    seat.scheduler.take_back(opening)
    assert seat.scheduler.dump() == before
    assert list(seat.verdicts()) == [("pair", True)]


def test_chips_that_were_taken_are_known_after_a_turn_that_was_taken_back() -> None:
    seat = Seat("a", "b")
    seat.job(a_job("first", chips=8))
    seat.round()
    seat.job(a_job("second", chips=8, replicas=2))
    before = seat.scheduler.dump()
    assert [chips for _, chips in before.chips_taken] == [0xFF]
    opening = seat.scheduler.open(6).opening
    assert opening is not None
    assert seat.scheduler.dump().chips_taken == []
    seat.scheduler.take_back(opening)
    assert seat.scheduler.dump() == before


def test_ranks_that_give_back_their_chips_unblock_gangs_that_are_held() -> None:
    seat = seat_with_held()
    holding = next(iter(seat.state.fold.holdings.values()))
    assert not seat.scheduler.pending.queue_unblocked
    seat.scheduler.follow(Folded(freed=[(holding, [0])]))
    assert seat.scheduler.pending.queue_unblocked


def test_chips_of_adopted_pods_are_not_given_away_in_the_same_record() -> None:
    seat = Seat("a")
    seat.job(a_job("small", chips=1))
    foreign(seat, "a")
    opening = seat.scheduler.open(5).opening
    assert opening is not None
    assert (list(opening.gangs), len(opening.must.adoptions)) == ([], 1)
    seat.scheduler.take_back(opening)
    record = seat.round()
    assert record is not None
    assert (record.verdicts, len(record.adoptions)) == ([], 1)
    assert list(seat.verdicts()) == [("small", False)]


def test_chips_are_not_given_away_whose_pods_only_the_next_record_has_room_to_adopt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seat = Seat("a", "b")
    seat.job(a_job("able", chips=8))
    assert list(seat.verdicts()) == [("able", True)]
    monkeypatch.setattr("berth.core.state.lifecycle._SIZE_MAX", 1)
    seat.ended("able")
    seat.job(a_job("small", chips=8))
    foreign(seat, "b")
    records = [seat.round() for _ in range(3)]
    found = [(len(one.releases), len(one.adoptions), len(one.verdicts)) for one in records if one is not None]
    assert found == [(1, 0, 0), (0, 1, 0), (0, 0, 1)]


def test_of_a_class_that_is_read_in_part_the_first_for_which_no_chip_is_left_gets_a_verdict() -> None:
    seat = Seat("a")
    for name in ("first", "second", "third", "fourth"):
        seat.job(a_job(name, chips=8))
    assert dict(seat.verdicts()) == {"first": True, "second": False, "third": False, "fourth": False}
    seat.ended("first")
    seat.round()
    assert list(seat.verdicts()) == [("second", True), ("third", False)]
    assert seat.round() is None
