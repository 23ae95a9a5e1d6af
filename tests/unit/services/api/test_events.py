"""The stream of events: each is stored once, through restarts, losses and several instances."""

import msgspec
import pytest
from msgspec.structs import replace

from berth.runtime.errors import FatalError, TransientError
from berth.schemas.envelope import encode
from berth.schemas.facts import PodPhase
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig
from berth.services.api.event_position import Position, position_at, read_position
from tests.support.cells import a_job
from tests.support.fake_bus import FakeBus
from tests.support.programs import Programs, events_in, programs
from tests.support.waiting import until_true

LIVE = ApiConfig(position_every_s=1.0)
DEEP = b'{"later": ' + b"[" * 2_000 + b"]" * 2_000 + b"}"


async def lived(told: Programs, name: str = "one") -> None:
    """A job of which all happens: it is placed, runs and ends."""
    await told.cell.submit(a_job(name, chips=8))
    await told.turns(2)
    for phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED):
        await told.cell.pods(name, phase)
        await told.turns(2)


def ids_of(name: str) -> list[str]:
    phases = ("0/0/accepted", "1/0/placed", "1/0/running", "1/0/succeeded")
    return [f"uid-{name}/{phase}" for phase in phases]


async def test_every_change_of_a_job_is_an_event_on_its_subject() -> None:
    async with programs() as told:
        await lived(told)
        assert await told.ids() == ids_of("one")
        accepted, placed, running, succeeded = await events_in(told.bus, "default", "one")
        assert [(rank.node, rank.chips) for rank in placed.ranks] == [("n0", list(range(8)))]
        assert (accepted.request_seq, placed.request_seq, running.request_seq) == (1, 1, 1)
        assert [event.final for event in (accepted, placed, running, succeeded)] == [False, False, False, True]


async def test_what_happened_before_the_service_came_has_its_events() -> None:
    async with programs(is_started=False) as told:
        await lived(told)
        await told.start()
        assert await told.ids() == ids_of("one")


async def test_a_restart_stores_no_event_twice_and_misses_none() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await lived(told, "one")
        await told.kill()
        await lived(told, "two")
        instruments = await told.start(LIVE)
        assert sorted(await told.ids()) == sorted(ids_of("one") + ids_of("two"))
        await told.stop()
        assert instruments.metrics.events._value.get() == 4


@pytest.mark.parametrize("kept", range(5))
async def test_events_that_were_stored_before_a_crash_are_found_again(kept: int) -> None:
    async with programs(is_started=False) as told:
        await told.start()
        await lived(told)
        whole = await events_in(told.bus)
        await told.kill()
        stream = told.cell.server.streams[told.bus.subjects.stream(StreamName.EVENTS)]
        for sequence in list(stream.messages):  # as if the process had ended before it stored the rest
            if sequence > kept:
                stream.remove(sequence)
        await told.start()
        assert await events_in(told.bus) == whole


async def test_a_stream_that_is_lost_is_rebuilt_with_the_same_events() -> None:
    async with programs(is_started=False) as told:
        await told.start()
        await lived(told, "one")
        await lived(told, "two")
        whole = await events_in(told.bus)
        await told.stop()
        del told.cell.server.streams[told.bus.subjects.stream(StreamName.EVENTS)]
        await told.start()
        assert sorted(await events_in(told.bus), key=by_id) == sorted(whole, key=by_id)


def by_id(event: JobEvent) -> str:
    return event.id


async def test_a_start_from_a_snapshot_gives_the_same_events() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await lived(told, "one")
        told.cell.clock.advance(5)
        await told.turns(1)
        await told.cell.dispatcher.snapshots.write()
        await lived(told, "two")
        whole = await events_in(told.bus)
        await told.stop()
        instruments = await told.start(LIVE)
        assert await events_in(told.bus) == whole
        assert instruments.metrics.events._value.get() == 0


async def test_several_instances_store_each_event_once() -> None:
    async with programs(is_started=False) as told:
        told.cell.server.forgets_ids = True  # as after two minutes
        for _ in range(3):
            await told.start()
        await lived(told, "one")
        await told.turns(2)
        assert await told.ids() == ids_of("one")


