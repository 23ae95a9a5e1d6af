"""The stream of events after a loss: of its end, of all of it, or of what its position is about."""

import msgspec
import pytest
from msgspec.structs import replace

from berth.runtime.errors import FatalError
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig
from berth.services.api.event_position import position_at, read_position
from tests.support.cells import a_job
from tests.support.fake_bus import FakeBus
from tests.support.programs import Programs, events_in, ids_of, programs
from tests.support.waiting import until_true

LIVE = ApiConfig()
DEEP = b'{"later": ' + b"[" * 2_000 + b"]" * 2_000 + b"}"


async def test_a_stream_that_is_lost_is_rebuilt_with_the_same_events() -> None:
    async with programs(is_started=False) as told:
        await told.start()
        await told.lived("one")
        await told.lived("two")
        whole = await events_in(told.bus)
        await told.stop()
        del told.cell.server.streams[told.bus.subjects.stream(StreamName.EVENTS)]
        await told.start()
        assert {event.id: event for event in await events_in(told.bus)} == {event.id: event for event in whole}


@pytest.mark.parametrize(
    "wrong",
    [{"events": "other"}, {"ledger_ms": 1}, {"facts_ms": 1}, {"ledger_seq": 1_000}, {"facts_seq": 1_000}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_position_of_what_the_server_lost_does_not_count(wrong: dict[str, object]) -> None:
    """A server that lost power gives the sequences of what it lost to others."""
    async with programs(is_started=False) as told:
        await told.lived()
        found = await position_at(told.bus, 1, 1, ledger_ms=0, facts_ms=0)
        heads = [(await told.bus.state(stream)).last_seq for stream in (StreamName.LEDGER, StreamName.FACTS)]
        last = [
            await told.bus.message(stream, head)
            for stream, head in zip((StreamName.LEDGER, StreamName.FACTS), heads, strict=True)
        ]
        times = [one.at_ms for one in last if one is not None]
        right = replace(
            found, ledger_seq=heads[0], facts_seq=heads[1], ledger_ms=times[0], facts_ms=times[1], events=found.events
        )
        position = told.bus.subjects.event_position
        await told.bus.publish(position, msgspec.json.encode(replace(right, **wrong)))
        await told.start()
        assert await told.ids() == ids_of("one")
        await told.stop()
        told.cell.server.rewind(told.bus.subjects.stream(StreamName.EVENTS), 0)
        await told.bus.publish(position, msgspec.json.encode(right))
        await told.start()
        assert await told.ids() == [], "a right one does"


async def test_the_position_has_the_times_of_what_was_applied() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        told.cell.clock.advance(6)
        await told.lived()
        told.cell.clock.advance(6)
        await told.lived("two")
        found = await read_position(told.bus)
        record = await told.bus.message(StreamName.LEDGER, found.ledger_seq)
        fact = await told.bus.message(StreamName.FACTS, found.facts_seq)
        assert record is not None
        assert fact is not None
        assert (found.ledger_ms, found.facts_ms) == (record.at_ms, fact.at_ms)


async def test_the_stream_made_again_ends_the_service() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        del told.cell.server.streams[told.bus.subjects.stream(StreamName.EVENTS)]
        await told.bus.ensure_streams()
        told.cell.clock.advance(6)
        await told.lived()
        with pytest.raises(FatalError, match="was made again"):
            await told.stop()


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_events_that_a_killed_server_lost_are_stored_again(others: int) -> None:
    """Also if another instance has stored others in their places."""
    async with programs(is_started=False) as told:
        bus = FakeBus(told.cell.server, told.cell.cell)
        await told.start(ApiConfig(), bus)
        told.cell.clock.advance(6)
        await told.lived("one")
        await told.lived("two")
        whole = await told.ids()
        name = told.bus.subjects.stream(StreamName.EVENTS)
        told.cell.server.rewind(name, told.cell.server.streams[name].last_seq - 2)
        for number in range(others):
            await told.bus.publish(told.bus.subjects.event_job("other", "job"), b'{"id": "other/%d"}' % number)
        bus.link_changes += 2
        with pytest.raises(FatalError, match="has lost its end"):
            await told.ended()
        await told.start(LIVE)
        assert sorted(await told.ids("one") + await told.ids("two")) == sorted(whole)


async def started_with_nothing_to_store(told: Programs) -> FakeBus:
    """Start the service anew, so often that all events are covered by a position; returns the bus of the last start."""
    for _ in range(2):  # each start stores its position
        await told.stop()
        await told.start(LIVE)
    await told.stop()
    bus = FakeBus(told.cell.server, told.cell.cell)
    await told.start(LIVE, bus)
    return bus


@pytest.mark.parametrize("refilled", [False, True])
async def test_a_loss_before_anything_was_stored_here_is_seen(refilled: bool) -> None:  # noqa: FBT001  # a parameter
    """Another instance, or this one before a restart, stored what the server lost."""
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await told.lived("one")
        told.cell.clock.advance(6)
        bus = await started_with_nothing_to_store(told)
        whole = await told.ids()
        name = told.bus.subjects.stream(StreamName.EVENTS)
        last_seq = told.cell.server.streams[name].last_seq
        told.cell.server.rewind(name, 1)
        if refilled:
            for number in range(last_seq):
                await told.bus.publish(told.bus.subjects.event_job("other", "job"), b'{"id": "other/%d"}' % number)
        bus.link_changes += 2
        with pytest.raises(FatalError, match="has lost its end"):
            await told.ended()
        await told.start(LIVE)
        assert sorted(await told.ids("one")) == sorted(whole)


async def test_what_is_read_of_an_old_job_does_not_hide_a_loss() -> None:
    """A name is used again: its events are read, and are older than what is lost."""
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await told.lived("one")
        told.cell.clock.advance(6)
        await told.lived("two")
        told.cell.clock.advance(6)
        bus = await started_with_nothing_to_store(told)
        whole = await told.ids()
        assert (await told.submit("one", namespace="default", uid="again"))["ok"]
        old = await told.bus.last(StreamName.EVENTS, told.bus.subjects.event_job("default", "one"))
        assert old is not None
        told.cell.server.rewind(told.bus.subjects.stream(StreamName.EVENTS), old.sequence)
        bus.link_changes += 2
        with pytest.raises(FatalError, match="has lost its end"):
            await told.ended()
        await told.start(LIVE)
        assert set(whole) <= set(await told.ids())


class LosingBus(FakeBus):
    """The server is killed right after it has stored an event, and loses the last ones; the connection is back at once.

    Attributes:
        fatal: Id of the event.
        count: Messages that are lost, with it.
    """

    fatal = ""
    count = 1

    def after_publish(self, sequence: int, message_id: str) -> None:
        if message_id and message_id == self.fatal:
            self.fatal = ""
            self.server.rewind(self.subjects.stream(StreamName.EVENTS), sequence - self.count)
            self.link_changes += 2


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_events_that_are_lost_while_others_are_stored_are_stored_again(count: int) -> None:
    """Those that are stored next would get their sequences, and nobody would see that they are gone."""
    async with programs(is_started=False) as told:
        bus = LosingBus(told.cell.server, told.cell.cell)
        names = ["one", "two", "three", "four", "five", "six"]
        bus.fatal, bus.count = "uid-three/0/0/accepted", count
        await told.start(LIVE, bus)
        for name in names:
            await told.cell.submit(a_job(name, chips=2))
        await told.turns(2)
        whole = sorted(event for name in names for event in ids_of(name)[:2])
        if count > 1:  # one of them had been acknowledged
            with pytest.raises(FatalError, match="has lost its end"):
                await told.ended()
            await told.start(LIVE)

        async def are_stored() -> bool:
            return sorted(await told.ids()) == whole

        await until_true(are_stored, deadline_s=5, what="all events are stored")
        assert not bus.fatal, "it was killed"


async def test_a_break_of_the_connection_without_a_loss_changes_nothing() -> None:
    async with programs(is_started=False) as told:
        bus = FakeBus(told.cell.server, told.cell.cell)
        await told.start(LIVE, bus)
        await told.lived("one")
        bus.link_changes += 2
        await told.lived("two")
        await told.bus.purge(StreamName.EVENTS, keep_from_seq=99)
        bus.link_changes += 2
        await told.lived("three")
        assert await told.ids() == ids_of("three"), "what became too old is not stored again"
        await told.stop()
