"""What the gateway asks ``api`` in the name of callers: their rights once for all who ask, and streams of events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from berth.runtime.bus.port import Stored
from berth.runtime.errors import TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.schemas.programs.replies import ErrorReply, RightsReply
from berth.schemas.programs.shape import Reply
from berth.schemas.subjects import StreamName
from berth.services.gateway.bodies import stated_length
from berth.services.gateway.cell_requests import CellRequests
from berth.services.gateway.cell_routes import CellRoutes
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.errors import RequestError
from berth.services.gateway.event_hub import EventHub
from berth.services.gateway.event_routes import EventRoutes
from berth.services.gateway.event_streams import Streams
from berth.services.gateway.guard import Guard
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.stream_limits import OpenStreams, StreamLimits
from berth.services.gateway.tokens import Caller
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.waiting import until


class Api:
    """Answers about rights, when it may.

    Attributes:
        asked: How often it was asked.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.answer: Reply = RightsReply(identity="", read=["team"], submit=[])

    async def handle(self, _: bytes) -> bytes:
        self.asked += 1
        await self.may_answer.wait()
        return msgspec.json.encode(self.answer)


@asynccontextmanager
async def cell() -> AsyncIterator[tuple[FakeBus, Api, CellRequests, ManualClock]]:
    """A bus with a service that knows rights, and the requests of a gateway."""
    bus, api, clock = FakeBus(FakeServer(), "x"), Api(), ManualClock()
    await bus.ensure_streams()
    await bus.serve(bus.subjects.gate_any("rights"), api.handle)
    try:
        yield bus, api, CellRequests(bus, clock, timeout_s=5, at_once=4, each=2), clock
    finally:
        await bus.close()


def ask(requests: CellRequests, identity: str) -> asyncio.Task[RightsReply]:
    return asyncio.get_running_loop().create_task(requests.rights(identity), name="ask")


async def test_all_who_ask_for_the_rights_of_one_identity_at_once_share_one_request() -> None:
    async with cell() as (_, api, requests, clock):
        api.may_answer.clear()
        tasks = [ask(requests, "bob") for _ in range(20)]
        await until(lambda: api.asked > 0, deadline_s=5, what="a request")
        api.may_answer.set()
        assert [(await task).read for task in tasks] == [["team"]] * 20
        assert api.asked == 1
        clock.advance(4.999)
        await requests.rights("bob")
        assert api.asked == 1
        clock.advance(0.001)
        await requests.rights("bob")
        assert api.asked == 2, "rights that were taken away are gone after 5 s"


async def test_an_error_is_shared_and_not_kept() -> None:
    async with cell() as (_, api, requests, _):
        api.may_answer.clear()
        api.answer = ErrorReply(error="broken", code="internal")
        tasks = [ask(requests, "bob") for _ in range(3)]
        await until(lambda: api.asked > 0, deadline_s=5, what="a request")
        api.may_answer.set()
        for task in tasks:
            with pytest.raises(RequestError, match="broken"):
                await task
        api.answer = RightsReply(identity="", read=["lab"], submit=[])
        assert (await requests.rights("bob")).read == ["lab"]
        assert api.asked == 2


async def test_others_get_their_answer_when_the_first_who_asked_has_gone() -> None:
    async with cell() as (_, api, requests, _):
        api.may_answer.clear()
        first, second = ask(requests, "bob"), ask(requests, "bob")
        await until(lambda: api.asked > 0, deadline_s=5, what="a request")
        first.cancel()
        api.may_answer.set()
        assert (await second).read == ["team"]
        assert first.cancelled()


async def test_no_identity_has_more_than_its_share_of_the_requests_that_wait() -> None:
    async with cell() as (_, api, requests, _):
        api.may_answer.clear()
        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(requests.ask("rights", "bob", b"{}"), name="ask") for _ in range(2)]
        await until(lambda: api.asked > 0, deadline_s=5, what="a request")
        with pytest.raises(RequestError, match="requests at once of bob is 2, expected fewer than 2") as caught:
            await requests.ask("rights", "bob", b"{}")
        assert caught.value.code == "too-many"
        eve = loop.create_task(requests.ask("rights", "eve", b"{}"), name="ask")
        api.may_answer.set()
        for task in (*waiting, eve):
            await task
        await requests.ask("rights", "bob", b"{}")