async def test_an_event_whose_answer_was_lost_is_stored_once() -> None:
    async with programs(is_started=False) as told:
        await told.start()
        await told.cell.submit(a_job("one", chips=8))
        await told.cell.turns(1)
        told.cell.server.lose_answers = 1
        await told.turns(2)
        assert await told.ids() == ids_of("one")[:2]


class FailingBus(FakeBus):
    """A bus over which some events are not sent."""

    failures = 3

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        expected_subject_seq: int | None = None,
        ttl_s: int | None = None,
        message_id: str = "",
        timeout_s: float = 5.0,
    ) -> int:
        if ".event.job." in subject and self.failures:
            self.failures -= 1
            raise TransientError("not connected")
        return await super().publish(
            subject,
            data,
            expected_subject_seq=expected_subject_seq,
            ttl_s=ttl_s,
            message_id=message_id,
            timeout_s=timeout_s,
        )


async def test_events_that_cannot_be_sent_are_sent_later() -> None:
    async with programs(is_started=False) as told:
        bus = FailingBus(told.cell.server, told.cell.cell)
        instruments = await told.start(ApiConfig(retry_wait_s=0.01), bus)
        await told.cell.submit(a_job("one", chips=8))

        async def is_stored() -> bool:
            await told.turns(1)
            return await told.ids() == ids_of("one")[:2]

        await until_true(is_stored, deadline_s=5, what="the events")
        assert instruments.metrics.failures._value.get() == 3


async def test_how_far_the_events_go_is_stored() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await lived(told)
        told.cell.clock.advance(2)
        await lived(told, "two")
        stored = await told.bus.last(StreamName.EVENTS, told.bus.subjects.event_position)
        assert stored is not None
        position = msgspec.json.decode(stored.data, type=Position)
        assert position.ledger_seq > 1
        assert position.facts_seq > 1
        assert position.holds("ledger", position.ledger_seq)
        assert not position.holds("facts", position.facts_seq + 1)


async def test_a_position_of_other_streams_or_without_sense_does_not_count() -> None:
    async with programs(is_started=False) as told:
        await lived(told)
        for data in (b"junk", DEEP, encode(a_job("x")), msgspec.json.encode(Position(99, 99, "other", "other"))):
            await told.bus.publish(told.bus.subjects.event_position, data)
        await told.start()
        assert await told.ids() == ids_of("one")


