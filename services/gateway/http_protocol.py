"""HTTP/1.1 of the server, with bounds that it lacks: time and size of a head, connections, clients that take nothing.

The application bounds the body. A client that keeps to the bounds notices nothing of this.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from berth.services.gateway.errors import RETRY_AFTER_S, error_body, status_of

HEAD_BYTES_MAX: Final = 65_536
"""Longest head of a request: its line and its headers."""
_WRITE_BUFFER_BYTES: Final = 32_768
"""Bytes that wait for a client until whoever writes to it has to wait."""
_LINGER_S: Final = 2.0
"""How long a refused connection stays open at most: what the client still sends is dropped meanwhile. A connection that
is closed before would be reset, and the client could lose the answer."""


class Bounds(NamedTuple):
    """Bounds of connections.

    Attributes:
        connections_max: Most open connections.
        request_timeout_s: Longest time in which a request must arrive; also the longest silence of a new connection.
        write_timeout_s: Longest time in which a client takes nothing.
        note: Called with the number of open connections when it changes.
    """

    connections_max: int
    request_timeout_s: float
    write_timeout_s: float
    note: Callable[[int], None]


class BoundedProtocol(HttpToolsProtocol):
    """A connection with bounds.

    Args:
        bounds: The bounds.
        config: Settings of the server.
        server_state: Of the server.
        app_state: Of the application.
        _loop: Event loop; None for the running one.
    """

    def __init__(
        self,
        bounds: Bounds,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._arrival: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._is_in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the class above
        """Take a new connection, or refuse it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._bounds.note(len(self.connections))
        if len(self.connections) > self._bounds.connections_max:
            most = self._bounds.connections_max
            self._answer_unless_begun(f"connections is {most}, expected fewer than {most}: try again", "too-many")
            transport.close()
            return
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timers of the connection."""
        super().connection_lost(exc)
        self._bounds.note(len(self.connections))
        for timer in (self._arrival, self._stall, self._lingering):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; refuse a head that is too long."""
        if self._lingering is not None:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # A body that follows in the same bytes has ended the head.
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(f"head of the request is longer than {HEAD_BYTES_MAX} bytes, expected less", "too-large")

    def on_message_begin(self) -> None:
        """Begin a request: it must arrive in time."""
        super().on_message_begin()
        self._is_in_head = True
        self._expect()

    def on_headers_complete(self) -> None:
        """End the head of a request."""
        self._is_in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request."""
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None
        self._is_in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(f"request is malformed, expected HTTP/1.1 ({msg})", "invalid-request")

    def pause_writing(self) -> None:
        """The client takes nothing for now; it must again in time."""
        super().pause_writing()
        self._stall = self.loop.call_later(self._bounds.write_timeout_s, self._cut)

    def resume_writing(self) -> None:
        """The client takes something again."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _expect(self) -> None:
        """Let the connection end unless a whole request arrives in time."""
        if self._arrival is not None:
            self._arrival.cancel()
        self._arrival = self.loop.call_later(self._bounds.request_timeout_s, self._late)

    def _late(self) -> None:
        self._arrival = None
        wait = f"{self._bounds.request_timeout_s:g} s"
        self._refuse(f"request is incomplete after {wait}, expected all of it within {wait}", "request-timeout")

    def _refuse(self, error: str, code: str) -> None:
        """Answer with an error, unless an answer has begun, and close once the client does, or after a time."""
        if self.transport.is_closing() or self._lingering is not None:
            return
        if not self._answer_unless_begun(error, code):
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:  # as where the client has gone: nothing more is written
            cycle.disconnected = True
            cycle.message_event.set()
        self._lingering = self.loop.call_later(_LINGER_S, self.transport.close)

    def _answer_unless_begun(self, error: str, code: str) -> bool:
        """Answer with an error, unless an answer has begun; returns whether it does."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, unlike its declared type
        if self._is_in_head:
            is_unanswered = cycle is None or cycle.response_complete
        else:
            is_unanswered = cycle is not None and not cycle.response_started
        if is_unanswered:
            self.transport.write(_answer(error, code))
        return is_unanswered

    def _cut(self) -> None:
        """End a connection whose client takes nothing: what waits for it is dropped."""
        self.transport.abort()


def _answer(error: str, code: str) -> bytes:
    status, body = status_of(code), error_body(error, code)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([f"Retry-After: {RETRY_AFTER_S}"] if code == "too-many" else []),
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1") + body
