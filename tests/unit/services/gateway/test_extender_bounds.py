"""The extender over real sockets: what bodies and answers may take of its memory, all connections together."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.services.gateway.application import Application
from berth.services.gateway.extender import endpoint
from berth.services.gateway.extender.decisions import Decisions
from berth.services.gateway.extender.endpoint import ExtenderRoutes
from berth.services.gateway.extender.serving import _NoTokens
from berth.services.gateway.extender_config import ExtenderConfig
from berth.services.gateway.http_protocol import Bounds
from berth.services.gateway.metrics import ExtenderMetrics
from berth.services.gateway.refusal_log import RefusalLog
from berth.services.gateway.server import Tls, listen, server_of
from berth.services.gateway.shares import Shares
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}
BINDING = msgspec.json.encode({"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"})


class Caller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, verb: str, body: bytes, length: int | None = None) -> None:
        """Send a call, or the beginning of one that is as long as it says."""
        head = f"POST /{verb} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        said = len(body) if length is None else length
        self.writer.write(f"{head}Content-Length: {said}\r\n\r\n".encode() + body)

    async def status(self) -> int:
        """Status of the next answer."""
        return int((await self.reader.readuntil(b"\r\n\r\n")).split()[1])

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next answer, the last that is read."""
        return await self.status(), await self.reader.read(200)


@asynccontextmanager
async def extender(monkeypatch: pytest.MonkeyPatch, bytes_max: int) -> AsyncIterator[Callable[[], Awaitable[Caller]]]:
    """Makes connections to an extender that knows no pod."""
    clock, bus = ManualClock(), FakeBus(FakeServer(), "x")
    await bus.ensure_streams()
    decisions = Decisions(bus, DEFAULT_LOG)
    metrics, refusals = ExtenderMetrics(MetricsRegistry()), RefusalLog(clock, DEFAULT_LOG)
    monkeypatch.setattr(endpoint, "BODY_BYTES_MAX", bytes_max)
    routes = ExtenderRoutes(decisions, clock, ExtenderConfig(), metrics, DEFAULT_LOG).routes()
    app = Application(routes, _NoTokens(), clock, metrics, refusals)
    bounds = Bounds(100, 30, 30, lambda _: None, Shares("open connections", 100), refusals.count)
    server, own = server_of(app, bounds, Tls(None, None)), listen("127.0.0.1", 0)
    made: list[Caller] = []

    async def connect() -> Caller:
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        ours.setblocking(False)  # noqa: FBT003  # takes no keyword
        await asyncio.get_running_loop().sock_connect(ours, own.getsockname())
        made.append(Caller(*await asyncio.open_connection(sock=ours, limit=4_096)))
        return made[-1]

    async with asyncio.TaskGroup() as group:
        following = group.create_task(decisions.run(), name="follow")
        group.create_task(server.serve([own]), name="server")
        await decisions.known.wait()
        yield connect
        for one in made:
            one.writer.close()
            with contextlib.suppress(ConnectionError):
                await one.writer.wait_closed()
        following.cancel()
        server.should_exit = True
    await bus.close()
    own.close()


async def test_long_bodies_that_arrive_slowly_are_few_and_hold_up_no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    async with extender(monkeypatch, bytes_max=1 << 16) as connect:
        slow = [await connect() for _ in range(4)]
        for caller in slow:
            caller.send("filter", b"{", length=1 << 16)
        await asyncio.sleep(0)
        other = await connect()
        other.send("bind", BINDING)
        assert await other.status() == 200
        another = await connect()
        another.send("filter", b"{", length=1 << 15)
        status, body = await another.answer()
        assert status == 503
        assert b"bytes in flight of kube-scheduler is 262144" in body
        slow[0].writer.write(bytes((1 << 16) - 1))
        assert await slow[0].status() == 400
        again = await connect()
        again.send("filter", msgspec.json.encode({"Pod": POD, "NodeNames": ["n" * 20_000]}))
        assert await again.status() == 200


async def test_an_answer_counts_until_its_client_has_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"node-{number}" for number in range(100_000)]
    body = msgspec.json.encode({"Pod": POD, "NodeNames": names})
    async with extender(monkeypatch, bytes_max=5 << 20) as connect:
        deaf = await connect()
        deaf.send("filter", body)
        assert await deaf.status() == 200
        other = await connect()
        other.send("filter", body)
        assert await other.status() == 503
