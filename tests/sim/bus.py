"""The bus in a simulation: one connection, whose messages take their time, come late, or are lost.

It does what a real connection may do. Messages of one connection stay in order. While a direction is held, nothing
arrives, and what was sent arrives later, perhaps after the sender gave up. When the connection breaks, what is under
way is lost: requests that did not arrive, and answers to those that did. A consumer may be deleted; its follower misses
nothing, but is late.

Longer than 400 lines because the port has many calls, and a connection is one class.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from berth.runtime.bus.port import Endpoint, Follower, Gap, Gathered, Stored
from berth.runtime.bus.process_stats import Followed
from berth.runtime.bus.streams import Keeping
from berth.runtime.errors import AmbiguousError, ShellError, TransientError
from berth.schemas.subjects import StreamName
from tests.sim.follower import SimFollower
from tests.sim.link import Link
from tests.sim.loop import Lane, SimFuture, SimLoop
from tests.sim.served import SimServed
from tests.sim.server import SimServer
from tests.support.fake_bus import API, API_S, FakeBus, FakeServed
from tests.support.signing_keys import quick_signatures

T = TypeVar("T")
_SUBMIT_S: Final = 10.0
_MIRROR_LOOK_S: Final = 0.05
_AWAY: Final = "not connected; nothing was sent"


class _Call(NamedTuple):
    operation: Callable[[], object]
    about: str
    generation: int
    future: SimFuture
    timer: asyncio.TimerHandle
    is_write: bool


class SimBus(FakeBus):
    """One connection of a simulated process. Make it in the lane that uses it.

    Args:
        server: The server.
        cell: The cell.
        lane: Whose it is.
        rng: Of all choices about it.
        delay_s: Usual time that a message is under way.

    Attributes:
        lose_replies: So many writes that the server stores get no answer.
        is_dead: Its process is dead: nothing that it does has an effect.
        on_append: Called before the next append, once.
    """

    server: SimServer

    def __init__(self, server: SimServer, cell: str, lane: Lane, rng: Random, *, delay_s: float = 0.0005) -> None:
        super().__init__(server, cell)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.signatures = quick_signatures()
        self.loop = loop
        self.lane = lane
        self.rng = rng
        self.outgoing = Link(loop, rng, delay_s)
        self.incoming = Link(loop, rng, delay_s)
        self.lose_replies = 0
        self.on_append: Callable[[], object] | None = None
        self.is_connected = True
        self.is_dead = False
        self._generation = 0
        self._waiting: dict[SimFuture, bool] = {}
        """Calls under way, and whether they are writes."""
        self._readers: list[SimFollower] = []

    @property
    def connected(self) -> bool:
        """Whether the server is in reach."""
        return self.is_connected

    @property
    def followed(self) -> list[Followed]:
        """None: nobody asks a simulated process for its metrics."""
        return []

    # Faults.

    def cut(self, back_after_s: float) -> None:
        """Break the connection; it is back after some time."""
        if self.is_dead:
            return
        if self.is_connected:
            self.link_changes += 1
        self.is_connected = False
        self._generation += 1
        for served in self._served:
            if served in self.server.services:
                self.server.services.remove(served)
        waiting, self._waiting = self._waiting, {}
        for future, is_write in waiting.items():
            if not future.done():
                future.set_exception(
                    AmbiguousError("connection broke") if is_write else TransientError("connection broke")
                )
        self.loop.call_later(back_after_s, self._reconnect, self._generation, context=self.server.lane.context)

    def _reconnect(self, generation: int) -> None:
        if self.is_dead or generation != self._generation:
            return
        if self.server.is_down:
            self.loop.call_later(0.3, self._reconnect, generation, context=self.server.lane.context)
            return
        self.is_connected = True
        self.link_changes += 1
        for served in self._served:
            if served not in self.server.services and not served.is_over:  # type: ignore[attr-defined]  # SimServed
                self.server.services.append(served)
        for reader in self._readers:
            reader.lose_consumer(0.05 + self.rng.random())

    def lose_consumers(self) -> None:
        """Delete the consumers of all followers."""
        for reader in self._readers:
            reader.lose_consumer(0.3 + 2 * self.rng.random())

    def sever(self) -> None:
        """The process is dead."""
        self.is_dead = self._is_closed = True
        self.is_connected = False
        self._generation += 1
        for served in self._served:
            if served in self.server.services:
                self.server.services.remove(served)
        for reader in self._readers:
            reader.end(None)

    # Calls.

    def _call(self, operation: Callable[[], object], about: str, timeout_s: float, *, is_write: bool) -> SimFuture:
        """Let the server do something; the future gets its answer, or why there is none."""
        self._check()
        future = self.loop.create_future()
        if not self.is_connected:
            future.set_exception(TransientError(_AWAY))
            return future
        self._waiting[future] = is_write
        timer = self.loop.call_later(timeout_s, self._expire, future, about, context=self.lane.context)
        call = _Call(operation, about, self._generation, future, timer, is_write)
        self.loop.call_at(self.outgoing.arrival_s(), self._arrive, call, context=self.server.lane.context)
        return future

    def _arrive(self, call: "_Call") -> None:
        """The server has a request."""
        if call.generation != self._generation or self.server.is_down or not self.server.has_leader(call.about):
            return
        result: object = None
        caught: ShellError | None = None
        try:
            result = call.operation()
        except ShellError as error:
            caught = error
        if call.is_write and self.lose_replies and caught is None:
            self.lose_replies -= 1
            return
        self.loop.call_at(self.incoming.arrival_s(), self._return, call, result, caught, context=self.lane.context)

    def _return(self, call: "_Call", result: object, error: ShellError | None) -> None:
        """The answer is here."""
        if call.generation != self._generation:
            return
        call.timer.cancel()
        future = call.future
        self._waiting.pop(future, None)
        if future.done() or self.is_dead:
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _expire(self, future: SimFuture, about: str) -> None:
        is_write = self._waiting.pop(future, False)
        if not future.done():
            future.set_exception(
                AmbiguousError(f"publish to {about}: time-out")
                if is_write
                else TransientError(f"no answer about {about}")
            )

    async def ensure_streams(
        self,
        *,
        replicas: int = 1,
        max_bytes: Mapping[StreamName, int] | None = None,
        max_age_s: Mapping[StreamName, int] | None = None,
        waits_for: Collection[StreamName] = (),
    ) -> None:
        del replicas, max_bytes, max_age_s, waits_for

        def make() -> None:
            self.server.refuse_lost()
            for spec in self._specs.values():
                self.server.make(self.subjects.stream(spec.name), spec)

        for _ in range(30):
            try:
                await self._call(make, API, API_S, is_write=False)
                return
            except TransientError:
                await asyncio.sleep(1)
        await self._call(make, API, API_S, is_write=False)

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = API_S) -> int:
        on_append, self.on_append = self.on_append, None
        if on_append is not None:
            on_append()
        return await super().append(data, expected_seq=expected_seq, timeout_s=timeout_s)

    def submit(self, subject: str, data: bytes, *, sequence: int = 0) -> SimFuture:
        headers = self.signatures.headers(self.subjects, subject, data, sequence) or None
        try:
            self._fit(subject, data, headers)
            return self._call(
                lambda: self.server.store(subject, data, None, None, headers), subject, _SUBMIT_S, is_write=True
            )
        except ShellError as error:
            future = self.loop.create_future()
            future.set_exception(error)
            return future

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        await asyncio.sleep(0)
        futures = [self.submit(subject, data) for subject, data in messages]
        whole = self.loop.create_future()

        def settle(_: asyncio.Future[int]) -> None:
            if whole.done() or not all(future.done() for future in futures):
                return
            errors = [error for future in futures if (error := future.exception()) is not None]
            if errors:
                whole.set_exception(errors[0])
                if self._is_closed:
                    whole.exception()  # who waited for it may have ended
            else:
                whole.set_result(futures[-1].result())

        for future in futures:
            future.add_done_callback(settle)
        return whole

    # What backups and restores need of a real bus besides its port.

    async def keeping(self, stream: StreamName) -> Keeping | None:
        name = self.subjects.stream(stream)
        is_there = await self._call(lambda: name in self.server.streams, name, API_S, is_write=False)
        return Keeping(await self.state(stream), 1, 0) if is_there else None

    async def make_stream(
        self, stream: StreamName, *, first_seq: int, replicas: int, max_bytes: int = 0, floor: int = 0
    ) -> None:
        del replicas, max_bytes
        name, spec = self.subjects.stream(stream), self._specs[stream]
        await self._call(
            lambda: self.server.make(name, spec, first_seq=first_seq, floor=floor), name, API_S, is_write=True
        )

    def follow(  # type: ignore[override]  # another class than that of the fake
        self,
        stream: StreamName,
        *,
        on_message: Callable[[Stored], None],
        on_gap: Callable[[Gap], None],
        start_seq: int = 1,
        filters: Sequence[str] = (),
        created: str = "",
    ) -> Follower:
        self._check()
        start = (start_seq, tuple(filters), created)
        reader = SimFollower(self, self._specs[stream], start, on_message, on_gap)
        self._readers.append(reader)
        return reader

    async def wait_mirror(self, stream: StreamName, *, at_least: int, timeout_s: float) -> None:
        until_s = self.loop.now_s + timeout_s
        while (await self.state(stream)).last_seq < at_least:
            if self.loop.now_s >= until_s:
                raise TransientError(f"{stream} has not reached {at_least} within {timeout_s} s")
            await asyncio.sleep(_MIRROR_LOOK_S)

    # Messages that are not stored.

    async def send(self, subject: str, data: bytes) -> None:
        self._check()
        self._fit(subject, data)
        await asyncio.sleep(0)
        if not self.is_connected:
            raise TransientError(_AWAY)
        self._post(subject, data, lambda _, __: None)

    async def offer(self, endpoint: Endpoint, handler: Callable[[str, bytes], Awaitable[bytes | None]]) -> FakeServed:
        return await self._listen(endpoint.subject, endpoint.queue, handler)

    async def _listen(
        self, subject: str, queue: str, handler: Callable[[str, bytes], Awaitable[bytes | None]]
    ) -> FakeServed:
        served = await self._call_here(lambda: SimServed(self, subject, queue, handler))
        self._served.append(served)
        return served

    async def _call_here(self, make: Callable[[], T]) -> T:
        """Let the server know something, then do it in the own lane."""
        await self._call(lambda: None, "interest", API_S, is_write=False)
        return make()

    def _post(self, subject: str, data: bytes, answered: Callable[[FakeServed | None, bytes], object]) -> None:
        """Send a message to whoever listens; ``answered`` is called in the own lane with each answer.

        It is called with None if nobody listens.
        """
        generation = self._generation

        def arrive() -> None:
            if generation != self._generation or self.server.is_down:
                return
            services = self.server.route(subject)
            self.loop.trace(f"post {subject} {len(services)}", data)
            if not services:
                self.loop.call_at(self.incoming.arrival_s(), answered, None, b"", context=self.lane.context)
            for service in services:
                assert isinstance(service, SimServed)
                service.deliver(subject, data, lambda answer, service=service: back(service, answer))  # type: ignore[misc]  # bound

        def back(service: FakeServed, answer: bytes) -> None:
            if generation == self._generation and not self.server.is_down:
                self.loop.call_at(self.incoming.arrival_s(), answered, service, answer, context=self.lane.context)

        self.loop.call_at(self.outgoing.arrival_s(), arrive, context=self.server.lane.context)

    async def _ask(
        self, subjects: Mapping[int, str], data: Mapping[int, bytes] | bytes, timeout_s: float
    ) -> tuple[Gathered, bool]:
        self._check()
        await asyncio.sleep(0)
        if not self.is_connected:
            raise TransientError(_AWAY)
        replies: dict[int, bytes] = {}
        absent: set[int] = set()
        is_over = False
        done = asyncio.Event()

        def taker(shard: int) -> Callable[[FakeServed | None, bytes], None]:
            def take(service: FakeServed | None, answer: bytes) -> None:
                if is_over:
                    return
                if service is None:
                    absent.add(shard)
                elif shard not in replies:
                    self.loop.trace(f"{self.lane.name} gets reply", answer)
                    replies[shard] = answer
                if len(replies) + len(absent) == len(subjects):
                    done.set()

            return take

        for shard, subject in subjects.items():
            request = data if isinstance(data, bytes) else data[shard]
            self._fit(subject, request)
            self._post(subject, request, taker(shard))
        try:
            async with asyncio.timeout(timeout_s):
                await done.wait()
        except TimeoutError:
            pass
        is_over = True
        return Gathered(replies, sorted(set(subjects) - set(replies))), len(absent) < len(subjects)

    async def drain(self, *, timeout_s: float) -> None:
        if self._waiting and self.is_connected and not self.is_dead:
            await asyncio.wait(list(self._waiting), timeout=timeout_s)
        await super().drain(timeout_s=timeout_s)

    async def close(self) -> None:
        self._is_closed = True
        for reader in self._readers:
            await reader.stop()
        for served in self._served:
            await served.cancel()
        waiting, self._waiting = self._waiting, {}
        for future, is_write in waiting.items():
            if is_write and not future.done():
                future.set_exception(AmbiguousError("the bus is closed"))
                future.exception()
