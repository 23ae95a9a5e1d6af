"""Recordings: facts and decisions of a cell, as one file of frames with checksums.

The file begins with ``BERTHREC`` and the number of its format. Frames follow: ``<u4`` length of the compressed bytes,
``<u4`` their CRC-32, and the bytes, which are one zstd frame. Its content is one message in its envelope: a
:class:`~berth.schemas.recording.RecordingHead` first, then any number of
:class:`~berth.schemas.recording.RecordingPart`, then a :class:`~berth.schemas.recording.RecordingEnd`, after which the
file ends. Only one frame at a time is in memory.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from berth.formats.recordings.frames import FramePacker, FrameSource, RecordingError
from berth.schemas.chain import ChainReader, Position, link_of, position_of
from berth.schemas.envelope import DecodeError, VersionError, body_of, encode, open_envelope
from berth.schemas.recording import Entry, RecordingEnd, RecordingHead, RecordingPart
from berth.schemas.status import SnapshotBody

__all__ = [
    "FORMAT",
    "MAGIC",
    "Frames",
    "Order",
    "Reading",
    "RecordingError",
    "frames_of",
    "interleaved",
    "read",
]

MAGIC: Final = b"BERTHREC"
FORMAT: Final = 1
_BEGIN_BYTES: Final = len(MAGIC) + 1
_PART_BYTES: Final = 64 << 10
"""Bytes of entries after which a part is complete."""
_HEAD_BYTES_MAX: Final = 256 << 20
"""Maximum size of the unpacked head, in bytes. It contains a snapshot, which has about 700 bytes per job (measured on
the stored recordings): enough for 380,000 jobs in the state."""
_FRAME_BYTES_MAX: Final = 65 << 20
"""Maximum size of an unpacked frame after the head, in bytes. A part has at most one message beyond its size, which is
far below 1 MiB in all releases, and NATS accepts no message above 64 MiB."""
_ENTRY_BYTES: Final = 64
"""Approximate bytes of an entry besides its message."""


class Order:
    """Checks that entries follow a start without a gap, and that each record comes right after the facts that it knew.

    Attributes:
        facts: Facts so far.
        records: Records so far.
        facts_seq: Last fact.
        ledger_seq: Last record.
        position: Position in the chain of the ledger after it.
    """

    def __init__(self, start: SnapshotBody) -> None:
        self.facts = 0
        self.records = 0
        self.facts_seq = start.facts_seq
        self.ledger_seq = start.ledger_seq
        self._known = start.facts_seq
        self._is_read = True
        """Whether all records so far were read; what follows one of a newer release is not compared with facts."""
        self.position = _position(start)

    def add(self, entry: Entry) -> str:
        """Take the next entry. Returns why it is out of order, and then it was not taken; empty if it is in order."""
        if entry.subject:
            wrong = _missing("fact", self.facts_seq, entry.sequence, first=not self.facts)
            if not wrong:
                self.facts += 1
                self.facts_seq = entry.sequence
            return wrong
        position, wrong = self.position, _missing("record", self.ledger_seq, entry.sequence, first=not self.records)
        if not wrong:
            position, wrong = self._early_or_late(entry)
        if not wrong:
            self.position = position
            self.records += 1
            self.ledger_seq = entry.sequence
            self._known = self.facts_seq
        return wrong

    def _early_or_late(self, record: Entry) -> tuple[Position, str]:
        """Position after a record, and why it is early or late; empty if it is not."""
        before, wrong = self.position, ""
        if not self._is_read:
            return before, ""
        try:
            link = link_of(before, record.sequence, record.data)
        except VersionError:
            self._is_read = False
            return before, ""  # only a newer release can read which facts it knew
        except DecodeError as error:
            return before, f"record {record.sequence} does not decode: {error}"
        known = link.facts_seq
        if known > self.facts_seq:
            wrong = f"record {record.sequence} knew fact {known}, but only facts up to {self.facts_seq} come before it"
        elif self.facts_seq > max(known, self._known):
            wrong = f"fact {self.facts_seq} comes before record {record.sequence}, which knew only fact {known}"
        return before.after(link), wrong

    def end(self) -> RecordingEnd:
        """End message with the numbers of entries that were taken."""
        return RecordingEnd(
            facts=self.facts, records=self.records, facts_seq=self.facts_seq, ledger_seq=self.ledger_seq
        )


def _position(start: SnapshotBody) -> Position:
    """Position in the chain of the ledger at a start; the beginning of a chain if it does not decode."""
    try:
        return position_of(start)
    except DecodeError:
        return Position(base_seq=start.ledger_seq)


def _missing(what: str, last: int, sequence: int, *, first: bool) -> str:
    """Why ``sequence`` cannot follow ``last``; empty if it can."""
    if sequence == last + 1:
        return ""
    if sequence <= last:
        return f"{what} {sequence} comes after {what} {last}: out of order"
    if first:
        return (
            f"the first {what} is {sequence}, but the start ends at {last}: {_span(what, last + 1, sequence - 1)} missing, or"
            " the snapshot that holds what came before"
        )
    return f"{_span(what, last + 1, sequence - 1)} missing before {what} {sequence}"


def _span(what: str, first: int, last: int) -> str:
    return f"{what} {first} is" if first == last else f"{what}s {first} to {last} are"


class Frames:
    """Encodes a recording, piece by piece.

    Args:
        head: First message of the recording.
        order: Entries that are written already, to go on after them; None to begin.
    """

    def __init__(self, head: RecordingHead, order: Order | None = None) -> None:
        self._head = head
        self._order = order if order is not None else Order(head.start)
        self._entries: list[Entry] = []
        self._bytes = 0
        self._packer = FramePacker()

    def begin(self) -> bytes:
        """First bytes of the file."""
        return MAGIC + bytes([FORMAT]) + self._packer.frame(encode(self._head), _HEAD_BYTES_MAX)

    def add(self, entry: Entry) -> bytes:
        """Bytes that are complete after ``entry``, mostly none.

        Raises:
            ValueError: The entry is out of order; see :class:`Order`.
        """
        wrong = self._order.add(entry)
        if wrong:
            raise ValueError(wrong)
        self._entries.append(entry)
        self._bytes += len(entry.data) + len(entry.subject) + _ENTRY_BYTES
        return self._part() if self._bytes >= _PART_BYTES else b""

    def flush(self) -> bytes:
        """Bytes of the entries that are not written yet."""
        return self._part() if self._entries else b""

    def end(self) -> bytes:
        """Last bytes of the file."""
        return self.flush() + self._packer.frame(encode(self._order.end()), _FRAME_BYTES_MAX)

    @property
    def summary(self) -> RecordingEnd:
        """Entries that were taken so far."""
        return self._order.end()

    def _part(self) -> bytes:
        content = encode(RecordingPart(self._entries))
        self._entries, self._bytes = [], 0
        return self._packer.frame(content, _FRAME_BYTES_MAX)


def frames_of(head: RecordingHead, entries: Iterable[Entry]) -> Iterator[bytes]:
    """Bytes of a recording, including its end.

    Args:
        head: Its first message.
        entries: In the order of :func:`interleaved`.

    Raises:
        ValueError: An entry is out of order, or entries are missing before it.
    """
    frames = Frames(head)
    yield frames.begin()
    for entry in entries:
        ready = frames.add(entry)
        if ready:
            yield ready
    yield frames.end()


def interleaved(facts: Iterable[Entry], records: Iterable[Entry], position: Position | None = None) -> Iterator[Entry]:
    """Facts and records in one order: before each record the facts that it knew, after the last record the rest.

    Reads no more of both than it needs.

    Args:
        facts: Ascending.
        records: Ascending.
        position: Position in the chain before the first record; None for the beginning of the ledger.

    Raises:
        DecodeError: A record cannot be decoded.
        VersionError: Only another release reads a record.
    """
    coming = iter(facts)
    fact = next(coming, None)
    chain = ChainReader(position or Position())
    for record in records:
        known = chain.read(record.sequence, record.data).facts_seq
        while fact is not None and fact.sequence <= known:
            yield fact
            fact = next(coming, None)
        yield record
    while fact is not None:
        yield fact
        fact = next(coming, None)


class Reading:
    """An open recording; see :func:`read`. Iterating yields its entries in order, once.

    Attributes:
        head: Its first message.
        end: Its last message, after it was read.
        damage: Error that ended the reading early, with ``salvage``.
        order: Entries read so far.
    """

    def __init__(self, chunks: Iterable[bytes], *, salvage: bool) -> None:
        self.end: RecordingEnd | None = None
        self.damage: RecordingError | None = None
        self._source = FrameSource(chunks)
        self.head = _head(self._source)
        self.order = Order(self.head.start)
        self._salvage = salvage
        self._entries = self._read()

    def __iter__(self) -> Iterator[Entry]:
        return self._entries

    @property
    def position(self) -> int:
        """Bytes of the file that were read so far."""
        return self._source.position

    def _read(self) -> Iterator[Entry]:
        try:
            yield from self._parts()
        except RecordingError as error:
            if not self._salvage:
                raise
            self.damage = error

    def _parts(self) -> Iterator[Entry]:
        source = self._source
        while True:
            content = source.frame(_FRAME_BYTES_MAX)
            try:
                envelope = open_envelope(content)
                if envelope.kind == RecordingEnd.KIND:
                    self._finish(body_of(envelope, RecordingEnd))
                    return
                entries = body_of(envelope, RecordingPart).entries
            except DecodeError as error:
                raise source.error(str(error)) from error
            for entry in entries:
                wrong = self.order.add(entry)
                if wrong:
                    raise source.error(wrong)
                yield entry

    def _finish(self, end: RecordingEnd) -> None:
        found = self.order.end()
        if end != found:
            raise self._source.error(
                f"the end announces {_counts_text(end)}, but {_counts_text(found)} precede it: frames are missing"
            )
        self._source.nothing_more()
        self.end = end


def _counts_text(end: RecordingEnd) -> str:
    return f"{end.facts} facts up to {end.facts_seq} and {end.records} records up to {end.ledger_seq}"


def read(chunks: Iterable[bytes], *, salvage: bool = False) -> Reading:
    """Read a recording, a frame at a time.

    Args:
        chunks: The bytes of the file in pieces of any size.
        salvage: Yield the entries before a damaged frame, then stop with :attr:`Reading.damage` set, instead of
            raising.

    Raises:
        RecordingError: It is not a recording, or its head cannot be read; other errors are raised while iterating.
        VersionError: Another release wrote it.
    """
    return Reading(chunks, salvage=salvage)


def _head(source: FrameSource) -> RecordingHead:
    begin = source.take(_BEGIN_BYTES)
    if not begin:
        raise source.error("no recording of Berth: the file is empty")
    if not begin.startswith(MAGIC[: len(begin)]):
        raise source.error(f"no recording of Berth: it begins with {begin[: len(MAGIC)]!r}, expected {MAGIC!r}")
    if len(begin) < _BEGIN_BYTES:
        raise source.cut("the file ends before its first frame")
    if begin[-1] != FORMAT:
        raise source.error(f"it has format {begin[-1]}, this release reads format {FORMAT}: another release wrote it")
    content = source.frame(_HEAD_BYTES_MAX)
    try:
        envelope = open_envelope(content)
        return body_of(envelope, RecordingHead)
    except DecodeError as error:
        raise source.error(str(error)) from error
