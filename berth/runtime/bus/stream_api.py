"""The part of the JetStream API that the bus uses: JSON requests with typed answers."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from berth.runtime.bus.inbox import Inbox
from berth.runtime.bus.port import Stored
from berth.runtime.errors import ConflictError, NoStreamError, PoisonError, ShellError, TransientError
from berth.schemas.message import json_decoder

_Answer = TypeVar("_Answer")

PREFIX: Final = "$JS.API"
FLOOR: Final = "berth.floor"
"""Key of a stream's metadata on the server."""
FORMAT: Final = "berth.format"
"""Another one: version of the messages that every reader must know."""
_TIMEOUT_S: Final = 5.0
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NO_MESSAGE: Final = 10037
_NO_STREAM: Final = 10059
_NO_CONSUMER: Final = 10_014  # the server removes one that had no reader for too long; a follower makes another
_WRONG_LAST: Final = frozenset({10071, 10164})  # the second, without a number, under concurrency on replicated streams
_NO_PEERS: Final = 10005
"""Too few servers for the replicas of a stream: the leader of a starting cluster has not found all of them yet."""
_NO_PURGE: Final = 10110
"""The stream forbids it, for good, although its code is that of a server error."""
_NO_CLUSTER: Final = 10074
"""Replicas on a server without a cluster. This is a wrong setting, although its code is that of a server error."""
_ACCOUNT_FULL: Final = 10002
"""The streams of the account use all that it may use: any message is refused until there is room again."""
_QUEUE_FULL: Final = 10167
"""More messages wait to be stored in a stream than ``max_buffered_msgs`` or ``max_buffered_size`` let wait."""
_TEMPORARY: Final = frozenset({_NO_CONSUMER, _NO_PEERS, _ACCOUNT_FULL, _QUEUE_FULL})
"""Errors that end without a change of the request, although their codes are those of a wrong request."""
_ON_THE_WAY: Final = 16
"""Messages by which a replica may be behind while others are stored."""
_SERVER_TROUBLE: Final = 500  # this code and above: no leader, no resources, not ready


class ApiError(msgspec.Struct, frozen=True):
    """Error in an answer of the server."""

    code: int
    err_code: int = 0
    description: str = ""


class _Outcome(msgspec.Struct, frozen=True):
    error: ApiError | None = None


_OUTCOME: Final = msgspec.json.Decoder(_Outcome)


class _Counts(msgspec.Struct, frozen=True):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0


class _Peer(msgspec.Struct, frozen=True):
    name: str
    current: bool = False
    offline: bool = False
    lag: int = 0


