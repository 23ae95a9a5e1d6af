"""The form of backups: what is written is read, and nothing else is."""

import struct
import tracemalloc
import zlib
from collections.abc import Sequence

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.recordings.backup import FORMAT, MAGIC, BackupFrames, BackupReading, RecordingError, Stored
from berth.schemas.envelope import encode
from berth.schemas.recording import BackupHead, BackupPart, BackupStream, Entry

HEAD = BackupHead("0.5.0", "cell", 1, [BackupStream("A", 1, 9), BackupStream("B", 1, 9), BackupStream("C", 1, 0)])
ENTRIES = st.builds(Entry, st.integers(1, 1 << 40), st.binary(max_size=200), st.text(max_size=20))


def written(messages: Sequence[Stored], head: BackupHead = HEAD) -> bytes:
    frames = BackupFrames(head)
    pieces = [frames.begin(), *(frames.add(*message) for message in messages), frames.end()]
    return b"".join(pieces)


def read(data: bytes, size: int = 1000) -> list[Stored]:
    reading = BackupReading(data[at : at + size] for at in range(0, len(data), size))
    found = list(reading)
    assert reading.end is not None
    return found


@st.composite
def contents(draw: st.DrawFn) -> list[Stored]:
    found: list[Stored] = []
    for name in ("A", "B", "C"):
        entries = draw(st.lists(ENTRIES, max_size=6, unique_by=lambda entry: entry.sequence))
        found += [Stored(name, entry) for entry in sorted(entries, key=lambda entry: entry.sequence)]
    return found


@given(contents(), st.integers(1, 50))
def test_messages_are_read_as_they_were_written(messages: list[Stored], size: int) -> None:
    assert read(written(messages), size) == messages


@given(contents(), st.data())
def test_no_changed_byte_and_no_missing_end_is_overlooked(messages: list[Stored], data: st.DataObject) -> None:
    whole = written(messages)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for damaged in (changed, whole[:at], whole + b"x"):
        with pytest.raises(RecordingError):
            read(damaged)


def test_frames_of_two_backups_do_not_make_a_third() -> None:
    """Each frame is whole, and the numbers of messages are right: only the digest tells."""
    one, other = (written([Stored("A", Entry(1, data, "s"))]) for data in (b"one", b"two"))
    assert len(one) == len(other)
    for cut in range(len(MAGIC) + 2, len(one)):
        mixed = one[:cut] + other[cut:]
        if mixed not in {one, other}:
            with pytest.raises(RecordingError):
                read(mixed)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([("B", 1), ("A", 1)], "a message of A is not expected here"),
        ([("A", 2), ("A", 2)], "A 2 comes after 2: out of order"),
        ([("X", 1)], "a message of X is not expected here"),
    ],
)
def test_messages_out_of_order_are_refused(messages: list[tuple[str, int]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        written([Stored(name, Entry(sequence, b"", "s")) for name, sequence in messages])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no backup of Berth"),
        (b"BERTHREC\x01", "no backup of Berth: it begins with b'BERTHREC'"),
        (MAGIC, "ends before its first frame"),
        (MAGIC + bytes([FORMAT + 1]), "this release reads format 1"),
        (MAGIC + bytes([FORMAT]), "cut off"),
    ],
)
def test_another_file_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RecordingError, match=reason):
        read(data)


def test_large_contents_are_several_frames() -> None:
    messages = [Stored("A", Entry(number, bytes([number % 251]) * 5_000, "s")) for number in range(1, 60)]
    assert read(written(messages)) == messages


def framed(content: bytes) -> bytes:
    packed = zstandard.compress(content)
    return struct.pack("<II", len(packed), zlib.crc32(packed)) + packed


def message(kind: str, version: int, *fields: bytes) -> bytes:
    body = msgspec.Raw(bytes([0x90 + len(fields)]) + b"".join(fields))
    return msgspec.msgpack.encode((kind, version, body))


def many(element: bytes) -> bytes:
    """An array of a million."""
    return b"\xdd" + struct.pack(">I", 1_000_000) + element * 1_000_000


BEGIN = MAGIC + bytes([FORMAT])
STREAM = msgspec.msgpack.encode(BackupStream("", 1, 0))
TINY = msgspec.msgpack.encode(Entry(1, b"", "s"))


@pytest.mark.parametrize(
    "frames",
    [
        [message("backup.part", 1, b"\xa1A", many(TINY))],
        [message("backup.end", 1, many(b"\x01"), b"\xc4\x00")],
        [encode(BackupPart("A", [Entry(number, bytes(1 << 20), "s")])) for number in range(1, 20)],
    ],
    ids=["entries", "counts", "messages"],
)
def test_a_small_file_costs_little_memory(frames: list[bytes]) -> None:
    data = b"".join([BEGIN, framed(encode(HEAD)), *(framed(content) for content in frames)])
    assert_cheap(data)


def test_a_small_head_costs_little_memory() -> None:
    fields = [b"\xa0", b"\xa0", b"\x00", many(STREAM)]
    assert_cheap(BEGIN + framed(message("backup.head", BackupHead.VERSION, *fields)))


def assert_cheap(data: bytes) -> None:
    """Check that a hostile file is refused for at most 64 times its bytes and what a small frame takes."""
    kept: list[Stored] = []
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError, match="it unpacks to"):
            kept.extend(BackupReading([data]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * len(data) + (64 << 10)


@pytest.mark.parametrize("size", [4_000, 5_000, 131_072, 131_073, 300_000])
def test_messages_that_pack_too_well_are_written_so_that_they_are_read(size: int) -> None:
    """A tenant chooses the text of its requests: it cannot choose one that makes a backup useless."""
    messages = [Stored("A", Entry(number, bytes(size), "s")) for number in (1, 2)]
    assert read(written(messages), 100_000) == messages
