"""``berth simulate --queues``: a tree of queues beside a trace."""

from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.cli.output import OK, WRONG_USE


def simulate(*words: str | Path) -> int:
    return call(["simulate", *map(str, words)])


QUEUED = """\
at_s,run_s,chips,name,queue
0,100,8,large,big
1,100,8,second,big
2,100,8,small,little
"""
TREE = """\
apiVersion: berth/v1
kind: Queue
metadata: {name: big}
spec: {capability: {huawei.com/Ascend910: 8}}
---
apiVersion: berth/v1
kind: Queue
metadata: {name: little}
"""


def test_queues_of_a_file_limit_the_jobs_of_a_trace_and_have_figures_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, queues = tmp_path / "queued.csv", tmp_path / "queues.yaml"
    trace.write_text(QUEUED, "utf-8")
    queues.write_text(TREE, "utf-8")
    assert simulate("--trace", trace, "--cluster", "nodes=2,leaf=2", "--queues", queues, "--json") == OK
    (figures,) = msgspec.json.decode(capsys.readouterr().out)["figures"]
    assert [(one["name"], one["wait"]["max_ms"], one["chip_h"]) for one in figures["queues"]] == [
        ("big", 99_000, pytest.approx(1_600 / 3_600)),
        ("little", 0, pytest.approx(800 / 3_600)),
    ]
    assert simulate("--trace", trace, "--cluster", "nodes=2,leaf=2", "--queues", queues) == OK
    assert "jobs of queue big" in capsys.readouterr().out


def test_wrong_queues_are_named_and_nothing_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, queues = tmp_path / "queued.csv", tmp_path / "queues.yaml"
    trace.write_text(QUEUED, "utf-8")
    queues.write_text(TREE.replace("8}", "-8}"), "utf-8")
    assert simulate("--trace", trace, "--queues", queues) == WRONG_USE
    printed = capsys.readouterr()
    assert (printed.out, "spec.capability" in printed.err) == ("", True)


@pytest.fixture
def recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    trace, queues, file = (tmp_path / name for name in ("queued.csv", "queues.yaml", "queued.rec"))
    trace.write_text(QUEUED, "utf-8")
    queues.write_text(TREE, "utf-8")
    assert simulate("--trace", trace, "--cluster", "nodes=2,leaf=2", "--queues", queues, "--record", file) == OK
    capsys.readouterr()
    return file


def test_a_recording_has_its_queues_and_is_decided_again_with_them(recording: Path) -> None:
    assert call(["replay", str(recording)]) == OK


@pytest.mark.parametrize(
    ("change", "waits_s"),
    [("big.capability=16", 0), ("big.capability={huawei.com/Ascend910: 16}", 0), ("big.capability=8", 99)],
)
def test_what_if_a_queue_had_another_limit(
    recording: Path, capsys: pytest.CaptureFixture[str], change: str, waits_s: int
) -> None:
    assert call(["what-if", str(recording), "--queue", change, "--json"]) == OK
    figures = msgspec.json.decode(capsys.readouterr().out)["figures"]
    waits = [{one["name"]: one["wait"]["max_ms"] for one in column["queues"]} for column in figures]
    assert [one["big"] for one in waits] == [99_000, 99_000, waits_s * 1_000]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("big", "--queue is big, expected NAME.FIELD=VALUE such as research.capability=128"),
        ("big.size=3", "--queue is big.size=3, expected NAME.FIELD=VALUE"),
        ("big.weight=0", "--queue big.weight=0: is 0, expected a whole number from 1 to 65535"),
        ("big.state=Ajar", "--queue big.state=Ajar: is 'Ajar', expected one of Closed"),
    ],
)
def test_a_wrong_change_of_a_queue_says_what_would_be_right(
    recording: Path, capsys: pytest.CaptureFixture[str], change: str, error: str
) -> None:
    assert call(["what-if", str(recording), "--queue", change]) == WRONG_USE
    assert error in capsys.readouterr().err
