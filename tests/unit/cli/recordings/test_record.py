"""``berth log`` and ``berth record`` at the command line: what they print, and how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.cli.recordings.log_lines import Lines, line_of, tree_of
from berth.formats.recordings.anonymisation import MESSAGES
from berth.runtime.recording import When, when_of
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, TimerSeen
from berth.schemas.ledger import Release, Round
from berth.schemas.recording import Entry
from tests.contract.sample_messages import samples
from tests.support.recordings import decision, file_of, history, tick

ROOT = Path(__file__).parents[4]
WORDS = {
    "fact.node": "nodes of superpod-0: 3 nodes",
    "fact.health": "health of superpod-0: 3 nodes, 3 not healthy",
    "fact.topology": "topology switch: 1 leaf",
    "fact.timer": "tick of the dispatcher's clock",
}


def written(tmp_path: Path, entries: list[Entry]) -> Path:
    path = tmp_path / "a.rec"
    path.write_bytes(file_of(entries))
    return path


def entry_of(kind: str) -> Entry:
    data = encode(samples()[kind])
    return Entry(7, data, f"berth.c.{kind}.x") if kind.startswith("fact.") else Entry(7, data)


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_every_kind_has_a_line_with_what_it_says(kind: str) -> None:
    line = line_of(entry_of(kind))
    assert "\n" not in line
    assert "does not decode" not in line
    assert line.startswith("fact          7  20" if kind.startswith("fact.") else "record        7  20")
    assert WORDS.get(kind, "") in line


def test_a_round_says_who_was_placed_and_why_not() -> None:
    line = line_of(entry_of("ledger.round"))
    assert "round 7: " in line
    for words in ("placed team-a/", " chips)", "rejected ", "evicted ", "released ", "adopted ", "without shards"):
        assert words in line
    assert (
        "; recovery of team-a/llm-7b.pretrain step 2: pod of rank 0: its chip 2 on node-1.zone-a is unhealthy;"
        " ranks 0-2 evicted (rank-block), new places on 2 nodes (8 chips);"
        " recovery of team-a/llm-7b.pretrain step 3: backup pod of ranks 1-3, new places on 2 nodes (8 chips); evicted"
    ) in line
    assert "; 1 place held for team-a/llm-7b.restart; reserved " in line
    assert " for team-b/llm-70b once 38 left; released" in line


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_every_kind_becomes_a_tree_with_names_of_fields_and_unpacked_columns(kind: str) -> None:
    tree = json.loads(json.dumps(tree_of(entry_of(kind))))
    assert (tree["kind"], tree["sequence"]) == (kind, 7)
    assert set(tree["body"]) == set(samples()[kind].__struct_fields__)
    text = json.dumps(tree["body"])
    assert "==" not in text  # nothing stays packed


def test_what_does_not_decode_or_is_not_known_has_a_line_too() -> None:
    assert "does not decode" in line_of(Entry(1, b"\xff", "berth.c.fact.timer"))
    assert "fact.later: not known to this release" in line_of(Entry(1, b"\x93\xaafact.later\x01\x90", "berth.c.fact.x"))
    assert (tree_of(Entry(1, b"\xff")) or {})["data"] == "/w=="


def test_a_release_names_the_job_that_was_named_before() -> None:
    lines = Lines()
    record = Entry(
        2, encode(Round(1, 1, 1, 1, 2, releases=[Release("u-1", 1, "succeeded"), Release("u-2", 1, "failed")]))
    )
    assert "released u-1: succeeded; released u-2: failed" in lines.line_of(record)
    lines.line_of(Entry(1, encode(JobSeen("default", "a", "u-1", "accepted", 1)), "berth.c.fact.job.default.a"))
    assert "released default/a: succeeded; released u-2: failed" in lines.line_of(record)


def test_words_of_users_cannot_break_a_line() -> None:
    fact = JobSeen("default", "a", "u", "cancelled", 1, reason="enough\nrecord 1 \x1b[31m")
    line = line_of(Entry(1, encode(fact), "berth.c.fact.job.default.a"))
    assert line.isprintable()
    assert line.endswith(r"job default/a cancelled: enough\nrecord 1 \x1b[31m")


def test_log_prints_a_line_for_each_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, history([1, 2], facts=3))
    assert call(["log", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["fact", "1"], ["record", "1"], ["fact", "2"], ["record", "2"], ["fact", "3"],
    ]  # fmt: skip
    assert call(["log", str(path), "--json"]) == 0
    trees = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [tree["sequence"] for tree in trees] == [1, 1, 2, 2, 3]
    assert trees[1]["body"]["settings"]["queue_policy"] == "skip"


def test_a_damage_is_told_with_its_place_and_what_comes_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, history([1, 2], facts=3))
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert call(["log", str(path)]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 5
    assert f"{path}: frame 2, byte {len(whole) - 5}: the file is cut off" in err
    assert "--salvage reads up to there" in err
    assert call(["log", str(path), "--salvage"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 5
    assert "before it come 3 facts up to 3 and 2 records up to 2" in err
    assert "fault of Berth" not in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["log"], 2, "--follow"),
        (["log", "{file}", "--follow"], 2, "--follow"),
        (["log", "{folder}/none"], 2, "none cannot be read: No such file"),
        (["log", "{folder}"], 2, "cannot be read: Is a directory"),
        (
            ["log", "{file}"],
            1,
            "frame 0, byte 0: no recording of Berth: it begins with b'# Not on', expected b'BERTHREC'",
        ),
        (["record", "{file}"], 2, "exists; name another file, or overwrite it with --force"),
        (["record", "{folder}"], 2, "it is a folder"),
        (["record", "{folder}/none/a.rec"], 2, "there is no folder"),
        (["record", "{folder}/a.rec", "--from", "12"], 2, "--from: '12' is not a point in time"),
        (["record", "{folder}/a.rec", "--to", "ledger:x"], 2, "ledger:123"),
        (
            ["record", "{folder}/a.rec", "--from", "2999-01-01"],
            2,
            "--from is 2999-01-01T00:00:00.000Z, which is in the future",
        ),
        (["record", "{folder}/a.rec", "--url", "nats://127.0.0.1:9"], 1, "no NATS server answers"),
    ],
)
def test_wrong_words_are_told_in_a_line(
    words: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("berth.cli.cell._SILENT_S", 2.5)  # a busy machine may take longer than the usual time
    file = tmp_path / "b.rec"
    file.write_text("# Not one of ours")
    assert call([word.format(file=file, folder=tmp_path) for word in words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["b.rec"]


def test_who_reads_may_have_enough(tmp_path: Path) -> None:
    path = written(tmp_path, [tick(number) for number in range(1, 20_000)])
    read, write = os.pipe()
    with subprocess.Popen(  # noqa: S603  # our own words
        [sys.executable, "-m", "berth.cli", "log", str(path)], cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(write)
        assert os.read(read, 100)
        os.close(read)
        _, err = process.communicate(timeout=30)
    assert err == ""
    assert process.returncode == 0


def test_a_record_may_come_before_anything_was_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(
        tmp_path, [decision(1, 0, at_ms=1_700_000_000_000), Entry(1, encode(TimerSeen(5)), "berth.c.fact.timer")]
    )
    assert call(["log", str(path)]) == 0
    assert "record        1  2023-11-14 22:13:20.000 UTC  epoch 1 begins: d-1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-11-21T10:00:00Z", When(at_ms=1_795_255_200_000)),
        ("2026-11-21T10:00:00", When(at_ms=1_795_255_200_000)),
        ("2026-11-21T11:00:00+01:00", When(at_ms=1_795_255_200_000)),
        ("2026-11-21 10:00:00.000 UTC", When(at_ms=1_795_255_200_000)),
        ("2026-11-21T10:00:00.250Z", When(at_ms=1_795_255_200_250)),
        ("1795255200250", When(at_ms=1_795_255_200_250)),
        ("ledger:123", When(ledger_seq=123)),
    ],
)
def test_points_in_time(text: str, when: When) -> None:
    assert when_of(text) == when
    assert when_of(str(when)) == when


@pytest.mark.parametrize("text", ["", "now", "ledger:", "ledger:-1", "12", "2026-13-01", "²", "ledger:²"])
def test_what_is_no_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a point in time: expected"):
        when_of(text)
