"""``berth replay`` at the command line: what it says, to people and machines, and how it ends."""

import json
from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.formats.recordings.recording import frames_of, read
from berth.schemas.envelope import decode, encode
from berth.schemas.ledger import Release, Round
from berth.schemas.recording import Entry
from tests.support.chained_records import rechained
from tests.support.recordings import decision, file_of, history, tick

STORED = Path(__file__).parents[3] / "replay" / "v0.5" / "refusals.berthlog"


def changed(tmp_path: Path, *, impossible: bool = False) -> Path:
    """A stored recording with another second record."""
    reading = read([STORED.read_bytes()])
    head, entries = reading.head, list(reading)
    index = next(index for index, entry in enumerate(entries) if not entry.subject and entry.sequence == 2)
    record = decode(entries[index].data, Round)
    if impossible:
        record = msgspec.structs.replace(record, releases=[Release("ghost", 1, "succeeded")])
    else:
        verdict = msgspec.structs.replace(record.verdicts[0], attempt=7)
        record = msgspec.structs.replace(record, verdicts=[verdict, *record.verdicts[1:]])
    entries[index] = Entry(2, encode(record))
    path = tmp_path / "changed.berthlog"
    path.write_bytes(b"".join(frames_of(head, rechained(entries, head.start))))
    return path


def test_a_recording_that_comes_out_is_told_with_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["replay", str(STORED)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("replayed ")
    assert ": every decision is the recorded one; ledger sha256 " in out
    assert err == ""


def test_the_result_for_machines_has_every_count_and_both_digests(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["replay", str(STORED), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["identical"], told["differences"], told["damage"], told["impossible"]) == (True, [], "", "")
    assert told["replayed"]["digest"] == told["replayed"]["recorded_digest"]
    assert told["replayed"]["rounds"] > 50
    assert "found" not in told["replayed"]


def test_a_difference_ends_the_replay_with_the_state_around_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["replay", str(changed(tmp_path))]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith(
        "difference at record 2: round 1 of epoch 1, 2023-11-14 22:13:20.250 UTC, knowing facts up to "
    )
    assert lines[1:4] == [
        "  gang default/job00",
        "    recorded: the same nodes and chips, attempt is 7",
        "    replayed: the same nodes and chips, attempt is 1",
    ]
    assert any(line.startswith("  settings: ") for line in lines)
    assert "1 round differs" in lines[-1]
    assert err.strip() == "stopped at the first difference; continue with --all"


def test_a_difference_for_machines_has_its_settings_and_what_came_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["replay", str(changed(tmp_path)), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    found = told["differences"][0]
    assert (found["sequence"], found["subject"]) == (2, "gang default/job00")
    assert found["settings"]["queue_policy"] == "skip"
    assert [entry["kind"] for entry in found["before"]] == ["ledger.epoch", "fact.node", "fact.job"]


def test_all_goes_on_to_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["replay", str(changed(tmp_path)), "--all"]) == 1
    out, err = capsys.readouterr()
    assert "difference at record 2" in out
    assert "cannot be: gang uid-job00 attempt 1: gives back what it does not hold" in err
    assert "Traceback" not in err


def test_a_record_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, impossible=True)
    assert call(["replay", str(path), "--all"]) == 1
    assert (
        f"error: {path}: record 2 cannot be: gang ghost attempt 1: gives back what it does not hold"
        in capsys.readouterr().err
    )


def test_a_damaged_file_is_told_and_salvaged_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.berthlog"
    path.write_bytes(STORED.read_bytes()[:-20])
    assert call(["replay", str(path)]) == 1
    assert "--salvage replays up to there" in capsys.readouterr().err
    assert call(["replay", str(path), "--salvage"]) == 1
    out, err = capsys.readouterr()
    assert "every decision is the recorded one" in out
    assert "cut off" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gone.berthlog"], "gone.berthlog cannot be read: No such file"),
        ([str(STORED.parent)], "cannot be read: Is a directory"),
        (["--cell", "default", str(STORED)], "Unknown option: --cell"),
        ([], "--file requires an argument"),
    ],
)
def test_a_wrong_call_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["replay", *words]) == 2
    assert told in capsys.readouterr().err


def test_no_recording_at_all_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"nothing of the kind")
    assert call(["replay", str(path)]) == 1
    assert "no recording of Berth" in capsys.readouterr().err


def test_what_else_there_is_to_know_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "beside.berthlog"
    void = Entry(2, encode(Round(9, 1, 1, 1, 1)))
    path.write_bytes(file_of([tick(1), decision(1, 1), void, Entry(2, b"\xff", "berth.c.fact.timer")]))
    assert call(["replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert ": nothing was compared" in out
    assert "1 record void" in out
    assert "1 fact that cannot be decoded" in out


def test_a_history_without_decisions_is_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "empty.berthlog"
    path.write_bytes(file_of(history([0], facts=3)))
    assert call(["replay", str(path)]) == 0
