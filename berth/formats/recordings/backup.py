"""Backups: the streams of a cell that cannot be made again, as one file of frames with checksums.

The file begins with ``BERTHBAK`` and the number of its format. Frames follow as in recordings. Their content is one
message each in its envelope: a :class:`~berth.schemas.recording.BackupHead`, then the parts of each stream in the order
of the head, then a :class:`~berth.schemas.recording.BackupEnd`, after which the file ends. Only one frame at a time is
in memory.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from berth.formats.recordings.frames import FramePacker, FrameSource, RecordingError
from berth.schemas.envelope import DecodeError, body_of, encode, open_envelope
from berth.schemas.recording import BackupEnd, BackupHead, BackupPart, Entry

MAGIC: Final = b"BERTHBAK"
FORMAT: Final = 1
_BEGIN_BYTES: Final = len(MAGIC) + 1
_PART_BYTES: Final = 64 << 10
_FRAME_BYTES_MAX: Final = 65 << 20
"""Maximum size of an unpacked frame: a part has at most one message beyond its size, and NATS accepts none above 64
MiB."""
_ENTRY_BYTES: Final = 64
_DIGEST_BYTES: Final = 16


class Stored(NamedTuple):
    """A message of a backup: its stream, and the entry with its subject without the prefix of the cell."""

    stream: str
    entry: Entry


class _Tally:
    """Counts and digest of the messages of a backup, which come stream by stream, each ascending."""

    def __init__(self, head: BackupHead) -> None:
        self._names = [stream.name for stream in head.streams]
        self._counts = [0] * len(self._names)
        self._at = 0
        self._last = 0
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def add(self, stream: str, entry: Entry) -> str:
        """Take a message. Returns why it is out of order, and then it was not taken; empty if it is in order."""
        if stream not in self._names[self._at :]:
            return (
                f"a message of {stream} is not expected here: the streams are {', '.join(self._names)}, in this order"
            )
        if self._names[self._at] != stream:
            self._at = self._names.index(stream)
            self._last = 0
        if entry.sequence <= self._last:
            return f"{stream} {entry.sequence} comes after {self._last}: out of order"
        self._last = entry.sequence
        self._counts[self._at] += 1
        about = f"{stream} {entry.sequence} {entry.subject} {len(entry.data)} ".encode()
        self._digest.update(about + entry.data)
        return ""

    def end(self) -> BackupEnd:
        """The last message of a backup with these."""
        return BackupEnd(list(self._counts), self._digest.digest())


class BackupFrames:
    """Encodes a backup, piece by piece.

    Args:
        head: First message.
    """

    def __init__(self, head: BackupHead) -> None:
        self._head = head
        self._packer = FramePacker()
        self._tally = _Tally(head)
        self._stream = ""
        self._entries: list[Entry] = []
        self._bytes = 0

    def begin(self) -> bytes:
        """First bytes of the file."""
        return MAGIC + bytes([FORMAT]) + self._packer.frame(encode(self._head), _FRAME_BYTES_MAX)

    def add(self, stream: str, entry: Entry) -> bytes:
        """Bytes that are complete after a message, mostly none.

        Raises:
            ValueError: It is out of order.
        """
        ready = self._part() if stream != self._stream and self._entries else b""
        wrong = self._tally.add(stream, entry)
        if wrong:
            raise ValueError(wrong)
        self._stream = stream
        self._entries.append(entry)
        self._bytes += len(entry.data) + len(entry.subject) + _ENTRY_BYTES
        return ready + self._part() if self._bytes >= _PART_BYTES else ready

    def end(self) -> bytes:
        """Last bytes of the file."""
        part = self._part() if self._entries else b""
        return part + self._packer.frame(encode(self._tally.end()), _FRAME_BYTES_MAX)

    def _part(self) -> bytes:
        content = encode(BackupPart(self._stream, self._entries))
        self._entries, self._bytes = [], 0
        return self._packer.frame(content, _FRAME_BYTES_MAX)


class BackupReading:
    """An open backup. Iterating yields its messages in order, once, and ends well only if the backup is whole.

    Args:
        chunks: The bytes of the file in pieces of any size.

    Attributes:
        head: Its first message.
        end: Its last message, after it was read.

    Raises:
        RecordingError: It is no backup, or its head cannot be read; other errors are raised while iterating.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.end: BackupEnd | None = None
        self._source = FrameSource(chunks)
        self.head = self._read_head()
        self._tally = _Tally(self.head)

    def _read_head(self) -> BackupHead:
        source = self._source
        begin = source.take(_BEGIN_BYTES)
        if not begin.startswith(MAGIC[: len(begin)]) or not begin:
            raise source.error(f"no backup of Berth: it begins with {begin[: len(MAGIC)]!r}, expected {MAGIC!r}")
        if len(begin) < _BEGIN_BYTES:
            raise source.cut("the file ends before its first frame")
        if begin[-1] != FORMAT:
            raise source.error(
                f"it has format {begin[-1]}, this release reads format {FORMAT}: another release wrote it"
            )
        try:
            return body_of(open_envelope(source.frame(_FRAME_BYTES_MAX)), BackupHead)
        except DecodeError as error:
            raise source.error(str(error)) from error

    def __iter__(self) -> Iterator[Stored]:
        source = self._source
        while True:
            content = source.frame(_FRAME_BYTES_MAX)
            try:
                envelope = open_envelope(content)
                if envelope.kind == BackupEnd.KIND:
                    self._finish(body_of(envelope, BackupEnd))
                    return
                part = body_of(envelope, BackupPart)
            except DecodeError as error:
                raise source.error(str(error)) from error
            for entry in part.entries:
                wrong = self._tally.add(part.stream, entry)
                if wrong:
                    raise source.error(wrong)
                yield Stored(part.stream, entry)

    def _finish(self, end: BackupEnd) -> None:
        found = self._tally.end()
        if end.counts != found.counts:
            raise self._source.error(f"the end announces {end.counts} messages, {found.counts} precede it")
        if end.digest != found.digest:
            raise self._source.error("the digest of the messages is not the one that was written")
        self._source.nothing_more()
        self.end = end


__all__ = ["BackupFrames", "BackupReading", "RecordingError", "Stored"]
