"""``berth simulate``: tables, JSON, folders, recordings, and what is said of wrong input."""

import gzip
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.cli.output import FAILED, OK, WRONG_USE
from berth.cli.simulation.fault_options import duration_text, faults_of
from berth.core.replay.replay import replayed
from berth.runtime.recording import read_file
from berth.schemas.ledger import Settings
from berth.schemas.workload import ClusterPlan

TRACE = """\
at_s,run_s,chips,name,declared_s
0,100,6,first,100
10,10,8,waits,10
20,30,2,small,30
30,5,64,huge,5
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE, "utf-8")
    return path


def simulate(*words: str | Path) -> int:
    return call(["simulate", *map(str, words)])


def wrong(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The one line of an error; nothing else is printed."""
    assert simulate(*words) == WRONG_USE
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line.removeprefix("error: ")


def test_policies_stand_side_by_side_with_settings_notes_and_what_was_turned_away(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = simulate(
        "--trace", trace, "--cluster", "nodes=1,leaf=1", "--policy", "skip", "--policy", "fifo", "--baselines"
    )
    assert code == OK
    out = capsys.readouterr().out
    assert "trace: jobs.csv, 4 jobs" in out
    assert "cluster: nodes=1,leaf=1 (as asked)" in out
    assert "nodes: 1, 8 chips" in out
    away = (
        "rejected: default/huge (64 chips in 8 pods): larger-than-cluster, tasks[0].replicas is 8, the job asks for 64"
    )
    assert away in out
    assert "there are 8 in all, on 1 node" in out
    heading = next(line for line in out.splitlines() if "skip, random nodes" in line and "UNIT" in line)
    assert heading.split("  ")[-1].strip() == "skip, spread nodes"
    mean = next(line.split() for line in out.splitlines() if line.strip().startswith("mean"))
    assert mean == ["mean", "s", "30.0", "60.0", "30.0", "30.0", "30.0"]  # waits 0, 90, 0; under fifo 0, 90, 90


def test_json_holds_everything(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--trace", trace, "--cluster", "nodes=1,leaf=1", "--set", "reserve_chips=8", "--json") == OK
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["settings"]["skip"]["reserve_chips"] == "8"
    assert found["figures"][0]["placed"] == 3
    assert [job["name"] for job in found["turned_away"]] == ["huge"]
    assert {"section", "metric", "values", "texts"} <= set(found["rows"][0])


def test_without_a_cluster_one_that_fits_is_taken_and_said(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = trace.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(TRACE.encode()))
    assert simulate("--trace", packed) == OK
    out = capsys.readouterr().out
    assert "fits the trace; --cluster names another" in out
    assert "rejected:" not in out


def test_a_packed_line_without_an_end_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(b"at_s,run_s,chips\n" + bytes(1 << 24)))
    tracemalloc.start()
    try:
        assert simulate("--trace", packed) == WRONG_USE
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "line 2: is 1048576 characters or more, expected a row of CSV" in capsys.readouterr().err
    assert peak < 1 << 23


def test_a_folder_gets_the_page_the_pictures_and_the_figures(trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert simulate("--trace", trace, "--cluster", "nodes=2,leaf=1", "--out", folder) == OK
    names = {path.name for path in folder.iterdir()}
    assert {
        "report.html",
        "map.html",
        "results.json",
        "results.md",
        "use.svg",
        "use.png",
        "waiting.svg",
        "map.png",
    } <= names
    text = (folder / "results.md").read_text("utf-8")
    assert text.startswith("# jobs.csv on nodes=2,leaf=1\n")
    assert "| waiting time | unit | skip |" in text
    assert "- queue_policy: skip" in text
    assert '<a href="map.html">' in (folder / "report.html").read_text("utf-8")


def test_the_history_is_a_recording_that_replays_and_can_be_simulated_again(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.rec"
    assert simulate("--trace", trace, "--cluster", "nodes=1,leaf=1", "--policy", "easy", "--record", file) == OK
    with read_file(file) as reading:
        assert reading.head.settings.queue_policy == "easy"
        assert replayed(reading.head.start, list(reading)).is_identical
    capsys.readouterr()
    assert simulate("--trace", file, "--cluster", "nodes=1,leaf=1", "--json") == OK
    again = msgspec.json.decode(capsys.readouterr().out)
    assert again["figures"][0]["jobs"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "queue_polcy=easy"], "--set: 'queue_polcy' is not a setting, expected 'queue_policy'?"),
        (["--set", "queue_policy=eas"], "--set: setting queue_policy is 'eas': expected one of fifo, skip, easy"),
        (["--set", "reserve_chips=0"], "--set: setting reserve_chips is '0': Expected `int` >= 1"),
        (["--set", "reserve_chips"], "--set 'reserve_chips': expected key=value"),
        (["--set", "super_pod_size=2", "--set", "reserve_nodes=2"], "--set: reserve_nodes is 2: expected fewer than"),
        (["--set", "hold_place_ms=1"], "expected 'hold_places_ms'?"),
        (
            ["--faults", "seed=1", "--set", "hold_places_ms=-1"],
            "--set: setting hold_places_ms is '-1': Expected",
        ),
        (
            ["--faults", "seed=1", "--set", "escalate_block_ms=13000"],
            "--set: escalate_block_ms, escalate_superpod",
        ),
        (["--declare", "maybe"], "--declare is 'maybe', expected exact, none, or a factor above 0"),
        (["--compress", "0"], "--compress is 0, expected a number above 0"),
        (["--seed", "-1"], "--seed is -1, expected a whole number from 0"),
        (["--expect", "-1"], "--expect is -1, expected a whole number from 0, such as 20"),
        (["--cluster", "node=3"], "--cluster: node is an unknown key, expected 'nodes'?"),
        (["--cluster", "nowhere.yaml"], "--cluster: nowhere.yaml cannot be read"),
    ],
)
def test_a_wrong_word_is_told_with_what_would_be_right(
    words: list[str], said: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in wrong(capsys, "--trace", trace, *words)


def test_a_wrong_trace_is_told_with_file_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("at_s,run_s,chips\n0,10,8\n5,-3,8\n", "utf-8")
    line = wrong(capsys, "--trace", path)
    assert line.startswith(f"{path}: line 3: column run_s: is '-3', expected ")
    path.write_text("at_s,chips\n0,8\n", "utf-8")
    assert "run_s" in wrong(capsys, "--trace", path)
    path.write_bytes(b"\x1f\x8bnonsense")
    assert "cannot be read" in wrong(capsys, "--trace", path)
    path.write_bytes(b"at_s,run_s,chips\n\xff,1,1\n")
    assert "no text in UTF-8" in wrong(capsys, "--trace", path)
    assert "cannot be read: No such file" in wrong(capsys, "--trace", tmp_path / "none.csv")


def test_a_damaged_recording_is_told_with_the_frame(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.rec"
    assert simulate("--trace", trace, "--cluster", "nodes=1,leaf=1", "--record", file) == OK
    file.write_bytes(file.read_bytes()[:-5])
    capsys.readouterr()
    assert simulate("--trace", file) == FAILED
    assert "frame" in capsys.readouterr().err


def test_what_cannot_be_written_is_told_before_the_work(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    assert "mine is a file, expected a folder" in wrong(capsys, "--trace", trace, "--out", mine)
    assert "mine is a file, expected a folder" in wrong(capsys, "--trace", trace, "--out", mine / "below")
    assert wrong(capsys, "--trace", trace, "--record", mine).endswith("exists; name another file")
    assert "it is a folder" in wrong(capsys, "--trace", trace, "--record", tmp_path)
    assert mine.read_text() == "mine"


def test_options_of_traces_are_refused_for_recordings(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "simulated"
    assert simulate("--trace", trace, "--cluster", "nodes=1,leaf=1", "--record", file) == OK
    capsys.readouterr()
    for words in (("--compress", "2"), ("--declare", "exact"), ("--affinity", "none")):
        said = wrong(capsys, "--trace", file, *words)
        assert said.startswith(f"{words[0]} is {words[1]}")
        assert "is a recording" in said
    assert simulate("--trace", file, "--cluster", "nodes=1,leaf=1") == OK
    assert "arrivals divided by" not in capsys.readouterr().out


def test_all_wrong_rows_of_a_trace_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("at_s,run_s,chips\n0,-1,8\n0,1,8\nnever,1,8\n")
    assert simulate("--trace", trace) == WRONG_USE
    lines = capsys.readouterr().err.splitlines()
    assert [("line 2" in line, "line 4" in line) for line in lines] == [(True, False), (False, True)]


def test_a_cluster_may_be_a_topology_file(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "apiVersion: berth/v1\nkind: Cluster\nnodes:\n"
        "  - {product: module910bx8, count: 9, name: 'n-{index}', leaf: {size: 9, name: 'l-{index}'}}\n",
        "utf-8",
    )
    assert simulate("--trace", trace, "--cluster", path, "--json") == OK
    found = msgspec.json.decode(capsys.readouterr().out)
    assert (found["cluster"], found["figures"][0]["placed"]) == ("cluster.yaml", 4)
    path.write_text("apiVersion: berth/v1\nkind: Cluster\nnodes: [{product: module910bx9}]\n", "utf-8")
    assert "product" in wrong(capsys, "--trace", trace, "--cluster", path)


def test_strategies_of_recovery_stand_side_by_side(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--faults", "mtbf=10m,repair=5s,checkpoint=1s,restart=2s,rejoin=1s,leaf=0,seed=0")
    recovery = ("--recovery", "pods", "--recovery", "job")
    folder = tmp_path / "out"
    assert simulate("--trace", trace, "--cluster", "nodes=9,leaf=9", *words, *recovery, "--out", folder) == OK
    out = capsys.readouterr().out
    assert "failures: mtbf=10m of a node, chip=0.7, node=0.29, leaf=0, shape=exponential, repair=5s, seed=0" in out
    assert "cost of a failure: checkpoint=1s, grace=30s, recreate=10s, restart=2s, rejoin=1s, replica=off" in out
    assert "skip, recovery by pods" in out
    assert "effective training time ratio" in out
    assert (folder / "failures.png").is_file()
    found = msgspec.json.decode((folder / "results.json").read_bytes())
    assert not any(key.startswith("faults.") for key in found["settings"]["skip, recovery by job"])
    for figures in found["figures"]:
        assert figures["faults"]["interruptions"] > 0
        assert 0 < figures["faults"]["ettr"] < 1


@pytest.mark.parametrize(("text", "hours"), [("2d", 48), ("1.5d", 36), ("1d12h", 36), ("90m", 1.5)])
def test_times_of_faults_have_days(text: str, hours: float) -> None:
    assert faults_of(f"mtbf={text}", ClusterPlan("none", [])).model.mtbf_ms == hours * 3_600_000


def test_settings_of_faults_are_those_of_a_dispatcher_and_can_be_changed(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.rec"
    words = ("--faults", "seed=1", "--set", "hold_places_ms=5", "--set", "reserve_chips=32", "--record", file)
    assert simulate("--trace", trace, "--cluster", "nodes=9,leaf=9", *words) == OK
    assert "hold_places_ms: 5" in capsys.readouterr().out
    with read_file(file) as reading:
        found = reading.head.settings
    assert (found.hold_places_ms, found.reserve_chips) == (5, 32)
    assert simulate("--trace", trace, "--cluster", "nodes=9,leaf=9", "--faults", "seed=1", "--record", f"{file}2") == OK
    with read_file(Path(f"{file}2")) as reading:
        assert reading.head.settings == Settings()


def test_nodes_in_reserve_give_a_column_each(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--reserve-nodes", "0", "--reserve-nodes", "3")
    assert simulate("--trace", trace, "--cluster", "nodes=9,leaf=9", *words, "--json") == OK
    found = msgspec.json.decode(capsys.readouterr().out)
    assert [figures["title"] for figures in found["figures"]] == ["skip, reserve 0", "skip, reserve 3"]
    assert found["settings"]["skip, reserve 3"]["reserve_nodes"] == "3"
    assert all(figures["faults"] is None for figures in found["figures"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--faults", "mtbf"), "--faults 'mtbf': expected key=value, such as mtbf=154d"),
        (("--faults", "mtfb=3d"), "--faults: 'mtfb' is no key, expected 'mtbf'?"),
        (("--faults", "mtbf=3x"), "--faults: mtbf is '3x', expected a duration such as 154d, 4h, 30s or 1d12h"),
        (("--faults", "mtbf=1s"), "--faults: mtbf is '1s', expected 10m or more"),
        (("--faults", "repair=0s"), "--faults: repair: 0 ms, expected a time above 0"),
        (("--faults", "chip=-1"), "--faults: chip is '-1', expected a number from 0 on"),
        (("--faults", "chip=0,node=0,leaf=0"), "--faults: chip, node and leaf: 0, expected at least one above 0"),
        (("--faults", "shape=normal"), "--faults: shape is 'normal', expected exponential, or weibull:K"),
        (("--faults", "shape=weibull:99"), "--faults: shape: 99, expected a number from 0.2 to 20"),
        (("--faults", "seed=-1"), "--faults: seed is '-1', expected a whole number from 0 to"),
        (("--faults", "seed=1,seed=2"), "--faults: seed is there twice, 1 and 2, expected one"),
        (("--faults", "replica=yes"), "--faults: replica is 'yes', expected on or off"),
        (("--faults", "checkpoint=0"), "--faults: checkpoint: 0 ms, expected a time above 0"),
        (("--faults", "seed=1", "--baselines"), "--baselines is given, expected it without --faults"),
        (("--recovery", "job"), "--recovery is job, expected --faults beside it"),
        (("--reserve-nodes", "48"), "--reserve-nodes is 48, expected a number from 0 to 47, below super_pod_size"),
    ],
)
def test_wrong_failures_are_refused_with_key_value_and_what_is_right(
    trace: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], named: str
) -> None:
    assert wrong(capsys, "--trace", trace, "--cluster", "nodes=1,leaf=1", *words).startswith(named)


@pytest.mark.parametrize(
    ("declared", "words", "said"),
    [
        (",100", ("--policy", "easy"), "those of the trace for 2 of 2 jobs"),
        ("", ("--policy", "easy"), "those of the trace for 1 of 2 jobs, for the others none"),
        ("", ("--declare", "exact"), "those of the trace for 1 of 2 jobs, for the others exact; skip does not use them, easy and conservative do"),
        ("", ("--policy", "fifo", "--policy", "skip"), "those of the trace for 1 of 2 jobs, for the others none; fifo and skip do not use them, easy and conservative do"),
    ],
)  # fmt: skip
def test_a_column_of_declared_run_times_is_used_and_said(
    declared: str, words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(f"at_s,run_s,chips,declared_s\n0,10,8,90\n1,10,8{declared or ','}\n")
    assert simulate("--trace", trace, "--cluster", "nodes=1,leaf=1", *words) == OK
    assert f"declared run times: {said}" in capsys.readouterr().out.splitlines()


def test_a_cluster_without_leaves_is_refused_if_all_jobs_need_them(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wrong(capsys, "--trace", trace, "--cluster", "nodes=9") == (
        "--cluster is nodes=9, without leaf switches, and 4 of 4 jobs request switch affinity: expected leaf switches"
        " in it, such as --cluster nodes=9,leaf=16, or --affinity none or gangs"
    )


def test_jobs_that_need_leaves_are_said_where_others_need_none(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate("--trace", trace, "--cluster", "nodes=9", "--affinity", "gangs") == OK
    out = capsys.readouterr().out
    assert (
        "note: --cluster is nodes=9, without leaf switches, and 1 of 4 jobs request switch affinity: expected leaf"
        " switches in it, such as --cluster nodes=9,leaf=16, or --affinity none\n"
    ) in out
    assert (
        "rejected: default/huge (64 chips in 8 pods): no-topology, tor-affinity is large-model-schema, the cluster has"
        " no leaf switches\n"
    ) in out


def test_it_is_a_failure_if_no_job_is_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("at_s,run_s,chips\n0,10,16\n")
    for form in ((), ("--json",)):
        assert simulate("--trace", trace, "--cluster", "nodes=1,leaf=1", *form) == FAILED
        printed = capsys.readouterr()
        assert "larger-than-cluster" in printed.out
        assert printed.err == "error: no job was placed on nodes=1,leaf=1\n"


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(0, "0s"), (250, "250ms"), (90_000, "1m30s"), (4 * 3_600_000, "4h"), (129_600_000, "1d12h"), (3_600_499, "1h")],
)
def test_durations_are_shown_as_they_are_read(time_ms: int, text: str) -> None:
    assert duration_text(time_ms) == text