class Broken(FakeBus):
    """Has no letters to read, after a while.

    Attributes:
        reads: How often they were asked for.
        may_end: Set when the answer may come.
    """

    def __init__(self, server: FakeServer, cell: str) -> None:
        super().__init__(server, cell)
        self.reads = 0
        self.may_end = asyncio.Event()

    async def read(self, *words: object, **more: object) -> list[Stored]:
        self.reads += 1
        await self.may_end.wait()
        raise TransientError(f"no answer about {words}, {more}")


async def test_a_document_that_cannot_be_read_is_asked_for_once_and_those_who_wait_are_bounded() -> None:
    async with cell() as (bus, api, requests, clock):
        api.answer = RightsReply(identity="", read=["*"], submit=[])
        broken = Broken(bus.server, "x")
        routes = CellRoutes(requests, broken, clock)

        def ask(identity: str) -> asyncio.Task[Any]:
            scope = {"type": "http", "method": "GET", "query_string": b"", "headers": [], "caller": Caller(identity)}
            return asyncio.get_running_loop().create_task(routes.dead(Request(scope)), name="ask")

        for identity in ("bob", "eve"):
            await requests.rights(identity)
        waiting = [ask("bob"), ask("bob")]
        await until(lambda: broken.reads > 0, deadline_s=5, what="letters are read")
        with pytest.raises(RequestError, match="requests at once of bob is 2, expected fewer than 2"):
            await ask("bob")
        waiting.append(ask("eve"))
        broken.may_end.set()
        for task in waiting:
            with pytest.raises(RequestError, match="dead is unavailable"):
                await task
        assert broken.reads == 1
        clock.advance(2)
        with pytest.raises(RequestError, match="dead is unavailable"):
            await ask("bob")
        assert broken.reads == 2
        await broken.close()


async def test_the_status_of_a_cell_is_that_of_its_nats() -> None:
    async with cell() as (bus, _, requests, clock):
        scope = {"type": "http", "method": "GET", "query_string": b"", "headers": [], "caller": Caller("bob")}
        with pytest.raises(RequestError, match=r"cell is unavailable \(no NATS\)") as found:
            await CellRoutes(requests, bus, clock).status(Request(scope))
        assert found.value.code == "unavailable"


@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_a_stream_that_has_ended_leaves_no_reader(method: str) -> None:
    async with cell() as (bus, _, requests, clock):
        metrics, stop, hub = GatewayMetrics(MetricsRegistry()), asyncio.Event(), EventHub(bus, DEFAULT_LOG)
        streams = Streams(StreamLimits(events_max=4, keepalive_s=30), OpenStreams(3, 3, metrics), clock, metrics)
        routes = EventRoutes(bus, requests, hub, streams, Guard(GatewayConfig(access="open"), clock))
        following = asyncio.get_running_loop().create_task(hub.run(stop), name="hub")
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "query_string": b"",
            "headers": [],
            "path_params": {"namespace": "team", "name": "train"},
            "caller": Caller(),
        }
        response = await routes.events(Request(scope))
        assert len(hub._readers) == 1
        sent: list[Any] = []

        async def send(message: Any) -> None:  # noqa: ANN401  # as the server gives it
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        await response(scope, receive, send)
        assert sent[0]["status"] == 200
        assert hub._readers == {}
        assert metrics.streams._value.get() == 0
        stop.set()
        await following


async def test_a_caller_that_asks_too_often_is_told_when_to_ask_again() -> None:
    async with cell() as (_, api, requests, _):
        api.answer = ErrorReply(error="identity is too quick", code="too-many", retry_after_ms=1_200)
        with pytest.raises(RequestError) as caught:
            await requests.ask("rights", "portal", b"{}")
        assert (caught.value.status, caught.value.all_headers()["Retry-After"]) == (503, "2")


