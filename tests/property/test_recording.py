"""Recordings, whatever happens to the file: damage is told with its place, and what comes before it can be read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.recordings.frames import FramePacker
from berth.formats.recordings.recording import FORMAT, MAGIC, RecordingError
from berth.schemas.envelope import encode, open_envelope
from berth.schemas.recording import Entry, RecordingPart
from tests.support.damage import damaged
from tests.support.recordings import file_of, head_at, history, reading_of

_PADDING = 90_000
"""Bytes of a fact, so that a part holds three."""
knews = st.lists(st.integers(0, 9), max_size=6).map(sorted)


def entries_of(knew: list[int], more: int = 0) -> list[Entry]:
    """Entries that take several frames; what a fact says plays no part."""
    entries = history(knew, facts=max(knew, default=0) + more)
    return [Entry(entry.sequence, bytes(_PADDING), entry.subject) if entry.subject else entry for entry in entries]


def frames_in(data: bytes) -> list[int]:
    """Where each frame begins, and the end of the file."""
    begins = [len(MAGIC) + 1]
    while begins[-1] < len(data):
        begins.append(begins[-1] + 8 + int.from_bytes(data[begins[-1] : begins[-1] + 4], "little"))
    return begins


def check_damage(entries: list[Entry], whole: bytes, damaged: bytes, place: int) -> None:
    """Check that damage at a place of the file is told, and that what comes before it is given."""
    begins = frames_in(whole)
    frame = max((number for number, begin in enumerate(begins) if begin <= place), default=0)
    if frame == 0:
        with pytest.raises(RecordingError, match=r"^frame 0, byte "):
            reading_of(damaged, salvage=True, piece=100_000)
        return
    reading = reading_of(damaged, salvage=True, piece=100_000)
    found = list(reading)
    assert reading.damage is not None
    assert reading.damage.frame == frame
    assert reading.damage.offset in {begins[frame], len(damaged)}
    assert reading.end is None
    assert found == entries[: len(found)]
    assert bool(found) == (frame > 1)
    with pytest.raises(RecordingError, match=f"^frame {frame}, byte "):
        list(reading_of(damaged, piece=100_000))


@given(knews, st.integers(0, 5), st.integers(1, 5_000))
def test_what_is_written_is_read_again(knew: list[int], more: int, piece: int) -> None:
    entries = entries_of(knew, more)
    reading = reading_of(file_of(entries), piece=piece)
    assert list(reading) == entries
    assert reading.end is not None


@given(knews, st.data())
def test_a_cut_is_told_with_its_frame_and_leaves_a_beginning(knew: list[int], data: st.DataObject) -> None:
    entries = entries_of(knew)
    whole = file_of(entries)
    cut = data.draw(st.integers(0, len(whole) - 1))
    check_damage(entries, whole, whole[:cut], cut)


@given(knews, st.data())
def test_a_flipped_bit_is_told_with_its_frame_and_leaves_a_beginning(knew: list[int], data: st.DataObject) -> None:
    entries = entries_of(knew)
    whole = file_of(entries)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    check_damage(entries, whole, bytes(damaged), place)


@given(st.data())
def test_frames_with_a_right_checksum_and_any_content_are_read_or_refused(data: st.DataObject) -> None:
    packer = FramePacker()
    contents = [encode(head_at()), encode(RecordingPart(history([1, 2], facts=3)))]
    at = data.draw(st.integers(0, 1))
    envelope = open_envelope(contents[at])
    body = data.draw(damaged(bytes(envelope.body)))
    whole = msgspec.msgpack.encode((envelope.kind, envelope.version, msgspec.Raw(body)))
    contents[at] = data.draw(st.just(whole) | st.binary(max_size=40))
    file = MAGIC + bytes([FORMAT]) + b"".join(packer.frame(content, 1 << 20) for content in contents)
    with pytest.raises(RecordingError, match=r"^frame [012], byte "):  # at least the end is missing
        list(reading_of(file))
