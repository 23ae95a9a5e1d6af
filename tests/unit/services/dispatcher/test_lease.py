"""The dispatcher's lease: who works, and how soon another may."""

import asyncio

from berth.runtime.instruments import Instruments
from berth.services.dispatcher.lease import Lease
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer


class SlowBus(FakeBus):
    """A bus whose server takes three seconds to store a message."""

    def after_publish(self, sequence: int, message_id: str) -> None:
        del sequence, message_id  # all take as long
        self.server.clock.advance(3)


class Candidates:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = FakeBus(FakeServer(self.clock), "cell")

    def one(self, holder: str) -> Lease:
        return Lease(
            self.bus,
            self.clock,
            role="dispatcher",
            holder=holder,
            lease_s=5,
            instruments=Instruments.make(DispatcherMetrics),
        )


async def test_one_of_two_candidates_gets_the_lease_until_it_runs_out() -> None:
    them = Candidates()
    await them.bus.ensure_streams()
    first, second = them.one("a"), them.one("b")
    assert await first.acquire()
    assert not await second.acquire()
    them.clock.advance(4)
    assert await first.acquire()  # renewed
    them.clock.advance(4)
    assert first.is_held
    assert not await second.acquire()
    them.clock.advance(2)
    assert not first.is_held
    assert await second.acquire()
    assert not await first.acquire()
    await them.bus.close()


async def test_a_lease_that_was_given_up_is_free_at_once() -> None:
    them = Candidates()
    await them.bus.ensure_streams()
    first, second = them.one("a"), them.one("b")
    assert await first.acquire()
    await first.release()
    assert not first.is_held
    assert await second.acquire()
    await first.release()  # it has nothing to give up
    assert second.is_held
    assert not await first.acquire()
    await them.bus.close()


async def test_a_lease_runs_from_when_it_was_asked_for_because_the_server_may_have_stored_it_then() -> None:
    clock = ManualClock()
    bus = SlowBus(FakeServer(clock), "cell")
    await bus.ensure_streams()
    lease = Lease(bus, clock, role="dispatcher", holder="a", lease_s=5, instruments=Instruments.make(DispatcherMetrics))
    assert await lease.acquire()  # stored at 0 s, answered at 3 s
    clock.advance(1)
    assert lease.is_held
    clock.advance(1)
    assert not lease.is_held, "the server lets another have it from here on"
    await bus.close()


async def test_of_candidates_that_find_the_lease_free_together_one_gets_it() -> None:
    them = Candidates()
    await them.bus.ensure_streams()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(them.one(holder).acquire()) for holder in ("a", "b")]
    assert sorted(task.result() for task in tasks) == [False, True]
    await them.bus.close()


async def test_a_candidate_takes_up_a_lease_that_is_its_own() -> None:
    them = Candidates()
    await them.bus.ensure_streams()
    lease = them.one("a")
    assert await lease.acquire()
    lease.drop()
    assert not lease.is_held
    assert await lease.acquire()
    await them.bus.close()


async def test_a_lease_that_cannot_be_asked_for_is_not_held() -> None:
    them = Candidates()
    await them.bus.ensure_streams()
    lease = them.one("a")
    assert await lease.acquire()
    them.bus.server.is_down = True
    assert await lease.acquire(), "it lasts until it runs out"
    them.clock.advance(5)
    assert not await lease.acquire()
    await them.bus.close()


async def taken_over(them: Candidates) -> tuple[Lease, Lease]:
    """A lease whose holder's clock stands still, and that of who has it now."""
    await them.bus.ensure_streams()
    first = Lease(
        them.bus,
        ManualClock(),
        role="dispatcher",
        holder="a",
        lease_s=5,
        instruments=Instruments.make(DispatcherMetrics),
    )
    second = them.one("b")
    assert await first.acquire()
    them.clock.advance(6)
    assert await second.acquire()
    return first, second


async def test_a_lease_that_another_took_over_is_not_given_up() -> None:
    them = Candidates()
    first, second = await taken_over(them)
    await first.release()
    assert not await them.one("c").acquire()
    assert second.is_held
    await them.bus.close()


async def test_who_finds_its_lease_taken_over_acts_no_more() -> None:
    them = Candidates()
    first, _ = await taken_over(them)
    assert first.is_held
    assert not await first.acquire()
    assert not first.is_held
    await them.bus.close()
