"""Streams of server-sent events: a bounded queue for each reader, keepalives, and an end that names its reason.

A reader that is too slow loses its stream, and nobody else notices: it goes on where it was, with ``Last-Event-ID``.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.types import Receive, Scope, Send

from berth.runtime.clock import Clock
from berth.services.gateway.errors import RETRY_AFTER_S, RequestError, error_body
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.stream_limits import OpenStreams, StreamLimits

KEEPALIVE: Final = b": keepalive\n\n"
_CHECK_S: Final = 30.0
"""How often it is checked whether a reader still may read."""
RIGHTS_GONE: Final = frozenset({"denied", "no-token"})
"""Errors that say that a reader has lost its rights; others say that they are not known now."""
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # a proxy may not collect events
)


class Reader:
    """What waits for one client.

    Args:
        events_max: Most chunks that wait.
        identity: Of the client.

    Attributes:
        identity: Of the client.
        is_gone: The client has gone.
        is_slow: It was ended because it was too slow.
    """

    __slots__ = ("_ending", "_events_max", "_is_over", "_waiting", "_wake", "identity", "is_gone", "is_slow")

    def __init__(self, events_max: int, identity: str = "") -> None:
        self.identity = identity
        self.is_gone = False
        self.is_slow = False
        self._events_max = events_max
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._ending = b""
        self._is_over = False

    def put(self, position: int, chunk: bytes) -> None:
        """Add a chunk; a reader for which too many wait is ended.

        Args:
            position: Place of the chunk in the stream from which it comes; 0 if it has none.
            chunk: Text of one event.
        """
        if self._is_over:
            return
        if len(self._waiting) >= self._events_max:
            self.is_slow = True
            self.end(
                "slow-reader",
                f"events that wait is {self._events_max}, expected fewer: the reader is too slow; go on after the last id",
            )
            return
        self._waiting.append((position, chunk))
        self._notify()

    def end(self, code: str, reason: str) -> None:
        """End the stream with an event that says why, after the chunks that wait."""
        if not self._is_over:
            self._is_over = True
            self._ending = event_chunk(error_body(reason, code), name="end")
            self._notify()

    def leave(self) -> None:
        """The client has gone: nothing more is of use."""
        self.is_gone = True
        self._is_over = True
        self._waiting.clear()
        self._ending = b""
        self._notify()

    async def next(self, seconds: float) -> tuple[int, bytes] | None:
        """The next chunk with its position; None at the end.

        Args:
            seconds: After so long without a chunk it is a comment, at position 0.
        """
        while True:
            if self._waiting:
                return self._waiting.popleft()
            if self._is_over:
                ending, self._ending = self._ending, b""
                return (0, ending) if ending else None
            self._wake = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake
            except TimeoutError:
                return 0, KEEPALIVE
            finally:
                self._wake = None

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Streams:
    """All streams of events of jobs.

    Args:
        limits: Bounds of each.
        opened: Counts streams of all kinds.
        clock: Of the process.
        metrics: Of the gateway.
    """

    def __init__(self, limits: StreamLimits, opened: OpenStreams, clock: Clock, metrics: GatewayMetrics) -> None:
        self.limits = limits
        self._opened = opened
        self._clock = clock
        self._metrics = metrics
        self._readers: set[Reader] = set()
        self._is_closing = False

    def open(self, identity: str) -> Reader:
        """A reader for one client; :meth:`respond` gives it its stream, or :meth:`close` ends it without.

        Args:
            identity: Of the client.

        Raises:
            RequestError: Too many are open, or the process is stopping.
        """
        if self._is_closing:
            raise RequestError("gateway is stopping, expected another instance", "unavailable")
        self._opened.take(identity)
        reader = Reader(self.limits.events_max, identity)
        self._readers.add(reader)
        return reader

    def close(self, reader: Reader) -> None:
        """End a reader."""
        reader.leave()
        if reader in self._readers:
            self._readers.discard(reader)
            self._opened.give_back(reader.identity)
            if reader.is_slow:
                self._metrics.slow.inc()

    def end_all(self, code: str, reason: str) -> None:
        """End all streams with an event that says why, and let no new ones begin."""
        self._is_closing = True
        for reader in list(self._readers):
            reader.end(code, reason)

    def respond(
        self,
        reader: Reader,
        chunks: AsyncGenerator[bytes, None],
        permitted: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
    ) -> "StreamResponse":
        """The answer that sends chunks to a client until they end or it goes.

        Args:
            reader: The client's, from :meth:`open`; it is closed at the end.
            chunks: What is sent; it ends when the reader does. It may never be started.
            permitted: Called now and then; raises ``RequestError`` when the client may read no more.
            ended: Called at the end.
        """
        return StreamResponse(self, reader, chunks, permitted, ended, self._clock)


class StreamResponse:
    """A stream to one client.

    Args:
        streams: Counts it.
        reader: Of the client.
        chunks: What is sent.
        permitted: Raises when the client may read no more.
        ended: Called at the end.
        clock: Of the process.
    """

    def __init__(
        self,
        streams: Streams,
        reader: Reader,
        chunks: AsyncGenerator[bytes, None],
        permitted: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._streams = streams
        self._reader = reader
        self._chunks = chunks
        self._permitted = permitted
        self._ended = ended
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the chunks."""
        try:
            await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": list(_HEADERS)})
            if scope["method"] != "HEAD":
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch(receive), name="wait until the client goes")
                    await self._send_all(send)
                    watching.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._ended()
            self._streams.close(self._reader)
            await self._chunks.aclose()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass  # a body, which nobody needs
        self._reader.leave()

    async def _send_all(self, send: Send) -> None:
        checked_s = self._clock.monotonic_s()
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            now_s = self._clock.monotonic_s()
            if now_s - checked_s >= _CHECK_S:
                checked_s = now_s
                try:
                    await self._permitted()
                except RequestError as error:
                    if error.code in RIGHTS_GONE:
                        self._reader.end(error.code, error.error)


def event_chunk(data: bytes, *, name: str = "", position: int = 0) -> bytes:
    """Text of an event.

    Args:
        data: JSON without line breaks.
        name: Its kind; empty for the usual one.
        position: Its id, with which a reader goes on; 0 for none.
    """
    head = f"id: {position}\n".encode() if position else b""
    kind = f"event: {name}\n".encode() if name else b""
    return b"%b%bdata: %b\n\n" % (head, kind, data)


RETRY: Final = b"retry: %d\n\n" % (RETRY_AFTER_S * 1000)
"""The first chunk of a stream: how long a reader waits until it connects again."""
