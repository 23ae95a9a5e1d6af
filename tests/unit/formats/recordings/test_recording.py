"""The file of a recording: what is written is read again, and what is wrong is told with its place."""

import struct
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest
import zstandard

from berth.formats.recordings.recording import FORMAT, MAGIC, RecordingError, frames_of, interleaved, read
from berth.schemas.chain import FIRST
from berth.schemas.envelope import encode
from berth.schemas.message import Message
from berth.schemas.recording import Entry, RecordingEnd, RecordingPart
from tests.support.chained_records import broken, rechained
from tests.support.recordings import decision, file_of, head_at, history, reading_of, tick


def framed(content: bytes) -> bytes:
    """A frame as the writer makes it."""
    packed = zstandard.compress(content)
    return struct.pack("<II", len(packed), zlib.crc32(packed)) + packed


def forged(*messages: Message, form: int = FORMAT) -> bytes:
    """A file of messages that nobody checked."""
    return MAGIC + bytes([form]) + b"".join(framed(encode(message)) for message in messages)


def wrong(data: bytes) -> RecordingError:
    """What reading all of it raises."""
    with pytest.raises(RecordingError) as caught:
        list(reading_of(data))
    return caught.value


def test_entries_come_back_in_order_with_head_and_end() -> None:
    entries = history([0, 3, 3, 7], facts=9)
    reading = reading_of(file_of(entries), piece=7)
    assert reading.head == head_at()
    assert reading.end is None
    assert list(reading) == entries
    assert reading.end == RecordingEnd(facts=9, records=4, facts_seq=9, ledger_seq=4)
    assert reading.damage is None


def test_a_recording_may_begin_at_a_snapshot_and_hold_nothing() -> None:
    reading = reading_of(file_of([], head_at(ledger_seq=5, facts_seq=8)))
    assert list(reading) == []
    assert reading.end == RecordingEnd(facts=0, records=0, facts_seq=8, ledger_seq=5)


def test_facts_and_records_are_merged_by_what_the_records_knew() -> None:
    facts = [tick(number) for number in range(1, 6)]
    records = rechained([decision(1, 0), decision(2, 3), decision(3, 2), decision(4, 4)])
    merged = [(bool(entry.subject), entry.sequence) for entry in interleaved(facts, records)]
    fact, record = True, False
    assert merged == [
        (record, 1), (fact, 1), (fact, 2), (fact, 3), (record, 2), (record, 3), (fact, 4), (record, 4), (fact, 5),
    ]  # fmt: skip
    list(reading_of(file_of(list(interleaved(facts, records)))))


def test_merging_takes_no_more_than_it_needs() -> None:
    taken: list[int] = []

    def facts() -> Iterator[Entry]:
        for number in range(1, 1_000_000):
            taken.append(number)
            yield tick(number)

    merged = interleaved(facts(), rechained([decision(1, 2)]))
    assert [next(merged).sequence for _ in range(3)] == [1, 2, 1]
    assert taken == [1, 2, 3]


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b and something else", b'{"release": "0.4.0"}'])
def test_what_is_no_recording_is_called_so(data: bytes) -> None:
    assert "no recording of Berth" in wrong(data).reason


def test_a_newer_format_is_told() -> None:
    assert "format 2, this release reads format 1" in wrong(forged(head_at(), form=2)).reason


def test_a_file_without_its_end_is_cut_off() -> None:
    end = RecordingEnd(facts=1, records=0, facts_seq=1, ledger_seq=0)
    whole = forged(head_at(), RecordingPart([tick(1)]), end)
    cut = whole[: -len(framed(encode(end)))]
    error = wrong(cut)
    assert "end of the recording is missing" in error.reason
    assert (error.frame, error.offset) == (2, len(cut))
    inside = wrong(whole[:-3])
    assert "cut off" in inside.reason
    assert (inside.frame, inside.offset) == (2, len(whole) - 3)


def test_a_flipped_byte_is_told_with_the_frame_and_where_it_begins() -> None:
    data = bytearray(file_of(history([0, 3], facts=3)))
    begin = len(MAGIC) + 1 + len(framed(encode(head_at())))
    data[begin + 12] ^= 1
    error = wrong(bytes(data))
    assert "checksum" in error.reason
    assert (error.frame, error.offset) == (1, begin)
    reading = reading_of(bytes(data), salvage=True)
    assert list(reading) == []
    assert str(reading.damage) == str(error)


