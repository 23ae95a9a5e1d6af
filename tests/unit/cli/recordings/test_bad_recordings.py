"""Unreadable recordings, given to every command that reads one: one line with file and place, and never a traceback."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from berth.cli.app import call
from berth.formats.recordings.frames import FramePacker
from berth.formats.recordings.recording import FORMAT, MAGIC, frames_of, read
from berth.schemas.envelope import encode, sealed
from berth.schemas.ledger import Round
from berth.schemas.recording import Entry, RecordingHead, RecordingPart
from tests.support.chained_records import rechained

STORED = (Path(__file__).parents[3] / "replay" / "v0.5" / "refusals.berthlog").read_bytes()
_FRAME_MAX = 1 << 20


def flipped(at: int) -> bytes:
    return STORED[:at] + bytes([STORED[at] ^ 1]) + STORED[at + 1 :]


def newer_head() -> bytes:
    reading = read([STORED])
    head = msgspec.structs.replace(sealed(reading.head), version=RecordingHead.VERSION + 1, release="9.7").encode()
    return MAGIC + bytes([FORMAT]) + FramePacker().frame(head, _FRAME_MAX)


def with_placement(damage: Callable[[list[Any]], None]) -> bytes:
    """The stored recording with damage to its first placement.

    Raises:
        AssertionError: It has none.
    """
    reading = read([STORED])
    entries = list(reading)
    for index, entry in enumerate(entries):
        kind, version, record, *more = msgspec.msgpack.decode(entry.data)
        placed = [verdict[4] for verdict in record[5] if verdict[4]] if kind == Round.KIND else []
        if placed:
            damage(placed[0])
            entries[index] = Entry(entry.sequence, msgspec.msgpack.encode((kind, version, record, *more)))
            return b"".join(frames_of(reading.head, rechained(entries)))
    raise AssertionError("no placement")


def with_adoption() -> bytes:
    """The stored recording with an adoption whose placement has a chip that no node has."""
    reading = read([STORED])
    entries = list(reading)
    index = next(index for index, entry in enumerate(entries) if not entry.subject and entry.sequence == 2)
    kind, version, record, *more = msgspec.msgpack.decode(entries[index].data)
    record[8] = [["default", "strange", "uid-strange", [b"\0\1n", bytes(4), [[1, 1, 0, 0]], b"\x80"]]]
    entries[index] = Entry(2, msgspec.msgpack.encode((kind, version, record, *more)))
    return b"".join(frames_of(reading.head, rechained(entries)))


def with_snapshot(ledger: bytes) -> bytes:
    """A recording that begins with such a folded ledger."""
    head = read([STORED]).head
    start = msgspec.structs.replace(head.start, ledger=ledger)
    return b"".join(frames_of(msgspec.structs.replace(head, start=start), []))


def far_node(placement: list[Any]) -> None:
    placement[1] = b"\x09" + placement[1][1:]


def short_column(placement: list[Any]) -> None:
    placement[1] = placement[1][:-1]


def few_chips(placement: list[Any]) -> None:
    placement[3] = placement[3][:-1]


def negative_run(placement: list[Any]) -> None:
    placement[2] = [[-1, 4, 0, 0], *placement[2]]


def endless_run(placement: list[Any]) -> None:
    placement[2] = [[1 << 62, 0, 0, 0]]


def cut_names(placement: list[Any]) -> None:
    placement[0] = placement[0][:-1]


def endless_head() -> bytes:
    bomb = b"\x28\xb5\x2f\xfd\xe0" + (1 << 30).to_bytes(8, "little") + b"\x01\x00\x00"
    return MAGIC + bytes([FORMAT]) + struct.pack("<II", len(bomb), zlib.crc32(bomb)) + bomb


def without_its_snapshot() -> bytes:
    reading = read([STORED])
    head: RecordingHead = reading.head
    entries = list(reading)[40:]
    packer = FramePacker()
    begin = MAGIC + bytes([FORMAT]) + packer.frame(encode(head), _FRAME_MAX)
    return begin + packer.frame(encode(RecordingPart(entries)), _FRAME_MAX)


COMMANDS = [
    ["log", "{file}"],
    ["replay", "{file}"],
    ["explain", "job", "--log", "{file}"],
    ["what-if", "{file}", "--set", "queue_policy=easy"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: b"", "frame 0, byte 0: no recording of Berth: the file is empty"),
        (lambda: b"at_s,run_s,chips\n", "frame 0, byte 0: no recording of Berth: it begins with b'at_s,run'"),
        (lambda: STORED[:60], "frame 0, byte 60: the file is cut off: the frame should have"),
        (lambda: STORED[:-5], f"byte {len(STORED) - 5}: the file is cut off"),
        (lambda: flipped(30), "frame 0, byte 9: damaged: the checksum"),
        (lambda: flipped(len(STORED) // 2), "frame 1, byte "),
        (
            lambda: MAGIC + b"\x09" + STORED[9:],
            "it has format 9, this release reads format 1: another release wrote it",
        ),
        (without_its_snapshot, "missing, or the snapshot that holds what came before"),
        (endless_head, "frame 0, byte 9: it unpacks to 1073741824 bytes, at most 5120 are allowed"),
    ],
    ids=[
        "empty",
        "text",
        "cut-head",
        "cut",
        "flipped-head",
        "flipped",
        "newer-format",
        "no-snapshot",
        "endless",
    ],
)
def test_a_damaged_recording_is_one_line_with_its_place(
    words: list[str], made: Callable[[], bytes], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.rec"
    file.write_bytes(made())
    assert call([word.format(file=file) for word in words]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: {file}: ")
    assert told in err
    assert err.count("\n") == 1
    assert "fault of Berth" not in err


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_recording_of_a_newer_release_is_named_with_what_it_needs(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "newer.rec"
    file.write_bytes(newer_head())
    assert call([word.format(file=file) for word in words]) == 2
    told = f"error: {file}: recording.head of version {RecordingHead.VERSION + 1} needs Berth 9.7 or later\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("words", COMMANDS[1:], ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: with_placement(far_node), "node_index: 9 is outside its table of 1 names"),
        (lambda: with_placement(short_column), "node_index: 3 bytes are no whole number of ranks, 4 bytes each"),
        (lambda: with_placement(few_chips), "are held, the runs ask for "),
        (lambda: with_placement(negative_run), "runs[0]: expected numbers from 0"),
        (lambda: with_placement(endless_run), "node_index: 1 ranks, the runs have 4611686018427387904"),
        (lambda: with_placement(cut_names), "name table is damaged"),
        (with_adoption, "chips: 128 is more than 63"),
        (lambda: with_snapshot(b"junk"), "the folded ledger does not decode"),
    ],
    ids=["far-node", "short", "few-chips", "negative", "endless", "names", "adoption", "snapshot"],
)
def test_a_damaged_placement_is_one_line_with_its_column(
    words: list[str], made: Callable[[], bytes], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.rec"
    file.write_bytes(made())
    assert call([word.replace("job", "job00").format(file=file) for word in words]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: {file}: ")
    assert told in err
    assert err.count("\n") == 1
    assert "fault of Berth" not in err


def test_the_log_shows_a_record_with_a_damaged_placement_as_undecodable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.rec"
    file.write_bytes(with_placement(far_node))
    assert call(["log", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line for line in out.splitlines() if "node_index: 9 is outside its table of 1 names" in line]
    assert call(["log", "--json", str(file)]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["sequence"] for entry in told if "node_index: 9 is outside" in entry.get("error", "")] == [2]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_what_cannot_be_read_is_wrong_use(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        assert call([word.format(file=file) for word in words]) == 2
        assert capsys.readouterr().err == f"error: {file} cannot be read: {why}\n"
