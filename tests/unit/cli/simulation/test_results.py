"""Results in all their forms: the conclusion is the first thing in each of them."""

from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.cli.output import OK

TRACE = """\
at_s,run_s,chips,name,declared_s
0,100,6,first,100
10,10,8,waits,10
20,30,2,small,30
30,5,64,huge,5
"""


def test_the_conclusion_is_first_in_the_text_the_report_and_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, folder = tmp_path / "jobs.csv", tmp_path / "out"
    trace.write_text(TRACE, "utf-8")
    policies = ("--policy", "fifo", "--policy", "skip")
    words = ["simulate", "--trace", str(trace), "--cluster", "nodes=1,leaf=1", *policies, "--out", str(folder)]
    assert call(words) == OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 of 4 jobs were placed, 1 rejected."
    assert lines[1].startswith("The mean waiting time is shorter with skip: 30.0 s against 60.0 s with fifo, -50.0 %")
    found = msgspec.json.decode((folder / "results.json").read_bytes())["conclusion"]
    assert found == lines[: len(found)]
    assert " ".join(found) in (folder / "results.md").read_text("utf-8")
    report = (folder / "report.html").read_text("utf-8")
    assert report.index(f"<p>{found[1]}</p>") < report.index("<h2>Charts</h2>")
    assert "<h1>jobs.csv on nodes=1,leaf=1</h1>" in report
