"""Streams of the picture of a cell: readers with the same rights share one encoding of each change."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from berth.core.overview.partial import restricted_change, restricted_view
from berth.runtime.clock import Clock
from berth.runtime.waits import pause
from berth.schemas.page.view import Change, View
from berth.services.gateway.cell_requests import EVERY
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.stream_limits import OpenStreams

Rights = tuple[str, ...]
"""Namespaces whose jobs a reader may see."""
_KEPT_MS: Final = 1_000
_KEEPALIVE: Final = b": keepalive\n\n"
_HEADERS: Final = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"))
_PAUSE: Final = b"berth-keepalive-s"
"""Header with the pause after which a comment is sent, so that readers know what silence is usual."""


class _Kept(NamedTuple):
    """A whole picture as JSON."""

    version: int
    at_ms: int
    data: bytes
    event: bytes
    """The same as an event, which readers share."""


class Picture(Protocol):
    """Where the picture comes from."""

    @property
    def version(self) -> int:
        """Version of the last change."""

    def now_ms(self) -> int:
        """The time, by the clock of the pictures."""

    def view(self) -> View:
        """The whole picture as of the last change, at the time of now."""

    def namespace_of(self) -> dict[int, str]:
        """Namespace of each job in it, by number."""


class Reader:
    """What waits to be sent to one reader.

    Args:
        rights: Of the reader.
        first: What it gets first.
        waiting_max: Most messages that wait; a reader that has more is too slow.
        identity: Of the reader.

    Attributes:
        identity: Of the reader.
        is_over: Whether nothing more follows after what waits.
    """

    def __init__(self, rights: Rights, first: bytes, waiting_max: int, identity: str = "") -> None:
        self.identity = identity
        self.rights = rights
        self.is_over = False
        self._waiting = deque([first])
        self._waiting_max = waiting_max
        self._arrived = asyncio.Event()
        self._arrived.set()

    def put(self, message: bytes) -> bool:
        """Add a message; returns whether there was room."""
        if len(self._waiting) >= self._waiting_max:
            self._waiting.clear()
            self.end()
            return False
        self._waiting.append(message)
        self._arrived.set()
        return True

    def end(self) -> None:
        """Let nothing follow."""
        self.is_over = True
        self._arrived.set()

    async def next(self, wait_s: float) -> bytes | None:
        """The next message; a comment if none comes in time, None at the end."""
        if not self._waiting and not self.is_over and not await pause(self._arrived, wait_s):
            return _KEEPALIVE
        if self._waiting:
            message = self._waiting.popleft()
            if not self._waiting and not self.is_over:
                self._arrived.clear()
            return message
        return None


class ViewStreams:
    """All readers.

    Args:
        view: The picture.
        metrics: Of the gateway.
        waiting_max: Most messages that wait for one reader.
        opened: Counts streams of all kinds.
    """

    def __init__(
        self,
        view: Picture,
        metrics: GatewayMetrics,
        *,
        waiting_max: int,
        opened: OpenStreams,
    ) -> None:
        self._view = view
        self._opened = opened
        self._metrics = metrics
        self._waiting_max = waiting_max
        self._readers: dict[Rights, dict[Reader, None]] = {}
        self._count = 0
        self._kept: dict[Rights, _Kept] = {}
        """The last whole picture, by rights: many readers come at once after a break."""

    @property
    def count(self) -> int:
        """Open streams."""
        return self._count

    def publish(self, message: Change | View | None) -> None:
        """Send a change to all readers; None ends all of them."""
        if message is None:
            self._kept.clear()
        for rights, readers in self._readers.items():
            data = b""
            if message is not None:
                name = "view" if isinstance(message, View) else "change"
                data = _event(name, msgspec.json.encode(self._restricted(message, rights)))
            for reader in readers:
                if message is None:
                    reader.end()
                elif not reader.is_over and not reader.put(data):
                    self._metrics.slow.inc()

    def open(self, rights: Sequence[str], identity: str) -> Reader:
        """A new reader; its first message is the whole picture.

        Args:
            rights: Namespaces whose jobs it may see.
            identity: Of the reader.

        Raises:
            RequestError: Too many streams are open.
        """
        key = rights_of(rights)
        reader = Reader(key, self._whole(key).event, self._waiting_max, identity)
        self._opened.take(identity)
        self._readers.setdefault(key, {})[reader] = None
        self._count += 1
        return reader

    def close(self, reader: Reader) -> None:
        """Forget a reader."""
        readers = self._readers[reader.rights]
        del readers[reader]
        if not readers:
            del self._readers[reader.rights]
        self._count -= 1
        self._opened.give_back(reader.identity)

    def view_json(self, rights: Sequence[str]) -> bytes:
        """The whole picture, as a reader with some rights sees it."""
        return self._whole(rights_of(rights)).data

    def _whole(self, rights: Rights) -> _Kept:
        """The whole picture as JSON; one of the same version serves for a second."""
        version, now_ms = self._view.version, self._view.now_ms()
        kept = self._kept.get(rights)
        if kept is None or kept.version != version or not kept.at_ms <= now_ms < kept.at_ms + _KEPT_MS:
            for other in [one for one, old in self._kept.items() if old.version != version]:
                del self._kept[other]
            data = msgspec.json.encode(self._restricted(self._view.view(), rights))
            kept = self._kept[rights] = _Kept(version, now_ms, data, _event("view", data))
        return kept

    def _restricted(self, message: Change | View, rights: Rights) -> Change | View:
        if EVERY in rights:
            return message
        hidden = frozenset(number for number, namespace in self._view.namespace_of().items() if namespace not in rights)
        if isinstance(message, View):
            return restricted_view(message, hidden)
        return restricted_change(message, hidden)


def _event(name: str, data: bytes) -> bytes:
    """An event of a stream."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def rights_of(namespaces: Sequence[str]) -> Rights:
    """The same for the same namespaces."""
    return (EVERY,) if EVERY in namespaces else tuple(sorted(set(namespaces)))


class ViewResponse:
    """Answer that goes on until the reader leaves, is too slow, or the picture ends.

    Args:
        streams: All readers.
        reader: The one that is answered.
        clock: Of the process.
        keepalive_s: Pause after which a comment is sent.
        may_go_on: Asked after each such time whether the rights of the reader are still the same.
    """

    def __init__(
        self,
        streams: ViewStreams,
        reader: Reader,
        clock: Clock,
        *,
        keepalive_s: float,
        may_go_on: Callable[[], Awaitable[bool]],
    ) -> None:
        self._streams = streams
        self._reader = reader
        self._clock = clock
        self._keepalive_s = keepalive_s
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what arrives."""
        try:
            headers = [*_HEADERS, (_PAUSE, f"{self._keepalive_s:g}".encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if scope["method"] != "HEAD":
                async with asyncio.TaskGroup() as group:
                    leaving = group.create_task(self._leave(receive), name="see the reader leave")
                    await self._send(send)
                    leaving.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.close(self._reader)

    async def _send(self, send: Send) -> None:
        seen_s = self._clock.monotonic_s()
        while (message := await self._reader.next(self._keepalive_s)) is not None:
            await send({"type": "http.response.body", "body": message, "more_body": True})
            if self._clock.monotonic_s() - seen_s >= self._keepalive_s:
                seen_s = self._clock.monotonic_s()
                if not await self._may_go_on():
                    return

    async def _leave(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._reader.end()
