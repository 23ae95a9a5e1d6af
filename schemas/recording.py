"""Recordings: facts and decisions of a cell in one file, in the order in which they were applied; and backups."""

from typing import ClassVar, Final

from berth.schemas.ledger import Settings
from berth.schemas.message import BASELINE, Message, Part
from berth.schemas.status import SnapshotBody
from berth.schemas.units import Sequence, UnixMs

BEGINNING: Final = SnapshotBody(ledger_seq=0, facts_seq=0, facts=[], ledger=b"")
"""State of a cell before its first message."""


class RecordingHead(Message, frozen=True):
    """First message of a recording: its origin, and the folded state at its start."""

    KIND: ClassVar[str] = "recording.head"
    VERSION: ClassVar[int] = BASELINE
    MUST_READ: ClassVar[bool] = True

    release: str
    """Release of Berth that wrote the recording."""
    cell: str
    made_at_ms: UnixMs
    settings: Settings
    """Of the epoch at the start."""
    start: SnapshotBody
    """Facts and ledger before the first entry; ``BEGINNING`` for the history of a cell from its first entry."""
    anonymous: bool = False
    """Names were replaced."""


class Entry(Part, frozen=True, gc=False):
    """A fact or a record as it was stored."""

    sequence: Sequence
    data: bytes
    """The message in its envelope."""
    subject: str = ""
    """Subject of a fact; empty for a record of the ledger."""


class RecordingPart(Message, frozen=True):
    """Entries in order: before each record the facts that it knew (``facts_seq``), at the end the remaining facts."""

    KIND: ClassVar[str] = "recording.part"

    entries: list[Entry]


class RecordingEnd(Message, frozen=True):
    """Last message of a recording. Without it the recording is incomplete."""

    KIND: ClassVar[str] = "recording.end"

    facts: int
    """Entries that are facts."""
    records: int
    facts_seq: Sequence
    """Last fact; the last one of the start if there is none."""
    ledger_seq: Sequence


class BackupStream(Part, frozen=True):
    """A stream of a backup as it was found."""

    name: str
    first_seq: Sequence
    """Oldest stored message; one above ``last_seq`` if there was none."""
    last_seq: Sequence
    """Newest sequence ever assigned."""
    replicas: int = 1
    max_bytes: int = 0
    """Size limit in bytes; 0 for none."""


class BackupHead(Message, frozen=True):
    """First message of a backup: its origin, and the streams that follow, each as a whole, in this order."""

    KIND: ClassVar[str] = "backup.head"
    VERSION: ClassVar[int] = BASELINE
    MUST_READ: ClassVar[bool] = True

    release: str
    """Release of Berth that wrote the backup."""
    cell: str
    made_at_ms: UnixMs
    streams: list[BackupStream]


class BackupPart(Message, frozen=True):
    """Messages of one stream, ascending."""

    KIND: ClassVar[str] = "backup.part"

    stream: str
    entries: list[Entry]
    """Subjects without the prefix of the cell."""


class BackupEnd(Message, frozen=True):
    """Last message of a backup. Without it the backup is incomplete."""

    KIND: ClassVar[str] = "backup.end"

    counts: list[int]
    """Messages of each stream, in the order of the head."""
    digest: bytes
    """BLAKE2b-128 over stream, sequence, subject and data of all messages."""
