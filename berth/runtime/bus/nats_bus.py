"""The bus on NATS: streams, requests and services over one connection.

:mod:`berth.runtime.bus.client` makes the connection; this module does not use the client library.

Longer than 400 lines because every operation of the port is here, each with its errors.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Self

from berth.runtime.bus import streams
from berth.runtime.bus.access import Access
from berth.runtime.bus.client import NatsConnection, ServerInfo
from berth.runtime.bus.discovery import Discovery, answering
from berth.runtime.bus.follower import NatsFollower, Wanted
from berth.runtime.bus.inbox import Inbox
from berth.runtime.bus.port import QUIET_S, Endpoint, Gap, Gathered, Stored, StreamState
from berth.runtime.bus.process_stats import Followed, Identity, OwnReport, ProcessReport, ProcessStats
from berth.runtime.bus.publisher import SUBMIT_TIMEOUT_S, Publisher
from berth.runtime.bus.service import NatsServed
from berth.runtime.bus.signatures import Signatures
from berth.runtime.bus.stream_api import FLOOR, Api, StreamReport
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.inboxes import ANYBODY, DISCOVERERS, inbox_of
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.schemas.subjects import StreamName, Subjects

_READ_PROGRESS_S: Final = 10.0
_ROUND_TRIP_S: Final = 5.0
_NO_ACCESS: Final = Access()


class NatsBus:
    """A connection to NATS; see :class:`berth.runtime.bus.port.Bus`. Made by :meth:`connect`."""

    def __init__(self, cell: str, log: Logger) -> None:
        self.subjects = Subjects(cell)
        self._log = log
        self._specs = {spec.name: spec for spec in self.subjects.streams()}
        self._wire = NatsConnection(self._broke, self._kick, log)
        self.lost = self._wire.lost
        self._inbox: Inbox
        self._from_server: Inbox
        self._publisher: Publisher
        self._api: Api
        self._followers: list[NatsFollower] = []
        self._served: list[NatsServed] = []
        self._is_open = False
        self.signatures = Signatures()

    @classmethod
    async def connect(
        cls,
        url: str | Sequence[str],
        cell: str,
        *,
        name: str,
        inbox: str = "",
        timeout_s: float = 10.0,
        access: Access = _NO_ACCESS,
        is_patient: bool = True,
        log: Logger = DEFAULT_LOG,
    ) -> Self:
        """Connect to one of the servers.

        Args:
            url: URL of the server, or of several of one cluster.
            cell: Cell whose subjects are used.
            name: Name of the process, shown by the server.
            inbox: Prefix of its reply subjects; empty: that of a service or program with this name.
            timeout_s: Seconds to try.
            access: Credentials, and requirements for the server.
            is_patient: Whether to try again, up to ``timeout_s``, where each server refuses the connection.
            log: Logger for lines about the connection.

        Raises:
            TransientError: No server answered in time.
            FatalError: The server rejects the credentials.
        """
        bus = cls(cell, log)
        try:
            async with asyncio.timeout(timeout_s):
                servers = [url] if isinstance(url, str) else list(url)
                await bus._open(servers, name, inbox or inbox_of(name), access, is_patient=is_patient)
        except (FatalError, TransientError):
            await bus.close()
            raise
        except TimeoutError as error:
            await bus.close()
            if bus.lost.done():
                raise bus.lost.result() from error
            raise TransientError(f"no bus at {url} within {timeout_s} s: {bus._wire.last_error}") from error
        return bus

    async def _open(self, servers: list[str], name: str, inbox: str, access: Access, *, is_patient: bool) -> None:
        self.signatures = access.signatures or self.signatures
        await self._wire.open(servers, name, inbox, access, is_patient=is_patient)
        self._inbox = Inbox(self._wire, self._wire.answers())
        self._from_server = Inbox(self._wire, self._wire.deliveries())
        self._publisher = Publisher(self._wire)
        self._api = Api(self._from_server)
        await self._inbox.open()
        await self._from_server.open()
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

    @property
    def link_changes(self) -> int:
        """How often the connection broke or was restored."""
        return self._wire.epoch

    @property
    def followed(self) -> list[Followed]:
        """How far this process is in the streams that it follows now."""
        return [one.followed for one in self._followers if not one.is_done]

    @property
    def payload_limit_bytes(self) -> int:
        """Longest message in bytes, with its headers."""
        return self._wire.payload_limit_bytes

    async def announce(self, identity: Identity, report: Callable[[], OwnReport] | None = None) -> None:
        """Start to answer ``$SRV.PING``, ``$SRV.INFO`` and ``$SRV.STATS``.

        Args:
            identity: Identity of the process.
            report: Returns what the process says of itself, for the statistics; None for nothing.
        """

        def whole_report() -> ProcessReport | None:
            own = report() if report is not None else None
            return ProcessReport(own.not_ready, own.gauges, self.followed) if own is not None else None

        discovery = Discovery(
            identity, lambda: [one for one in self._served if not one.subject.startswith("$")], whole_report
        )
        for subject, handler in discovery.handlers().items():
            await self.serve(subject, handler, callers=DISCOVERERS)

    async def processes(self, *, quiet_s: float = QUIET_S) -> list[ProcessStats]:
        """Statistics of all processes of the cell that answer within a moment, by name and id.

        Args:
            quiet_s: Processes that do not answer within this time after another one are taken for absent.

        Raises:
            TransientError: Not connected.
        """
        return await answering(self._inbox, self.subjects.cell, quiet_s=quiet_s)

    async def stream_report(self, stream: StreamName) -> StreamReport | None:
        """A stream with its size and its replicas; None if it does not exist.

        Raises:
            TransientError: The server did not answer.
        """
        return await self._api.stream_report(self.subjects.stream(stream))

    @property
    def server(self) -> ServerInfo:
        """The server of the connection."""
        return self._wire.server

    async def round_trip(self) -> None:
        """Send a message to the server and back.

        Raises:
            TransientError: Not connected, or no answer within 5 s.
        """
        await self._wire.round_trip(timeout_s=_ROUND_TRIP_S)

    def _broke(self) -> None:
        if self._is_open:
            self._publisher.broke()
            self._inbox.broke()
            self._from_server.broke()
            self._kick()

    def _kick(self) -> None:
        for follower in self._followers:
            follower.kick()

    async def ensure_streams(
        self,
        *,
        replicas: int = 1,
        max_bytes: Mapping[StreamName, int] | None = None,
        max_age_s: Mapping[StreamName, int] | None = None,
        waits_for: Collection[StreamName] = (),
    ) -> None:
        """Create or correct all streams of the cell."""
        limits = streams.Limits(max_bytes or {}, max_age_s or {}, waits_for)
        await streams.ensure_streams(self._api, self.subjects, replicas=replicas, limits=limits, log=self._log)

    async def check_format(self, stream: StreamName) -> None:
        """Check that a stream is one of this release, or never had a message."""
        name = self.subjects.stream(stream)
        streams.check_format(name, await self._api.stream(name))

    async def keeping(self, stream: StreamName) -> streams.Keeping | None:
        """A stream as the server keeps it; None if it does not exist."""
        return await streams.keeping(self._api, self.subjects.stream(stream))

    async def is_stuck(self, stream: StreamName, *, beside: StreamName) -> bool:
        """Whether a stream has no leader, while another one and all its replicas work."""
        return await streams.is_stuck(self._api, self.subjects.stream(stream), beside=self.subjects.stream(beside))

    async def delete_stream(self, stream: StreamName) -> None:
        """Delete a stream with all that it holds; does nothing if it does not exist."""
        await streams.delete(self._api, self.subjects.stream(stream))

    async def make_stream(
        self, stream: StreamName, *, first_seq: int, replicas: int, max_bytes: int = 0, floor: int = 0
    ) -> None:
        """Create a stream of the cell.

        Args:
            stream: The stream.
            first_seq: Sequence of its first message.
            replicas: Its replicas.
            max_bytes: Most bytes; 0 for the limit of its specification.
            floor: Sequence of the first message that counts: :meth:`state` says that the stream begins there. 0 for
                ``first_seq``. A mirror has those before it.

        Raises:
            PoisonError: It exists with other settings, or the server rejects them.
        """
        spec = self._specs[stream]
        config = streams.stream_config(self.subjects, spec, replicas=replicas, max_bytes=max_bytes or spec.max_bytes)
        if floor:
            config["metadata"] |= {FLOOR: str(floor)}
        await self._api.create_stream({**config, "first_seq": first_seq} if spec.mirror_of is None else config)

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
        """Store a message; returns its sequence."""
        headers = {}
        if expected_subject_seq is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(expected_subject_seq)
        if ttl_s is not None:
            headers["Nats-TTL"] = f"{ttl_s}s"
        if message_id:
            headers["Nats-Msg-Id"] = message_id
        headers |= self.signatures.headers(self.subjects, subject, data, expected_subject_seq or 0)
        return await self._publisher.submit(subject, data, headers or None, timeout_s=timeout_s, awaited=True)

    def submit(self, subject: str, data: bytes) -> asyncio.Future[int]:
        """Store a message without waiting; the future gets its sequence."""
        return self._publisher.submit(subject, data)

    async def submit_wait(self, subject: str, data: bytes, *, sequence: int = 0) -> asyncio.Future[int]:
        """Do :meth:`submit`, after a wait until fewer messages are outstanding; a record needs its ``sequence``."""
        await self._publisher.wait_for_room()
        headers = self.signatures.headers(self.subjects, subject, data, sequence) or None
        return self._publisher.submit(subject, data, headers, timeout_s=SUBMIT_TIMEOUT_S)

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        """Store messages of one stream, in order, with one acknowledgement."""
        await self._publisher.wait_for_room()
        return self._publisher.submit_batch(messages)

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        """Append a record to the ledger if ``expected_seq`` is its last sequence; returns its own sequence."""
        subject = self.subjects.ledger
        headers = self.signatures.headers(self.subjects, subject, data, expected_seq + 1)
        headers["Nats-Expected-Last-Sequence"] = str(expected_seq)
        return await self._publisher.submit(subject, data, headers, timeout_s=timeout_s, awaited=True)

    async def last(self, stream: StreamName, subject: str) -> Stored | None:
        """Latest message of a subject, read from the leader of the stream; None if there is none."""
        name = self.subjects.stream(stream)
        message = await self._api.last_message(name, subject)
        if message is None or (self._specs[stream].has_floor and message.seq < (await self._api.stream(name)).floor):
            return None
        return message.stored

    async def message(self, stream: StreamName, sequence: int) -> Stored | None:
        """Message with a sequence, read from the leader of the stream; None if there is none."""
        if sequence < 1:  # the server calls it a bad request
            return None
        message = await self._api.message(self.subjects.stream(stream), sequence)
        return None if message is None else message.stored

    async def state(self, stream: StreamName) -> StreamState:
        """Current content of a stream."""
        info = await self._api.stream(self.subjects.stream(stream))
        return StreamState(info.first_seq, info.state.last_seq, info.created, info.state.messages, info.floor)

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        """Read all stored messages from ``start_seq`` to the head at the time of the call, in order.

        Where the stream keeps the latest message of each subject, one that was replaced meanwhile is read as its newer
        one, which is beyond that head.
        """
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
        if self._specs[stream].per_subject:
            return newest_of_each(found)
        return [stored for stored in found if stored.sequence <= state.last_seq]

    async def purge(self, stream: StreamName, *, keep_from_seq: int | None = None, subject: str | None = None) -> None:
        """Remove all messages below ``keep_from_seq``, or all messages of ``subject``."""
        await streams.purge(self._api, self.subjects, self._specs[stream], keep_from_seq, subject)

    async def raise_floor(self, stream: StreamName, sequence: int) -> None:
        """Let no message below ``sequence`` count any more, for all readers."""
        await streams.raise_floor(self._api, self.subjects, self._specs[stream], sequence)

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
            is_latest=bool(self._specs[stream].per_subject),
            has_floor=self._specs[stream].has_floor,
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
        self,
        subject: str,
        handler: Callable[[bytes], Awaitable[bytes | None]],
        *,
        queue: str = "",
        callers: tuple[str, ...] = ANYBODY,
    ) -> NatsServed:
        """Answer requests, one at a time and in order; None sends no reply."""
        name = subject.rpartition(".")[2]
        return await self.offer(Endpoint(name, subject, queue, "", "", callers=callers), lambda _, data: handler(data))

    async def offer(self, endpoint: Endpoint, handler: Callable[[str, bytes], Awaitable[bytes | None]]) -> NatsServed:
        """Answer the requests of an endpoint, which discovery shows."""
        served = NatsServed(self._wire, endpoint, handler, self._log)
        self._served = [*(known for known in self._served if not known.is_done), served]
        try:
            await served.open()
        except BaseException:
            await served.cancel()
            raise
        return served

    async def drain(self, *, timeout_s: float) -> None:
        """Finish outstanding work within ``timeout_s`` seconds, then close; closes at once if not connected."""
        try:
            async with asyncio.timeout(timeout_s):
                if self._is_open and self._wire.connected:
                    for served in self._served:
                        await served.stop()
                    await self._publisher.settle()
                    await self._wire.round_trip(timeout_s=timeout_s)
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
            self._from_server.broke()
        await self._wire.close()


def newest_of_each(messages: Iterable[Stored]) -> list[Stored]:
    """The newest message of each subject, in the order of their sequences.

    Args:
        messages: Messages of one stream, ascending.
    """
    newest: dict[str, Stored] = {}
    for stored in messages:
        newest.pop(stored.subject, None)  # so that it takes its place at the end
        newest[stored.subject] = stored
    return list(newest.values())
