"""Connections of the gateway that are refused while the application works on their request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.types import Receive, Scope, Send

from berth.services.gateway.http_protocol import Bounds
from berth.services.gateway.server import Server, Tls, listen, server_of
from tests.support.waiting import until

TIMEOUT_S = 0.1


@asynccontextmanager
async def serving(answer: Callable[[Receive, Send], Awaitable[None]]) -> AsyncIterator[int]:
    """A server whose application answers like this; gives its port."""

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await answer(receive, send)

    server: Server = server_of(app, Bounds(10, TIMEOUT_S, 10, lambda _: None), Tls(None, None))
    own = listen("127.0.0.1", 0)
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
