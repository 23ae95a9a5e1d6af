"""The stream of events: each is stored once, through restarts and with several instances."""

import msgspec
import pytest

from berth.runtime.errors import TransientError
from berth.schemas.envelope import encode
from berth.schemas.facts import PodPhase
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig
from berth.services.api.event_position import Position
from tests.support.cells import a_job
from tests.support.fake_bus import FakeBus
from tests.support.programs import events_in, ids_of, programs
from tests.support.waiting import until_true

LIVE = ApiConfig()
DEEP = b'{"later": ' + b"[" * 2_000 + b"]" * 2_000 + b"}"


async def test_every_change_of_a_job_is_an_event_on_its_subject() -> None:
    async with programs() as told:
        await told.lived()
        assert await told.ids() == ids_of("one")
        accepted, placed, running, succeeded = await events_in(told.bus, "default", "one")
        assert [(rank.node, rank.chips) for rank in placed.ranks] == [("n0", list(range(8)))]
        assert (accepted.request_seq, placed.request_seq, running.request_seq) == (1, 1, 1)
        assert [event.final for event in (accepted, placed, running, succeeded)] == [False, False, False, True]


async def test_what_happened_before_the_service_came_has_its_events() -> None:
    async with programs(is_started=False) as told:
        await told.lived()
        await told.start()
        assert await told.ids() == ids_of("one")


async def test_a_restart_stores_no_event_twice_and_misses_none() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await told.lived("one")
        await told.kill()
        await told.lived("two")
        instruments = await told.start(LIVE)
        assert sorted(await told.ids()) == sorted(ids_of("one") + ids_of("two"))
        await told.stop()
        assert instruments.metrics.events._value.get() == 4


@pytest.mark.parametrize("kept", range(5))
async def test_events_that_were_stored_before_a_crash_are_found_again(kept: int) -> None:
    async with programs(is_started=False) as told:
        await told.start()
        await told.lived()
        whole = await events_in(told.bus)
        await told.kill()
        stream = told.cell.server.streams[told.bus.subjects.stream(StreamName.EVENTS)]
        for sequence in list(stream.messages):  # as if the process had ended before it stored the rest
            if sequence > kept:
                stream.remove(sequence)
        await told.start()
        assert await events_in(told.bus) == whole


async def test_a_start_from_a_snapshot_gives_the_same_events() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await told.lived("one")
        told.cell.clock.advance(5)
        await told.turns(1)
        await told.cell.dispatcher.snapshots.write()
        await told.lived("two")
        whole = await events_in(told.bus)
        await told.stop()
        instruments = await told.start(LIVE)
        assert await events_in(told.bus) == whole
        assert instruments.metrics.events._value.get() == 0


async def test_a_start_tries_again_what_cannot_be_sent() -> None:
    async with programs(is_started=False) as told:
        await told.cell.submit(a_job("one", chips=8))
        await told.cell.turns(2)
        bus = FailingBus(told.cell.server, told.cell.cell)
        instruments = await told.start(ApiConfig(retry_wait_max_s=0.01), bus)
        assert await told.ids() == ids_of("one")[:2]
        assert instruments.metrics.failures._value.get() == 3


async def test_several_instances_store_each_event_once() -> None:
    async with programs(is_started=False) as told:
        told.cell.server.forgets_ids = True  # as after two minutes
        for _ in range(3):
            await told.start()
        await told.lived("one")
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

    async def before_publish(self, subject: str) -> None:
        if ".event.job." in subject and self.failures:
            self.failures -= 1
            raise TransientError("not connected")


async def test_events_that_cannot_be_sent_are_sent_later() -> None:
    async with programs(is_started=False) as told:
        bus = FailingBus(told.cell.server, told.cell.cell)
        instruments = await told.start(ApiConfig(retry_wait_max_s=0.01), bus)
        await told.cell.submit(a_job("one", chips=8))

        async def is_stored() -> bool:
            await told.turns(1)
            return await told.ids() == ids_of("one")[:2]

        await until_true(is_stored, deadline_s=5, what="the events")
        assert instruments.metrics.failures._value.get() == 3


async def test_how_far_the_events_go_is_stored() -> None:
    async with programs(is_started=False) as told:
        await told.start(LIVE)
        await told.lived()
        told.cell.clock.advance(6)
        await told.lived("two")
        stored = await told.bus.last(StreamName.EVENTS, told.bus.subjects.event_position)
        assert stored is not None
        position = msgspec.json.decode(stored.data, type=Position)
        assert position.ledger_seq > 1
        assert position.facts_seq > 1
        assert position.covers("ledger", position.ledger_seq)
        assert not position.covers("facts", position.facts_seq + 1)


async def test_a_position_of_other_streams_or_without_sense_does_not_count() -> None:
    async with programs(is_started=False) as told:
        await told.lived()
        for data in (b"junk", DEEP, encode(a_job("x")), msgspec.json.encode(Position(99, 99, "other", "other"))):
            await told.bus.publish(told.bus.subjects.event_position, data)
        await told.start()
        assert await told.ids() == ids_of("one")


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
        await told.lived()
        stored = (await told.bus.read(StreamName.EVENTS, filters=[subject]))[2:]
        assert [msgspec.json.decode(one.data, type=JobEvent).id for one in stored] == ids_of("one")


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
        await told.lived("one")
        await told.stop()
        await told.start(LIVE)  # derives the event again
        await told.lived("two")
        assert await told.ids() == ids_of("one") + ids_of("two")


async def test_a_consumer_ignores_fields_that_it_does_not_know() -> None:
    async with programs() as told:
        await told.lived()
        (first, *_) = await events_in(told.bus)
        more = msgspec.to_builtins(first) | {"later": {"a": 1}}
        assert msgspec.json.decode(msgspec.json.encode(more), type=JobEvent) == first
