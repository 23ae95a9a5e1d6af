"""Gangs that end for others only where no other set makes room: their end would break a disruption budget."""

from berth.schemas.facts import PodPhase
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_preemption import ended, made, pods_of
from tests.unit.core.scheduling.test_scheduler import Seat


def test_the_gang_goes_whose_end_breaks_no_budget_and_any_where_there_is_no_other() -> None:
    for broken, ends in (("", "y"), ("y", "x"), ("xy", "y")):
        seat = Seat("a", "b", preempt=2)
        for at_ms, name in ((1, "x"), (1_000_000, "y")):
            seat.job(a_job(name, chips=8))
            seat.round(at_ms=at_ms)
        for name in broken:
            pods_of(seat, name, PodPhase.RUNNING, chips=0xFF, budgets=["default/keep"])
        seat.job(a_job("high", chips=8, priority=1))
        assert ended(made(seat, 1_000_100)) == [ends]
