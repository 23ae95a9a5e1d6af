"""Connections of the gateway: refused, and ended while the application works on their requests."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from berth.services.gateway.http_protocol import Bounds
from berth.services.gateway.server import Server, Tls, listen, server_of
from berth.services.gateway.shares import Shares
from tests.support.waiting import until

TIMEOUT_S = 0.1


@asynccontextmanager
async def serving(
    answer: Callable[[Receive, Send], Awaitable[None]],
    *,
    timeout_s: float = TIMEOUT_S,
    connections_max: int = 10,
    write_timeout_s: float = 10,
    scopes: list[Scope] | None = None,
    note: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[int]:
    """A server whose application answers like this, with small buffers of the system; gives its port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scopes is not None:
            scopes.append(scope)
        await answer(receive, send)

    def pass_over(*_: object) -> None:
        """Nobody looks."""

    bounds = Bounds(connections_max, timeout_s, write_timeout_s, note, Shares("open connections", 10), pass_over)
    server: Server = server_of(app, bounds, Tls(None, None))
    own = listen("127.0.0.1", 0)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([own]), name="server")
        yield own.getsockname()[1]
        server.should_exit = True
    own.close()


async def test_an_answer_that_comes_after_the_refusal_is_dropped() -> None:
    is_refused, ended = asyncio.Event(), list[BaseException | None]()

    async def answer(receive: Receive, send: Send) -> None:
        try:
            await is_refused.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"late"})
            assert (await receive())["type"] == "http.disconnect"
        except BaseException as error:
            ended.append(error)
            raise
        ended.append(None)

    async with serving(answer) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408")
        is_refused.set()
        await until(lambda: bool(ended), deadline_s=10, what="the application ends")
        assert b"late" not in await reader.read()
        writer.close()
    assert ended == [None]


async def refuse(_: Receive, send: Send) -> None:
    """Answer before the body has arrived."""
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"big"})


async def take(receive: Receive, send: Send) -> None:
    """Answer after the body."""
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


async def send_all(writer: asyncio.StreamWriter, part: bytes, parts: int) -> None:
    """Send something many times, as far as the server takes it."""
    try:
        for _ in range(parts):
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("part", [b"a: b\r\n" * 1_000, b"a" * 6_000, b"1;" + b"x" * 6_000 + b"\r\n"])
async def test_trailers_and_sizes_of_chunks_are_bounded(part: bytes) -> None:
    async with serving(take, timeout_s=60) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED + (b"" if part.startswith(b"1;") else b"0\r\n"))
        await writer.drain()
        await send_all(writer, part if not part.startswith(b"1;") else part[:-2], 40)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413")
        assert b"chunk sizes and trailers" in await reader.read()
        writer.close()


async def test_trailers_are_headers_of_no_request() -> None:
    scopes: list[Scope] = []
    async with serving(take, timeout_s=60, scopes=scopes) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED + b"1\r\nx\r\n0\r\nAuthorization: Bearer x\r\nother: y\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()
    assert [[name for name, _ in scope["headers"]] for scope in scopes] == [[b"host", b"transfer-encoding"], [b"host"]]


async def test_a_body_in_many_small_chunks_is_taken() -> None:
    async with serving(take, timeout_s=60) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED)
        await send_all(writer, b"1\r\nx\r\n" * 1_000, 40)
        writer.write(b"0\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_stream_ends_when_the_connection_does_on_which_another_request_waits() -> None:
    ended = list[str]()

    async def stream(receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})

        async def go_on() -> None:
            while True:
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
                await asyncio.sleep(0.01)

        going = asyncio.get_running_loop().create_task(go_on(), name="stream")
        ended.append((await receive())["type"])
        going.cancel()
        await asyncio.wait([going])

    async with serving(stream) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"x\r\n")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        await reader.readuntil(b"x\r\n")
        writer.close()
        await until(lambda: bool(ended), deadline_s=5, what="the stream ends")
    assert ended == ["http.disconnect"]


async def test_a_late_request_behind_a_stream_is_not_answered_within_it() -> None:
    async def stream(receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()

    async with serving(stream) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        assert b"408" not in await reader.read()
        writer.close()


@pytest.mark.parametrize(
    "line", [b"GET http://127.0.0.1:8222 HTTP/1.1", b"CONNECT x:1 HTTP/1.1", b"GET /\xc3\xa4 HTTP/1.1"]
)
async def test_a_target_without_a_path_is_refused(line: bytes) -> None:
    async with serving(take) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(line + b"\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
        assert b"invalid-request" in await reader.read()
        writer.close()


@pytest.mark.parametrize(("connections_max", "status"), [(10, b"413"), (0, b"503")])
async def test_a_client_that_sends_a_long_body_reads_why_it_is_refused(connections_max: int, status: bytes) -> None:
    async with serving(refuse, timeout_s=60, connections_max=connections_max) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 104857600\r\n\r\n")
        await writer.drain()
        await send_all(writer, b"x" * 65_536, 100)  # as a client does that reads at the end alone
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 " + status)
        await reader.read()
        writer.close()


async def test_a_request_behind_the_last_one_of_a_connection_is_not_begun() -> None:
    scopes: list[Scope] = []
    is_asked, both_sent = asyncio.Event(), asyncio.Event()

    async def answer(receive: Receive, send: Send) -> None:
        del receive
        is_asked.set()
        await both_sent.wait()
        headers = [(b"content-length", b"3"), (b"connection", b"close")]  # as all answers say when the server stops
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"end"})

    async with serving(answer, timeout_s=60, scopes=scopes) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.write(b"POST /second HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        await is_asked.wait()
        both_sent.set()
        found = await reader.read()
        writer.close()
    assert found.count(b"HTTP/1.1 ") == 1
    assert [scope["path"] for scope in scopes] == ["/first"]


async def test_a_client_that_never_takes_the_end_of_an_answer_does_not_keep_the_connection() -> None:
    """What is left is less than what makes the server wait for a client."""
    open_now: list[int] = []

    async def answer(_: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"30000")]})
        await send({"type": "http.response.body", "body": bytes(30_000)})

    async with serving(answer, write_timeout_s=0.1, note=open_now.append) as port:
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        ours.connect(("127.0.0.1", port))
        ours.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await until(lambda: open_now == [1, 0], deadline_s=10, what="the connection is cut")
        ours.close()
