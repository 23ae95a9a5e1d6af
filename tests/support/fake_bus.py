"""The bus in memory: the same protocol, no server, nothing left to chance.

All clients of a test share one :class:`FakeServer`. Followers and handlers take their turn in the event loop in the
order in which they were made. Time is the server's clock; only the time-outs of requests that nobody answers are real.
It is the bus of the simulation without its faults: there ``tests/sim/bus.py`` puts a connection between the two.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Self, TypeVar

from berth.runtime.bus.port import QUIET_S, Endpoint, Gap, Gathered, Stored, StreamState
from berth.runtime.bus.process_stats import ProcessStats
from berth.runtime.bus.signatures import Signatures
from berth.runtime.bus.wire import size_bytes
from berth.runtime.errors import FatalError, OversizeError, PoisonError, TransientError
from berth.runtime.inboxes import ANYBODY
from berth.schemas.envelope import OlderVersionError
from berth.schemas.subjects import StreamName, Subjects
from tests.support.fake_readers import FakeFollower, FakeServed
from tests.support.fake_server import FakeServer, FakeStream, matches

T = TypeVar("T")
API: Final = "streams"
"""What a call is about that no stream answers."""
API_S: Final = 5.0
"""Timeout of a call."""

__all__ = ["API", "API_S", "FakeBus", "FakeFollower", "FakeServed", "FakeServer"]


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
                await self.check_format(spec.name)
        self.server.refuse_lost()
        for spec in self._specs.values():
            self.server.make(self.subjects.stream(spec.name), spec)
            await self.state(spec.name)
        self.server.wake()

    async def check_format(self, stream: StreamName) -> None:
        if await self._read(stream, lambda found: found.last_seq and found.is_older):
            raise OlderVersionError(f"stream {self.subjects.stream(stream)}")

    async def is_stuck(self, stream: StreamName, *, beside: StreamName) -> bool:
        await self.state(beside)
        name = self.subjects.stream(stream)
        return await self._call(lambda: self.server.is_stuck(name), API, API_S, is_write=False)

    async def delete_stream(self, stream: StreamName) -> None:
        name = self.subjects.stream(stream)
        await self._call(lambda: self.server.delete(name), API, API_S, is_write=True)

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
        await self.before_publish(subject)
        expected = None if expected_subject_seq is None else ("subject", expected_subject_seq)
        if not message_id:
            sequence = await self._store(subject, data, expected, ttl_s, expected_subject_seq or 0, timeout_s)
        else:
            self._fit(subject, data, {"Nats-Msg-Id": message_id})
            sequence = await self._call(
                lambda: self.server.store_once(subject, data, expected, ttl_s, message_id),
                subject,
                timeout_s,
                is_write=True,
            )
        self.after_publish(sequence, message_id)
        return sequence

    def submit(self, subject: str, data: bytes, *, sequence: int = 0) -> asyncio.Future[int]:
        headers = self.signatures.headers(self.subjects, subject, data, sequence) or None
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            self._check()
            future.set_result(self.server.store(subject, data, None, None, headers))
        except (TransientError, PoisonError, FatalError) as error:
            future.set_exception(error)
        return future

    async def submit_wait(self, subject: str, data: bytes, *, sequence: int = 0) -> asyncio.Future[int]:
        await asyncio.sleep(0)
        return self.submit(subject, data, sequence=sequence)

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        await asyncio.sleep(0)
        return [self.submit(subject, data) for subject, data in messages][-1]

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = API_S) -> int:
        expected = ("stream", expected_seq)
        return await self._store(self.subjects.ledger, data, expected, None, expected_seq + 1, timeout_s)

    async def last(self, stream: StreamName, subject: str) -> Stored | None:
        return await self._read(stream, lambda found: found.last(subject))

    async def message(self, stream: StreamName, sequence: int) -> Stored | None:
        return await self._read(stream, lambda found: found.messages.get(sequence))

    async def state(self, stream: StreamName) -> StreamState:
        return await self._read(stream, lambda found: found.state)

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        return await self._read(
            stream,
            lambda found: [
                stored
                for stored in found.counting()
                if stored.sequence >= start_seq and matches(stored.subject, filters)
            ],
        )

    async def purge(self, stream: StreamName, *, keep_from_seq: int | None = None, subject: str | None = None) -> None:
        await self._read(stream, lambda found: self.server.purge(found, keep_from_seq, subject))

    async def raise_floor(self, stream: StreamName, sequence: int) -> None:
        await self._read(stream, lambda found: found.raise_floor(sequence))

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
        if (await self.state(stream)).last_seq < at_least:
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

    def _call(self, operation: Callable[[], T], about: str, timeout_s: float, *, is_write: bool) -> Awaitable[T]:
        """Let the server do something, and wait for its answer.

        Args:
            operation: What the server does.
            about: Subject or stream, whose leader answers.
            timeout_s: How long an answer may take, where it takes any time.
            is_write: Whether it may have been done if there is no answer.
        """
        del about, timeout_s, is_write  # an answer is there at once

        async def done() -> T:
            await self._turn()
            return operation()

        return done()

    async def _turn(self) -> None:
        self._check()
        await asyncio.sleep(0)  # others may run, as they may during a real call
        self.server.check()

    async def _read(self, stream: StreamName, look: Callable[[FakeStream], T]) -> T:
        name = self.subjects.stream(stream)
        return await self._call(lambda: look(self.server.stream(name)), name, API_S, is_write=False)

    async def _store(
        self,
        subject: str,
        data: bytes,
        expected: tuple[str, int] | None,
        ttl_s: int | None,
        number: int,
        timeout_s: float,
    ) -> int:
        headers = self.signatures.headers(self.subjects, subject, data, number) or None
        self._fit(subject, data, headers)
        return await self._call(
            lambda: self.server.store(subject, data, expected, ttl_s, headers), subject, timeout_s, is_write=True
        )

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
