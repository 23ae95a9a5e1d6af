"""HTTP/1.1 of the server, with bounds that it lacks: time and size of a head, connections, clients that take nothing.

The application bounds the body. A client that keeps to the bounds notices nothing of this.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from berth.services.gateway.errors import RETRY_AFTER_S, RequestError, error_body, status_of
from berth.services.gateway.shares import Shares

CONNECTION: Final = "berth.connection"
"""Key of a scope with the connection of the request, a :class:`BoundedProtocol`."""
HEAD_BYTES_MAX: Final = 65_536
"""Longest head of a request: its line and its headers."""
BESIDE_BYTES_MAX: Final = 65_536
"""Most bytes after a head, or after a part of a body, without more of the body: sizes of chunks, and trailers."""
_WRITE_BUFFER_BYTES: Final = 32_768
"""Bytes that wait for a client until whoever writes to it has to wait."""
_LINGER_S: Final = 2.0
"""How long a refused connection stays open at most: what the client still sends is dropped meanwhile. A connection that
is closed before would be reset, and the client could lose the answer."""
_LINGERING_MAX: Final = 100
"""Most connections beyond the limit that stay open for that; the process has some files for them."""


class Bounds(NamedTuple):
    """Bounds of connections.

    Attributes:
        connections_max: Most open connections.
        request_timeout_s: Longest time in which a request must arrive; also the longest silence of a new connection.
        write_timeout_s: Longest time in which a client takes nothing.
        note: Called with the number of open connections when it changes.
        shares: Connections of each identity.
        refused: Called with code and error of each request that is refused here.
    """

    connections_max: int
    request_timeout_s: float
    write_timeout_s: float
    note: Callable[[int], None]
    shares: Shares
    refused: Callable[[str, str], None]


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
        self._ending: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._beside_bytes = 0
        self._is_in_head = True
        self._unanswered: deque[RequestResponseCycle] = deque()
        """The request that is being answered, and those behind it; some at the beginning may be answered."""
        self._patient: _PatientTransport
        self._identity = ""
        """Who sent the last request with an identity."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the class above
        """Take a new connection, or refuse it."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._patient = _PatientTransport(transport, self._finish)
        self._bounds.note(len(self.connections))
        if len(self.connections) > self._bounds.connections_max:
            most = self._bounds.connections_max
            self._refuse(f"connections is {most}, expected fewer than {most}: try again", "too-many")
            if len(self.connections) > most + _LINGERING_MAX:
                self._end()
            return
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timers of the connection, and tell the answers that the client has gone."""
        super().connection_lost(exc)  # it knows the last request alone
        self._mark_disconnected()
        if self._identity:
            self._bounds.shares.give_back(self._identity)
        self._bounds.note(len(self.connections))
        for timer in (self._arrival, self._stall, self._lingering, self._ending):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; refuse a head that is too long, and too much beside a body."""
        if self._lingering is not None:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        else:
            self._beside_bytes += len(data)
        super().data_received(data)
        # A body that follows in the same bytes has ended the head.
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(f"head of the request is longer than {HEAD_BYTES_MAX} bytes, expected less", "too-large")
        elif not self._is_in_head and self._beside_bytes > BESIDE_BYTES_MAX:
            most = BESIDE_BYTES_MAX
            self._refuse(f"chunk sizes and trailers of the request are over {most} bytes, expected fewer", "too-large")

    def on_message_begin(self) -> None:
        """Begin a request: it must arrive in time."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]  # for the application alone
        self._is_in_head = True
        self._expect()

    def on_headers_complete(self) -> None:
        """End the head of a request."""
        super().on_headers_complete()  # raises for a target without a path: the head is then refused
        self._is_in_head = False
        self._head_bytes = self._beside_bytes = 0
        self.cycle.transport = self._patient
        while self._unanswered and self._unanswered[0].response_complete:
            self._unanswered.popleft()
        self._unanswered.append(self.cycle)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._beside_bytes = 0
        super().on_body(body)

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
        self._stall = self.loop.call_later(self._bounds.write_timeout_s, self.transport.abort)

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
        self._bounds.refused(code, error)
        if not self._answer_unless_begun(error, code):
            self._end()
            return
        self._mark_disconnected()
        self._linger()

    def _mark_disconnected(self) -> None:
        """Tell the answers that the client has gone: nothing more is written."""
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _finish(self) -> None:
        """Close after an answer; if a request is still coming, once the client does, or after a time."""
        if not self.cycle.more_body or self._lingering is not None:
            self._end()
            return
        self.pipeline.clear()  # requests behind the one that said it is the last
        self.flow.resume_reading()
        self._linger()

    def _linger(self) -> None:
        """Send no more, drop what still comes, and close after a time at the latest."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._lingering = self.loop.call_later(_LINGER_S, self._end)

    def _end(self) -> None:
        """Close once the client has taken what was written, or after the longest time in which it takes nothing."""
        self.transport.close()
        if self._ending is None:
            self._ending = self.loop.call_later(self._bounds.write_timeout_s, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that was idle for long."""
        if not self.transport.is_closing():
            self._end()

    def _answer_unless_begun(self, error: str, code: str) -> bool:
        """Answer with an error, unless an answer has begun; returns whether it does."""
        waiting = [cycle for cycle in self._unanswered if not cycle.response_complete]
        own = [] if self._is_in_head else [self.cycle]
        is_unanswered = waiting == own and not any(cycle.response_started for cycle in own)
        if is_unanswered:
            self.transport.write(_answer(error, code))
        return is_unanswered

    def belong_to(self, identity: str) -> None:
        """Count the connection as one of an identity, instead of that of an earlier request.

        Args:
            identity: Of a request; empty changes nothing.

        Raises:
            RequestError: The identity has its share of connections. The answer closes this one.
        """
        if not identity or identity == self._identity:
            return
        try:
            self._bounds.shares.take(identity)
        except RequestError as error:
            error.headers["Connection"] = "close"
            raise
        if self._identity:
            self._bounds.shares.give_back(self._identity)
        self._identity = identity

    def cut(self) -> None:
        """End the connection in the middle of an answer: what waits for the client is dropped."""
        self._mark_disconnected()
        self.transport.abort()


class _PatientTransport(asyncio.Transport):
    """What an answer is written to; it is closed by the connection.

    Args:
        transport: Of the connection.
        finish: Closes it.
    """

    def __init__(self, transport: asyncio.Transport, finish: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._finish = finish

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write a part of the answer."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether the connection is being closed."""
        return self._transport.is_closing()

    def close(self) -> None:
        """End after the answer."""
        self._finish()


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
