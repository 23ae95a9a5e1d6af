"""A recording with a newer record: commands that decide or fold exit with 2, ``berth log`` prints it as unknown."""

import json
from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.cli.cell import report
from berth.cli.output import WRONG_USE
from berth.formats.recordings.recording import frames_of, read
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.recording import anonymise_file
from berth.schemas.envelope import NewerVersionError, decode, encode, open_envelope
from berth.schemas.ledger import Epoch, Round
from berth.schemas.recording import Entry
from berth.schemas.rules import StatedRule
from tests.support.chained_records import rechained

STORED = (Path(__file__).parents[3] / "replay" / "v0.5" / "refusals.berthlog").read_bytes()
KINDS = [(Round.KIND, Round.VERSION + 1), (Epoch.KIND, Epoch.VERSION + 1), ("ledger.hold", 1)]
COMMANDS = [
    ["replay", "{file}"],
    ["replay", "{file}", "--all"],
    ["explain", "job00", "--log", "{file}"],
    ["what-if", "{file}", "--set", "queue_policy=easy"],
]

each_kind = pytest.mark.parametrize(("kind", "version"), KINDS)


def newer(kind: str, version: int) -> bytes:
    """The stored recording, with the third record as a newer release would have written it, and only facts behind."""
    reading = read([STORED])
    entries = [entry for entry in reading if entry.subject or entry.sequence <= 3]
    index = next(index for index, entry in enumerate(entries) if not entry.subject and entry.sequence == 3)
    body = msgspec.Raw(msgspec.msgpack.encode([1, 2, 0, 5, {"of": "another form"}]))
    entries[index] = Entry(3, msgspec.msgpack.encode((kind, version, body, "9.7")))
    return b"".join(frames_of(reading.head, rechained(entries)))


@each_kind
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[::2]))
def test_commands_that_fold_the_ledger_stop_and_name_the_release(
    words: list[str], kind: str, version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "newer.rec"
    file.write_bytes(newer(kind, version))
    assert call([word.format(file=file) for word in words]) == WRONG_USE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {file}: ")
    assert err.endswith(f"{kind} of version {version} needs Berth 9.7 or later\n")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[::2]))
def test_commands_that_fold_the_ledger_stop_and_name_the_rule_that_they_lack(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = read([STORED])
    entries = list(reading)
    index = next(index for index, entry in enumerate(entries) if not entry.subject)
    epoch = decode(entries[index].data, Epoch)
    epoch = msgspec.structs.replace(epoch, rules=[*epoch.rules, StatedRule("tides", {"high": 3})])
    entries[index] = Entry(entries[index].sequence, encode(epoch))
    file = tmp_path / "other.rec"
    file.write_bytes(b"".join(frames_of(reading.head, rechained(entries))))
    assert call([word.format(file=file) for word in words]) == WRONG_USE
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: {file}: record 1: rule 'tides' is unknown here: a newer release of Berth is needed\n"


@each_kind
def test_the_log_prints_the_record_as_unknown_and_goes_on(
    kind: str, version: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "newer.rec"
    file.write_bytes(newer(kind, version))
    assert call(["log", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    third = next(index for index, line in enumerate(lines) if line.split()[:2] == ["record", "3"])
    assert lines[third].endswith(f"{kind} of version {version} needs Berth 9.7 or later")
    assert "does not decode" not in "".join(lines)
    assert lines[third + 1].startswith("fact")
    assert call(["log", "--json", str(file)]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (found,) = [entry for entry in told if "error" in entry]
    assert (found["sequence"], found["error"]) == (3, f"{kind} of version {version} needs Berth 9.7 or later")


@each_kind
def test_a_recording_without_names_keeps_what_the_record_needs(kind: str, version: int, tmp_path: Path) -> None:
    named, file = tmp_path / "named.rec", tmp_path / "newer.rec"
    named.write_bytes(newer(kind, version))
    anonymise_file(named, file)
    third = next(entry for entry in read([file.read_bytes()]) if not entry.subject and entry.sequence == 3)
    envelope = open_envelope(third.data)
    assert (envelope.kind, envelope.version, envelope.release) == (kind, version, "9.7")
    assert bytes(envelope.body) == msgspec.msgpack.encode([])


def test_an_error_in_a_live_cell_is_a_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    error = NewerVersionError(open_envelope(msgspec.msgpack.encode(("ledger.hold", 1, [], "9.7"))))
    wrapped = FatalError("a follower ended")
    wrapped.__cause__ = error
    for one in (error, wrapped, ExceptionGroup("", [TransientError("away"), error])):
        assert report(one) == WRONG_USE
        assert "ledger.hold of version 1 needs Berth 9.7 or later" in capsys.readouterr().err