async def test_a_long_body_is_not_read_while_the_caller_is_told_to_wait() -> None:
    async with cell() as (_, api, requests, clock):
        api.answer = ErrorReply(error="identity is too quick", code="too-many", retry_after_ms=1_200)
        for body in (b"{}", b"{" + b" " * 9_000 + b"}"):
            requests.check_long_request("portal")
            with pytest.raises(RequestError):
                await requests.ask("rights", "portal", body)
        with pytest.raises(RequestError, match=r"try again in 1\.2 s") as caught:
            requests.check_long_request("portal")
        assert (caught.value.code, caught.value.all_headers()["Retry-After"]) == ("too-many", "2")
        requests.check_long_request("other")
        clock.advance(1.2)
        requests.check_long_request("portal")


@pytest.mark.parametrize(
    ("length", "expected"),
    [("100", 100), ("9000", 9000), ("9001", 9000), ("9" * 19, 9000), ("many", 9000), ("", 9000)],
)
def test_a_body_has_the_length_that_the_client_says(length: str, expected: int) -> None:
    headers = [(b"content-length", length.encode())] if length else []
    assert stated_length(Request({"type": "http", "headers": headers}), 9000) == expected


EVENTS = 600


@asynccontextmanager
async def stored_events(follows: bytes) -> AsyncIterator[tuple[FakeBus, EventRoutes, Request]]:
    """Routes over a stream with many events of one job, and a request for them."""
    async with cell() as (bus, _, requests, clock):
        subjects = bus.subjects
        for number in range(EVENTS):
            for name in ("train", "other"):
                await bus.publish(subjects.event_job("team", name), b"%d" % number)
        metrics, stop, hub = GatewayMetrics(MetricsRegistry()), asyncio.Event(), EventHub(bus, DEFAULT_LOG)
        streams = Streams(StreamLimits(events_max=4, keepalive_s=30), OpenStreams(3, 3, metrics), clock, metrics)
        routes = EventRoutes(bus, requests, hub, streams, Guard(GatewayConfig(access="open"), clock))
        following = asyncio.get_running_loop().create_task(hub.run(stop), name="hub")
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "query_string": b"follow=" + follows,
            "headers": [],
            "path_params": {"namespace": "team", "name": "train"},
            "caller": Caller(),
        }
        yield bus, routes, Request(scope)
        stop.set()
        await following


async def test_stored_events_come_in_pages_and_those_to_come_after_them() -> None:
    async with stored_events(b"true") as (bus, routes, request):
        response = await routes.events(request)
        sent: list[bytes] = []
        gone = asyncio.Event()

        async def send(message: Any) -> None:  # noqa: ANN401  # as the server gives it
            chunk = message.get("body", b"")
            sent.append(chunk)
            if chunk.endswith(b"data: %d\n\n" % (EVENTS - 1)):  # the last that was stored
                await bus.publish(bus.subjects.event_job("team", "train"), b"%d" % EVENTS)
            elif chunk.endswith(b"data: %d\n\n" % EVENTS):
                gone.set()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async with asyncio.timeout(20):
            await response(request.scope, receive, send)
        data = [int(chunk.rpartition(b"data: ")[2]) for chunk in sent if b"data: " in chunk]
        assert data == list(range(EVENTS + 1))


async def test_no_more_events_are_read_for_a_client_that_has_gone() -> None:
    async with stored_events(b"false") as (_, routes, request):
        response = await routes.events(request)
        sent: list[bytes] = []

        async def send(message: Any) -> None:  # noqa: ANN401  # as the server gives it
            sent.append(message.get("body", b""))
            await asyncio.sleep(0)

        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"}

        async with asyncio.timeout(20):
            await response(request.scope, receive, send)
        assert 0 < sum(b"data: " in chunk for chunk in sent) < EVENTS


async def test_a_stream_that_is_made_again_between_pages_ends_with_the_reason() -> None:
    async with stored_events(b"false") as (bus, routes, request):
        response = await routes.events(request)
        bus.server.delete(bus.subjects.stream(StreamName.EVENTS))
        await bus.ensure_streams()
        sent: list[bytes] = []

        async def send(message: Any) -> None:  # noqa: ANN401  # as the server gives it
            sent.append(message.get("body", b""))

        async with asyncio.timeout(20):
            await response(request.scope, asyncio.Event().wait, send)  # type: ignore[arg-type]  # waits forever
        assert sent[-2].startswith(b"event: end\n")
        assert b"events-lost" in sent[-2]
