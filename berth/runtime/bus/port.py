"""Port of the bus: a protocol and plain values, without a client.

Longer than 400 lines because it is all that a bus does, with what each of it may raise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from berth.runtime.errors import FatalError
from berth.runtime.inboxes import ANYBODY
from berth.schemas.subjects import StreamName, Subjects

if TYPE_CHECKING:
    from berth.runtime.bus.process_stats import ProcessStats
    from berth.runtime.bus.signatures import Signatures

MIRROR_WAIT_S: Final = 30.0
"""How long the latest facts may take to be readable at the start of a service."""
QUIET_S: Final = 0.3
"""How long nobody answers until those that did not are taken for absent."""


class Stored(NamedTuple):
    """A message in a stream.

    ``at_ms`` is the time at which the server stored it, 0 if unknown. ``headers`` are None if it has none.
    """

    subject: str
    sequence: int
    data: bytes
    at_ms: int
    headers: Mapping[str, str] | None = None


class StreamState(NamedTuple):
    """Content of a stream.

    ``first_seq`` is the oldest stored sequence that counts (``last_seq + 1`` if there is none), ``last_seq`` the newest
    sequence ever assigned, 0 before the first. ``created`` is opaque and differs after a stream was deleted and created
    again. ``floor`` is the sequence below which messages do not count, 0 without.
    """

    first_seq: int
    last_seq: int
    created: str
    messages: int
    floor: int = 0


class Gathered(NamedTuple):
    """Replies of shards by number; ``missing`` lists the shards that did not answer, ascending."""

    replies: dict[int, bytes]
    missing: list[int]


class GapReason(StrEnum):
    """Reason why a follower cannot continue."""

    RECREATED = "stream was deleted and created again"
    BACKWARDS = "history went backwards"
    TOO_OLD = "older than kept history"
    DELETED = "messages were deleted from it, use: berth repair"
    REPAIRED = "berth repair passes over a message that was read already; a new start reads the ledger without it"
    CONFIRMED = "a signed record confirms a message that had no valid signature: bus.signers_file lacked its key"


class Gap(NamedTuple):
    """A gap in a followed stream: ``wanted`` is the next sequence needed, the others are those of the stream."""

    stream: StreamName
    reason: GapReason
    wanted: int
    first_seq: int
    last_seq: int


class Follower(Protocol):
    """One reader of a stream; made by :meth:`Bus.follow`.

    ``applied`` is the sequence of the last message that ``on_message`` returned from, initially ``start_seq - 1``.
    ``caught_up`` is set when every message that was stored at the time of the connection is delivered, or the message
    that has replaced it. ``recreations`` counts the consumers created after the first; ``gaps`` is 1 after the follower
    ended with a gap, else 0.
    """

    applied: int
    caught_up: asyncio.Event
    recreations: int
    gaps: int

    @property
    def covered(self) -> int:
        """Sequence up to which no message is outstanding; above ``applied`` where other subjects follow."""

    async def stop(self) -> None:
        """Stop; no message is delivered afterwards."""

    async def wait(self) -> Gap | None:
        """Wait for the end: None after :meth:`stop`, or the gap.

        Raises what ``on_message`` or ``on_gap`` raised, which also sets :attr:`Bus.lost`.
        """


class Endpoint(NamedTuple):
    """What a service offers under a name: requests on a subject, of which each goes to one member of a queue group.

    ``subject`` may have wildcards. ``request`` and ``reply`` are JSON Schemas as texts, for ``$SRV.SCHEMA``.
    ``at_once`` requests may be handled at the same time; they begin in the order in which they came. ``callers`` are
    those who may ask, by their inboxes (:func:`berth.runtime.inboxes.is_inbox_of`): a request that wants its answer
    elsewhere is counted and not carried out.
    """

    name: str
    subject: str
    queue: str
    request: str
    reply: str
    at_once: int = 1
    callers: tuple[str, ...] = ANYBODY


class Served(Protocol):
    """A running handler; made by :meth:`Bus.serve`."""

    async def stop(self) -> None:
        """Accept no more requests, finish those already received, end."""


class Bus(Protocol):
    """A connection to the bus, for one cell.

    Errors of all methods, unless they state otherwise: :class:`TransientError` if the server does not answer or the
    connection is down, :class:`FatalError` after the bus was closed, :class:`OversizeError` for a message above 90 % of
    the payload limit of the server, :class:`PoisonError` for a message that the server will never accept.

    ``lost`` gets a result when the process must exit: the connection is closed permanently, a permission is missing, or
    the code of a follower or handler raised. The result is the error to raise.
    """

    subjects: Subjects
    lost: asyncio.Future[FatalError]
    signatures: "Signatures"
    """Those of this process. The bus signs records, leases and skips when it stores them; readers check them."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""

    @property
    def link_changes(self) -> int:
        """How often the connection broke or was restored.

        In between, messages that are not stored are lost, and the server may lose what it had not synced.
        """

    @property
    def payload_limit_bytes(self) -> int:
        """Longest message in bytes, with its headers: 90 % of the payload limit of the server."""

    async def ensure_streams(
        self,
        *,
        replicas: int = 1,
        max_bytes: Mapping[StreamName, int] | None = None,
        max_age_s: Mapping[StreamName, int] | None = None,
        waits_for: Collection[StreamName] = (),
    ) -> None:
        """Create all streams of the cell, or correct their settings.

        Retries for 30 s if the server is not ready, such as a cluster without a leader. A stream with replicas that was
        there already and has no leader is waited for some 5 s: another process may just have made it.

        Args:
            replicas: Replicas of each stream, 1 or 3.
            max_bytes: Sizes in bytes instead of those of ``Subjects.streams()``; the server reserves this much disk.
            max_age_s: Ages of streams of which a setting decides it (``StreamSpec.has_set_age``), in seconds. Who does
                not name the age of such a stream leaves it as it is.
            waits_for: Streams that somebody else makes and corrects: they are waited for, up to 30 s.

        Raises:
            FatalError: A stream exists with a setting that cannot be changed; names stream and field. Or a stream is
                gone whose mirror has messages.
            OlderVersionError: A stream is of a release before 0.5; that of the ledger is looked at first.
        """

    async def check_format(self, stream: StreamName) -> None:
        """Check that a stream is one of this release, or never had a message.

        Raises:
            OlderVersionError: It is of a release before 0.5.
            TransientError: It does not exist, or the server did not answer.
        """

    async def is_stuck(self, stream: StreamName, *, beside: StreamName) -> bool:
        """Whether a stream has no leader, while another stream has one and none of its replicas is late.

        Then no server is missing, and an election would have ended. A stream that does not exist is not stuck, nor is
        one beside a stream with one replica.
        """

    async def delete_stream(self, stream: StreamName) -> None:
        """Delete a stream with all that it holds; does nothing if it does not exist.

        Without an answer it may be deleted or not, or be deleted later.
        """

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
        """Store a message; returns its sequence.

        Args:
            subject: A subject of some stream.
            data: The payload.
            expected_subject_seq: Sequence that the last message of the subject must have; 0 for no message.
            ttl_s: Whole seconds, at least 1, after which the server removes the message; only if the stream allows it.
            message_id: Header ``Nats-Msg-Id``. Within some minutes the server may take another message of the stream
                with this id for the same one, also one on another subject, and store nothing.
            timeout_s: Seconds to wait for the acknowledgement.

        Raises:
            ConflictError: The last message of the subject has another sequence.
            DuplicateError: Some message with ``message_id`` was stored a moment ago.
            AmbiguousError: No acknowledgement came; the message may be stored.
        """

    def submit(self, subject: str, data: bytes) -> asyncio.Future[int]:
        """Store a message without waiting; the future gets its sequence.

        Messages are sent in the order of the calls. Every future is resolved: with the sequence, or with
        :class:`TransientError` (not sent, no stream, or no room), :class:`AmbiguousError` (no acknowledgement within
        10 s, or the connection broke), :class:`PoisonError` or :class:`OversizeError` (rejected). A dropped future
        hides its error.

        Raises:
            TransientError: 16,384 messages or 64 MiB are outstanding; nothing was sent. See :meth:`submit_wait`.
        """

    async def submit_wait(self, subject: str, data: bytes) -> asyncio.Future[int]:
        """Do :meth:`submit`, after a wait until fewer messages are outstanding."""

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        """Store (subject, data) messages of one stream, in order, with one acknowledgement.

        Waits as :meth:`submit_wait`. The future gets the sequence of the last message: the stream then holds that one,
        and those before it unless more messages waited there than its server lets wait (``max_buffered_msgs``): it
        drops some of them without a word. Who is alone to write compares sequences. After any error of :meth:`submit`
        any part of the messages may be stored, or none. Use it for messages that may be stored twice.

        Args:
            messages: At least one.
        """

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        """Append a record to the ledger if ``expected_seq`` is its last sequence; returns the sequence of the record.

        Keep one append outstanding: predicted sequences do not fence other writers.

        Raises:
            ConflictError: The ledger has another last sequence.
            AmbiguousError: No acknowledgement came; follow the ledger and look for the record.
        """

    async def last(self, stream: StreamName, subject: str) -> Stored | None:
        """Latest message of a subject, read from the leader of the stream; None if there is none."""

    async def message(self, stream: StreamName, sequence: int) -> Stored | None:
        """Message with a sequence; None if there is none, or it was removed."""

    async def state(self, stream: StreamName) -> StreamState:
        """Current content of a stream.

        Raises:
            NoStreamError: The server says that it does not exist; another :class:`TransientError` leaves it open.
        """

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        """Read all stored messages from ``start_seq`` to the head at the time of the call, in order.

        Removed sequences are skipped. A stream that keeps the latest message of each subject gives one for each
        subject: also for those whose message is replaced while they are read, then one beyond that head. The result is
        held in memory.

        Raises:
            TransientError: No progress for 10 s, or the stream was created again meanwhile.
        """

    async def purge(self, stream: StreamName, *, keep_from_seq: int | None = None, subject: str | None = None) -> None:
        """Remove all messages below ``keep_from_seq``, or all messages of ``subject`` (wildcards allowed).

        Raises:
            FatalError: The stream is FACTS or keeps one message for each subject (an older message can reappear there
                after the server was killed: overwrite instead), or not exactly one of the two arguments is given. Below
                its floor a stream may be purged: what reappears there does not count.
            PoisonError: The server forbids it for this stream.
        """

    async def raise_floor(self, stream: StreamName, sequence: int) -> None:
        """Let no message below ``sequence`` count any more: no reader is given one from then on.

        What is below the floor may be purged afterwards. A floor that is higher already stays.

        Raises:
            FatalError: The stream has no floor.
        """

    def follow(
        self,
        stream: StreamName,
        *,
        on_message: Callable[[Stored], None],
        on_gap: Callable[[Gap], None],
        start_seq: int = 1,
        filters: Sequence[str] = (),
        created: str = "",
    ) -> Follower:
        """Deliver all messages from ``start_seq`` on, in order and exactly once, until stopped.

        ``on_message`` runs inside the event loop and must be short. The follower recovers from broken connections,
        restarts of the server and lost consumers. If it cannot recover, it calls ``on_gap`` once and ends; the caller
        decides where to start another follower.

        A gap is one of: ``created`` of the stream changes (or differs from the argument, if given); the head is below
        ``start_seq - 1`` or below a delivered message; the next message was removed. The last is not checked for
        ``start_seq`` 0 or 1, which mean "from the oldest stored", nor for streams that remove messages in normal
        operation (one message for each subject; SNAPSHOT). With ``filters``, ``start_seq`` must be a sequence up to
        which all subjects are known, not only the last match; otherwise a subject without messages looks like a gap.

        Args:
            stream: The stream.
            on_message: Called with each message.
            on_gap: Called with the reason before the follower ends.
            start_seq: First sequence to deliver.
            filters: Subjects with wildcards that do not overlap; none means all.
            created: ``StreamState.created`` at the time at which ``start_seq`` was read, if known.
        """

    async def wait_mirror(self, stream: StreamName, *, at_least: int, timeout_s: float) -> None:
        """Wait until a mirror has reached sequence ``at_least`` of its origin.

        Raises:
            TransientError: The mirror did not reach it within ``timeout_s``.
        """

    async def send(self, subject: str, data: bytes) -> None:
        """Send a message to the current subscribers; it is not stored."""

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Send a request and wait for the reply.

        Raises:
            TransientError: The subject has no responders (raised at once), or no reply came within ``timeout_s``.
        """

    async def processes(self, *, quiet_s: float = QUIET_S) -> Sequence["ProcessStats"]:
        """Statistics of the processes of the cell that answer within a moment, by name and id.

        Args:
            quiet_s: Seconds after an answer, without another one, after which those that did not answer are absent.

        Raises:
            TransientError: Not connected.
        """

    async def gather(
        self, subjects: Mapping[int, str], data: Mapping[int, bytes] | bytes, *, timeout_s: float
    ) -> Gathered:
        """Send requests to several shards; returns as soon as each has answered or is known to be missing.

        A shard without responders is missing at once. A shard that does not answer within ``timeout_s`` is missing,
        and its late reply is dropped.

        Args:
            subjects: Subject of each shard.
            data: Request of each shard, or one for all.
            timeout_s: Seconds after which shards without a reply are missing.
        """

    async def serve(
        self,
        subject: str,
        handler: Callable[[bytes], Awaitable[bytes | None]],
        *,
        queue: str = "",
        callers: tuple[str, ...] = ANYBODY,
    ) -> Served:
        """Answer requests, one at a time and in order; None sends no reply. ``callers`` are as in :class:`Endpoint`.

        With ``queue``, each request goes to one member of that queue group. Returns when the server has registered the
        handler. Transient and poison errors of the handler are logged and give no reply; any other error ends it.
        """

    async def offer(self, endpoint: Endpoint, handler: Callable[[str, bytes], Awaitable[bytes | None]]) -> Served:
        """Answer the requests of an endpoint, which discovery shows; the handler is given the subject as well.

        Otherwise as :meth:`serve`, but for ``at_once``.
        """

    async def drain(self, *, timeout_s: float) -> None:
        """Finish outstanding work within ``timeout_s`` seconds, then close; closes at once if not connected."""

    async def close(self) -> None:
        """Close now; outstanding publishes resolve as :class:`AmbiguousError`."""
