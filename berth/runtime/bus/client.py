"""Adapter of the bus for NATS, whose client library it uses through :mod:`berth.runtime.bus.nats_library`.

No other module imports the library or handles its exceptions.

Some parts of the library are not used, for these reasons. Its publishes to streams never resolve after a rejection. Its
ordered consumer loses messages if its queue is full. Its buffer sends messages at reconnect that the caller abandoned
long before. It closes permanently if a message with headers is above the payload limit.

Longer than 400 lines because every use of the library is here, also of what it has no public methods for.
"""

import asyncio
import importlib
import secrets
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from berth.runtime.bus.access import Access
from berth.runtime.bus.nats_library import Msg, SturdyClient, Subscription, errors, transport
from berth.runtime.bus.wire import Received, size_bytes
from berth.runtime.errors import (
    DeniedError,
    FatalError,
    OversizeError,
    PoisonError,
    ShellError,
    TransientError,
    UntrustedError,
)
from berth.runtime.inboxes import ANSWERS, DELIVERIES
from berth.runtime.logs import Logger

_SECRET_BYTES: Final = 16
_LINE_BYTES_MAX: Final = 3_900
"""Of subject and reply subject; a line of NATS has 4,096 bytes."""
_SHOWN_MAX: Final = 100
_RECONNECT_WAIT_S: Final = 0.25
_PING_INTERVAL_S: Final = 5
_CLOSE_S: Final = 5.0
_ABORTED_S: Final = 0.2
"""As above after a failed TLS handshake, of which the library waits for an end that has been."""
_ANSWER_REFUSED: Final = 'permissions violation for publish to "_inbox.'
_PAYLOAD_SHARE_PERCENT: Final = 90
_WATCH_S: Final = 1.0
_CLIENT_ERRORS: Final = (errors.Error, OSError, EOFError)
_WEBSOCKET: Final = ("ws://", "wss://")
_WEBSOCKET_NEEDS: Final = ("aiohttp", "multidict")
_NO_CREDENTIALS: Final = "the server requires credentials, and the settings name none"
_NO_TLS: Final = "the server offers no TLS, but the settings require it"


class ServerInfo(NamedTuple):
    """The server of a connection.

    Attributes:
        name: Its name; empty if it has none of its own.
        version: Its release.
        cluster: Name of its cluster; empty without one.
        address: Host and port, as the client uses them.
    """

    name: str
    version: str
    cluster: str
    address: str


class NatsListening:
    """A subscription; see :class:`berth.runtime.bus.wire.Listening`."""

    def __init__(self, subscription: Subscription, log: Logger) -> None:
        self._subscription = subscription
        self._log = log

    async def stop(self) -> None:
        """End the subscription; messages that wait are dropped."""
        try:
            await self._subscription.unsubscribe()
        except _CLIENT_ERRORS as error:
            self._log.debug("unsubscribe failed", error=repr(error))

    async def retire(self) -> None:
        """Receive no new messages; those that wait are still delivered."""
        subscription = self._subscription
        try:
            # The library's drain() sends a ping that overtakes this command, and drops messages that arrive in between.
            await subscription._conn._send_unsubscribe(subscription._id)  # noqa: SLF001  # there is no public method
        except _CLIENT_ERRORS as error:
            self._log.debug("unsubscribe failed", error=repr(error))

    @property
    def waiting(self) -> int:
        """Messages received and not yet delivered."""
        return self._subscription.pending_msgs


