"""Status of jobs for users, and messages about the streams themselves. Statuses are views of facts and ledger."""

from typing import ClassVar, Final, Literal

from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import Rejection
from berth.schemas.message import BASELINE, Message, Part
from berth.schemas.placement import Placement
from berth.schemas.recovery import BackupWaiting, RecoveryStatus
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import token
from berth.schemas.units import Sequence, UnixMs

Phase = Literal["waiting", "placed", "bound", "running", "ending", "succeeded", "failed", "cancelled", "rejected"]


class JobStatus(Message, frozen=True):
    """Phase of a job, its reason, and its start."""

    KIND: ClassVar[str] = "status"

    namespace: str
    name: str
    uid: str
    phase: Phase
    since_ms: UnixMs
    at_ms: UnixMs
    attempt: int = 0
    sentence: str = ""
    """Why it waits or was rejected, in one sentence with numbers."""
    refusal: Refusal | None = None
    placement: Placement | None = None
    ledger_seq: Sequence = 0
    """Record that holds the verdict."""
    facts_seq: Sequence = 0
    """Last fact that the verdict knew."""
    intake_seq: Sequence = 0
    pods: int = 0
    chips: int = 0
    queue: str = ""
    priority: int = 0
    rejection: Rejection | None = None
    warning: str = ""
    """Warnings about a job that runs or waits normally, with semicolons between them."""
    recovery: RecoveryStatus | None = None
    """Its newest recovery from a fault, also after it is over."""
    restart_held: str = ""
    """Why a fault does not restart it yet, and what helps; a sentence."""
    backups: list[BackupWaiting] = []
    """Its backup pods that wait for a place, by rank."""
    submitted_ms: UnixMs = 0
    """When it was first requested: the time in the request, or that of its acceptance. Retries do not change it."""
    accepted_seq: Sequence = 0
    """INTAKE sequence at which it, or the request whose place it takes, was first accepted: its place in the queue
    among jobs of its priority. 0 for a job that was rejected."""
    is_plain: bool = False
    """It waits in the queue of jobs without chips, which no job with chips is ahead of."""
    is_fragile: bool = False
    """It waits before other jobs of its priority: its gang runs with too few pods."""
    is_held: bool = False
    """It waits and is held: it has no place in the queue until it is released."""


def stored_status(subject: str, data: bytes) -> JobStatus:
    """The status of a job, as it is stored.

    Args:
        subject: Where it is stored.
        data: The message.

    Raises:
        DecodeError: It does not decode, or is on the subject of another job: somebody else than a dispatcher wrote it.
    """
    status = decode(data, JobStatus)
    if not subject.endswith(f"status.{token(status.namespace)}.{token(status.name)}"):
        raise DecodeError(f"speaks of {status.namespace}/{status.name} on the subject {subject}", kind=JobStatus.KIND)
    return status


class JobSummary(Message, frozen=True):
    """One chunk of the summary of a job: the same data as the ConfigMap of that name.

    Source: docs/reference/kubernetes.md, "Fields of a job summary".
    """

    KIND: ClassVar[str] = "summary"

    namespace: str
    name: str
    """Name of the ConfigMap: ``job-summary-<job>``, or ``job-summary-<job>-<chunk>`` from chunk 1 on."""
    job: str
    job_uid: str
    chunk: int = 0
    total: int = 1
    data: dict[str, str] = {}
    """Data of the ConfigMap; empty once it was deleted."""
    deleted: bool = False
    at_ms: UnixMs = 0


RESTORE_HOLDER: Final = "berth restore"
"""Holder of the dispatcher's lease while a cell is restored; its lease does not expire, see ``berth restore``."""


class LeaseHeld(Message, frozen=True):
    """Leader of a role, and the time of its last renewal."""

    KIND: ClassVar[str] = "lease"

    holder: str
    epoch: int
    at_ms: UnixMs
    silence_ms: int = 0
    """How long the holder may send no heartbeat before another takes the lease, in milliseconds. 0: it sends none,
    and the lease is free when it expires."""
    ledger: str = ""
    """Of ``berth restore``: id of the ledger that it makes; empty before there is one."""
    ledger_seq: Sequence = 0
    """Of ``berth restore``: last record of that ledger. A record behind it is of a dispatcher, so the restore was
    complete."""


