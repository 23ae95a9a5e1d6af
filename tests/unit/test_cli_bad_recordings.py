"""Recordings that cannot be read, given to every command that reads one: one line with file and place, and never a traceback."""

from collections.abc import Callable
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.formats.recording import FORMAT, MAGIC, read
from berth.formats.recording_frames import FramePacker
from schemas.envelope import encode
from schemas.recording import RecordingHead, RecordingPart

STORED = (Path(__file__).parents[1] / "replay" / "v0.4" / "refusals.berthlog").read_bytes()
_FRAME_MAX = 1 << 20


def flipped(at: int) -> bytes:
    return STORED[:at] + bytes([STORED[at] ^ 1]) + STORED[at + 1 :]


def newer_head() -> bytes:
    reading = read([STORED])
    head = encode(reading.head).replace(b"\xaerecording.head\x01", b"\xaerecording.head\x02", 1)
    return MAGIC + bytes([FORMAT]) + FramePacker().frame(head, _FRAME_MAX)


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
        (newer_head, "wrote it with a head of version 2, this one reads version 1"),
        (without_its_snapshot, "missing, or the snapshot that holds what came before"),
    ],
    ids=["empty", "text", "cut-head", "cut", "flipped-head", "flipped", "newer-format", "newer-head", "no-snapshot"],
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
def test_what_cannot_be_read_is_wrong_use(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file, why in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        assert call([word.format(file=file) for word in words]) == 2
        assert capsys.readouterr().err == f"error: {file} cannot be read: {why}\n"
