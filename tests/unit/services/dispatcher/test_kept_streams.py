"""Views that the server lost while the dispatcher runs: their streams are created again, then their messages."""

from collections.abc import Mapping

from berth.runtime.bus.port import StreamState
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.kept_streams import KeptStreams
from tests.support.cells import Cell, a_job, a_node
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
    ) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        await super().ensure_streams(replicas=replicas, max_bytes=max_bytes, max_age_s=max_age_s)


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
    kept = KeptStreams(bus, 1, DEFAULT_LOG)
    for _ in range(2):
        lose(bus)
        await kept.look()
        assert await state_of(bus) is not None
    bus.server.delete(bus.subjects.stream(StreamName.STATUS))
    await kept.look()
    assert await state_of(bus) is None


async def test_a_look_without_an_answer_is_repeated() -> None:
    bus = FailingBus(TransientError("no answer"))
    kept = KeptStreams(bus, 1, DEFAULT_LOG)
    bus.link_changes += 2
    await kept.look()
    assert await state_of(bus) is None
    await kept.look()
    assert await state_of(bus) is not None


async def test_settings_that_cannot_be_corrected_are_not_asked_for_again() -> None:
    bus = FailingBus(FatalError("STATUS: storage is memory"))
    kept = KeptStreams(bus, 1, DEFAULT_LOG)
    bus.link_changes += 2
    await kept.look()
    await kept.look()
    assert bus.asked == 1


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
