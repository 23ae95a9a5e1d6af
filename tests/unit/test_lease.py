"""The dispatcher's lease: who works, and how soon another may."""

from berth.runtime.faults import FaultPoints
from services.dispatcher.lease import Lease
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer


class Candidates:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bus = FakeBus(FakeServer(self.clock), "cell")

    def one(self, holder: str) -> Lease:
        return Lease(self.bus, self.clock, role="dispatcher", holder=holder, lease_s=5, faults=FaultPoints())


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
