"""The bus in memory: the same protocol, no server, nothing left to chance.

All clients of a test share one :class:`FakeServer`. Followers and handlers take their turn in the event loop in the
order in which they were made. Time is the server's clock; only the time-outs of requests that nobody answers are real.

Longer than 400 lines because it is the whole protocol of the bus.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Self

from berth.runtime.bus.port import QUIET_S, Endpoint, Gap, Gathered, Stored, StreamState
from berth.runtime.bus.process_stats import ProcessStats
from berth.runtime.bus.signatures import Signatures
from berth.runtime.bus.wire import size_bytes
from berth.runtime.errors import FatalError, OversizeError, PoisonError, TransientError
from berth.runtime.inboxes import ANYBODY
from berth.schemas.envelope import OlderVersionError
from berth.schemas.subjects import StreamName, StreamSpec, Subjects
from tests.support.fake_server import FakeServer, FakeStream, matches

__all__ = ["FakeBus", "FakeFollower", "FakeServed", "FakeServer"]


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


class FakeBus:
    """One client of a :class:`FakeServer`; see :class:`berth.runtime.bus.port.Bus`. Make it inside an event loop."""

    def __init__(self, server: FakeServer, cell: str) -> None:
        self.server = server
        self.subjects = Subjects(cell)
        self.signatures = Signatures()
        self.link_changes = 0
        self.lost: asyncio.Future[FatalError] = asyncio.get_running_loop().create_future()
        self._specs = {spec.name: spec for spec in self.subjects.streams()}
        self._followers: list[FakeFollower] = []
        self._served: list[FakeServed] = []
        self._is_closed = False
        self._asking: set[asyncio.Event] = set()
        """Set when the requests that wait for replies are answered, or the bus is closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        return not (self._is_closed or self.server.is_down)

    @property
    def payload_limit_bytes(self) -> int:
        return self.server.payload_limit_bytes

    def fail(self, error: FatalError) -> None:
        """Say that the process must end; a test may call it too."""
        if not self.lost.done():
            self.lost.set_result(error)

    async def ensure_streams(
        self,
        *,
        replicas: int = 1,
        max_bytes: Mapping[StreamName, int] | None = None,
        max_age_s: Mapping[StreamName, int] | None = None,
        waits_for: Collection[StreamName] = (),
    ) -> None:
        del replicas, max_bytes, max_age_s, waits_for  # memory has none of them
        self._check()
        for spec in self._specs.values():
            if self.subjects.stream(spec.name) in self.server.streams:
                await self.see_format(spec.name)
        for spec in self._specs.values():
            self.server.make(self.subjects.stream(spec.name), spec)
            await self._stream(spec.name)
        self.server.wake()

    async def see_format(self, stream: StreamName) -> None:
        found = await self._stream(stream)
        if found.last_seq and found.is_older:
            raise OlderVersionError(f"stream {self.subjects.stream(stream)}")

    async def is_stuck(self, stream: StreamName, *, beside: StreamName) -> bool:
        await self._stream(beside)
        return self.subjects.stream(stream) in self.server.leaderless

    async def delete_stream(self, stream: StreamName) -> None:
        await self._turn()
        if self.subjects.stream(stream) in self.server.streams:
            self.server.delete(self.subjects.stream(stream))

    async def before_publish(self, subject: str) -> None:
        """Called before a message is published by :meth:`publish`; for subclasses."""

    def after_publish(self, sequence: int, message_id: str) -> None:
        """Called once it is stored; for subclasses."""

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
        del timeout_s
        await self.before_publish(subject)
        expected = None if expected_subject_seq is None else ("subject", expected_subject_seq)
        if not message_id:
            sequence = await self._store(subject, data, expected, ttl_s, expected_subject_seq or 0)
        else:
            self._fit(subject, data, {"Nats-Msg-Id": message_id})
            await self._turn()
            sequence = self.server.store_once(subject, data, expected, ttl_s, message_id)
        self.after_publish(sequence, message_id)
        return sequence

    def submit(self, subject: str, data: bytes) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            self._check()
            future.set_result(self.server.store(subject, data, None, None))
        except (TransientError, PoisonError, FatalError) as error:
            future.set_exception(error)
        return future

    async def submit_wait(self, subject: str, data: bytes, *, sequence: int = 0) -> asyncio.Future[int]:
        del sequence  # nothing is signed here
        await asyncio.sleep(0)
        return self.submit(subject, data)

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        await asyncio.sleep(0)
        return [self.submit(subject, data) for subject, data in messages][-1]

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        del timeout_s
        return await self._store(self.subjects.ledger, data, ("stream", expected_seq), None, expected_seq + 1)

    async def last(self, stream: StreamName, subject: str) -> Stored | None:
        found = await self._stream(stream)
        return found.last(subject)

    async def message(self, stream: StreamName, sequence: int) -> Stored | None:
        found = await self._stream(stream)
        return found.messages.get(sequence)

    async def state(self, stream: StreamName) -> StreamState:
        found = await self._stream(stream)
        return found.state

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        found = await self._stream(stream)
        return [
            stored for stored in found.counting() if stored.sequence >= start_seq and matches(stored.subject, filters)
        ]

    async def purge(self, stream: StreamName, *, keep_from_seq: int | None = None, subject: str | None = None) -> None:
        found = await self._stream(stream)
        found.purge(keep_from_seq, subject)
        self.server.wake()

    async def raise_floor(self, stream: StreamName, sequence: int) -> None:
        (await self._stream(stream)).raise_floor(sequence)

    def follow(
        self,
        stream: StreamName,
        *,
        on_message: Callable[[Stored], None],
        on_gap: Callable[[Gap], None],
        start_seq: int = 1,
        filters: Sequence[str] = (),
        created: str = "",
    ) -> FakeFollower:
        self._check()
        start = (start_seq, tuple(filters), created)
        follower = FakeFollower(self, self._specs[stream], start, on_message, on_gap)
        self._followers.append(follower)
        return follower

    async def wait_mirror(self, stream: StreamName, *, at_least: int, timeout_s: float) -> None:
        found = await self._stream(stream)
        if found.last_seq < at_least:
            raise TransientError(f"{stream} has not reached {at_least} within {timeout_s} s")

    async def send(self, subject: str, data: bytes) -> None:
        await self._turn()
        self._fit(subject, data)
        for service in self.server.route(subject):
            service.put(subject, data, lambda _: None)

    async def processes(self, *, quiet_s: float = QUIET_S) -> list[ProcessStats]:
        assert quiet_s > 0
        return list(self.server.processes)

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        gathered, is_served = await self._ask({0: subject}, data, timeout_s)
        if not is_served:
            raise TransientError(f"no responders on {subject}")
        if gathered.missing:
            raise TransientError(f"no reply from {subject} within {timeout_s} s")
        return gathered.replies[0]

    async def gather(
        self, subjects: Mapping[int, str], data: Mapping[int, bytes] | bytes, *, timeout_s: float
    ) -> Gathered:
        gathered, _ = await self._ask(subjects, data, timeout_s)
        return gathered

    async def serve(
        self,
        subject: str,
        handler: Callable[[bytes], Awaitable[bytes | None]],
        *,
        queue: str = "",
        callers: tuple[str, ...] = ANYBODY,
    ) -> FakeServed:
        del callers  # memory has no inboxes
        return await self.offer(Endpoint("", subject, queue, "", ""), lambda _, data: handler(data))

    async def offer(self, endpoint: Endpoint, handler: Callable[[str, bytes], Awaitable[bytes | None]]) -> FakeServed:
        await self._turn()
        served = FakeServed(self, endpoint.subject, endpoint.queue, handler, endpoint.at_once)
        self._served.append(served)
        return served

    async def drain(self, *, timeout_s: float) -> None:
        del timeout_s
        for served in self._served:
            await served.stop()
        await self.close()

    async def close(self) -> None:
        self._is_closed = True
        for done in self._asking:
            done.set()
        for follower in self._followers:
            await follower.stop()
        for served in self._served:
            await served.cancel()

    def _check(self) -> None:
        if self._is_closed:
            raise FatalError("the bus is closed")

    async def _turn(self) -> None:
        self._check()
        await asyncio.sleep(0)  # others may run, as they may during a real call
        self.server.check()

    async def _stream(self, stream: StreamName) -> FakeStream:
        await self._turn()
        return self.server.stream(self.subjects.stream(stream))

    async def _store(
        self, subject: str, data: bytes, expected: tuple[str, int] | None, ttl_s: int | None, number: int = 0
    ) -> int:
        await self._turn()
        headers = self.signatures.headers(self.subjects, subject, data, number) or None
        return self.server.store(subject, data, expected, ttl_s, headers)

    def _fit(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        size = size_bytes(data, headers)
        if size > self.server.payload_limit_bytes:
            raise OversizeError(subject, size_bytes=size, limit_bytes=self.server.payload_limit_bytes)

    async def _ask(
        self, subjects: Mapping[int, str], data: Mapping[int, bytes] | bytes, timeout_s: float
    ) -> tuple[Gathered, bool]:
        await self._turn()
        replies: dict[int, bytes] = {}
        done = asyncio.Event()
        asked: set[int] = set()

        def take(shard: int) -> Callable[[bytes], None]:
            def put(answer: bytes) -> None:
                if shard not in replies and not is_over:
                    replies[shard] = answer
                if len(replies) == len(asked):
                    done.set()

            return put

        is_over = False
        for shard, subject in subjects.items():
            request = data if isinstance(data, bytes) else data[shard]
            self._fit(subject, request)
            for service in self.server.route(subject):
                asked.add(shard)
                service.put(subject, request, take(shard))
        if asked:
            self._asking.add(done)
            try:
                async with asyncio.timeout(timeout_s):
                    await done.wait()
            except TimeoutError:
                pass
            finally:
                self._asking.discard(done)
        is_over = True
        return Gathered(replies, sorted(set(subjects) - set(replies))), bool(asked)
