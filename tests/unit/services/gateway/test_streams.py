"""Streams: each reader has a bounded queue, a slow one is ended with a reason, and others notice nothing."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import Subjects
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.errors import RequestError
from berth.services.gateway.event_hub import EventHub, job_event_chunk
from berth.services.gateway.event_routes import _of_job
from berth.services.gateway.event_streams import KEEPALIVE, RETRY, Reader, Streams, event_chunk
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.serving import Parts
from berth.services.gateway.stream_limits import OpenStreams, StreamLimits
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.waiting import until

LIMITS = StreamLimits(events_max=4, keepalive_s=30)


def event(name: str, number: int) -> bytes:
    made = JobEvent(
        id=f"u/{number}", namespace="team", name=name, uid="u", attempt=1, step=0, phase="waiting", at_ms=number
    )
    return msgspec.json.encode(made)


async def all_of(reader: Reader) -> list[bytes]:
    found = []
    while (one := await reader.next(5)) is not None:
        found.append(one[1])
    return found


async def test_a_reader_gets_what_was_put_in_order() -> None:
    reader = Reader(4)
    for position in (3, 5):
        reader.put(position, b"%d" % position)
    assert [await reader.next(1), await reader.next(1)] == [(3, b"3"), (5, b"5")]
    assert await reader.next(0.01) == (0, KEEPALIVE)
    waiting = asyncio.get_running_loop().create_task(reader.next(5), name="read")
    await asyncio.sleep(0)
    reader.put(7, b"7")
    assert await waiting == (7, b"7")


async def test_a_slow_reader_gets_what_waits_and_then_the_reason() -> None:
    slow, fast = Reader(4), Reader(4)
    for position in range(1, 100):
        for reader in (slow, fast):
            reader.put(position, b"%d" % position)
        assert await fast.next(1) == (position, b"%d" % position)
    *chunks, end = await all_of(slow)
    assert chunks == [b"1", b"2", b"3", b"4"]
    assert end.startswith(b"event: end\ndata: {")
    assert msgspec.json.decode(end.partition(b"data: ")[2])["code"] == "slow-reader"
    assert slow.is_slow
    assert not fast.is_slow


async def test_a_client_that_has_gone_leaves_nothing() -> None:
    reader = Reader(4)
    reader.put(1, b"1")
    reader.leave()
    reader.put(2, b"2")
    reader.end("unavailable", "later")
    assert await all_of(reader) == []


def streams() -> tuple[Streams, GatewayMetrics, ManualClock]:
    metrics, clock = GatewayMetrics(MetricsRegistry()), ManualClock()
    return Streams(LIMITS, OpenStreams(3, 2, metrics), clock, metrics), metrics, clock


def test_too_many_streams_are_refused_until_one_is_closed() -> None:
    made, metrics, _ = streams()
    readers = [made.open(one) for one in ("bob", "bob", "eve")]
    with pytest.raises(RequestError) as caught:
        made.open("bob")
    assert (caught.value.status, caught.value.code) == (503, "too-many")
    assert caught.value.all_headers() == {"Retry-After": "1"}
    assert (metrics.streams._value.get(), metrics.refused._value.get()) == (3, 1)
    made.close(readers[0])
    made.open("bob")
    assert metrics.streams._value.get() == 3


def test_no_identity_has_more_than_its_share_of_streams() -> None:
    made, metrics, _ = streams()
    readers = [made.open("bob") for _ in range(2)]
    with pytest.raises(RequestError, match="open streams of bob is 2, expected fewer than 2") as caught:
        made.open("bob")
    assert caught.value.code == "too-many"
    assert metrics.refused._value.get() == 1
    made.close(made.open("eve"))
    made.close(readers[0])
    made.open("bob")


async def test_the_settings_bound_all_streams_and_those_of_one_identity() -> None:
    metrics, config = GatewayMetrics(MetricsRegistry()), GatewayConfig(streams_max=3, streams_per_identity=2)
    made = Parts(FakeBus(FakeServer(), "x"), ManualClock(), config, metrics, DEFAULT_LOG).streams
    for _ in range(2):
        made.open("bob")
    with pytest.raises(RequestError, match="open streams of bob is 2"):
        made.open("bob")
    made.open("eve")
    with pytest.raises(RequestError, match="open streams is 3"):
        made.open("eve")


class Client:
    """The other side of a stream: takes chunks, as long as it is asked to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.gone = asyncio.Event()

    async def send(self, message: Any) -> None:  # noqa: ANN401  # as the server gives it
        await self.takes.wait()
        self.sent.append(message)

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def text(self) -> bytes:
        return b"".join(one.get("body", b"") for one in self.sent)


async def chunks_of(reader: Reader) -> AsyncGenerator[bytes, None]:
    while (found := await reader.next(30)) is not None:
        yield found[1]


async def permitted() -> None:
    pass


def nothing() -> None:
    pass


async def test_a_stream_ends_when_its_client_goes_and_gives_its_place_back() -> None:
    made, metrics, _ = streams()
    reader, client = made.open("bob"), Client()
    response = made.respond(reader, chunks_of(reader), permitted, nothing)
    running = asyncio.get_running_loop().create_task(response({"method": "GET"}, client.receive, client.send), name="x")
    reader.put(1, b"one")
    await until(lambda: b"one" in client.text, deadline_s=5, what="a chunk")
    client.gone.set()
    await running
    assert metrics.streams._value.get() == 0


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_a_stream_that_never_begins_is_ended_too(method: str) -> None:
    made, metrics, _ = streams()
    reader, ended = made.open("bob"), list[bool]()

    async def send(_: Any) -> None:  # noqa: ANN401  # as the server gives it
        if method == "GET":
            raise ConnectionError

    response = made.respond(reader, chunks_of(reader), permitted, lambda: ended.append(True))
    try:
        await response({"method": method}, Client().receive, send)
    except ConnectionError:
        assert method == "GET"
    assert ended == [True]
    assert metrics.streams._value.get() == 0


