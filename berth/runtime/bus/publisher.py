"""Pipeline of publishes to streams: one inbox for acknowledgements, one sending task, one outcome for each message.

A message is queued or sent. If it fails while it is queued, it was not stored. If it fails after it was sent, it may
have been stored.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from berth.runtime.bus.stream_api import ApiError, refusal
from berth.runtime.bus.wire import Received, Wire, is_no_responders, size_bytes
from berth.runtime.errors import (
    AmbiguousError,
    DuplicateError,
    FatalError,
    OversizeError,
    PoisonError,
    ShellError,
    TransientError,
)

_RESERVE: Final = 256
"""Number of awaited publishes above the bound."""
OUTSTANDING_MAX: Final = 16_384
OUTSTANDING_BYTES_MAX: Final = 64 << 20
SUBMIT_TIMEOUT_S: Final = 10.0
_SLICE: Final = 256  # messages sent before the task yields to others
_SWEEP_S: Final = 0.1
_LOW_WATER: Final = 0.75  # fraction of the bounds at which waiting callers continue


class _Ack(msgspec.Struct, frozen=True):
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_ACK: Final = msgspec.json.Decoder(_Ack)


class _Outstanding:
    __slots__ = ("before", "data", "deadline", "future", "headers", "is_sent", "size", "subject")

    def __init__(
        self, future: asyncio.Future[int], subject: str, data: bytes, headers: Mapping[str, str] | None, deadline: float
    ) -> None:
        self.future = future
        self.subject = subject
        self.data = data
        self.headers = headers
        self.deadline = deadline
        self.before: Sequence[tuple[str, bytes]] = ()
        """Messages that are sent directly before this one, without their own acknowledgement."""
        self.size = len(data)
        self.is_sent = False


class Publisher:
    """Outstanding publishes of a connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._prefix = wire.deliveries() + "."
        self._count = 0
        self._outstanding: dict[str, _Outstanding] = {}
        self._outstanding_bytes = 0
        self._queue: deque[str] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the bounds of :meth:`berth.runtime.bus.port.Bus.submit` are reached."""
        return len(self._outstanding) >= OUTSTANDING_MAX or self._outstanding_bytes >= OUTSTANDING_BYTES_MAX

    @property
    def outstanding(self) -> int:
        """Number of publishes without an outcome."""
        return len(self._outstanding)

    async def open(self) -> None:
        """Subscribe to acknowledgements and start to send; call it once, before the first publish."""
        await self._wire.listen(f"{self._prefix}*", self._receive)
        # Not in a task group: it runs as long as the connection, whose close() ends it.
        self._task = self._loop.create_task(self._send_all(), name="bus publisher")
        self._task.add_done_callback(self._ended)

    def submit(
        self,
        subject: str,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = SUBMIT_TIMEOUT_S,
        awaited: bool = False,
    ) -> asyncio.Future[int]:
        """Queue a message; see :meth:`berth.runtime.bus.port.Bus.submit`.

        An ``awaited`` message, of which a caller has one outstanding at a time, may exceed the bounds a little: a lease
        must be renewed also if the streams are slow.

        Raises:
            TransientError: The bounds are reached.
        """
        if self.is_full and not (awaited and len(self._outstanding) < OUTSTANDING_MAX + _RESERVE):
            self._room.clear()
            raise TransientError(f"{len(self._outstanding)} publishes are outstanding")
        future: asyncio.Future[int] = self._loop.create_future()
        refused = self._refused(subject, data, headers)
        if refused is not None:
            future.set_exception(refused)
            return future
        self._enqueue(_Outstanding(future, subject, data, headers, self._loop.time() + timeout_s))
        return future

    def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        """Queue messages of one stream; see :meth:`berth.runtime.bus.port.Bus.submit_batch`."""
        future: asyncio.Future[int] = self._loop.create_future()
        for subject, data in messages:
            refused = self._refused(subject, data, None)
            if refused is not None:
                future.set_exception(refused)
                return future
        subject, data = messages[-1]
        entry = _Outstanding(future, subject, data, None, self._loop.time() + SUBMIT_TIMEOUT_S)
        entry.before = messages[:-1]
        entry.size = sum(len(data) for _, data in messages)
        self._enqueue(entry)
        return future

    def _enqueue(self, entry: _Outstanding) -> None:
        self._count += 1
        token = str(self._count)
        self._outstanding[token] = entry
        self._outstanding_bytes += entry.size
        self._queue.append(token)
        self._wake.set()
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)

    async def wait_for_room(self) -> None:
        """Wait until :meth:`submit` accepts a message."""
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    async def settle(self) -> None:
        """Wait until every publish has an outcome."""
        while self._outstanding:
            entry = next(iter(self._outstanding.values()))
            await asyncio.wait([entry.future])

    def broke(self) -> None:
        """Resolve everything: the connection broke, so no earlier acknowledgement will come."""
        self._queue.clear()
        for token in list(self._outstanding):
            self._give_up(token, "connection broke")

    async def close(self) -> None:
        """Stop sending and resolve everything."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.broke()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _refused(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> ShellError | None:
        size = size_bytes(data, headers)
        if size > self._wire.payload_limit_bytes:
            return OversizeError(subject, size_bytes=size, limit_bytes=self._wire.payload_limit_bytes)
        if self._task is None or self._task.done():
            return FatalError("the bus is closed")
        if not self._wire.connected:
            return TransientError("not connected; nothing was sent")
        return None

    async def _send_all(self) -> None:
        queue, outstanding, wire = self._queue, self._outstanding, self._wire
        while True:
            if not queue:
                self._wake.clear()
                await self._wake.wait()
            for _ in range(min(len(queue), _SLICE)):
                token = queue.popleft()
                entry = outstanding.get(token)
                if entry is None:  # its deadline passed in the queue
                    continue
                if entry.future.done():  # the caller cancelled it before it was sent
                    self._forget(token)
                    continue
                try:
                    entry.is_sent = True
                    for subject, data in entry.before:
                        await wire.write(subject, data)
                    await wire.write(entry.subject, entry.data, self._prefix + token, entry.headers)
                except (TransientError, PoisonError, FatalError) as error:
                    self._fail(token, error)
            await asyncio.sleep(0)

    def _receive(self, message: Received) -> None:
        token = message.subject[len(self._prefix) :]
        entry = self._forget(token)
        if entry is None or entry.future.done():
            return
        if is_no_responders(message):
            entry.future.set_exception(TransientError(f"no stream accepts {entry.subject}"))
            return
        try:
            ack = _ACK.decode(message.data)
        except msgspec.MsgspecError as error:
            entry.future.set_exception(AmbiguousError(f"publish to {entry.subject}: unreadable answer: {error}"))
            return
        if ack.error is not None:
            entry.future.set_exception(refusal(f"publish to {entry.subject}", ack.error))
        elif ack.duplicate:
            entry.future.set_exception(DuplicateError(f"publish to {entry.subject}: message {ack.seq} has its id"))
        else:
            entry.future.set_result(ack.seq)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now = self._loop.time()
        for token in [token for token, entry in self._outstanding.items() if entry.deadline <= now]:
            self._give_up(token, "time-out")
        if self._outstanding:
            self._sweep_timer = self._loop.call_later(_SWEEP_S, self._sweep)

    def _give_up(self, token: str, why: str) -> None:
        entry = self._outstanding[token]
        reason = f"publish to {entry.subject}: {why}"
        self._fail(token, AmbiguousError(reason) if entry.is_sent else TransientError(f"{reason}; nothing was sent"))

    def _fail(self, token: str, error: ShellError) -> None:
        entry = self._forget(token)
        if entry is not None and not entry.future.done():
            entry.future.set_exception(error)

    def _forget(self, token: str) -> _Outstanding | None:
        entry = self._outstanding.pop(token, None)
        if entry is None:
            return None
        self._outstanding_bytes -= entry.size
        if (
            not self._room.is_set()
            and len(self._outstanding) <= OUTSTANDING_MAX * _LOW_WATER
            and self._outstanding_bytes <= OUTSTANDING_BYTES_MAX * _LOW_WATER
        ):
            self._room.set()
        return entry

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        failure = FatalError(f"bus publisher ended: {error!r}")
        failure.__cause__ = error
        self._wire.fail(failure)