class _Peers(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: list[_Peer] | None = None


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream: its settings in the form of the server, the time of its creation, its content, and who has it."""

    config: dict[str, Any]
    created: str
    state: _Counts
    cluster: _Peers = _Peers()

    def lacks(self, server: str) -> bool:
        """Whether a server is known to lack messages, more than those that are on their way; never without a cluster.

        A replica with a new disk, or one that was away for long, is read like any other although it is not complete.
        """
        late = [peer for peer in self.cluster.replicas or () if peer.name == server and not peer.current]
        return any(peer.offline or peer.lag >= min(_ON_THE_WAY, self.state.messages) for peer in late)

    def lag_of(self, server: str) -> int:
        """Messages that a server is known to lack; 0 without a cluster."""
        return sum(peer.lag for peer in self.cluster.replicas or () if peer.name == server and not peer.current)

    def is_led_by(self, server: str) -> bool:
        """Whether a server has all that is in this answer; always without a cluster."""
        return server in {"", self.cluster.leader}

    @property
    def metadata(self) -> dict[str, str]:
        """What Berth and the server have noted of it."""
        return self.config.get("metadata") or {}

    @property
    def floor(self) -> int:
        """Sequence below which messages do not count, although the server may still have some; 0 without."""
        return int(self.metadata.get(FLOOR, 0))

    @property
    def first_seq(self) -> int:
        """Oldest stored sequence that counts; the one after the last if there is none."""
        stored = self.state.first_seq if self.state.messages else self.state.last_seq + 1
        return max(stored, min(self.floor, self.state.last_seq + 1))


class StreamReport(msgspec.Struct, frozen=True):
    """A stream for people.

    Attributes:
        messages: Number of messages.
        bytes: Their size.
        first_seq: Sequence of the oldest; 0 before the first message.
        last_seq: Sequence of the newest.
        leader: Server that leads it; empty without a cluster.
        late: Replicas that are offline or behind, by the name of the server.
    """

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    leader: str
    late: list[str]


class _Delivered(msgspec.Struct, frozen=True):
    consumer_seq: int = 0


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer: its last delivery, and the number of messages that it has not sent."""

    delivered: _Delivered = _Delivered()
    num_pending: int = 0
    cluster: _Peers = _Peers()


class _Message(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""

    @property
    def headers(self) -> dict[str, str] | None:
        """Its headers; None without any."""
        lines = self.hdrs.decode("utf-8", "replace").split("\r\n")[1:]
        found = {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}
        return found or None

    @property
    def stored(self) -> Stored:
        """The message as readers get it; its time is in milliseconds since 1970."""
        at_ms = (self.time - _EPOCH) // timedelta(milliseconds=1)
        return Stored(self.subject, self.seq, self.data, at_ms, self.headers)


class _Got(msgspec.Struct, frozen=True):
    message: _Message


def refusal(what: str, error: ApiError) -> ShellError:
    """Runtime error for an error of the server."""
    reason = f"{what}: {error.description} ({error.code}/{error.err_code})"
    if error.err_code in _WRONG_LAST:
        number = error.description.rpartition(" ")[2]
        return ConflictError(reason, last_seq=int(number) if number.isdigit() else None)
    if error.err_code in {_NO_CLUSTER, _NO_PURGE}:
        return PoisonError(reason)
    if error.err_code == _NO_STREAM:
        return NoStreamError(reason)
    if error.code >= _SERVER_TROUBLE or error.err_code in _TEMPORARY:
        return TransientError(reason)
    return PoisonError(reason)


class Api:
    """Requests to the JetStream API.

    All raise :class:`TransientError` if the server does not answer, has no room or the stream has no leader,
    :class:`NoStreamError` if it does not exist, and :class:`PoisonError` if the server rejects the request.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    async def stream(self, stream: str) -> StreamInfo:
        """Information about a stream, from its leader."""
        return of_leader(stream, await self._ask(f"STREAM.INFO.{stream}", None, StreamInfo))

    async def find_stream(self, stream: str, *, timeout_s: float = _TIMEOUT_S) -> StreamInfo | None:
        """Information about a stream, whoever answers; None if it does not exist."""
        answer = await self._send(f"STREAM.INFO.{stream}", None, timeout_s)
        error = _OUTCOME.decode(answer).error
        if error is not None and error.err_code == _NO_STREAM:
            return None
        return _decode(f"STREAM.INFO.{stream}", answer, StreamInfo)

    async def stream_report(self, stream: str) -> StreamReport | None:
        """A stream with its size and its replicas; None if it does not exist."""
        found = await self.find_stream(stream)
        if found is None:
            return None
        state, peers = found.state, found.cluster
        late = [peer.name for peer in peers.replicas or () if peer.offline or not peer.current]
        return StreamReport(state.messages, state.bytes, state.first_seq, state.last_seq, peers.leader, sorted(late))

    async def create_stream(self, config: dict[str, Any]) -> None:
        """Create a stream; does nothing if it exists with these settings."""
        await self._ask(f"STREAM.CREATE.{config['name']}", config, _Outcome)

    async def update_stream(self, config: dict[str, Any]) -> None:
        """Change the settings of a stream."""
        await self._ask(f"STREAM.UPDATE.{config['name']}", config, _Outcome)

    async def delete_stream(self, stream: str) -> None:
        """Delete a stream."""
        await self._ask(f"STREAM.DELETE.{stream}", None, _Outcome)

    async def purge(self, stream: str, what: dict[str, Any]) -> None:
        """Remove messages."""
        await self._ask(f"STREAM.PURGE.{stream}", what, _Outcome)

    async def create_consumer(self, stream: str, config: dict[str, Any]) -> ConsumerInfo:
        """Create a consumer."""
        body = {"stream_name": stream, "config": config, "action": "create"}
        return await self._ask(f"CONSUMER.CREATE.{stream}.{config['name']}", body, ConsumerInfo)

    async def consumer(self, stream: str, name: str) -> ConsumerInfo:
        """Information about a consumer."""
        return await self._ask(f"CONSUMER.INFO.{stream}.{name}", None, ConsumerInfo)

    async def last_message(self, stream: str, subject: str) -> _Message | None:
        """Latest message of a subject, from the stream's leader; None if there is none."""
        return await self._message(stream, {"last_by_subj": subject})

    async def message(self, stream: str, sequence: int) -> _Message | None:
        """Message with a sequence, from the stream's leader; None if there is none."""
        return await self._message(stream, {"seq": sequence})

    async def _message(self, stream: str, which: dict[str, Any]) -> _Message | None:
        verb = f"STREAM.MSG.GET.{stream}"
        answer = await self._send(verb, which)
        error = _OUTCOME.decode(answer).error
        if error is not None and error.err_code == _NO_MESSAGE:
            return None
        return _decode(verb, answer, _Got).message

    async def _ask(self, verb: str, body: dict[str, Any] | None, answer_type: type[_Answer]) -> _Answer:
        return _decode(verb, await self._send(verb, body), answer_type)

    async def _send(self, verb: str, body: dict[str, Any] | None, timeout_s: float = _TIMEOUT_S) -> bytes:
        data = b"" if body is None else msgspec.json.encode(body)
        return await self._inbox.request(f"{PREFIX}.{verb}", data, timeout_s=timeout_s)


def of_leader(stream: str, info: StreamInfo) -> StreamInfo:
    """Information whose content can be relied on.

    While a stream has no leader any replica may answer, also one that is still empty because its disk is new.

    Raises:
        TransientError: It is not from a leader.
    """
    if info.cluster.replicas and not info.cluster.leader:
        raise TransientError(f"{stream} has no leader")
    return info


def _decode(verb: str, answer: bytes, answer_type: type[_Answer]) -> _Answer:
    try:
        error = _OUTCOME.decode(answer).error
        if error is not None:
            raise refusal(verb, error)
        return json_decoder(answer_type).decode(answer)
    except msgspec.MsgspecError as unreadable:
        raise PoisonError(f"{verb}: answer cannot be read: {unreadable}") from unreadable
