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
