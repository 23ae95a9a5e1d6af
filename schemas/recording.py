"""Recordings: facts and decisions of a cell in one file, in the order in which they were applied."""

from typing import ClassVar, Final

from berth.schemas.ledger import Settings
from berth.schemas.message import Message, Part
from berth.schemas.status import SnapshotBody
from berth.schemas.units import Sequence, UnixMs

BEGINNING: Final = SnapshotBody(ledger_seq=0, facts_seq=0, facts=[], ledger=b"")
"""State of a cell before its first message."""


class RecordingHead(Message, frozen=True):
    """First message of a recording: its origin, and the folded state at its start."""

    KIND: ClassVar[str] = "recording.head"

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
