"""The benches of load run, on small cells for a short time."""

from pathlib import Path

from bench.load import nodes, reports, waiting
from bench.load.hour import Settings, load
from bench.load.samples import WATCHED, read_course
from bench.load.verdict import rows_of


async def test_jobs_come_and_go_and_all_that_grows_is_sampled(tmp_path: Path) -> None:
    settings = Settings(seconds=4, nodes=20, names=200, used=0.5, rate=20, sample_s=0.5)
    course = await load(settings, tmp_path / "samples.jsonl")
    assert read_course(tmp_path / "samples.jsonl") == course
    last = course.samples[-1]
    assert 0 < last.placed <= last.submitted
    assert sum(one.latency.jobs for one in course.samples) <= last.placed
    assert set(last.processes) == {"nats-server", "leader", "standby", "scorer", "health", "client"}
    assert all(one.pss_mib > 0 for one in last.processes.values())
    assert set(last.streams) == {name.value for name in WATCHED}
    assert last.streams["INTAKE"].messages == last.streams["INTAKE"].last_seq > 0
    assert last.streams["LEDGER"].consumers >= 3, "leader, standby, scorer and client read it"  # those
    # On a busy machine a sample takes so long that none may be in the first window of so short a run.
    first_s = next(one.at_s for one in course.samples if one.latency.jobs)
    rows = rows_of(course, first_s, settled_s=first_s)
    assert {one.metric for one in rows} >= {"memory of leader, growth", "LEDGER, growth beyond 1 MiB"}


async def test_gangs_wait_until_jobs_end() -> None:
    rows = await waiting.measure("alike", lambda _: 1_000, waiting.SMALL)
    found = {one.metric: one.value for one in rows}
    assert found["a job ends: records, mean"] >= 1
    assert found["a job ends: to the placement of a gang, p50"] > 0
    assert found["memory of the dispatcher after a start"] > 0


async def test_jobs_are_placed_on_nodes_of_several_scorers() -> None:
    rows = await nodes.measure(nodes.SMALL)
    found = {one.metric: one.value for one in rows}
    assert found["one gang of 90 nodes to its placement"] > 0
    assert found["memory of all"] > found["memory of the dispatcher"] + 2 * found["memory of a scorer, median"] - 0.01


async def test_all_reports_are_taken() -> None:
    rows = await reports.measure(reports.SMALL)
    found = {one.metric: one.value for one in rows}
    assert found["reports not taken"] == 0
    assert found["report to fact, p50"] > 0
