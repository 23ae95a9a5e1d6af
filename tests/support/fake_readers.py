"""Followers and handlers of the bus in memory: each is a task of its bus, in the order in which they were made."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from berth.runtime.bus.port import Gap, Stored
from berth.runtime.errors import FatalError, PoisonError, TransientError
from berth.schemas.subjects import StreamSpec
from tests.support.fake_server import FakeStream, matches

if TYPE_CHECKING:
    from tests.support.fake_bus import FakeBus


class FakeFollower:
    """A reader of a fake stream."""

    def __init__(
        self,
        bus: "FakeBus",
        spec: StreamSpec,
        start: tuple[int, tuple[str, ...], str],
        on_message: Callable[[Stored], None],
        on_gap: Callable[[Gap], None],
    ) -> None:
        self.caught_up = asyncio.Event()
        self.recreations = 0
        self.gaps = 0
        self.wake = asyncio.Event()
        start_seq, self._filters, self._created = start
        self.applied = max(0, start_seq - 1)
        self.covered = self.applied
        self._is_from_oldest = start_seq <= 1
        self._bus = bus
        self._spec = spec
        self._on_message = on_message
        self._on_gap = on_gap
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=f"follow {spec.name}")  # owned by the bus, ended by stop()
        self._task.add_done_callback(self._ended)
        bus.server.followers.append(self.wake)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait(self) -> Gap | None:
        await asyncio.wait([self._task])
        return None if self._task.cancelled() else self._task.result()

    async def _run(self) -> Gap:
        while True:
            self.wake.clear()
            try:
                stream = self._bus.server.stream(self._bus.subjects.stream(self._spec.name))
            except TransientError:
                self.recreations += 1
                await self.wake.wait()
                continue
            gap = self._judge(stream)
            if gap is not None:
                self.gaps += 1
                self._on_gap(gap)
                return gap
            for sequence in range(max(self.covered + 1, stream.first_seq), stream.last_seq + 1):
                stored = stream.messages.get(sequence)  # looked up late: a message may replace those that follow
                if stored is not None and matches(stored.subject, self._filters):
                    self._on_message(stored)
                    self.applied = sequence
                self.covered = sequence
            self.caught_up.set()
            await self.wake.wait()

    def _judge(self, stream: FakeStream) -> Gap | None:
        if self._is_from_oldest:
            self._is_from_oldest = False
            self.covered = max(self.covered, stream.first_seq - 1)
        gap = stream.gap_after(self.covered, self._created)
        if gap is None:
            self._created = stream.created
        return gap

    def _ended(self, task: asyncio.Task[Gap]) -> None:
        self._bus.server.followers.remove(self.wake)
        if not task.cancelled() and (error := task.exception()) is not None:
            failure = FatalError(f"follower of {self._spec.name} ended: {error!r}")
            failure.__cause__ = error
            self._bus.fail(failure)


class FakeServed:
    """A running handler."""

    def __init__(
        self,
        bus: "FakeBus",
        subject: str,
        queue: str,
        handler: Callable[[str, bytes], Awaitable[bytes | None]],
        at_once: int = 1,
    ) -> None:
        self._at_once = at_once
        self.subject = subject
        self.queue = queue
        self._bus = bus
        self._handler = handler
        self._requests: deque[tuple[str, bytes, Callable[[bytes], None]]] = deque()
        self._wake = asyncio.Event()
        self._is_stopping = False
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=f"serve {subject}")  # owned by the bus, ended by stop()
        self._task.add_done_callback(self._ended)
        bus.server.services.append(self)

    def put(self, subject: str, data: bytes, reply: Callable[[bytes], None]) -> None:
        self._requests.append((subject, data, reply))
        self._wake.set()

    async def stop(self) -> None:
        if self in self._bus.server.services:
            self._bus.server.services.remove(self)
        self._is_stopping = True
        self._wake.set()
        await asyncio.wait([self._task])

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        if self._at_once == 1:
            await self._take(self._answer)
            return
        places = asyncio.Semaphore(self._at_once)

        async def begin(subject: str, data: bytes, reply: Callable[[bytes], None]) -> None:
            await places.acquire()
            group.create_task(self._answer(subject, data, reply)).add_done_callback(lambda _: places.release())

        async with asyncio.TaskGroup() as group:
            await self._take(begin)

    async def _take(self, handle: Callable[[str, bytes, Callable[[bytes], None]], Awaitable[None]]) -> None:
        while True:
            while self._requests:
                await handle(*self._requests.popleft())
            if self._is_stopping:
                return
            self._wake.clear()
            await self._wake.wait()

    async def _answer(self, subject: str, data: bytes, reply: Callable[[bytes], None]) -> None:
        try:
            answer = await self._handler(subject, data)
        except (TransientError, PoisonError):
            return
        server = self._bus.server
        if answer is not None and not server.is_down and len(answer) <= server.payload_limit_bytes:
            reply(answer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self in self._bus.server.services:
            self._bus.server.services.remove(self)
        if not task.cancelled() and (error := task.exception()) is not None:
            failure = FatalError(f"handler of {self.subject} ended: {error!r}")
            failure.__cause__ = error
            self._bus.fail(failure)
