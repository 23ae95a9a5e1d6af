"""Recording: what a cell knew and decided, as one file of checked frames.

The file begins with ``BERTHREC`` and the number of its format. Frames follow: ``<u4`` length of the compressed bytes, ``<u4``
their CRC-32, and the bytes, which are one zstd frame. Its content is one message in its envelope: a
:class:`~schemas.recording.RecordingHead` first, then any number of :class:`~schemas.recording.RecordingPart`, then a
:class:`~schemas.recording.RecordingEnd`, after which nothing may come. One frame at a time is in memory.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import zstandard

from schemas.envelope import DecodeError, body_of, encode, open_envelope
from schemas.ledger import facts_known
from schemas.recording import Entry, RecordingEnd, RecordingHead, RecordingPart
from schemas.status import SnapshotBody

MAGIC: Final = b"BERTHREC"
FORMAT: Final = 1
_FRAME: Final = struct.Struct("<II")
_BEGIN_BYTES: Final = len(MAGIC) + 1
_PART_BYTES: Final = 256 << 10
"""Entries of so many bytes make a part."""
_HEAD_BYTES_MAX: Final = 1 << 30
_FRAME_BYTES_MAX: Final = 128 << 20
"""Most bytes of an unpacked frame after the head. A part holds at most one message beyond its size, and NATS takes none above
64 MiB."""
_ENTRY_BYTES: Final = 64
"""Bytes that an entry takes beside its message, about."""


class RecordingError(ValueError):
    """A recording that cannot be read, or not beyond a point.

    Attributes:
        frame: Number of the frame, the head is 0.
        offset: Byte of the file where the frame begins; for one that is cut off, where the file ends.
        reason: What is wrong.
    """

    def __init__(self, frame: int, offset: int, reason: str) -> None:
        super().__init__(f"frame {frame}, byte {offset}: {reason}")
        self.frame = frame
        self.offset = offset
        self.reason = reason


class Order:
    """Sees that entries go on from a start without a gap, and that each record comes right after the facts it knew.

    Attributes:
        facts: Facts so far.
        records: Records so far.
        facts_seq: Last fact.
        ledger_seq: Last record.
    """

    def __init__(self, start: SnapshotBody) -> None:
        self.facts = 0
        self.records = 0
        self.facts_seq = start.facts_seq
        self.ledger_seq = start.ledger_seq
        self._known = start.facts_seq

    def add(self, entry: Entry) -> str:
        """Take the next entry; empty, or why it cannot come here, and then it was not taken."""
        if entry.subject:
            wrong = _missing("fact", self.facts_seq, entry.sequence, first=not self.facts)
            if not wrong:
                self.facts += 1
                self.facts_seq = entry.sequence
            return wrong
        wrong = _missing("record", self.ledger_seq, entry.sequence, first=not self.records) or self._early_or_late(
            entry
        )
        if not wrong:
            self.records += 1
            self.ledger_seq = entry.sequence
            self._known = self.facts_seq
        return wrong

    def _early_or_late(self, record: Entry) -> str:
        try:
            known = facts_known(record.data)
        except DecodeError as error:
            return f"record {record.sequence} does not decode: {error}"
        if known > self.facts_seq:
            return f"record {record.sequence} knew fact {known}, but only facts up to {self.facts_seq} come before it"
        if self.facts_seq > max(known, self._known):
            return f"fact {self.facts_seq} comes before record {record.sequence}, which knew only fact {known}"
        return ""

    def end(self) -> RecordingEnd:
        """The end that says what was taken."""
        return RecordingEnd(
            facts=self.facts, records=self.records, facts_seq=self.facts_seq, ledger_seq=self.ledger_seq
        )


def _missing(what: str, last: int, sequence: int, *, first: bool) -> str:
    """What is wrong with ``sequence`` after ``last``; empty for nothing."""
    if sequence == last + 1:
        return ""
    if sequence <= last:
        return f"{what} {sequence} comes after {what} {last}: out of order"
    if first:
        return (
            f"the first {what} is {sequence}, but the start ends at {last}: {what}s {last + 1} to {sequence - 1} are missing,"
            " or the snapshot that holds them"
        )
    return f"{what}s {last + 1} to {sequence - 1} are missing before {what} {sequence}"


class Frames:
    """Makes the bytes of a recording, piece by piece.

    Args:
        head: What the recording begins with.
    """

    def __init__(self, head: RecordingHead) -> None:
        self._head = head
        self._order = Order(head.start)
        self._entries: list[Entry] = []
        self._bytes = 0
        self._packer = zstandard.ZstdCompressor()

    def begin(self) -> bytes:
        """First bytes of the file."""
        return MAGIC + bytes([FORMAT]) + self._frame(encode(self._head), _HEAD_BYTES_MAX)

    def add(self, entry: Entry) -> bytes:
        """Bytes that are ready once ``entry`` is taken, mostly none.

        Raises:
            ValueError: The entry cannot come here; see :class:`Order`.
        """
        wrong = self._order.add(entry)
        if wrong:
            raise ValueError(wrong)
        self._entries.append(entry)
        self._bytes += len(entry.data) + len(entry.subject) + _ENTRY_BYTES
        return self._part() if self._bytes >= _PART_BYTES else b""

    def end(self) -> bytes:
        """Last bytes of the file."""
        part = self._part() if self._entries else b""
        return part + self._frame(encode(self._order.end()), _FRAME_BYTES_MAX)

    @property
    def summary(self) -> RecordingEnd:
        """What was taken so far."""
        return self._order.end()

    def _part(self) -> bytes:
        content = encode(RecordingPart(self._entries))
        self._entries, self._bytes = [], 0
        return self._frame(content, _FRAME_BYTES_MAX)

    def _frame(self, content: bytes, most: int) -> bytes:
        if len(content) > most:
            raise ValueError(f"a frame of {len(content)} bytes, at most {most} can be read again")
        packed = self._packer.compress(content)
        return _FRAME.pack(len(packed), zlib.crc32(packed)) + packed


def frames_of(head: RecordingHead, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The bytes of a recording, the end included.

    Args:
        head: What it begins with.
        entries: In the order of :func:`interleaved`.

    Raises:
        ValueError: An entry is out of order, or something is missing before it.
    """
    frames = Frames(head)
    yield frames.begin()
    for entry in entries:
        ready = frames.add(entry)
        if ready:
            yield ready
    yield frames.end()


