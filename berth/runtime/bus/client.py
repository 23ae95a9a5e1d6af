"""Adapter of the bus for NATS. No other module imports the client library or handles its exceptions.

Some parts of the library are not used, for these reasons. Its publishes to streams never resolve after a rejection. Its
ordered consumer loses messages if its queue is full. Its buffer sends messages at reconnect that the caller abandoned
long before. It closes permanently if a message with headers is above the payload limit.

Longer than 400 lines because all code that uses the library belongs here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Self

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from berth.runtime.bus import streams
from berth.runtime.bus.access import Access
from berth.runtime.bus.discovery import Discovery, Identity
from berth.runtime.bus.follower import NatsFollower, Wanted
from berth.runtime.bus.inbox import Inbox
from berth.runtime.bus.port import Gap, Gathered, Stored, StreamState
from berth.runtime.bus.publisher import SUBMIT_TIMEOUT_S, Publisher
from berth.runtime.bus.service import NatsServed
from berth.runtime.bus.stream_api import Api
from berth.runtime.bus.wire import Received, size_bytes
from berth.runtime.errors import FatalError, OversizeError, PoisonError, ShellError, TransientError
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.schemas.subjects import StreamName, Subjects, token

_RECONNECT_WAIT_S: Final = 0.25
_PING_INTERVAL_S: Final = 5
_CLOSE_S: Final = 5.0
_PAYLOAD_SHARE_PERCENT: Final = 90
_READ_PROGRESS_S: Final = 10.0
_WATCH_S: Final = 1.0
_CLIENT_ERRORS: Final = (nats.errors.Error, OSError, EOFError)
_NO_ACCESS: Final = Access()
_NO_TLS: Final = "the server offers no TLS, but the settings require it"


class _NatsListening:
    def __init__(self, subscription: Subscription, log: Logger) -> None:
        self._subscription = subscription
        self._log = log

    async def stop(self) -> None:
        try:
            await self._subscription.unsubscribe()
        except _CLIENT_ERRORS as error:
            self._log.debug("unsubscribe failed", error=repr(error))

    async def retire(self) -> None:
        subscription = self._subscription
        try:
            # The library's drain() sends a ping that overtakes this command, and drops messages that arrive in between.
            await subscription._conn._send_unsubscribe(subscription._id)  # noqa: SLF001  # there is no public method
        except _CLIENT_ERRORS as error:
            self._log.debug("unsubscribe failed", error=repr(error))

    @property
    def waiting(self) -> int:
        return self._subscription.pending_msgs


class _NatsWire:
    """The connection; see :class:`berth.runtime.bus.wire.Wire`."""

    def __init__(self, on_break: Callable[[], None], on_return: Callable[[], None], log: Logger) -> None:
        self._log = log
        self.lost: asyncio.Future[FatalError] = asyncio.get_running_loop().create_future()
        self.last_error = ""
        self._client = Client()
        self._on_break = on_break
        self._on_return = on_return
        self._epoch = 0
        self._is_away = False
        self._is_closing = False
        self._is_opening = False
        self._access = Access()
        self._watch_timer: asyncio.TimerHandle | None = None

    @property
    def payload_limit_bytes(self) -> int:
        return self._client.max_payload * _PAYLOAD_SHARE_PERCENT // 100

    @property
    def connected(self) -> bool:
        return self._client.is_connected

    @property
    def epoch(self) -> int:
        return self._epoch

    def unique(self) -> str:
        return self._client.new_inbox()

    def fail(self, error: FatalError) -> None:
        if not self.lost.done() and not self._is_closing:
            self._log.error("bus lost", error=error.reason)
            self.lost.set_result(error)

    async def open(self, servers: list[str], name: str, access: Access) -> None:
        self._access = access
        self._is_opening = True
        await self._client.connect(
            servers,
            name=name,
            user=access.user or None,
            password=partial(self._told_safely, access.password) if access.password else None,
            token=partial(self._told_safely, access.token) if access.token else None,
            user_credentials=access.creds_file,
            tls=access.tls,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_close,
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_WAIT_S,  # type: ignore[arg-type]  # annotated int, used as seconds
            ping_interval=_PING_INTERVAL_S,
            pending_size=-1,  # no buffer while disconnected: a message is sent now or never
            inbox_prefix=f"_INBOX_{token(name)}",
        )
        self._is_opening = False
        self._watch(0)
        if not self._is_safe:
            raise FatalError(_NO_TLS)

    @property
    def _is_safe(self) -> bool:
        """Whether the connection is encrypted, or need not be; the library raises no error without it."""
        return not self._access.needs_tls or bool(self._client._server_info.get("tls_required"))  # noqa: SLF001  # there is no public method

    def _told_safely(self, secret: str) -> str:
        """Return a secret to the library, which calls this at each connection just before it sends it.

        Raises:
            nats.errors.SecureConnWantedError: The secret would be sent without encryption.
        """
        if not self._is_safe:
            raise nats.errors.SecureConnWantedError
        return secret

    async def write(self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        size = size_bytes(data, headers)
        if size > self.payload_limit_bytes:
            # The server closes the connection if a message with its headers is too large.
            raise OversizeError(subject, size_bytes=size, limit_bytes=self.payload_limit_bytes)
        try:
            await self._client.publish(subject, data, reply, None if headers is None else dict(headers))
        except _CLIENT_ERRORS as error:
            raise _shell_error(error) from error

    async def listen(self, subject: str, receive: Callable[[Received], None], *, queue: str = "") -> _NatsListening:
        async def take(message: Msg) -> None:  # the library requires a coroutine function
            receive(message)

        try:
            subscription = await self._client.subscribe(
                subject, queue, take, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except _CLIENT_ERRORS as error:
            raise _shell_error(error) from error
        return _NatsListening(subscription, self._log)

    async def close(self) -> None:
        self._is_closing = True
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._client.close()
        except (*_CLIENT_ERRORS, TimeoutError, RuntimeError) as error:  # of uvloop, if the transport is already closed
            self._log.warning("close failed", error=repr(error))

    async def _on_error(self, error: Exception) -> None:
        self.last_error = repr(error)
        if (refusal := _refusal(error)) is not None:
            self.fail(refusal)
            if self._is_opening:
                raise refusal  # the library retries without limit; its callbacks can end that
        elif isinstance(error, _CLIENT_ERRORS):
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
        self._on_break()

    async def _on_reconnect(self) -> None:
        self._log.info("bus reconnected")
        self._epoch += 1
        self._is_away = False
        if not self._is_safe:
            self.fail(FatalError(_NO_TLS))
        self._on_return()

    def _watch(self, stuck: int) -> None:
        """Release a client that is stuck between two connections; ``stuck`` counts the checks that found it so."""
        client = self._client
        if client.is_reconnecting and (task := client._reconnection_task) is not None and task.done():  # noqa: SLF001  # as below
            self.fail(FatalError(f"client has stopped reconnecting: {self.last_error}"))
        stuck = stuck + 1 if client.is_reconnecting and not self._is_away else 0
        if stuck > 1 and isinstance(client._transport, TcpTransport) and client._transport._io_writer:  # noqa: SLF001  # as below
            # It waits until the old socket accepts the remaining data, which never happens if the peer is unreachable.
            client._transport._io_writer.transport.abort()  # noqa: SLF001  # there is no public method
        self._watch_timer = asyncio.get_running_loop().call_later(_WATCH_S, self._watch, stuck)

    async def _on_close(self) -> None:
        self.fail(FatalError(f"connection closed permanently: {self.last_error}"))


class NatsBus:
    """A connection to NATS; see :class:`berth.runtime.bus.port.Bus`. Made by :meth:`connect`."""

    def __init__(self, cell: str, log: Logger) -> None:
        self.subjects = Subjects(cell)
        self._log = log
        self._specs = {spec.name: spec for spec in self.subjects.streams()}
        self._wire = _NatsWire(self._broke, self._kick, log)
        self.lost = self._wire.lost
        self._inbox: Inbox
        self._publisher: Publisher
        self._api: Api
        self._followers: list[NatsFollower] = []
        self._served: list[NatsServed] = []
        self._is_open = False

    @classmethod
    async def connect(
        cls,
        url: str | Sequence[str],
        cell: str,
        *,
        name: str,
        timeout_s: float = 10.0,
        access: Access = _NO_ACCESS,
        log: Logger = DEFAULT_LOG,
    ) -> Self:
        """Connect to one of the servers.

        Args:
            url: URL of the server, or of several of one cluster.
            cell: Cell whose subjects are used.
            name: Name of the process, shown by the server; also the prefix of its reply subjects.
            timeout_s: Seconds to try.
            access: Credentials, and requirements for the server.
            log: Logger for lines about the connection.

        Raises:
            TransientError: No server answered in time.
            FatalError: The server rejects the credentials.
        """
        bus = cls(cell, log)
        try:
            async with asyncio.timeout(timeout_s):
                await bus._open([url] if isinstance(url, str) else list(url), name, access)
        except FatalError:
            await bus.close()
            raise
        except TimeoutError as error:
            await bus.close()
            if bus.lost.done():
                raise bus.lost.result() from error
            raise TransientError(f"no bus at {url} within {timeout_s} s: {bus._wire.last_error}") from error
        return bus

    async def _open(self, servers: list[str], name: str, access: Access) -> None:
        try:
            await self._wire.open(servers, name, access)
        except _CLIENT_ERRORS as error:
            raise _shell_error(error) from error
        self._inbox = Inbox(self._wire)
        self._publisher = Publisher(self._wire)
        self._api = Api(self._inbox)
        await self._inbox.open()
        await self._publisher.open()
        self._is_open = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""
        return self._is_open and self._wire.connected

    async def announce(self, identity: Identity) -> None:
        """Start to answer ``$SRV.PING``, ``$SRV.INFO`` and ``$SRV.STATS``."""
        discovery = Discovery(identity, lambda: [one for one in self._served if not one.subject.startswith("$")])
        for subject, handler in discovery.handlers().items():
            await self.serve(subject, handler)

    def _broke(self) -> None:
        if self._is_open:
            self._publisher.broke()
            self._inbox.broke()
            self._kick()

    def _kick(self) -> None:
        for follower in self._followers:
            follower.kick()

    async def ensure_streams(self, *, replicas: int = 1, max_bytes: Mapping[StreamName, int] | None = None) -> None:
        """Create or correct all streams of the cell."""
        await streams.ensure_streams(
            self._api, self.subjects, replicas=replicas, max_bytes=max_bytes or {}, log=self._log
        )

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        expected_subject_seq: int | None = None,
        ttl_s: int | None = None,
        timeout_s: float = 5.0,
    ) -> int:
        """Store a message; returns its sequence."""
        headers = {}
        if expected_subject_seq is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expected_subject_seq)
        if ttl_s is not None:
            headers["Nats-TTL"] = f"{ttl_s}s"
        return await self._publisher.submit(subject, data, headers or None, timeout_s=timeout_s, awaited=True)

    def submit(self, subject: str, data: bytes) -> asyncio.Future[int]:
        """Store a message without waiting; the future gets its sequence."""
        return self._publisher.submit(subject, data)

    async def submit_wait(self, subject: str, data: bytes) -> asyncio.Future[int]:
        """Do :meth:`submit`, after a wait until fewer messages are outstanding."""
        await self._publisher.wait_for_room()
        return self._publisher.submit(subject, data, timeout_s=SUBMIT_TIMEOUT_S)

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        """Store messages of one stream, in order, with one acknowledgement."""
        await self._publisher.wait_for_room()
        return self._publisher.submit_batch(messages)

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        """Append a record to the ledger if ``expected_seq`` is its last sequence; returns its own sequence."""
        headers = {"Nats-Expected-Last-Sequence": str(expected_seq)}
        return await self._publisher.submit(self.subjects.ledger, data, headers, timeout_s=timeout_s, awaited=True)

    async def last(self, stream: StreamName, subject: str) -> Stored | None:
        """Latest message of a subject, read from the leader of the stream; None if there is none."""
        message = await self._api.last_message(self.subjects.stream(stream), subject)
        return None if message is None else Stored(message.subject, message.seq, message.data, message.at_ms)

    async def state(self, stream: StreamName) -> StreamState:
        """Current content of a stream."""
        info = await self._api.stream(self.subjects.stream(stream))
        return StreamState(info.first_seq, info.state.last_seq, info.created, info.state.messages)

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        """Read all stored messages from ``start_seq`` to the head at the time of the call, in order."""
        state = await self.state(stream)
        kept = max(start_seq, state.first_seq)
        if kept > state.last_seq:
            return []
        found: list[Stored] = []
        follower = self.follow(
            stream,
            on_message=found.append,
            on_gap=lambda _: None,
            start_seq=kept,
            filters=filters,
            created=state.created,
        )
        try:
            await follower.reach_head(_READ_PROGRESS_S)
        finally:
            await follower.stop()
        return [stored for stored in found if stored.sequence <= state.last_seq]

    async def purge(self, stream: StreamName, *, keep_from_seq: int | None = None, subject: str | None = None) -> None:
        """Remove all messages below ``keep_from_seq``, or all messages of ``subject``."""
        await streams.purge(self._api, self.subjects, self._specs[stream], keep_from_seq, subject)

    def follow(
        self,
        stream: StreamName,
        *,
        on_message: Callable[[Stored], None],
        on_gap: Callable[[Gap], None],
        start_seq: int = 1,
        filters: Sequence[str] = (),
        created: str = "",
    ) -> NatsFollower:
        """Deliver all messages from ``start_seq`` on, in order and exactly once, until stopped."""
        wanted = Wanted(
            name=stream,
            stream=self.subjects.stream(stream),
            start_seq=start_seq,
            filters=tuple(filters),
            created=created,
            is_pruned=streams.is_pruned(self._specs[stream]),
        )
        follower = NatsFollower(self._wire, self._api, wanted, on_message, on_gap)
        self._followers = [*(known for known in self._followers if not known.is_done), follower]
        return follower

    async def wait_mirror(self, stream: StreamName, *, at_least: int, timeout_s: float) -> None:
        """Wait until a mirror has reached sequence ``at_least`` of its origin."""
        await streams.wait_head(self._api, self.subjects.stream(stream), at_least=at_least, timeout_s=timeout_s)

    async def send(self, subject: str, data: bytes) -> None:
        """Send a message to the current subscribers; it is not stored."""
        await self._wire.write(subject, data)

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Send a request and wait for the reply."""
        return await self._inbox.request(subject, data, timeout_s=timeout_s)

    async def gather(
        self, subjects: Mapping[int, str], data: Mapping[int, bytes] | bytes, *, timeout_s: float
    ) -> Gathered:
        """Send requests to several shards; returns as soon as each has answered or is known to be missing."""
        return await self._inbox.gather(subjects, data, timeout_s=timeout_s)

    async def serve(
        self, subject: str, handler: Callable[[bytes], Awaitable[bytes | None]], *, queue: str = ""
    ) -> NatsServed:
        """Answer requests, one at a time and in order; None sends no reply."""
        served = NatsServed(self._wire, self._inbox, subject, handler, self._log)
        self._served.append(served)
        await served.open(queue)
        return served

    async def drain(self, *, timeout_s: float) -> None:
        """Finish outstanding work within ``timeout_s`` seconds, then close; closes at once if not connected."""
        try:
            async with asyncio.timeout(timeout_s):
                if self._is_open and self._wire.connected:
                    for served in self._served:
                        await served.stop()
                    await self._publisher.settle()
                    await self._inbox.round_trip(timeout_s=timeout_s)
        except (TimeoutError, TransientError) as error:
            self._log.warning("drain not finished", error=repr(error))
        await self.close()

    async def close(self) -> None:
        """Close now; outstanding publishes resolve as ambiguous."""
        if self._is_open:
            self._is_open = False
            for follower in self._followers:
                await follower.stop()
            for served in self._served:
                await served.cancel()
            await self._publisher.close()
            self._inbox.broke()
        await self._wire.close()


def _refusal(error: Exception) -> FatalError | None:
    """Error for rejected credentials or a missing permission; None for other errors."""
    words = str(error).lower()
    if isinstance(error, nats.errors.SecureConnWantedError):
        return FatalError(_NO_TLS)
    if isinstance(error, nats.errors.AuthorizationError) or "permissions violation" in words:
        return FatalError(f"no permission: {error}")
    return FatalError(f"authorization failed: {error}") if "authorization violation" in words else None


def _shell_error(error: Exception) -> ShellError:
    match error:
        case nats.errors.ConnectionClosedError():
            return FatalError("the bus is closed")
        case nats.errors.BadSubjectError() | nats.errors.BadHeaderError() | nats.errors.MaxPayloadError():
            return PoisonError(str(error))
        case nats.errors.OutboundBufferLimitError():
            return TransientError("not connected; nothing was sent")
        case _:
            return TransientError(repr(error))
