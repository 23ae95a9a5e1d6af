"""The demo on Kubernetes runs to its end, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from berth.cli.app import call
from tests.support.cell_mode import CELLS
from tests.support.waiting import SLACK

pytestmark = pytest.mark.timeout(240)
ROOT = Path(__file__).parents[2]
TOO_LONG_S = SLACK * 200


def started(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    mode = ["--one"] if CELLS.is_one else []
    return subprocess.Popen(  # noqa: S603  # our own words
        [
            "/usr/bin/env",
            f"TMPDIR={tmp_path}",
            sys.executable,
            "-m",
            "berth.cli",
            "demo",
            "--kubernetes",
            *mode,
            *words,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(tmp_path: Path) -> list[str]:
    """Command lines of processes that have something to do with a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(word.startswith(str(tmp_path)) or f"={tmp_path}/" in word for word in words):
                found.append(" ".join(words))
    return found


def test_fifty_jobs_go_through_a_real_api_server_and_replay_to_the_same_ledger(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("recorded") / "demo.berthlog"
    with started(tmp_path, "--json", "--record", str(file)) as process:
        out, err = process.communicate(timeout=TOO_LONG_S)
    assert process.returncode == 0, err
    told = json.loads(out)
    fates = Counter(job["fate"] for job in told["jobs"])
    assert fates.total() == 53
    assert fates == {"succeeded": 46, "rejected": 5, "too large": 1, "cancelled": 1}
    assert all(job["reason"] for job in told["jobs"] if job["fate"] in {"rejected", "too large"})
    assert all(job["ranks"] for job in told["jobs"] if job["fate"] == "succeeded")
    assert {job["job"].partition(".")[0] for job in told["jobs"]} == {"vcjob", "acjob", "job", "pod", ""}
    counts = ("double_allocations", "overcommits", "swapped", "admission_errors")
    assert {name: told[name] for name in counts} == dict.fromkeys(counts, 0)
    assert told["placed"]["explanation"]["choices"]
    assert told["waited"]["explanation"]["nearest"]
    by_name = {node["name"]: node for node in told["fullest"]}
    assert (by_name["a2-1"]["unhealthy"], by_name["a1-2"]["network_unhealthy"]) == ([3], [6])
    assert by_name["a2-5"]["level"] == "sub-healthy"
    kubernetes = told["kubernetes"]
    assert kubernetes["pods_bound"] >= 60
    assert kubernetes["summaries"] >= 30
    assert kubernetes["podgroups"]["Completed"] >= 3, "those of Volcano Jobs go with the end of their job"
    assert list(tmp_path.iterdir()) == []
    assert left(tmp_path) == []
    assert call(["replay", str(file), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["identical"]
    assert again["replayed"]["digest"] == again["replayed"]["recorded_digest"]
    assert again["replayed"]["placed"] >= fates["succeeded"]


@pytest.mark.parametrize("after", ["is ready", "sending jobs"])
def test_asked_to_stop_it_takes_everything_away(tmp_path: Path, after: str) -> None:
    process = started(tmp_path)
    assert process.stderr is not None
    with process:
        for line in process.stderr:
            if after in line:
                break
        assert left(tmp_path)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TOO_LONG_S)
    assert process.returncode == 130
    assert "stopped before the end" in err
    assert list(tmp_path.iterdir()) == []
    assert left(tmp_path) == []