def interleaved(facts: Iterable[Entry], records: Iterable[Entry]) -> Iterator[Entry]:
    """Facts and records in one order: before each record the facts that it knew, after the last record the rest.

    Takes from both only what it needs next.

    Args:
        facts: Ascending.
        records: Ascending.

    Raises:
        DecodeError: A record does not decode.
    """
    coming = iter(facts)
    fact = next(coming, None)
    for record in records:
        known = facts_known(record.data)
        while fact is not None and fact.sequence <= known:
            yield fact
            fact = next(coming, None)
        yield record
    while fact is not None:
        yield fact
        fact = next(coming, None)


class Reading:
    """A recording that is being read; made by :func:`read`. Iterating gives its entries in order, once.

    Attributes:
        head: What it begins with.
        end: Its last message, as soon as that was read.
        damage: What ended the reading early, if it may.
        order: How far it was read.
    """

    def __init__(self, chunks: Iterable[bytes], *, salvage: bool) -> None:
        self.end: RecordingEnd | None = None
        self.damage: RecordingError | None = None
        self._source = _Source(chunks)
        self.head = _head(self._source)
        self.order = Order(self.head.start)
        self._salvage = salvage
        self._entries = self._read()

    def __iter__(self) -> Iterator[Entry]:
        return self._entries

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
                f"the end tells of {_told(end)}, but before it come {_told(found)}: frames are missing"
            )
        self._source.nothing_more()
        self.end = end


def _told(end: RecordingEnd) -> str:
    return f"{end.facts} facts up to {end.facts_seq} and {end.records} records up to {end.ledger_seq}"


