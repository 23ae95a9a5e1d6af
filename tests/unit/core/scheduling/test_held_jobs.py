"""Jobs that somebody holds, releases, or gives another priority."""

import msgspec
import pytest

from berth.core.explain.job_status import status_of
from berth.core.overview.queue_order import queue_key
from berth.core.state.admission import Holder, Receipt, steer
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobSteer
from berth.schemas.ledger import Settings
from berth.schemas.status import JobStatus
from tests.support.team_cell import Team

POLICIES = ("skip", "fifo", "easy", "conservative")


class Steered(Team):
    """A cell with one node of 8 chips, whose jobs are steered."""

    def __init__(self, policy: str = "skip") -> None:
        super().__init__(1, Settings(queue_policy=policy, reserve_chips=16, unknown_run_ms=1_000), shards=(1, 3))

    def steer(self, name: str, **fields: object) -> JobSeen:
        job = self.seat.state.jobs["team", name]
        wish = JobSteer(**{"namespace": "team", "name": name, "uid": job.uid, "by": "ops", **fields})  # type: ignore[arg-type]  # its fields
        last = self.seat.state.intake_seq
        verdict = steer(wish, Receipt(last + 1, last, 5), Holder(job, is_over=False))
        assert verdict is not None
        self.jobs += 1
        self.fact(f"job.team.{name}", verdict)
        return verdict

    def status(self, name: str) -> JobStatus:
        found = status_of(self.seat.state, ("team", name), at_ms=5)
        assert found is not None
        return found


@pytest.mark.parametrize("policy", POLICIES)
def test_a_held_job_is_not_started_and_blocks_nobody_until_it_is_released(policy: str) -> None:
    cell = Steered(policy)
    cell.job("first", chips=8)
    cell.steer("first", held=True)
    cell.job("second", chips=8)
    assert cell.round() == [("second", "")]
    cell.ended("second")
    cell.round()
    assert cell.round() == []
    cell.steer("first", held=False)
    assert cell.round() == [("first", "")]


def test_a_job_that_was_refused_is_held_and_passed() -> None:
    cell = Steered("fifo")
    for name in ("runs", "head", "small"):
        cell.job(name, chips=8)
    assert cell.round() == [("runs", ""), ("head", "no-room"), ("small", "fifo")]
    cell.steer("head", held=True)
    cell.ended("runs")
    cell.round()
    assert cell.round() == [("small", "")]


def test_its_status_says_who_holds_it_and_why_and_it_comes_last_in_lists() -> None:
    cell = Steered()
    for name in ("runs", "held", "waits"):
        cell.job(name, chips=8)
    cell.round()
    cell.steer("held", held=True, reason="no data yet")
    held, waits = cell.status("held"), cell.status("waits")
    assert (held.phase, held.is_held, held.sentence, held.refusal) == (
        "waiting",
        True,
        "held by ops: no data yet",
        None,
    )
    assert queue_key(waits) < queue_key(held)
    cell.steer("held", held=False)
    again = cell.status("held")
    assert not again.is_held
    assert again.sentence == msgspec.structs.replace(cell.status("waits")).sentence


def test_a_priority_decides_who_is_first() -> None:
    cell = Steered()
    cell.job("old", chips=8)
    cell.job("new", chips=8)
    cell.steer("new", priority=3)
    assert cell.round() == [("new", ""), ("old", "no-room")]
    assert cell.status("new").priority == 3


def test_a_snapshot_holds_it() -> None:
    cell = Steered()
    cell.job("held", chips=8)
    cell.steer("held", held=True)
    loaded = type(cell.seat).loaded(cell.seat.snapshot())
    assert loaded.state.jobs["team", "held"].hold == cell.seat.state.jobs["team", "held"].hold
    assert loaded.scheduler.open(6).opening is None