class Heartbeat(Message, frozen=True):
    """A leader is alive. It is sent and not stored."""

    KIND: ClassVar[str] = "heartbeat"

    process: str
    """Identity of the process."""
    is_over: bool = False
    """It leads no more, and has released the lease."""
    ledger_seq: Sequence = 0
    """Last record that it has folded."""
    facts_seq: Sequence = 0
    """Last fact that it had applied at that record; later records know at least these facts."""


class Replay(Part, frozen=True):
    """The message of a dead letter was published again, or is about to be."""

    at_ms: UnixMs
    by: str
    """Process that does it."""
    after_seq: Sequence
    """Last message that the subject had before."""
    sequence: Sequence = 0
    """Of the message that was published; 0 until that is known."""


class Purge(Part, frozen=True):
    """The content of a dead letter was removed. The rest stays, so that no service writes the letter again."""

    at_ms: UnixMs
    by: str


class DeadLetter(Message, frozen=True):
    """A message that can never be handled, and why."""

    KIND: ClassVar[str] = "dead"

    stream: str
    sequence: Sequence
    subject: str
    reason: str
    data: bytes
    """The first 64,000 bytes of the message; empty once it is purged."""
    at_ms: UnixMs
    code: str = ""
    """Kind of the reason (``berth.core.requests.dead_reasons``); readers take an unknown one for ``other``."""
    stored_ms: UnixMs = 0
    """When the message was stored."""
    size_bytes: int = 0
    """Bytes of the whole message."""
    headers: dict[str, str] = {}
    """Headers of the message, the first 4,096 characters of them."""
    replay: Replay | None = None
    purge: Purge | None = None


class Skip(Message, frozen=True):
    """Readers of the ledger pass over some of its messages, for a reason that a person has agreed to."""

    KIND: ClassVar[str] = "skip.record"

    sequence: Sequence
    """First of the messages."""
    last_seq: Sequence
    """Last of them."""
    digest: str = ""
    """BLAKE2b-128 of the message as stored, in hexadecimal digits; empty for messages that were deleted."""
    reason: str = ""
    by: str = ""
    """Process that wrote it."""
    at_ms: UnixMs = 0
    was_void: bool = False
    """A later record says that the messages were void: readers that have read them agree with those that skip them.
    Others end when they receive the skip, and start again."""


class SnapshotChunk(Message, frozen=True):
    """Part of a snapshot: bytes, to be joined in order."""

    KIND: ClassVar[str] = "snapshot.chunk"

    data: bytes


class SnapshotEnd(Message, frozen=True):
    """End of a snapshot. Without it, or with another checksum, the snapshot is ignored."""

    KIND: ClassVar[str] = "snapshot.end"

    ledger_seq: Sequence
    facts_seq: Sequence
    chunks: int
    bytes_total: int
    checksum: int
    """CRC-32 of the joined bytes."""
    at_ms: UnixMs = 0


class KeptFact(Part, frozen=True, gc=False):
    """The latest message of a subject, as it was stored."""

    subject: str
    sequence: Sequence
    data: bytes


class SnapshotBody(Message, frozen=True):
    """Folded facts and folded ledger at (``ledger_seq``, ``facts_seq``)."""

    KIND: ClassVar[str] = "snapshot"
    VERSION: ClassVar[int] = BASELINE
    MUST_READ: ClassVar[bool] = True

    ledger_seq: Sequence
    facts_seq: Sequence
    facts: list[KeptFact]
    ledger: bytes
    """Folded ledger as the core encodes it."""
    digest: bytes = b""
    """Digest of ``facts`` and ``ledger`` (``berth.schemas.chain.state_digest``)."""
    fold_version: int = 0
    """Version of the rules by which records were folded: only with equal ones the digests of two readers of the same
    records are equal."""