def read(chunks: Iterable[bytes], *, salvage: bool = False) -> Reading:
    """Read a recording, a frame at a time.

    Args:
        chunks: The bytes of the file in pieces of any size.
        salvage: Give what comes before a damage, then stop with :attr:`Reading.damage` set, instead of raising.

    Raises:
        RecordingError: It is no recording, or its head cannot be read; with everything else also while iterating.
    """
    return Reading(chunks, salvage=salvage)


def _head(source: "_Source") -> RecordingHead:
    begin = source.take(_BEGIN_BYTES)
    if not begin.startswith(MAGIC[: len(begin)]) or not begin:
        raise source.error(f"no recording of Berth: it begins with {begin[: len(MAGIC)]!r}, expected {MAGIC!r}")
    if len(begin) < _BEGIN_BYTES:
        raise source.cut("the file ends before its first frame")
    if begin[-1] != FORMAT:
        raise source.error(f"it has format {begin[-1]}, this release reads format {FORMAT}: another release wrote it")
    content = source.frame(_HEAD_BYTES_MAX)
    try:
        envelope = open_envelope(content)
        if envelope.kind == RecordingHead.KIND and envelope.version != RecordingHead.VERSION:
            raise source.error(
                f"release {_release(envelope.body)} wrote it with a head of version {envelope.version}, this one reads"
                f" version {RecordingHead.VERSION}"
            )
        return body_of(envelope, RecordingHead)
    except DecodeError as error:
        raise source.error(str(error)) from error


class _Release(msgspec.Struct, array_like=True, frozen=True):
    """What a head of any version begins with."""

    release: str


def _release(body: msgspec.Raw) -> str:
    try:
        return msgspec.msgpack.decode(body, type=_Release).release
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "(not told)"


class _Source:
    """Frames out of pieces of a file, and where the last one began."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = bytearray()
        self._position = 0
        self._begin = 0
        self._frame = -1
        self._unpacker = zstandard.ZstdDecompressor()

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes, fewer at the end."""
        while len(self._held) < count:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self._held += chunk
        taken = bytes(memoryview(self._held)[:count])
        del self._held[:count]
        self._position += len(taken)
        return taken

    def frame(self, most: int) -> bytes:
        """Content of the next frame, at most ``most`` bytes.

        Raises:
            RecordingError: It is cut off, damaged or too large.
        """
        self._begin = self._position
        self._frame += 1
        header = self.take(_FRAME.size)
        if not header:
            raise self.cut("the end of the recording is missing: the file was cut off between frames")
        if len(header) < _FRAME.size:
            raise self.cut("the file is cut off inside the head of a frame")
        length, checksum = _FRAME.unpack(header)
        if length > most:
            raise self.error(f"the frame says it has {length} bytes, at most {most} are possible: its head is damaged")
        packed = self.take(length)
        if len(packed) < length:
            raise self.cut(f"the file is cut off: the frame should have {length} bytes, {len(packed)} are there")
        if zlib.crc32(packed) != checksum:
            raise self.error(f"damaged: the checksum of its {length} bytes is not the one that was written")
        return self._unpack(packed, most)

    def _unpack(self, packed: bytes, most: int) -> bytes:
        try:
            size = zstandard.get_frame_parameters(packed).content_size
            # The size that a frame claims is what the library reserves, whatever limit it is given.
            if size == zstandard.CONTENTSIZE_UNKNOWN or size > most:
                claimed = "an unknown number of" if size == zstandard.CONTENTSIZE_UNKNOWN else str(size)
                raise self.error(f"it unpacks to {claimed} bytes, at most {most} are allowed")
            return self._unpacker.decompress(packed, max_output_size=most, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise self.error(f"does not unpack: {error}") from error

    def nothing_more(self) -> None:
        """See that the file ends here.

        Raises:
            RecordingError: It does not.
        """
        self._begin = self._position
        if self.take(1):
            self._frame += 1
            raise self.error("something follows after the end of the recording")

    def error(self, reason: str) -> RecordingError:
        """What is wrong with the current frame."""
        return RecordingError(max(0, self._frame), self._begin, reason)

    def cut(self, reason: str) -> RecordingError:
        """The file ends in the current frame."""
        return RecordingError(max(0, self._frame), self._position, reason)
