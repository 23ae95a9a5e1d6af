"""The demo runs to its end, and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.runtime.recording import anonymise_file
from tests.support.cell_mode import CELLS
from tests.support.waiting import SLACK

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parents[2]


def demo(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    mode = ["--one"] if CELLS.is_one else []
    return subprocess.run(  # noqa: S603  # our own words
        ["/usr/bin/env", f"TMPDIR={tmp_path}", sys.executable, "-m", "berth.cli", "demo", *mode, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SLACK * 150,
        check=False,
    )


def test_the_demo_places_refuses_and_ends(tmp_path: Path) -> None:
    done = demo(tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    fates = [job["fate"] for job in told["jobs"]]
    assert len(fates) >= 40
    assert set(fates) == {"succeeded", "rejected", "too large", "cancelled"}
    assert (fates.count("too large"), fates.count("cancelled")) == (1, 1)
    assert all(job["reason"] for job in told["jobs"] if job["fate"] in {"rejected", "too large"})
    assert sum(bool(job["waited_for"] and job["ranks"]) for job in told["jobs"]) >= 5
    assert (told["double_allocations"], told["overcommits"]) == (0, 0)
    assert told["placed"]["explanation"]["choices"][0]["runner_up"]
    assert told["waited"]["explanation"]["nearest"]
    assert list(tmp_path.iterdir()) == []


def test_its_recording_replays_to_the_same_ledger_with_and_without_names(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("recorded")
    file, nameless = folder / "demo.berthlog", folder / "nameless.berthlog"
    done = demo(tmp_path_factory.mktemp("demo"), "--record", str(file), "--json")
    assert done.returncode == 0, done.stderr
    anonymise_file(file, nameless)
    for path in (file, nameless):
        assert call(["replay", str(path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["identical"]
        assert told["replayed"]["digest"] == told["replayed"]["recorded_digest"]
        assert told["replayed"]["placed"] >= sum(job["fate"] == "succeeded" for job in json.loads(done.stdout)["jobs"])
    assert call(["explain", "--log", str(file), "a2-40x8"]) == 0
    assert "320 chips" in capsys.readouterr().out


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine"
    file.write_text("mine")
    assert call(["demo", "--record", str(file)]) == 2
    assert "exists; name another file" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_without_shards_it_ends_alike_and_shows_a_table_and_a_map(tmp_path: Path) -> None:
    done = demo(tmp_path, "--shards", "0")
    assert done.returncode == 0, done.stderr
    assert "ring-1 " in done.stdout
    assert "The cluster when most chips were in use" in done.stdout
    assert "Chips given twice: 0" in done.stdout


def test_scorers_in_one_process_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("demo", "up"):
        assert call([command, "--one", "--shards", "2"]) == 2
        assert "--shards is 2, expected 0 with --one" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["jobs", "--url", "nats://127.0.0.1:9"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "nats://127.0.0.1:9" in err
    assert "berth up" in err


def test_a_wrong_command_is_told_in_a_line_and_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["jobs", "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


def test_a_topology_with_a_node_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(
        'apiVersion: berth/v1\nkind: Cluster\nnodes:\n  - {product: "310p", name: n}\n  - {product: "310p", name: n}\n'
    )
    assert call(["up", "--topology", str(path), "--port", "0"]) == 2
    err = capsys.readouterr().err
    assert "nodes[1].name: is 'n', expected another name: node 'n' is given twice" in err


def test_settings_are_checked_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dispatcher.toml"
    path.write_text("shards = 3\n")
    assert call(["check-config", "dispatcher", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shards"] == 3
    path.write_text("shards = 1000\n")
    assert call(["check-config", "dispatcher", str(path)]) == 2
    assert "setting shards is 1000" in capsys.readouterr().err


def test_settings_of_one_process_are_checked_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cell.toml"
    path.write_text("grace_s = 9\n[dispatcher.decisions]\nqueue_policy = 'easy'\n[binder.kube]\n")
    assert call(["check-config", "cell", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["grace_s"], shown["dispatcher"]["lease"]) == (9, False)
    assert shown["dispatcher"]["decisions"]["queue_policy"] == "easy"
    assert "bus" not in shown["dispatcher"]
    assert "timeout_s" in shown["binder"]["kube"]
    path.write_text("[dispatcher]\nshards = 1\n")
    assert call(["check-config", "cell", str(path)]) == 2
    assert "setting dispatcher.shards is 1: expected 0" in capsys.readouterr().err
