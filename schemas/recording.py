"""Recordings: what a cell knew and decided, in one file, in the order in which it came to be."""

from typing import ClassVar, Final

from berth.schemas.ledger import Settings
from berth.schemas.message import Message, Part
from berth.schemas.status import SnapshotBody
from berth.schemas.units import Sequence, UnixMs

BEGINNING: Final = SnapshotBody(ledger_seq=0, facts_seq=0, facts=[], ledger=b"")
"""The state of a cell before everything."""


class RecordingHead(Message, frozen=True):
    """First message of a recording: where it comes from, and the folded state at its start."""

    KIND: ClassVar[str] = "recording.head"

    release: str
    """Release of Berth that wrote it."""
    cell: str
    made_at_ms: UnixMs
    settings: Settings
    """Of the epoch at the start."""
    start: SnapshotBody
    """Facts and ledger before the first entry; ``BEGINNING`` for the history of a cell from its first entry."""
    anonymous: bool = False
    """Names were replaced."""


class Entry(Part, frozen=True, gc=False):
    """A fact or a record, as it was stored."""

    sequence: Sequence
    data: bytes
    """The message in its envelope."""
    subject: str = ""
    """Subject of a fact; empty for a record of the ledger."""


class RecordingPart(Message, frozen=True):
    """Entries in order: before each record the facts that it knew (its ``facts_seq``), then those that came after the last."""

    KIND: ClassVar[str] = "recording.part"

    entries: list[Entry]


class RecordingEnd(Message, frozen=True):
    """Last message of a recording; without it something is missing."""

    KIND: ClassVar[str] = "recording.end"

    facts: int
    """Entries that are facts."""
    records: int
    facts_seq: Sequence
    """Last fact, that of the start when there is none."""
    ledger_seq: Sequence
