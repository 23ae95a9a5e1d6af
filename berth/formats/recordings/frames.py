"""Frames of a recording: consecutive pieces of a file with checksums.

Each has the ``<u4`` length of its packed bytes, their ``<u4`` CRC-32, and the bytes, which are one zstd frame. A frame
unpacks to at most 4 KiB and 64 times its bytes in the file, so that what a file costs is bounded by its size. Content
that packs better, which is not that of a cell (4 to 11 times), is stored as it is.
"""

import struct
import zlib
from collections.abc import Iterable
from typing import Final

import zstandard

_FRAME: Final = struct.Struct("<II")
_FREE_BYTES: Final = 4 << 10
_RATIO_MAX: Final = 64
_PLAIN_HEAD: Final = struct.Struct("<IBQ")
_ZSTD_MAGIC: Final = 0xFD2FB528
_ONE_SEGMENT: Final = 0xE0
"""Descriptor of a zstd frame without a window, a dictionary and a checksum, whose size has 8 bytes."""
_BLOCK_BYTES: Final = 128 << 10
"""Maximum of a block in zstd."""


class RecordingError(ValueError):
    """A recording that cannot be read, or not completely.

    Attributes:
        frame: Number of the frame; the head is 0.
        offset: Byte of the file at which the frame begins; for a truncated frame, at which the file ends.
        reason: The error.
    """

    def __init__(self, frame: int, offset: int, reason: str) -> None:
        super().__init__(f"frame {frame}, byte {offset}: {reason}")
        self.frame = frame
        self.offset = offset
        self.reason = reason


class FramePacker:
    """Encodes frames."""

    def __init__(self) -> None:
        self._packer = zstandard.ZstdCompressor()

    def frame(self, content: bytes, most: int) -> bytes:
        """A frame.

        Args:
            content: Its content.
            most: Most bytes of the content, so that a reader accepts it.

        Raises:
            ValueError: The content is larger than ``most``.
        """
        if len(content) > most:
            raise ValueError(f"a frame of {len(content)} bytes, at most {most} can be read again")
        packed = self._packer.compress(content)
        if len(content) > _most_of(len(packed)):
            packed = _plain(content)
        return _FRAME.pack(len(packed), zlib.crc32(packed)) + packed


def _most_of(packed: int) -> int:
    """Most bytes that so many packed bytes may unpack to."""
    return _FREE_BYTES + _RATIO_MAX * packed


def _plain(content: bytes) -> bytes:
    """A zstd frame with content that is not packed (RFC 8878, raw blocks)."""
    parts = [_PLAIN_HEAD.pack(_ZSTD_MAGIC, _ONE_SEGMENT, len(content))]
    for start in range(0, len(content), _BLOCK_BYTES):
        block = content[start : start + _BLOCK_BYTES]
        is_last = start + _BLOCK_BYTES >= len(content)
        parts += ((len(block) << 3 | is_last).to_bytes(3, "little"), block)
    return b"".join(parts)


class FrameSource:
    """Decodes frames from pieces of a file.

    Attributes:
        position: Bytes taken so far.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = bytearray()
        self.position = 0
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
        self.position += len(taken)
        return taken

    def frame(self, most: int) -> bytes:
        """Content of the next frame, at most ``most`` bytes.

        Raises:
            RecordingError: It is cut off, damaged or too large.
        """
        self._begin = self.position
        self._frame += 1
        header = self.take(_FRAME.size)
        if not header:
            raise self.cut("the end of the recording is missing: the file was cut off between frames")
        if len(header) < _FRAME.size:
            raise self.cut("the file is cut off inside the head of a frame")
        length, checksum = _FRAME.unpack(header)
        if length > most:
            raise self.error(
                f"the frame has a length of {length} bytes, at most {most} are possible: its head is damaged"
            )
        packed = self.take(length)
        if len(packed) < length:
            raise self.cut(f"the file is cut off: the frame should have {length} bytes, {len(packed)} are there")
        if zlib.crc32(packed) != checksum:
            raise self.error(f"damaged: the checksum of its {length} bytes is not the one that was written")
        return self._unpack(packed, most)

    def _unpack(self, packed: bytes, most: int) -> bytes:
        try:
            size = zstandard.get_frame_parameters(packed).content_size
            most = min(most, _most_of(len(packed)))
            # The library reserves the size that a frame claims, whatever limit it gets.
            if size == zstandard.CONTENTSIZE_UNKNOWN or size > most:
                claimed = "an unknown number of" if size == zstandard.CONTENTSIZE_UNKNOWN else str(size)
                raise self.error(f"it unpacks to {claimed} bytes, at most {most} are allowed")
            return self._unpacker.decompress(packed, max_output_size=most, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise self.error(f"does not unpack: {error}") from error

    def nothing_more(self) -> None:
        """Check that the file ends here.

        Raises:
            RecordingError: The file goes on.
        """
        self._begin = self.position
        if self.take(1):
            self._frame += 1
            raise self.error("something follows after the end of the recording")

    def error(self, reason: str) -> RecordingError:
        """Error in the current frame."""
        return RecordingError(max(0, self._frame), self._begin, reason)

    def cut(self, reason: str) -> RecordingError:
        """Error for a file that ends in the current frame."""
        return RecordingError(max(0, self._frame), self.position, reason)
