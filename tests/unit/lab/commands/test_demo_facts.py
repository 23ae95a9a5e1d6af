"""What is said of the demo, compared with its files and with its report."""

import re
from pathlib import Path

import pytest

from berth.cli.jobs.rows import RankRow
from berth.lab.cells.fleet import DEMO_CLUSTER, Fleet, read_topology, services_words
from berth.lab.commands import demo
from berth.lab.commands.stage import jobs_of
from berth.lab.commands.story import Tale

ROOT = Path(__file__).parents[4]


def test_the_page_has_the_number_of_nodes() -> None:
    page = (ROOT / "docs" / "kubernetes" / "nodesim.md").read_text("utf-8")
    registers = re.search(r"`nodesim`, which registers (\d+) nodes", page)
    assert registers is not None
    assert int(registers[1]) == read_topology(DEMO_CLUSTER)


def test_some_fifty_jobs_are_50_to_55() -> None:
    count = sum(len(jobs_of(name)) for name in ("demo-jobs.yaml", "demo-taken.yaml", "demo-again.yaml"))
    assert 50 <= count <= 55


@pytest.mark.parametrize("shards", [0, 1, 3])
def test_the_services_that_are_named_are_those_that_are_started(shards: int, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, topology=DEMO_CLUSTER, shards=shards, cell="c", print_progress=lambda _: None)
    started = {service for _, service, _ in fleet._services()}
    words = services_words(shards).replace("API for programs", "api")
    assert {word.rstrip("s") for word in re.findall(r"[a-z]+", words)} - {"and"} == started - {"nodesim"}
    assert (re.findall(r"\d+", words) or ["0"]) == [str(shards)]


def test_the_counts_of_the_report_are_those_of_its_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = [RankRow(0, "node", [0])]
    tales = [
        Tale("a", "u", "1 x 1", 1, "succeeded", ranks=ranks, waited_for="room"),
        Tale("b", "u", "1 x 1", 1, "succeeded", ranks=ranks),
        Tale("c", "u", "1 x 1", 1, "cancelled", waited_for="room"),
        Tale("d", "u", "1 x 1", 1, "cancelled", ranks=ranks, waited_for="room"),
        Tale("e", "u", "1 x 1", 1, "too large", reason="so"),
    ]
    demo._show(demo.Report(tales, [], None, None, 0, 0, 17.5))
    out = capsys.readouterr().out
    assert "5 jobs: 2 have run, 1 of them had to wait; 1 was refused with a reason, 2 were cancelled.\n" in out
    assert "It took 17.5 s to start the cell, run the jobs, and stop the cell.\n" in out
