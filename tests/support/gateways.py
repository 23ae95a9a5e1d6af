"""A gateway in a process of its own, and a browser that follows the picture of its cell."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from berth.core.overview.reading import applied
from berth.schemas.page.view import Change, Job, View
from tests.support.waiting import until


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Browser:
    """Follows the picture of a cell over HTTP, and connects again when the stream ends.

    Args:
        session: To send requests.
        url: Of the gateway.

    Attributes:
        view: The picture; None before the first.
        history: Phases of each job (name), as they came.
        connections: Streams that it has begun.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.view: View | None = None
        self.history: dict[str, list[str]] = {}
        self.connections = 0
        self._session = session
        self._url = url

    async def follow(self) -> None:
        """Follow for ever."""
        while True:
            try:
                async with self._session.get(f"{self._url}/api/v1/view/changes") as answer:
                    if answer.status == 200:
                        self.connections += 1
                        await self._read(answer)
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)

    async def _read(self, answer: aiohttp.ClientResponse) -> None:
        assert answer.headers["content-type"] == "text/event-stream"
        lines: list[bytes] = []
        async for line in _lines(answer):
            if line:
                lines.append(line)
                continue
            if lines and not lines[0].startswith(b":"):
                self._take(lines)
            lines = []

    def _take(self, lines: list[bytes]) -> None:
        event, data = (line.partition(b": ")[2] for line in lines)
        if event == b"view":
            self.view = msgspec.json.decode(data, type=View)
            self._note(self.view.jobs)
            return
        change = msgspec.json.decode(data, type=Change)
        assert self.view is not None
        assert change.version == self.view.version + 1
        self.view = applied(self.view, change)
        self._note(change.jobs)

    def _note(self, jobs: list[Job]) -> None:
        for job in jobs:
            phases = self.history.setdefault(job.name, [])
            if not phases or phases[-1] != job.phase:
                phases.append(job.phase)

    async def until(self, condition: Callable[[View], object], *, deadline_s: float, what: str) -> View:
        """Wait until the picture is as it should be; returns it."""
        await until(lambda: self.view is not None and condition(self.view), deadline_s=deadline_s, what=what)
        assert self.view is not None
        return self.view


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length, without their ends."""
    rest = b""
    async for piece in answer.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line


@asynccontextmanager
async def browser(session: aiohttp.ClientSession, url: str) -> AsyncIterator[Browser]:
    """A browser that follows the picture as long as the block runs."""
    found = Browser(session, url)
    task = asyncio.get_running_loop().create_task(found.follow(), name="browser")
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def get(session: aiohttp.ClientSession, url: str) -> object:
    """Answer to a request, as JSON."""
    async with session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        return msgspec.json.decode(await answer.read())
