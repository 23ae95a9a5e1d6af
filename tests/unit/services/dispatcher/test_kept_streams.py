"""Streams that the server lost, or that are stuck, while the dispatcher runs or starts: they are created again."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from berth.runtime.bus.port import StreamState
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.kept_streams import KeptStreams
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer


class FailingBus(FakeBus):
    """A connection whose requests to create streams fail as told, the first of the list first."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(FakeServer(), "cell")
        self.errors = list(errors)
        self.asked = 0

    async def ensure_streams(
        self,
        *,
        replicas: int = 1,
        max_bytes: Mapping[StreamName, int] | None = None,
        max_age_s: Mapping[StreamName, int] | None = None,
        waits_for: Collection[StreamName] = (),
    ) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        await super().ensure_streams(replicas=replicas, max_bytes=max_bytes, max_age_s=max_age_s, waits_for=waits_for)


class SilentBus(FakeBus):
    """A connection whose deletions land, but have no answer."""

    def __init__(self) -> None:
        super().__init__(FakeServer(), "cell")

    async def delete_stream(self, stream: StreamName) -> None:
        await super().delete_stream(stream)
        raise TransientError("no answer within 5 s")


class PatientBus(FakeBus):
    """A connection to servers that say of a stream without a leader that it is there."""

    async def ensure_streams(
        self,
        *,
        replicas: int = 1,
        max_bytes: Mapping[StreamName, int] | None = None,
        max_age_s: Mapping[StreamName, int] | None = None,
        waits_for: Collection[StreamName] = (),
    ) -> None:
        if not self.server.leaderless:
            await super().ensure_streams(
                replicas=replicas, max_bytes=max_bytes, max_age_s=max_age_s, waits_for=waits_for
            )


async def state_of(bus: FakeBus) -> StreamState | None:
    try:
        return await bus.state(StreamName.STATUS)
    except TransientError:
        return None


def lose(bus: FakeBus) -> None:
    """The server loses the statuses, and the connection breaks and is restored."""
    bus.server.delete(bus.subjects.stream(StreamName.STATUS))
    bus.link_changes += 2


async def test_streams_are_created_again_after_each_reconnection_and_not_without_one() -> None:
    bus = FakeBus(FakeServer(), "cell")
    await bus.ensure_streams()
    kept = KeptStreams(bus, 1, ManualClock(), DEFAULT_LOG)
    for _ in range(2):
        lose(bus)
        await kept.create_missing()
        assert await state_of(bus) is not None
    bus.server.delete(bus.subjects.stream(StreamName.STATUS))
    await kept.create_missing()
    assert await state_of(bus) is None


async def test_a_look_without_an_answer_is_repeated() -> None:
    bus = FailingBus(TransientError("no answer"))
    kept = KeptStreams(bus, 1, ManualClock(), DEFAULT_LOG)
    bus.link_changes += 2
    await kept.create_missing()
    assert await state_of(bus) is None
    await kept.create_missing()
    assert await state_of(bus) is not None


async def test_settings_that_cannot_be_corrected_are_not_asked_for_again() -> None:
    bus = FailingBus(FatalError("STATUS: storage is memory"))
    kept = KeptStreams(bus, 1, ManualClock(), DEFAULT_LOG)
    bus.link_changes += 2
    await kept.create_missing()
    await kept.create_missing()
    assert bus.asked == 1


class StuckLease:
    """Three servers of which none leads the stream of leases, and a dispatcher's eyes on it."""

    def __init__(self, replicas: int = 3) -> None:
        self.bus = FakeBus(FakeServer(), "cell")
        self.clock = ManualClock()
        self.kept = KeptStreams(self.bus, replicas, self.clock, DEFAULT_LOG)

    async def stick(self) -> None:
        await self.bus.ensure_streams()
        await self.bus.publish(self.bus.subjects.lease("dispatcher"), b"old")
        self.bus.server.leaderless.add(self.bus.subjects.stream(StreamName.LEASE))

    async def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            await self.kept.create_missing()

    async def is_free(self) -> bool:
        """Whether the stream can be used, and has nothing."""
        try:
            return await self.bus.last(StreamName.LEASE, self.bus.subjects.lease("dispatcher")) is None
        except TransientError:
            return False


async def test_a_stream_of_leases_without_a_leader_is_deleted_after_half_a_minute_and_not_before() -> None:
    stuck = StuckLease()
    await stuck.stick()
    await stuck.wait(30)
    assert not await stuck.is_free()
    await stuck.wait(1)
    assert await stuck.is_free()


async def test_half_a_minute_begins_anew_when_the_ledger_is_away_or_the_leases_have_a_leader() -> None:
    stuck = StuckLease()
    await stuck.stick()
    await stuck.wait(20)
    stuck.bus.server.is_down = True
    await stuck.wait(1)
    stuck.bus.server.is_down = False
    await stuck.wait(20)
    stuck.bus.server.leaderless.clear()
    await stuck.wait(1)
    await stuck.stick()
    await stuck.wait(30)
    assert not await stuck.is_free()
    await stuck.wait(1)
    assert await stuck.is_free()


async def test_with_one_replica_a_stream_comes_back_with_its_server_so_it_is_not_deleted() -> None:
    stuck = StuckLease(replicas=1)
    await stuck.stick()
    await stuck.wait(100)
    assert not await stuck.is_free()


async def test_a_stream_whose_deletion_had_no_answer_is_created_again() -> None:
    stuck = StuckLease()
    stuck.bus = SilentBus()
    stuck.kept = KeptStreams(stuck.bus, 3, stuck.clock, DEFAULT_LOG)
    await stuck.stick()
    await stuck.wait(31)
    assert await stuck.is_free()


@pytest.mark.parametrize("bus_type", [FakeBus, PatientBus])
async def test_a_start_frees_the_leases_and_goes_on(bus_type: type[FakeBus]) -> None:
    stuck = StuckLease()
    stuck.bus = bus_type(FakeServer(), "cell")
    stuck.kept = KeptStreams(stuck.bus, 3, stuck.clock, DEFAULT_LOG)
    await stuck.stick()
    async with asyncio.TaskGroup() as group:
        start = group.create_task(stuck.kept.begin(), name="start")
        while not start.done():
            stuck.clock.advance(40)
            await asyncio.sleep(0)
    assert await stuck.is_free()


async def test_a_start_without_a_server_ends() -> None:
    stuck = StuckLease()
    stuck.bus.server.is_down = True
    with pytest.raises(TransientError):
        await stuck.kept.begin()


async def test_statuses_are_published_again_after_a_reconnection() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("one")])
    await cell.submit(a_job("job", chips=8))
    await cell.turns(3)
    before = await cell.status("job")
    bus = cell.dispatcher.bus
    assert isinstance(bus, FakeBus)
    lose(bus)
    await cell.user.ensure_streams()
    assert await cell.status("job") is None
    cell.clock.advance(2 * cell.config.tick_s)
    await cell.turns(2)
    after = await cell.status("job")
    assert before is not None
    assert after is not None
    assert (after.phase, after.attempt) == (before.phase, before.attempt) == ("placed", 1)
    await cell.close()
