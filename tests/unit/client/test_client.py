"""The client against the service on the bus in memory.

Longer than 400 lines because requests, waits and events share one service and the ways to break its bus.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from berth.client import (
    Client,
    ClientError,
    ConnectionLostError,
    EventsLostError,
    JobFile,
    JobMetadata,
    JobSpec,
    RequestError,
    StoredEvent,
    UnavailableError,
    WaitTimeoutError,
)
from berth.client.handed_over import REMEMBERED_MAX, HandedOver
from berth.runtime.bus.port import Served
from berth.schemas.programs.events import EventsKept, JobEvent, event_id
from berth.schemas.programs.requests import EVENTS_MAX
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.fake_bus import FakeBus, FakeServed
from tests.support.fake_server import FakeServer
from tests.support.programs import Programs, answering_events, job_file, programs
from tests.support.waiting import SLACK, until

TRAIN = JobFile(
    metadata=JobMetadata(name="train", namespace="team"), spec=JobSpec(product="module910bx8", replicas=2, chips=8)
)


def client_of(told: Programs) -> Client:
    return Client(told.bus, timeout_s=2)


@asynccontextmanager
async def answering(
    answer: Callable[[dict[str, Any]], bytes | None], verb: str = "submit", *, timeout_s: float = 2
) -> AsyncIterator[Client]:
    """A client whose requests are answered by a function."""
    server = FakeServer()
    async with FakeBus(server, "c") as bus:

        async def handle(data: bytes) -> bytes | None:
            return answer(msgspec.json.decode(data))

        served: Served = await bus.serve(bus.subjects.api(verb), handle)
        async with Client(bus, timeout_s=timeout_s) as client:
            yield client
        await served.stop()


async def take(events: AsyncIterator[StoredEvent], count: int) -> list[StoredEvent]:
    """The next events."""
    async with asyncio.timeout(10 * SLACK):
        return [await anext(events) for _ in range(count)]


async def raised(work: Awaitable[object], error: type[ClientError]) -> str:
    with pytest.raises(error) as caught:
        await work
    return str(caught.value)


async def test_a_job_from_submission_to_its_places() -> None:
    async with programs() as told:
        client = client_of(told)
        reply = await client.submit(TRAIN)
        assert reply.uid
        assert (await client.status("train", namespace="team")).phase == "submitted"
        async with asyncio.TaskGroup() as group:
            placed = group.create_task(client.wait("train", "placed", namespace="team", uid=reply.uid, timeout_s=10))
            await told.turns(2)
        assert {rank.node for rank in placed.result().ranks} == {"n0", "n1"}
        assert (await client.explain("train", namespace="team")).uid == reply.uid
        assert [len(node.used) for node in await client.nodes()] == [8, 8]
        assert [node.name for node in await client.nodes(["n1"])] == ["n1"]
        with pytest.raises(RequestError, match="has its place already"):
            await client.update("train", namespace="team", held=True)
        assert (await client.cancel("train", namespace="team", reason="done")).uid == reply.uid
        await told.turns(2)
        assert (await client.status("train", namespace="team", uid=reply.uid)).phase == "ending"


async def test_a_client_asks_when_jobs_start() -> None:
    async with programs() as told:
        client = client_of(told)
        for name in ("one", "two"):
            file = job_file(name, uid=f"u-{name}")
            file["spec"] |= {"runFor": "10m", "replicas": 2}
            await client.submit(file)
            await told.turns(3)
        (two,) = await client.expected_starts(namespace="team")
        assert (two.name, two.held_by) == ("two", ["team/one"])
        new = await client.ask(TRAIN, queue="research")
        assert (new.name, new.queue, new.position) == ("train", "research", 2)
        assert new.earliest_ms == two.earliest_ms + 600_000


async def test_the_uid_is_that_of_the_caller_then_that_of_the_file_then_a_new_one() -> None:
    seen: list[str] = []

    def answer(request: dict[str, Any]) -> bytes:
        seen.append(request["job"]["metadata"]["uid"])
        return msgspec.json.encode({"ok": True, "namespace": "n", "name": "j", "uid": seen[-1], "sequence": 1})

    async with answering(answer) as client:
        await client.submit(job_file(uid="of-the-file"), uid="of-the-caller")
        await client.submit(job_file(uid="of-the-file"))
        await client.submit(job_file(uid=""))
        await client.submit(job_file(uid=""))
    assert seen[:2] == ["of-the-caller", "of-the-file"]
    assert len(set(seen)) == 4
    assert all(seen)


async def test_a_request_is_repeated_with_its_uid_until_there_is_an_answer() -> None:
    seen: list[str] = []

    def answer(request: dict[str, Any]) -> bytes:
        seen.append(request["job"]["metadata"]["uid"])
        if len(seen) < 3:
            return msgspec.json.encode({"ok": False, "error": "NATS is unavailable", "code": "unavailable"})
        return msgspec.json.encode({"ok": True, "namespace": "n", "name": "j", "uid": seen[-1], "sequence": 1})

    async with answering(answer) as client:
        reply = await client.submit(job_file(uid=""))
    assert seen == [reply.uid] * 3


async def test_a_request_that_came_too_early_is_repeated_when_there_is_room_and_one_without_a_time_is_not() -> None:
    answers: list[dict[str, Any]] = [{"code": "too-many", "retry_after_ms": 10}, {"code": "too-many"}]

    def answer(_: dict[str, Any]) -> bytes:
        return msgspec.json.encode({"ok": False, "error": "there are too many", **answers.pop(0)})

    async with answering(answer) as client:
        assert await raised(client.submit(job_file()), RequestError) == "there are too many"
    assert answers == []


async def test_without_an_answer_the_error_has_the_uid_for_a_later_repetition() -> None:
    async with answering(lambda _: None, timeout_s=0.05) as client:
        with pytest.raises(UnavailableError, match=r"no answer to submit within 0\.05 s") as caught:
            await client.submit(job_file(uid="u-7"))
        assert caught.value.uid == "u-7"
        assert "no responders" in await raised(client.status("train"), UnavailableError)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"ok": true}', b'{"ok": false}', b"\xff", b'{"x":' + b"[" * 2_000]
)
async def test_an_answer_that_cannot_be_read_is_an_error(data: bytes) -> None:
    async with answering(lambda _: data) as client:
        assert "cannot be read" in await raised(client.submit(job_file()), ClientError)


async def test_an_answer_of_a_later_release_is_read() -> None:
    data = b'{"ok": true, "namespace": "n", "name": "j", "uid": "u", "sequence": 1, "later": {"x": 1}}'
    async with answering(lambda _: data) as client:
        assert (await client.submit(job_file())).sequence == 1


async def test_errors_have_the_text_and_the_code_of_the_service() -> None:
    async with programs() as told:
        client = client_of(told)
        with pytest.raises(RequestError, match="name is team/nobody, expected a job of namespace team") as caught:
            await client.status("nobody", namespace="team")
        assert caught.value.code == "not-found"
        with pytest.raises(RequestError, match="chips") as caught:
            await client.submit(job_file(product="module910bx8", chips=-1))
        assert caught.value.code == "invalid-request"
        with pytest.raises(RequestError, match="metadata"):
            await client.submit({**job_file(), "metadata": 1})


async def test_a_request_that_is_too_long_is_refused_at_once() -> None:
    async with programs() as told:
        told.cell.server.payload_limit_bytes = 1_000
        with pytest.raises(RequestError) as caught:
            await client_of(told).submit(job_file(annotations="x" * 2_000))
        assert caught.value.code == "too-large"


async def test_jobs_are_submitted_a_hundred_at_a_time_and_each_has_its_own_end() -> None:
    asked: list[list[str]] = []

    def answer(request: dict[str, Any]) -> bytes:
        asked.append([job["metadata"]["uid"] for job in request["jobs"]])
        return msgspec.json.encode({"results": [{"ok": True, "uid": uid} for uid in asked[-1]]})

    async with answering(answer, "submit-many") as client:
        results = await client.submit_many([TRAIN] * 150)
    assert [len(one) for one in asked] == [100, 50]
    assert [one.uid for one in results] == asked[0] + asked[1]
    assert len({one.uid for one in results}) == 150


async def test_the_lists_of_a_cell_are_read_to_their_ends() -> None:
    async with programs(nodes=3) as told:
        client = client_of(told)
        good, wrong = await client.submit_many([TRAIN, {"kind": "Job"}])
        assert (good.ok, good.name, wrong.ok, wrong.code) == (True, "train", False, "invalid-request")
        assert wrong.error.startswith("jobs[1].apiVersion is missing")
        await told.turns(3)
        assert [(one.name, one.phase) for one in await client.jobs(phase="live")] == [("train", "placed")]
        assert await client.jobs(namespace="nobody") == []
        told.cell.server.payload_limit_bytes = 1_200
        assert [one.name for one in await client.nodes(details=True)] == ["n0", "n1", "n2"]
        assert (await client.usage()).total.used == 16
        assert (await client.leaves(), await client.superpods(), await client.faults(), await client.drains()) == (
            [],
            [],
            [],
            [],
        )


async def test_a_node_is_drained_and_returned_and_faults_are_approved() -> None:
    async with programs(nodes=2) as told:
        client = client_of(told)
        drained = await client.drain("n0", reason="disk", force=True)
        assert (drained.kind, drained.name, drained.since_ms > 0) == ("node", "n0", True)
        await told.turns(2)
        assert [(one.name, one.reason) for one in await client.drains()] == [("n0", "disk")]
        assert (await client.undrain("n0")).since_ms == 0
        await told.turns(2)
        assert await client.drains() == []
        assert (await client.approve("NodeUnhealthy", domain="bucket-all", lasts_ms=60_000)).until_ms > 0
        await told.turns(2)
        assert (await client.approve("NodeUnhealthy", domain="bucket-all", lasts_ms=0)).until_ms == 0


async def test_a_wait_ends_in_time_and_for_a_job_that_has_no_place_to_come() -> None:
    async with programs(nodes=1) as told:
        client = client_of(told)
        await client.submit(TRAIN)
        await told.turns(2)
        late = await raised(client.wait("train", "placed", namespace="team", timeout_s=0.1), WaitTimeoutError)
        assert late == "team/train is not placed within 0.1 s"
        await client.cancel("train", namespace="team")
        await told.turns(2)
        for goal in ("placed", "finished"):
            assert (await client.wait("train", goal, namespace="team", timeout_s=10)).phase == "cancelled"


async def test_a_wait_goes_on_while_the_service_is_away() -> None:
    async with programs() as told:
        client = client_of(told)
        await client.submit(TRAIN)
        await told.stop()
        async with asyncio.TaskGroup() as group:
            placed = group.create_task(client.wait("train", "placed", namespace="team", timeout_s=20))
            await told.turns(2)
            await told.start()
        assert placed.result().phase == "placed"


async def test_events_come_in_order_and_continue_after_a_position() -> None:
    async with programs() as told:
        client = client_of(told)
        uid = (await client.submit(TRAIN)).uid
        await told.turns(2)
        async with aclosing(client.follow("team", "train")) as events:
            first = await take(events, 2)
        assert [one.event.id for one in first] == [f"{uid}/0/0/accepted", f"{uid}/1/0/placed"]
        assert [rank.node for rank in first[1].event.ranks] == ["n0", "n1"]
        async with aclosing(client.follow("team", after=first[0].position)) as events:
            assert await take(events, 1) == first[1:]
            await client.cancel("train", namespace="team")
            await told.turns(3)
            (later,) = await take(events, 1)
            assert later.position > first[1].position
            assert later.event.uid == uid


async def test_events_go_on_after_a_restart_of_the_service_and_at_another_instance() -> None:
    async with programs() as told:
        client = client_of(told)
        async with aclosing(client.follow("team")) as events, asyncio.TaskGroup() as group:
            waiting = group.create_task(take(events, 2))
            await until(lambda: bool(told.bus._asking), deadline_s=5, what="the service is asked")
            await told.stop()
            await told.cell.submit(a_job("train", namespace="team", chips=8))
            await told.turns(2)
            await told.start()
            await told.start()
            assert [one.event.id for one in await waiting] == ["uid-train/0/0/accepted", "uid-train/1/0/placed"]
            await client.cancel("train", namespace="team")
            await told.turns(3)
            assert uids(await take(events, 1)) == ["uid-train"]


async def test_events_of_a_uid_end_with_the_last_one() -> None:
    async with programs() as told:
        await told.lived("one")
        await told.cell.submit(a_job("one", chips=8, uid="uid-later"))
        await told.turns(2)
        async with asyncio.timeout(10 * SLACK):
            events = [event async for _, event in client_of(told).follow("default", "one", uid="uid-one")]
        assert {event.uid for event in events} == {"uid-one"}
        assert [event.phase for event in events][-1:] == ["succeeded"]


async def test_events_of_other_names_and_namespaces_are_left_out() -> None:
    async with stored_events([("a", "x"), ("b", "x"), ("a", "y"), ("a", "*")]) as client:
        for (namespace, name), wanted in {
            ("*", "*"): [1, 2, 3, 4],
            ("a", "*"): [1, 3, 4],
            ("*", "x"): [1, 2],
            ("b", "x"): [2],
        }.items():
            async with aclosing(client.follow(namespace, name)) as events:
                assert [one.position for one in await take(events, len(wanted))] == wanted


@asynccontextmanager
async def stored_events(jobs: list[tuple[str, str]]) -> AsyncIterator[Client]:
    """A client of a cell in which each of the jobs has an event; one each second."""
    server = FakeServer()
    async with FakeBus(server, "c") as bus:
        await bus.ensure_streams()
        for number, (namespace, name) in enumerate(jobs):
            server.clock.advance(1.0)
            uid = f"u-{number}"
            one = JobEvent(
                id=event_id(uid, 0, 0, "accepted"), namespace=namespace, name=name, uid=uid, attempt=0, step=0,
                phase="accepted", at_ms=number,
            )  # fmt: skip
            await bus.publish(bus.subjects.event_job(namespace, name), msgspec.json.encode(one))
        service = FakeBus(server, "c")
        async with service, answering_events(service), Client(bus, timeout_s=2) as client:
            yield client


async def test_events_of_a_time() -> None:
    async with stored_events([("a", "x")] * 3) as client:
        stored = await client._bus.read(StreamName.EVENTS)
        async with aclosing(client.follow(since_ms=stored[1].at_ms)) as events:
            assert [one.position for one in await take(events, 2)] == [2, 3]


async def test_many_events_in_a_second_come_several_with_a_reply() -> None:
    asked: list[int] = []

    def answer(request: dict[str, Any]) -> bytes:
        asked.append(request["after"])
        kept = {"stream": "s", "first": 1, "last": 9_999}
        event = {"id": "", "namespace": "a", "name": "x", "uid": "u", "attempt": 0, "step": 0, "phase": "p", "at_ms": 1}
        place = request["after"] + 1
        found = [{"position": place, "stored_ms": 1, "event": {**event, "id": f"{place}"}}] if request["limit"] else []
        return msgspec.json.encode(
            {"ok": True, "events": found, "position": request["after"] + len(found), "mark": "m", "kept": kept}
        )

    async with answering(answer, "events") as client, aclosing(client.follow()) as events:
        began_s = asyncio.get_running_loop().time()
        assert [one.position for one in await take(events, 30)] == list(range(1, 31))
        took_s = asyncio.get_running_loop().time() - began_s
    assert len(asked) == 31
    assert took_s > 9 * 0.02, "the first 20 at once, then 50 a second"


async def test_more_events_than_a_reply_takes_come_in_pages() -> None:
    count = 2 * EVENTS_MAX + 7
    async with stored_events([("a", "x")] * count) as client, aclosing(client.follow()) as events:
        found = await take(events, count)
    assert [one.position for one in found] == list(range(1, count + 1))
    assert all(one.event.uid != other.event.uid for one, other in pairwise(found))


async def test_events_that_are_gone_end_the_reading() -> None:
    async with stored_events([("a", "x")] * 3) as client, aclosing(client.follow(after=9)) as events:
        assert "history went backwards" in await raised(take(events, 1), EventsLostError)


def kill(client: Client, *, lost: int, remade: bool = False, first_seq: int = 1) -> None:
    """Let the server end, lose the last events and return; with or without the stream itself."""
    bus = client._bus
    assert isinstance(bus, FakeBus)
    name = bus.subjects.stream(StreamName.EVENTS)
    stream = bus.server.streams[name]
    bus.server.clock.advance(0.1)
    for one in buses(client):
        one.link_changes += 2
    if remade:
        bus.server.delete(name)
        bus.server.make(name, stream.spec)
        bus.server.streams[name].last_seq = first_seq - 1
    else:
        bus.server.rewind(name, stream.last_seq - lost)


def buses(client: Client) -> list[FakeBus]:
    """Connections of the client and of the service."""
    bus = client._bus
    assert isinstance(bus, FakeBus)
    served = [one for one in bus.server.services if isinstance(one, FakeServed)]
    assert served
    return [bus, served[0]._bus]


def store(client: Client, *numbers: int) -> None:
    """Store the events of jobs with numbers, before any reader has a turn."""
    store_of(client, "a", *numbers)


def store_of(client: Client, namespace: str, *numbers: int) -> None:
    """As :func:`store`, in a namespace."""
    bus = client._bus
    assert isinstance(bus, FakeBus)
    for number in numbers:
        uid = f"u-{number}"
        one = JobEvent(
            id=event_id(uid, 0, 0, "accepted"), namespace=namespace, name="x", uid=uid, attempt=0, step=0,
            phase="accepted", at_ms=number,
        )  # fmt: skip
        bus.server.store(bus.subjects.event_job(namespace, "x"), msgspec.json.encode(one), None, None)


def uids(events: list[StoredEvent]) -> list[str]:
    return [one.event.uid for one in events]


@pytest.mark.parametrize("again", [(4, 5), (5, 4), (7, 4, 8, 5), (4, 5, 7, 8)])
async def test_events_that_a_killed_server_lost_come_once(again: tuple[int, ...]) -> None:
    """Whatever has their places now: they again, in another order, or events that follow."""
    async with stored_events([("a", "x")] * 6) as client, aclosing(client.follow()) as events:
        assert uids(await take(events, 5)) == [f"u-{number}" for number in range(5)]
        kill(client, lost=2)
        store(client, *again, 9)
        fresh = [number for number in again if number != 4]
        assert uids(await take(events, len(fresh) + 1)) == [f"u-{number}" for number in (*fresh, 9)]


async def test_an_event_that_was_delivered_and_lost_comes_when_it_is_stored_again_in_a_place_that_was_read() -> None:
    async with stored_events([("a", "x")] * 3) as client, aclosing(client.follow(after=1)) as events:
        await take(events, 2)
        kill(client, lost=1)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(take(events, 1))
            store(client, 5)
            assert uids(await waiting) == ["u-5"]


async def test_history_that_goes_backwards_under_a_connection_that_holds_is_read_again() -> None:
    async with stored_events([("a", "x")] * 3) as client, aclosing(client.follow()) as events:
        await take(events, 3)
        kill(client, lost=2)
        for one in buses(client):
            one.link_changes -= 2
        for _ in range(3):
            await asyncio.sleep(0)  # the reader sees it
        store(client, 2, 1, 7)
        assert uids(await take(events, 1)) == ["u-7"]


async def test_a_stream_that_was_made_again_is_read_from_its_beginning() -> None:
    async with stored_events([("a", "x")] * 4) as client, aclosing(client.follow(since_ms=2)) as events:
        first = await take(events, 4)
        assert uids(first) == ["u-0", "u-1", "u-2", "u-3"], "they were stored after that time"
        kill(client, lost=0, remade=True)
        store(client, 3, 1, 0, 6, 2)
        assert uids(await take(events, 1)) == ["u-6"]


@pytest.mark.parametrize(("after", "lost"), [(2, 2), (4, 1)])
async def test_events_before_those_that_were_handed_over_cannot_be_lost_unnoticed(after: int, lost: int) -> None:
    async with stored_events([("a", "x")] * 4) as client, aclosing(client.follow(after=after)) as events:
        await take(events, 4 - after)
        kill(client, lost=lost + (4 - after))
        assert "history went backwards" in await raised(take(events, 1), EventsLostError)


async def test_a_stream_that_was_made_again_ends_the_reading_after_a_position() -> None:
    async with stored_events([("a", "x")] * 4) as client, aclosing(client.follow(after=2)) as events:
        await take(events, 1)
        kill(client, lost=0, remade=True)
        store(client, 0, 1, 2, 3)
        assert "created again" in await raised(take(events, 1), EventsLostError)


async def test_events_of_a_restored_cell_are_not_those_that_were_handed_over() -> None:
    """A restore makes the stream again behind its last event: an id may belong to another event now."""
    async with stored_events([("a", "x")] * 4) as client, aclosing(client.follow()) as events:
        await take(events, 2)
        kill(client, lost=0, remade=True, first_seq=6)
        store(client, 0, 1)
        assert "created again" in await raised(take(events, 1), EventsLostError)
    async with stored_events([("a", "x")] * 4) as client, aclosing(client.follow(after=4)) as events:
        kill(client, lost=0, remade=True, first_seq=6)
        assert "older than kept" in await raised(take(events, 1), EventsLostError)


async def test_a_reader_that_waits_for_its_first_event_reads_on_in_a_restored_cell() -> None:
    async with (
        stored_events([("a", "x")] * 4) as client,
        aclosing(client.follow("b")) as events,
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(take(events, 1))
        await until(lambda: _waits(client), deadline_s=5, what="all events are seen")
        kill(client, lost=0, remade=True, first_seq=6)
        store_of(client, "b", 0)
        assert [one.event.namespace for one in await waiting] == ["b"]


async def test_events_that_became_too_old_before_they_were_read_end_the_reading() -> None:
    async with stored_events([("a", "x")] * 4) as client, aclosing(client.follow()) as events:
        await take(events, 2)
        kill(client, lost=0)
        await client._bus.purge(StreamName.EVENTS, keep_from_seq=4)
        assert "older than kept" in await raised(take(events, 1), EventsLostError)


async def test_events_of_others_that_become_too_old_end_nothing() -> None:
    jobs = [("a", "x"), *[("b", "y")] * 5]
    async with stored_events(jobs) as client, aclosing(client.follow("a")) as events:
        await take(events, 1)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(take(events, 1))
            await until(lambda: _waits(client), deadline_s=5, what="all events are seen")
            kill(client, lost=0)
            await client._bus.purge(StreamName.EVENTS, keep_from_seq=6)
            store(client, 9)
            assert uids(await waiting) == ["u-9"]


def _waits(client: Client) -> bool:
    """Whether a request for events waits at the service."""
    return bool(buses(client)[0]._asking) and any(
        follower.caught_up.is_set() for follower in buses(client)[1]._followers
    )


def test_what_is_remembered_is_bounded_and_what_is_forgotten_is_not_read_again() -> None:
    known = HandedOver(0)
    kept = EventsKept(stream="c", first=1, last=3 * REMEMBERED_MAX)
    assert known.start_in(kept) == 1
    assert all(known.add(f"id-{number}", number) for number in range(1, REMEMBERED_MAX + 8))
    assert len(known._ids) == REMEMBERED_MAX
    assert known.start_in(kept) == 8
    assert not any(known.add(f"id-{number}", number) for number in range(8, REMEMBERED_MAX + 8))
    with pytest.raises(EventsLostError, match="history went backwards"):
        known.start_in(msgspec.structs.replace(kept, last=6))
    with pytest.raises(EventsLostError, match="created again"):
        known.start_in(msgspec.structs.replace(kept, stream="d"))


async def test_what_is_no_event_is_left_out() -> None:
    async with stored_events([("a", "x")]) as client, aclosing(client.follow()) as events:
        await client._bus.publish(client._bus.subjects.event_job("a", "x"), b"{}")
        store(client, 7)
        assert [one.position for one in await take(events, 2)] == [1, 3]


async def test_a_name_that_is_none_is_an_error() -> None:
    async with stored_events([]) as client:
        assert "expected names or *" in await raised(take(client.follow("Team A"), 1), ClientError)


async def test_the_end_of_the_client_ends_what_waits() -> None:
    async with stored_events([]) as client:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(raised(take(client.follow(), 1), ConnectionLostError))
            await until(lambda: _waits(client), deadline_s=5, what="the service is asked")
            await client.close()
        assert waiting.result() == "the client is closed"
        assert await raised(client.status("x"), ConnectionLostError) == "the bus is closed"
