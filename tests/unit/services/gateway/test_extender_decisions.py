"""Waiting for the binder to bind a pod: what ends it, and where the pod is to be then."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from berth.runtime.errors import TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.columns import pack
from berth.schemas.envelope import encode
from berth.schemas.facts import MembersSeen, OutcomeSeen
from berth.schemas.placement import Run, placement_of
from berth.schemas.status import JobStatus
from berth.services.gateway.extender.decisions import Decisions
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer

PLACEMENT = placement_of(["n1", "n2"], [(0, 1), (2, 3)], [Run(2, 2)], resource="r")
STATUS = JobStatus("ns", "job", "j1", "placed", 1, 1, attempt=1, placement=PLACEMENT)
MEMBERS = MembersSeen("ns", "job", "j1", rank=pack(range(2), 4), pods=["p0", "p1"], pod_uids=["p0", "p1"])
BOUND = OutcomeSeen("ns", "job", "j1", 1, "bound", bound=2)


class Case:
    """Decisions about a placed job of two pods, and what happens while one waits."""

    def __init__(self, bus: FakeBus, decisions: Decisions) -> None:
        self.bus = bus
        self.decisions = decisions

    async def bind(self) -> None:
        await self.bus.publish(self.bus.subjects.fact_outcome("ns", "job"), encode(BOUND))

    async def say_again(self) -> None:
        """A fact that changes nothing."""
        await self.bus.publish(self.bus.subjects.fact_member("ns", "job"), encode(MEMBERS))


@asynccontextmanager
async def decided() -> AsyncIterator[Case]:
    bus = FakeBus(FakeServer(), "x")
    await bus.ensure_streams()
    case = Case(bus, Decisions(bus, DEFAULT_LOG))
    await case.say_again()
    await bus.publish(bus.subjects.status("ns", "job"), encode(STATUS))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(case.decisions.run(), name="follow")
        await case.decisions.known.wait()
        yield case
        following.cancel()
    await bus.close()


async def test_waiting_ends_when_the_pod_is_bound() -> None:
    async with decided() as case, asyncio.TaskGroup() as group:
        waiting = group.create_task(case.decisions.bound("ns", "p0", "n1", timeout_s=30), name="wait")
        for happens in (case.say_again, case.bind):
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            await happens()
        place = await waiting
        assert (place.node, place.is_bound) == ("n1", True)


async def test_a_pod_that_is_to_be_elsewhere_is_not_waited_for() -> None:
    async with decided() as case:
        place = await case.decisions.bound("ns", "p1", "n1", timeout_s=30)
        assert (place.node, place.is_bound) == ("n2", False)


async def test_after_the_longest_wait_the_pod_is_where_it_is_to_be_and_not_bound() -> None:
    async with decided() as case:
        place = await case.decisions.bound("ns", "p0", "n1", timeout_s=0.01)
        assert (place.node, place.is_bound) == ("n1", False)


async def test_nothing_is_known_before_all_that_is_stored_was_read() -> None:
    bus = FakeBus(FakeServer(), "x")
    with pytest.raises(TransientError, match="facts about pods are being read"):
        await Decisions(bus, DEFAULT_LOG).bound("ns", "p0", "n1", timeout_s=30)
