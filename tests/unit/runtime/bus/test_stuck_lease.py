"""The stream of leases without a leader is deleted by who needs it while no dispatcher runs."""

import asyncio
from collections.abc import Sequence

import pytest

from berth.runtime.bus.stuck_lease import StuckLease
from berth.runtime.errors import TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.subjects import StreamName
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer


async def freed(gone: Sequence[StreamName] = (), *, is_stuck: bool = True) -> tuple[bool, int]:
    """Free the leases of a cell that lacks some streams; whether they were deleted, and the seconds that it took."""
    bus, clock = FakeBus(FakeServer(), "cell"), ManualClock()
    await bus.ensure_streams()
    for name in gone:
        bus.server.delete(bus.subjects.stream(name))
    if is_stuck:
        bus.server.leaderless.add(bus.subjects.stream(StreamName.LEASE))
    began_s = clock.monotonic_s()
    lease = StuckLease(bus, clock, DEFAULT_LOG)
    async with asyncio.TaskGroup() as group:
        freeing = group.create_task(lease.free(), name="free")
        while not freeing.done():
            clock.advance(1)
            await asyncio.sleep(0.001)
    is_gone = bus.subjects.stream(StreamName.LEASE) not in bus.server.streams
    assert is_gone == lease.is_deleted
    return is_gone, round(clock.monotonic_s() - began_s)


async def test_leases_that_have_a_leader_are_left_alone_at_once() -> None:
    assert await freed(is_stuck=False) == (False, 1)


@pytest.mark.parametrize("gone", [[], [StreamName.LEDGER]])
async def test_leases_without_a_leader_are_deleted_after_half_a_minute(gone: list[StreamName]) -> None:
    is_gone, seconds = await freed(gone)
    assert is_gone
    assert seconds >= 30


async def test_nothing_is_deleted_while_nothing_tells_that_the_servers_are_there() -> None:
    assert await freed([StreamName.LEDGER, StreamName.LATEST, StreamName.FACTS]) == (False, 1)


async def waits(lease: StuckLease) -> str:
    with pytest.raises(TransientError) as caught:
        await lease.free()
    return caught.value.reason


async def test_who_waits_for_leases_that_cannot_be_deleted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.runtime.bus.stuck_lease.LOOK_S", 0)

    class Denying(FakeBus):
        async def delete_stream(self, stream: StreamName) -> None:
            raise TransientError(f"no answer about {stream}")

    bus, clock = Denying(FakeServer(), "cell"), ManualClock()
    await bus.ensure_streams()
    bus.server.leaderless.add(bus.subjects.stream(StreamName.LEASE))
    async with asyncio.TaskGroup() as group:
        freeing = group.create_task(waits(StuckLease(bus, clock, DEFAULT_LOG)), name="free")
        while not freeing.done():
            clock.advance(1)
            await asyncio.sleep(0.001)
    assert freeing.result() == "the stream of leases has no leader, and was not deleted"
