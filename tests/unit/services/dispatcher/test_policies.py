"""Queue policies of a dispatcher that reigns, on a whole cell in memory."""

import pytest

from berth.core.explain.refusal_text import sentence
from berth.schemas.facts import PodPhase
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node

NODES = 2
HOUR_MS = 3_600_000


async def a_cell(*, shards: int = 0, **decisions: object) -> Cell:
    """A cell of two nodes of 8 chips, on one of which a job runs that says it takes an hour."""
    cell = await Cell(shards=shards, reserve_chips=16, **decisions).open()  # type: ignore[arg-type]  # fields of the settings
    await cell.nodes([a_node(f"n{number}") for number in range(NODES)])
    await cell.submit(a_job("first", chips=8, run_ms=HOUR_MS))
    await cell.turns(3)
    return cell


def node_of(cell: Cell, name: str) -> str:
    """Node of a job of one pod; empty while it waits."""
    state = cell.dispatcher.state
    gang = state.fold.gangs[state.jobs["default", name].uid]
    holding = state.fold.holdings.get((gang.uid, gang.attempt))
    return holding.placement.names()[0] if holding is not None else ""


def refusal_of(cell: Cell, name: str) -> Refusal:
    state = cell.dispatcher.state
    refusal = state.fold.gangs[state.jobs["default", name].uid].refusal
    assert refusal is not None
    return refusal


async def timers(cell: Cell) -> int:
    return sum(stored.subject.endswith("timer") for stored in await cell.user.read(StreamName.FACTS))


async def test_fifo_keeps_small_jobs_behind_one_that_waits_until_it_is_placed() -> None:
    cell = await a_cell(queue_policy="fifo")
    await cell.submit(a_job("large", chips=8, replicas=2), a_job("small"))
    await cell.turns(3)
    assert (node_of(cell, "large"), node_of(cell, "small")) == ("", "")
    assert (refusal_of(cell, "small").code, refusal_of(cell, "small").ahead) == ("behind", "default/large")
    status = await cell.status("small")
    assert status is not None
    assert status.sentence == "waits behind default/large, which was first in the queue (queue_policy fifo)"
    assert not cell.dispatcher.has_work, "nobody is looked at again while nothing changes"
    await cell.cancel("large")
    await cell.turns(4)
    assert node_of(cell, "small") != ""
    await cell.close()


async def test_fifo_is_not_blocked_by_a_job_that_is_larger_than_the_cluster() -> None:
    cell = await a_cell(queue_policy="fifo")
    await cell.submit(a_job("huge", chips=8, replicas=3), a_job("small"))
    await cell.turns(3)
    assert refusal_of(cell, "huge").code == "larger-than-cluster"
    assert node_of(cell, "small") != ""
    await cell.nodes([a_node(f"n{number}") for number in range(NODES + 1)])
    await cell.submit(a_job("later"))
    await cell.turns(3)
    assert refusal_of(cell, "later").code == "behind", "now it waits for room like anybody else"
    await cell.close()


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.parametrize("policy", ["easy", "conservative"])
async def test_a_long_job_waits_for_the_reservation_and_a_short_one_does_not(policy: str, shards: int) -> None:
    cell = await a_cell(queue_policy=policy, shards=shards)
    began_ms = cell.dispatcher.state.fold.holdings["uid-first", 1].at_ms
    await cell.submit(a_job("large", chips=8, replicas=2, run_ms=HOUR_MS))
    await cell.submit(a_job("long", run_ms=2 * HOUR_MS), a_job("short", run_ms=HOUR_MS // 2))
    await cell.turns(4)
    assert refusal_of(cell, "large").start_ms == began_ms + HOUR_MS
    told = refusal_of(cell, "long")
    assert (told.code, told.ahead, told.start_ms) == ("reserved", "default/large", began_ms + HOUR_MS)
    assert "1 of 2 nodes fits, but room is reserved for default/large from 2023-11-14T23:13:20Z on" in sentence(told)
    assert node_of(cell, "short") != ""
    assert not cell.dispatcher.has_work
    await cell.pods("short", PodPhase.SUCCEEDED)
    await cell.pods("first", PodPhase.SUCCEEDED)
    await cell.turns(6)
    assert node_of(cell, "large") != ""
    assert node_of(cell, "long") == ""
    await cell.close()


async def test_a_cell_ticks_once_the_moment_has_come_and_not_before() -> None:
    cell = await a_cell(queue_policy="easy")
    await cell.submit(a_job("large", chips=8, replicas=2), a_job("long"))
    await cell.turns(4)
    assert refusal_of(cell, "long").code == "reserved"
    for _ in range(10):
        cell.clock.advance(60)
        await cell.turns()
    assert await timers(cell) == 0
    cell.clock.advance(3600)
    await cell.turns(3)
    assert await timers(cell) == 1
    assert node_of(cell, "long") == "", "the first job is late, and expected to end at once"
    for _ in range(10):
        cell.clock.advance(60)
        await cell.turns()
    assert await timers(cell) == 1, "who is late keeps nobody busy"
    await cell.close()


async def test_a_held_job_is_looked_at_when_the_one_ahead_is_taken_back() -> None:
    cell = await a_cell(queue_policy="easy")
    await cell.submit(a_job("large", chips=8, replicas=2), a_job("long"))
    await cell.turns(4)
    assert node_of(cell, "long") == ""
    await cell.cancel("large")
    await cell.turns(4)
    assert node_of(cell, "long") != ""
    await cell.close()


async def test_another_reign_under_another_policy_tries_everybody_anew() -> None:
    cell = await a_cell(queue_policy="easy")
    await cell.submit(a_job("large", chips=8, replicas=2), a_job("long"))
    await cell.turns(4)
    assert node_of(cell, "long") == ""
    other = Cell(server=cell.server, queue_policy="skip")
    other.clock = cell.clock
    await other.start_dispatcher()
    await other.turns(3)
    assert node_of(other, "long") != ""
    await other.close()
