"""The bus as the services see it: a protocol and plain values; no client."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from berth.runtime.errors import FatalError
from berth.schemas.subjects import StreamName, Subjects


class Stored(NamedTuple):
    """A message as a stream keeps it; ``at_ms`` is when the server stored it, 0 if unknown."""

    subject: str
    sequence: int
    data: bytes
    at_ms: int


class StreamState(NamedTuple):
    """What a stream holds.

    ``first_seq`` is the oldest kept sequence (``last_seq + 1`` when nothing is kept), ``last_seq`` the newest ever
    given, 0 before the first. ``created`` is an opaque mark that differs for a stream that was deleted and made anew.
    """

    first_seq: int
    last_seq: int
    created: str
    messages: int


class Gathered(NamedTuple):
    """Replies of shards by number; ``missing`` are those that did not answer, ascending."""

    replies: dict[int, bytes]
    missing: list[int]


class GapReason(StrEnum):
    """Why a follower cannot go on from where it was."""

    RECREATED = "stream was deleted and made anew"
    BACKWARDS = "history went backwards"
    TOO_OLD = "older than kept history"


class Gap(NamedTuple):
    """Break in a followed history: ``wanted`` is the next sequence that was needed, the others what the stream has."""

    stream: StreamName
    reason: GapReason
    wanted: int
    first_seq: int
    last_seq: int


class Follower(Protocol):
    """One reader of a stream; made by :meth:`Bus.follow`.

    ``applied`` is the sequence of the last message that ``on_message`` took, at first ``start_seq - 1``. ``caught_up``
    is set once everything that was stored when the follower connected has been handed over. ``recreations`` counts
    how often it had to connect anew, ``gaps`` (0 or 1) whether it ended by a gap.
    """

    applied: int
    caught_up: asyncio.Event
    recreations: int
    gaps: int

    async def stop(self) -> None:
        """End it; no message is handed over afterwards."""

    async def wait(self) -> Gap | None:
        """Wait for its end: None after :meth:`stop`, or the gap that ended it.

        Whatever ``on_message`` or ``on_gap`` raised is raised here, and also makes :attr:`Bus.lost` done.
        """


class Served(Protocol):
    """A running handler; made by :meth:`Bus.serve`."""

    async def stop(self) -> None:
        """Take no more requests, finish those already received, end."""


class Bus(Protocol):
    """A connection to the bus, for one cell.

    Errors, unless a method says otherwise: :class:`TransientError` when the server does not answer or the connection
    is away, :class:`FatalError` when the bus was closed, :class:`OversizeError` for a message above 90 % of the
    server's payload limit, :class:`PoisonError` for what the server will never take.

    ``lost`` gets a result when the process must exit: the connection is closed for good, a permission is missing, or a
    follower's or handler's own code raised. The result is the error to raise.
    """

    subjects: Subjects
    lost: asyncio.Future[FatalError]

    async def ensure_streams(self, *, replicas: int = 1, max_bytes: Mapping[StreamName, int] | None = None) -> None:
        """Create or correct all streams of the cell; does nothing where all is right.

        A server that cannot do it yet, such as a cluster without a leader, is asked again for half a minute.

        Args:
            replicas: Copies of each stream, 1 or 3.
            max_bytes: Sizes in bytes instead of those of ``Subjects.streams()``; the server reserves this much disk.

        Raises:
            FatalError: A stream exists with a setting that cannot be changed; names stream and field.
        """

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        expected_subject_seq: int | None = None,
        ttl_s: int | None = None,
        timeout_s: float = 5.0,
    ) -> int:
        """Store a message; returns its sequence.

        Args:
            subject: A subject that some stream takes.
            data: The payload.
            expected_subject_seq: Sequence that the subject's last message must have, 0 for none.
            ttl_s: Whole seconds, at least 1, after which the message goes; only where the stream allows it.
            timeout_s: Seconds to wait for the server's word.

        Raises:
            ConflictError: The subject's last message has another sequence.
            AmbiguousError: No word came; it may or may not be stored.
        """

    def submit(self, subject: str, data: bytes) -> asyncio.Future[int]:
        """Store a message without waiting; the future gets its sequence.

        Messages are sent in the order of the calls. Every future is resolved: with the sequence, or with
        :class:`TransientError` (not sent, or no stream), :class:`AmbiguousError` (no word in 10 s, or the connection
        broke), :class:`PoisonError` or :class:`OversizeError` (refused). A caller who drops the future must not mind.

        Raises:
            TransientError: 16,384 messages or 64 MiB are on their way; nothing was sent. See :meth:`submit_wait`.
        """

    async def submit_wait(self, subject: str, data: bytes) -> asyncio.Future[int]:
        """As :meth:`submit`, but waits for room first."""

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        """Store (subject, data) messages of one stream, in order, with one acknowledgement; waits for room first.

        The future gets the sequence of the last message: then the stream has taken in all of them. Any of the errors of
        :meth:`submit` means that any part of them may be stored, or none. For what can be written again.

        Args:
            messages: At least one.
        """

    async def append(self, data: bytes, *, expected_seq: int, timeout_s: float = 5.0) -> int:
        """Append a record to the ledger if ``expected_seq`` is still its last sequence; returns the record's own.

        Keep one append in flight: a row of predicted sequences is no fence.

        Raises:
            ConflictError: The ledger has another last sequence.
            AmbiguousError: No word came; follow the ledger and look for the record.
        """

    async def last(self, stream: StreamName, subject: str) -> Stored | None:
        """Latest message of a subject, asked from the stream's leader; None if there is none."""

    async def state(self, stream: StreamName) -> StreamState:
        """What a stream holds now."""

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        """Everything kept from ``start_seq`` up to the head at the time of the call, in order.

        Does not complain about sequences that are no longer kept. Holds all of it in memory.

        Raises:
            TransientError: No progress for 10 s, or the stream was made anew meanwhile.
        """

    async def purge(self, stream: StreamName, *, keep_from_seq: int | None = None, subject: str | None = None) -> None:
        """Remove what is older than ``keep_from_seq``, or all messages of ``subject`` (wildcards allowed).

        Raises:
            FatalError: The stream is FACTS or keeps one message a subject (there an older message can come back when
                the server is killed: overwrite instead), or not exactly one of the two arguments is given.
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
        """Hand over all messages from ``start_seq`` on, in order, each once, for ever.

        ``on_message`` runs inside the event loop and must be short. Connection breaks, server restarts and lost
        consumers are repaired silently. What cannot be repaired calls ``on_gap`` once and ends the follower; the
        caller decides from where to start another.

        A gap is: the stream has another ``created`` than at first (or than the argument, if given); its head is below
        ``start_seq - 1`` or below what was handed over; or what comes next is no longer kept. The last is not judged
        for ``start_seq`` 0 or 1, which mean "from the oldest that is kept", nor for streams where removal is normal
        (one message a subject; SNAPSHOT). With ``filters``, give a ``start_seq`` up to which all subjects are
        settled, not merely the last match, or a long quiet subject looks like a gap.

        Args:
            stream: The stream.
            on_message: Takes a message.
            on_gap: Is told why the follower ends.
            start_seq: First wanted sequence.
            filters: Subjects with wildcards that do not overlap; none means all.
            created: ``StreamState.created`` at the time when ``start_seq`` was learned, if known.
        """

    async def wait_mirror(self, stream: StreamName, *, at_least: int, timeout_s: float) -> None:
        """Wait until a mirror has seen sequence ``at_least`` of its origin.

        Raises:
            TransientError: It has not within ``timeout_s``.
        """

    async def send(self, subject: str, data: bytes) -> None:
        """Send to whoever listens now; nothing is stored."""

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Reply of whoever serves the subject.

        Raises:
            TransientError: Nobody serves it (at once), or no reply within ``timeout_s``.
        """

    async def gather(
        self, subjects: Mapping[int, str], data: Mapping[int, bytes] | bytes, *, timeout_s: float
    ) -> Gathered:
        """Ask several shards at once; returns as soon as each has answered or is known to be away.

        A shard nobody serves is missing at once; one that does not answer within ``timeout_s`` is missing, and its
        late reply is dropped.

        Args:
            subjects: Subject of each shard.
            data: Request of each shard, or one for all.
            timeout_s: Seconds after which what has not come is missing.
        """

    async def serve(
        self, subject: str, handler: Callable[[bytes], Awaitable[bytes | None]], *, queue: str = ""
    ) -> Served:
        """Answer requests, one at a time and in order; None sends no reply.

        With ``queue``, each request goes to one of all handlers of that name. Returns when the server knows of the
        handler. Transient and poison errors of the handler are logged and give no reply; any other error ends it.
        """

    async def drain(self, *, timeout_s: float) -> None:
        """Finish what is in hand within ``timeout_s`` seconds, then close; closes at once when not connected."""

    async def close(self) -> None:
        """Close now; outstanding publishes resolve as :class:`AmbiguousError`."""
