"""Maps of simulations over time: the page with a timeline for each column."""

from pathlib import Path

import msgspec

from berth.cli.app import call
from berth.cli.output import OK
from berth.core.overview.recorder import PageLimits, PageRecorder
from berth.runtime.recording import read_file
from tests.support.recording_pages import recordings_in

TRACE = """\
at_s,run_s,chips,name,declared_s
0,100,6,first,100
10,10,8,waits,10
20,30,2,small,30
30,5,64,huge,5
"""


def test_the_map_has_a_timeline_for_each_column(tmp_path: Path) -> None:
    trace, folder, record = tmp_path / "jobs.csv", tmp_path / "out", tmp_path / "run.rec"
    trace.write_text(TRACE, "utf-8")
    words = ["--trace", trace, "--cluster", "nodes=2,leaf=1", "--out", folder, "--record", record]
    assert call(["simulate", *map(str, words), "--policy", "fifo", "--policy", "easy"]) == OK
    fifo, easy = recordings_in(folder / "map.html")
    assert [fifo["title"], easy["title"]] == ["fifo", "easy"]
    for timeline in (fifo, easy):
        assert len(timeline["view"]["nodes"]) == 2
        assert timeline["begin_ms"] == 0 < timeline["end_ms"]
        owners = [row[3] for change in timeline["changes"] for _, row in change["nodes"]]
        assert any(any(row) for row in owners)
        assert any("why" in event for story in timeline["stories"].values() for event in story["events"])
    with read_file(record) as reading:
        recorder = PageRecorder(reading.head.start, cell="simulation", title="fifo", limits=PageLimits(reasons=0))
        for entry in reading:
            recorder.feed(entry)
        changes = msgspec.json.decode(msgspec.json.encode(recorder.finish().changes))
    assert fifo["changes"] == changes