class NatsConnection:
    """The connection; see :class:`berth.runtime.bus.wire.Wire`."""

    def __init__(self, on_break: Callable[[], None], on_return: Callable[[], None], log: Logger) -> None:
        self._log = log
        self.lost: asyncio.Future[FatalError] = asyncio.get_running_loop().create_future()
        self.last_error = ""
        self._client = SturdyClient()
        self._on_break = on_break
        self._on_return = on_return
        self._epoch = 0
        self._is_away = False
        self._is_closing = False
        self._is_opening = False
        self._tries_left: int | None = None
        """How many servers may still be unreachable before opening fails; None while it may take its time."""
        self._access = Access()
        self._inbox = ""
        self._trips: set[asyncio.Future[None]] = set()
        self._watch_timer: asyncio.TimerHandle | None = None

    @property
    def payload_limit_bytes(self) -> int:
        """Most bytes of a message, headers included."""
        most, own = self._client.max_payload, self._access.payload_bytes
        return (own if 0 < own < most else most) * _PAYLOAD_SHARE_PERCENT // 100

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""
        return self._client.is_connected

    @property
    def epoch(self) -> int:
        """Number of the connection; it rises with each reconnect."""
        return self._epoch

    @property
    def server(self) -> ServerInfo:
        """The server of the connection."""
        info = self._client._server_info  # noqa: SLF001  # there is no public method for the name
        url = self._client.connected_url
        address = "" if url is None else f"{url.hostname}:{url.port}"
        name = str(info.get("server_name", ""))
        return ServerInfo(
            "" if name == info.get("server_id") else name,
            str(info.get("version", "")),
            str(info.get("cluster", "")),
            address,
        )

    def answers(self) -> str:
        """A subject that nobody can guess, in the inbox for answers."""
        return f"{self._inbox}.{ANSWERS}.{secrets.token_urlsafe(_SECRET_BYTES)}"

    def deliveries(self) -> str:
        """A subject that nobody can guess, in the inbox for what the server sends."""
        return f"{self._inbox}.{DELIVERIES}.{secrets.token_urlsafe(_SECRET_BYTES)}"

    def fail(self, error: FatalError) -> None:
        """Report that the connection is lost permanently."""
        if not self.lost.done() and not self._is_closing:
            self._log.error("bus lost", error=error.reason)
            self.lost.set_result(error)

    async def open(self, servers: list[str], name: str, inbox: str, access: Access, *, is_patient: bool = True) -> None:
        """Connect, and stay connected until :meth:`close`.

        Args:
            servers: Their URLs.
            name: Name of the process.
            inbox: Prefix of its reply subjects.
            access: Credentials, and requirements for the server.
            is_patient: Whether to try again where all servers are unreachable.

        Raises:
            TransientError: No server answers.
            DeniedError: The settings require TLS, and the server offers none; or the server requires credentials, and
                the settings name none.
        """
        self._access = access
        self._inbox = inbox
        self._is_opening = True
        self._tries_left = None if is_patient else len(servers)
        if any(server.startswith(_WEBSOCKET) for server in servers):
            for needed in _WEBSOCKET_NEEDS:
                setattr(transport, needed, importlib.import_module(needed))
        try:
            with _shell_errors():
                await self._connect(servers, name, access)
        except TransientError as error:
            # The server closes such a connection while the library still writes, so the library may not see its reason.
            if access.is_anonymous and self._client._server_info.get("auth_required"):  # noqa: SLF001  # there is no public method
                raise DeniedError(_NO_CREDENTIALS) from error
            raise
        self._is_opening = False
        self._watch(0)
        if not self._is_safe:
            raise DeniedError(_NO_TLS)

    async def _connect(self, servers: list[str], name: str, access: Access) -> None:
        await self._client.connect(
            servers,
            name=name,
            user=access.user or None,
            password=partial(self._secret_if_safe, access.password) if access.password else None,
            token=partial(self._secret_if_safe, access.token) if access.token else None,
            user_credentials=access.creds_file,
            tls=access.tls,
            tls_hostname=access.tls_hostname or None,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_close,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_WAIT_S,  # type: ignore[arg-type]  # annotated int, used as seconds
            ping_interval=_PING_INTERVAL_S,
            pending_size=-1,  # no buffer while disconnected: a message is sent now or never
        )

    @property
    def _is_safe(self) -> bool:
        """Whether the connection is encrypted, or need not be; the library raises no error without it."""
        return not self._access.needs_tls or bool(self._client._server_info.get("tls_required"))  # noqa: SLF001  # there is no public method

    def _secret_if_safe(self, secret: str) -> str:
        """Return a secret to the library, which calls this at each connection just before it sends it.

        Raises:
            errors.SecureConnWantedError: The secret would be sent without encryption.
        """
        if not self._is_safe:
            raise errors.SecureConnWantedError
        return secret

    async def write(self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Send a message now, or not at all.

        Raises:
            OversizeError: The message with its headers is above the payload limit.
            TransientError: Not connected; nothing was sent.
            PoisonError: The subject or a header is not valid.
            FatalError: The bus is closed.
        """
        size = size_bytes(data, headers)
        if size > self.payload_limit_bytes:
            # The server closes the connection if a message with its headers is too large.
            raise OversizeError(subject, size_bytes=size, limit_bytes=self.payload_limit_bytes)
        await self._publish(subject, data, reply, headers)

    async def _publish(self, subject: str, data: bytes, reply: str, headers: Mapping[str, str] | None) -> None:
        if len(subject) + len(reply) > _LINE_BYTES_MAX:
            # The server closes the connection if its line is too long.
            raise PoisonError(
                f"subject {subject[:_SHOWN_MAX]}... is {len(subject)} bytes, with its reply {len(reply)} more"
            )
        if headers is not None and not all(map(str.isprintable, headers.values())):
            raise PoisonError(f"a header of {subject} has characters that the library replaces")
        try:
            await self._client.publish(subject, data, reply, None if headers is None else dict(headers))
        except _CLIENT_ERRORS as error:
            raise _shell_error(error) from error

    async def listen(self, subject: str, receive: Callable[[Received], None], *, queue: str = "") -> NatsListening:
        """Subscribe to a subject.

        Args:
            subject: Subject, which may hold wildcards.
            receive: Called with each message.
            queue: Queue group; empty for none.

        Raises:
            TransientError: Not connected.
            PoisonError: The subject is not valid.
            FatalError: The bus is closed.
        """

        async def take(message: Msg) -> None:  # the library requires a coroutine function
            receive(message)

        with _shell_errors():
            subscription = await self._client.subscribe(
                subject, queue, take, pending_msgs_limit=0, pending_bytes_limit=0
            )
        return NatsListening(subscription, self._log)

    async def round_trip(self, *, timeout_s: float) -> None:
        """Wait until the server has processed everything that was written before.

        Raises:
            TransientError: It did not within ``timeout_s``, or the connection broke.
        """
        client = self._client
        if not client.is_connected:
            raise TransientError("not connected")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # the library fails on a cancelled one
        pong.add_done_callback(lambda _: None if done.done() else done.set_result(None))
        self._trips.add(done)
        try:
            with _shell_errors():
                # The library writes a ping at once: it would overtake what is not yet on the socket.
                pending, client._pending = client._pending, []  # noqa: SLF001  # there is no public method
                client._transport.writelines(pending)  # type: ignore[union-attr]  # noqa: SLF001  # as above
                client._pending_data_size = 0  # noqa: SLF001  # as above
                await client._send_ping(pong)  # noqa: SLF001  # as above
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError as error:
            raise TransientError(f"no round trip within {timeout_s} s") from error
        finally:
            self._trips.discard(done)

    async def close(self) -> None:
        """Close the connection; a failure is logged."""
        self._is_closing = True
        self._is_opening = False  # what the library reports from now on is no reason of a refusal
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        is_distrusted = self.lost.done() and isinstance(self.lost.result(), UntrustedError)
        if is_distrusted:
            self._abort()
        try:
            async with asyncio.timeout(_ABORTED_S if is_distrusted else _CLOSE_S):
                await self._client.close()
        except (*_CLIENT_ERRORS, TimeoutError, RuntimeError) as error:  # of uvloop, if the transport is already closed
            if not is_distrusted:
                self._log.warning("close failed", error=repr(error))

    async def _on_error(self, error: Exception) -> None:
        is_websocket = _is_of_websocket(error)
        self.last_error = str(error) if is_websocket else repr(error)  # its repr has the headers of the request
        refusal = _refusal(error) or (_distrust(error) if self._is_opening else None)
        if refusal is not None:
            self.fail(refusal)
            if self._is_opening:
                raise refusal  # the library retries without limit; its callbacks can end that
        elif self._is_opening and self._tries_left is not None and (is_websocket or isinstance(error, OSError)):
            self._tries_left -= 1
            if self._tries_left <= 0:
                raise TransientError(self.last_error)  # as above
        elif is_websocket or isinstance(error, _CLIENT_ERRORS):
            self._log.debug("client error", error=self.last_error)
        else:  # raised by code of Berth in a callback
            self.fail(FatalError(f"callback failed: {error!r}"))

    async def _on_disconnect(self) -> None:
        if not self._is_closing:
            self._log.warning("bus disconnected", error=self.last_error)
        # Given to the library but not written to the socket: it would be sent at reconnect, long after its caller got
        # an error. Subscriptions are not lost: the library repeats them from its own list.
        self._client._pending = []  # noqa: SLF001  # there is no public method
        self._client._pending_data_size = 0  # noqa: SLF001  # as above
        self._epoch += 1
        self._is_away = True
        for trip in self._trips:
            if not trip.done():
                trip.set_exception(TransientError("connection broke"))
        self._on_break()

    async def _on_reconnect(self) -> None:
        self._log.info("bus reconnected")
        self._epoch += 1
        self._is_away = False
        if not self._is_safe:
            self.fail(DeniedError(_NO_TLS))
        self._on_return()

    def _watch(self, stuck: int) -> None:
        """Release a client that is stuck between two connections; ``stuck`` counts the checks that found it so."""
        client = self._client
        if client.is_reconnecting and (task := client._reconnection_task) is not None and task.done():  # noqa: SLF001  # as below
            self.fail(FatalError(f"client has stopped reconnecting: {self.last_error}"))
        stuck = stuck + 1 if client.is_reconnecting and not self._is_away else 0
        if stuck > 1:
            # It waits until the old socket accepts the remaining data, which never happens if the peer is unreachable.
            self._abort()
        self._watch_timer = asyncio.get_running_loop().call_later(_WATCH_S, self._watch, stuck)

    def _abort(self) -> None:
        """Close the socket without waiting for the peer."""
        using = self._client._transport  # noqa: SLF001  # there is no public method
        if isinstance(using, transport.TcpTransport) and using._io_writer:  # noqa: SLF001  # as above
            using._io_writer.transport.abort()  # noqa: SLF001  # as above

    async def _on_close(self) -> None:
        self.fail(FatalError(f"connection closed permanently: {self.last_error}"))


def _refusal(error: Exception) -> FatalError | None:
    """Error for rejected credentials or a missing permission; None for other errors."""
    words = str(error).lower()
    if isinstance(error, errors.SecureConnWantedError):
        return DeniedError(_NO_TLS)
    if _ANSWER_REFUSED in words:
        return None  # the caller chose where the answer should go: that ends nobody but its request
    if isinstance(error, errors.AuthorizationError) or "permissions violation" in words:
        return DeniedError(f"no permission: {error}")
    return DeniedError(f"authorization failed: {error}") if "authorization violation" in words else None


def _distrust(error: Exception) -> FatalError | None:
    """Error for a certificate that is not trusted; None for other errors."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    return UntrustedError(
        f"the certificate of the server is not trusted: {error.verify_message}; see bus.tls_ca_file, and"
        " bus.tls_hostname if the address has another name than the certificate"
    )


@contextmanager
def _shell_errors() -> Iterator[None]:
    # Errors of the client library become errors of the bus.
    try:
        yield
    except _CLIENT_ERRORS as error:
        raise _shell_error(error) from error


def _is_of_websocket(error: Exception) -> bool:
    """Whether the library for WebSocket raised it, which is imported only where it is needed."""
    return type(error).__module__.partition(".")[0] == _WEBSOCKET_NEEDS[0]


def _shell_error(error: Exception) -> ShellError:
    match error:
        case errors.ConnectionClosedError():
            return FatalError("the bus is closed")
        case errors.BadSubjectError() | errors.BadHeaderError() | errors.MaxPayloadError():
            return PoisonError(str(error))
        case errors.OutboundBufferLimitError():
            return TransientError("not connected; nothing was sent")
        case _:
            return TransientError(repr(error))