def test_a_recording_without_its_snapshot_says_what_is_missing() -> None:
    end = RecordingEnd(facts=0, records=1, facts_seq=0, ledger_seq=7)
    error = wrong(forged(head_at(), RecordingPart([decision(7, 0)]), end))
    assert error.reason == (
        "the first record is 7, but the start ends at 0: records 1 to 6 are missing, or the snapshot that holds what came before"
    )
    error = wrong(forged(head_at(ledger_seq=6, facts_seq=2), RecordingPart([tick(5)]), end))
    assert "the first fact is 5, but the start ends at 2: facts 3 to 4 are missing" in error.reason


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([tick(1), tick(2), tick(4)], "fact 3 is missing before fact 4"),
        ([tick(1), tick(2), tick(2)], "fact 2 comes after fact 2: out of order"),
        (rechained([decision(1, 0), decision(3, 0)]), "record 2 is missing before record 3"),
        (rechained([tick(1), decision(1, 2)]), "record 1 knew fact 2, but only facts up to 1 come before it"),
        (rechained([tick(1), tick(2), decision(1, 1)]), "fact 2 comes before record 1, which knew only fact 1"),
        ([Entry(1, broken(1, FIRST))], "record 1 does not decode"),
    ],
)
def test_entries_out_of_place_are_neither_read_nor_written(entries: list[Entry], reason: str) -> None:
    error = wrong(forged(head_at(), RecordingPart(entries)))
    assert reason in error.reason
    assert error.frame == 1
    reading = reading_of(forged(head_at(), RecordingPart(entries)), salvage=True)
    assert list(reading) == entries[:-1]
    assert reading.damage is not None
    with pytest.raises(ValueError, match=reason):
        file_of(entries)


def test_a_record_of_a_kind_that_nobody_knows_stands_anywhere() -> None:
    class Later(Message, frozen=True):
        KIND = "ledger.later"

    entries = rechained([tick(1), decision(1, 1), Entry(2, encode(Later()))])
    assert list(reading_of(file_of(entries))) == entries


def test_a_frame_that_was_taken_out_is_missed_at_the_end() -> None:
    wrong_end = RecordingEnd(facts=2, records=0, facts_seq=2, ledger_seq=0)
    error = wrong(forged(head_at(), RecordingPart([tick(1)]), wrong_end))
    assert "2 facts up to 2" in error.reason
    assert "1 facts up to 1" in error.reason


def test_nothing_may_follow_the_end() -> None:
    whole = file_of([tick(1)])
    error = wrong(whole + b"x")
    assert error.offset == len(whole)
    assert error.frame == 3


def test_another_message_in_a_frame_is_refused() -> None:
    assert "kind is 'recording.head', expected 'recording.part'" in wrong(forged(head_at(), head_at())).reason
    assert "kind is 'recording.part'" in wrong(forged(RecordingPart([]))).reason


def test_a_frame_that_would_take_all_memory_is_refused_before_it_is_unpacked() -> None:
    bomb = zstandard.compress(bytes(300 << 20))
    data = forged(head_at()) + struct.pack("<II", len(bomb), zlib.crc32(bomb)) + bomb
    tracemalloc.start()
    try:
        error = wrong(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert f"unpacks to {300 << 20} bytes, at most {4096 + 64 * len(bomb)} are allowed" in error.reason
    assert peak < 20 << 20
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 100)
    data = forged(head_at()) + struct.pack("<II", len(stream), zlib.crc32(stream)) + stream
    assert "unknown number of bytes" in wrong(data).reason


@pytest.mark.parametrize("claimed", [(256 << 20) + 1, 1 << 30, 1 << 63])
def test_a_head_that_would_take_all_memory_is_refused_before_it_is_unpacked(claimed: int) -> None:
    bomb = b"\x28\xb5\x2f\xfd\xe0" + claimed.to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(RecordingError) as caught:
        read([MAGIC + bytes([FORMAT]) + struct.pack("<II", len(bomb), zlib.crc32(bomb)) + bomb])
    assert (caught.value.frame, caught.value.offset) == (0, 9)
    assert f"unpacks to {claimed} bytes, at most {4096 + 64 * len(bomb)} are allowed" in caught.value.reason


def test_a_frame_that_claims_an_impossible_length_is_damaged() -> None:
    assert "at most" in wrong(forged(head_at()) + struct.pack("<II", 0xFFFFFFFF, 0)).reason


def test_a_long_recording_is_neither_written_nor_read_as_a_whole() -> None:
    def entries() -> Iterator[Entry]:
        for number in range(1, 200_001):
            yield tick(number, at_ms=number)

    tracemalloc.start()
    try:
        reading = read(frames_of(head_at(), entries()))
        count = sum(1 for _ in reading)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 200_000
    assert peak < 10 << 20