async def test_a_stream_ends_with_the_reason_when_its_reader_may_read_no_more() -> None:
    made, _, clock = streams()
    reader, client = made.open("bob"), Client()

    async def expired() -> None:
        raise RequestError("token of bob has expired, expected one that is valid", "no-token")

    response = made.respond(reader, chunks_of(reader), expired, nothing)
    running = asyncio.get_running_loop().create_task(response({"method": "GET"}, client.receive, client.send), name="x")
    reader.put(1, b"one")
    await until(lambda: b"one" in client.text, deadline_s=5, what="a chunk")
    clock.advance(31)
    reader.put(2, b"two")
    await running
    assert client.text.startswith(b"onetwoevent: end\n")
    assert b'"no-token"' in client.text


@pytest.mark.parametrize("code", ["too-many", "unavailable", "internal", "no-such-code"])
async def test_a_stream_goes_on_while_the_rights_of_its_reader_are_not_known(code: str) -> None:
    made, _, clock = streams()
    reader, client = made.open("bob"), Client()
    asked = 0

    async def unknown() -> None:
        nonlocal asked
        asked += 1
        raise RequestError("requests at once is 512, expected fewer than 512: try again", code)

    response = made.respond(reader, chunks_of(reader), unknown, nothing)
    running = asyncio.get_running_loop().create_task(response({"method": "GET"}, client.receive, client.send), name="x")
    for number, chunk in enumerate((b"one", b"two", b"three"), start=1):
        reader.put(number, chunk)
        await until(lambda: chunk in client.text, deadline_s=5, what="a chunk")  # noqa: B023  # awaited at once
        clock.advance(31)
    assert asked == 2
    client.gone.set()
    await running
    assert b"event: end" not in client.text


async def test_a_slow_client_is_counted_and_others_go_on() -> None:
    made, metrics, _ = streams()
    slow, client = made.open("bob"), Client()
    client.takes.clear()
    response = made.respond(slow, chunks_of(slow), permitted, nothing)
    running = asyncio.get_running_loop().create_task(response({"method": "GET"}, client.receive, client.send), name="x")
    for position in range(1, 9):
        slow.put(position, b"%d" % position)
        await asyncio.sleep(0)
    client.takes.set()
    await running
    assert b"slow-reader" in client.text
    assert metrics.slow._value.get() == 1


async def test_all_streams_end_when_the_gateway_stops() -> None:
    made, _, _ = streams()
    readers = [made.open("bob") for _ in range(2)]
    made.end_all("unavailable", "stopping")
    for reader in readers:
        (end,) = await all_of(reader)
        assert b'"unavailable"' in end
    with pytest.raises(RequestError, match="stopping"):
        made.open("bob")


async def test_the_hub_tells_each_reader_of_its_own_job_alone() -> None:
    server = FakeServer()
    bus = FakeBus(server, "hub")
    await bus.ensure_streams()
    await bus.publish(bus.subjects.event_job("team", "a"), event("a", 1))
    hub, stop = EventHub(bus, DEFAULT_LOG), asyncio.Event()
    running = asyncio.get_running_loop().create_task(hub.run(stop), name="hub")
    await hub.following.wait()
    readers = {name: Reader(10) for name in ("a", "b", "gone")}
    for name, reader in readers.items():
        hub.add(bus.subjects.event_job("team", name), reader)
    hub.remove(bus.subjects.event_job("team", "gone"), readers["gone"])
    for number, name in enumerate(("a", "b", "gone", "a"), start=2):
        await bus.publish(bus.subjects.event_job("team", name), event(name, number))
    found = [await readers["a"].next(5), await readers["b"].next(5), await readers["a"].next(5)]
    assert [one and one[0] for one in found] == [2, 3, 5]
    assert found[0] == (2, b"id: 2\ndata: " + event("a", 2) + b"\n\n")
    assert await readers["gone"].next(0.01) == (0, KEEPALIVE)
    stop.set()
    await running
    assert not hub.following.is_set()
    await bus.close()


def test_an_event_with_line_breaks_stays_one_event() -> None:
    stored = Stored(Subjects("x").event_job("n", "j"), 7, b'{"a":\r\n 1}\n', 0)
    chunk = job_event_chunk(stored)
    assert chunk.startswith(b"id: 7\ndata: {")
    assert chunk.count(b"\n") == 3
    assert msgspec.json.decode(chunk.partition(b"data: ")[2]) == {"a": 1}
    assert event_chunk(b"1", name="view") == b"event: view\ndata: 1\n\n"


async def test_a_stream_of_a_uid_ends_after_its_last_event() -> None:
    def said(position: int, uid: str, *, final: bool = False) -> bytes:
        return event_chunk(msgspec.json.encode({"uid": uid, "final": final}), position=position)

    sent = [RETRY, said(1, "old", final=True), said(2, "u"), KEEPALIVE, said(3, "u", final=True), said(4, "u")]

    async def chunks() -> AsyncGenerator[bytes, None]:
        for one in sent:
            yield one

    *found, last = [chunk async for chunk in _of_job(chunks(), "u")]
    assert found == [sent[0], sent[2], sent[3], sent[4]]
    assert last.startswith(b"event: end\n")
    assert b'"code":"over"' in last


async def test_a_stream_of_a_uid_ends_when_the_stream_does() -> None:
    ending = event_chunk(b"{}", name="end")

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield ending

    assert [chunk async for chunk in _of_job(chunks(), "u")] == [ending]