@pytest.mark.parametrize(
    "wrong",
    [{"events": "other"}, {"ledger_ms": 1}, {"facts_ms": 1}, {"ledger_seq": 1_000}, {"facts_seq": 1_000}],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_position_of_what_the_server_lost_does_not_count(wrong: dict[str, object]) -> None:
    """A server that lost power gives the sequences of what it lost to others."""
    async with programs(is_started=False) as told:
        await lived(told)
        found = await position_at(told.bus, 1, 1)
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
        told.cell.clock.advance(2)
        await lived(told)
        told.cell.clock.advance(2)
        await lived(told, "two")
        found = await read_position(told.bus)
        record = await told.bus.message(StreamName.LEDGER, found.ledger_seq)
        fact = await told.bus.message(StreamName.FACTS, found.facts_seq)
        assert record is not None
        assert fact is not None
        assert (found.ledger_ms, found.facts_ms) == (record.at_ms, fact.at_ms)


async def test_jobs_with_one_uid_have_all_their_events() -> None:
    """The server takes the second of two messages with one id for the first one again, for some minutes."""
    async with programs() as told:
        spaces = ("default", "a", "b")
        for space, uid in zip(spaces, ("u", "of-a", "of-b"), strict=True):
            await told.cell.submit(a_job("one", uid=uid, namespace=space))
        await told.turns(2)
        for space in spaces[1:]:  # both are rejected: the name is in use, and so is the uid
            await told.cell.submit(a_job("one", uid="u", namespace=space))
        await told.turns(2)
        for space in spaces[1:]:
            assert "u/0/0/rejected" in [event.id for event in await events_in(told.bus, space, "one")]


async def test_what_is_no_event_counts_as_none() -> None:
    async with programs(is_started=False) as told:
        subject = told.bus.subjects.event_job("default", "one")
        for data in (b"junk", DEEP):
            await told.bus.publish(subject, data)
        await told.start()
        await lived(told)
        stored = (await told.bus.read(StreamName.EVENTS, filters=[subject]))[2:]
        assert [msgspec.json.decode(one.data, type=JobEvent).id for one in stored] == ids_of("one")


async def test_the_stream_made_again_ends_the_service() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        del told.cell.server.streams[told.bus.subjects.stream(StreamName.EVENTS)]
        await told.bus.ensure_streams()
        told.cell.clock.advance(2)
        await lived(told)
        with pytest.raises(FatalError, match="was made again"):
            await told.stop()


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_events_that_a_killed_server_lost_are_stored_again(others: int) -> None:
    """Also if another instance has stored others in their places."""
    async with programs(is_started=False) as told:
        bus = FakeBus(told.cell.server, told.cell.cell)
        await told.start(ApiConfig(position_every_s=0.01), bus)
        told.cell.clock.advance(2)
        await lived(told, "one")
        await lived(told, "two")
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


@pytest.mark.parametrize("refilled", [False, True])
async def test_a_loss_before_anything_was_stored_here_is_seen(refilled: bool) -> None:  # noqa: FBT001  # a parameter
    """Another instance, or this one before a restart, stored what the server lost."""
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await lived(told, "one")
        told.cell.clock.advance(2)
        for _ in range(2):  # each start stores its position; the last one begins where nothing is to be stored
            await told.stop()
            await told.start(LIVE)
        await told.stop()
        whole = await told.ids()
        bus = FakeBus(told.cell.server, told.cell.cell)
        await told.start(LIVE, bus)
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
        await lived(told, "one")
        told.cell.clock.advance(2)
        await lived(told, "two")
        told.cell.clock.advance(2)
        for _ in range(2):
            await told.stop()
            await told.start(LIVE)
        await told.stop()
        whole = await told.ids()
        bus = FakeBus(told.cell.server, told.cell.cell)
        await told.start(LIVE, bus)
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

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        expected_subject_seq: int | None = None,
        ttl_s: int | None = None,
        message_id: str = "",
        timeout_s: float = 5.0,
    ) -> int:
        sequence = await super().publish(
            subject,
            data,
            expected_subject_seq=expected_subject_seq,
            ttl_s=ttl_s,
            message_id=message_id,
            timeout_s=timeout_s,
        )
        if message_id and message_id == self.fatal:
            self.fatal = ""
            self.server.rewind(self.subjects.stream(StreamName.EVENTS), sequence - self.count)
            self.link_changes += 2
        return sequence


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
        await lived(told, "one")
        bus.link_changes += 2
        await lived(told, "two")
        await told.bus.purge(StreamName.EVENTS, keep_from_seq=99)
        bus.link_changes += 2
        await lived(told, "three")
        assert await told.ids() == ids_of("three"), "what became too old is not stored again"
        await told.stop()


async def test_an_event_that_is_too_long_is_stored_without_its_ranks() -> None:
    async with programs(nodes=40) as told:
        await told.cell.submit(a_job("one", chips=8, replicas=40))
        await told.turns(2)
        whole = msgspec.json.encode((await events_in(told.bus))[-1])
        await told.cell.pods("one", PodPhase.SUCCEEDED)
        await told.turns(2)
        told.cell.server.payload_limit_bytes = len(whole) - 100
        await told.cell.submit(a_job("two", chips=8, replicas=40))
        await told.turns(2)
        placed = [event for event in await events_in(told.bus) if event.phase == "placed"]
        assert [(event.name, len(event.ranks), bool(event.sentence)) for event in placed] == [
            ("one", 40, False),
            ("two", 0, True),
        ]


async def test_an_event_that_is_too_long_without_ranks_is_left_out_and_the_service_goes_on() -> None:
    """A request in msgpack may have a uid of any length: the request fits once, its event has the uid three times."""
    async with programs(is_started=False) as told:
        told.cell.server.payload_limit_bytes = 9_000
        await told.start(LIVE)
        await told.cell.submit(a_job("long", chips=8, uid="u" * 3_500))
        await lived(told, "one")
        await told.stop()
        await told.start(LIVE)  # derives the event again
        await lived(told, "two")
        assert await told.ids() == ids_of("one") + ids_of("two")


async def test_a_consumer_ignores_fields_that_it_does_not_know() -> None:
    async with programs() as told:
        await lived(told)
        (first, *_) = await events_in(told.bus)
        more = msgspec.to_builtins(first) | {"later": {"a": 1}}
        assert msgspec.json.decode(msgspec.json.encode(more), type=JobEvent) == first
