"""``berth what-if``, and what it is made of: workloads and courses of recordings, and other numbers of nodes."""

from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.cli.output import OK, WRONG_USE
from berth.core.simulation.cluster_changes import (
    UnknownNodeError,
    last_names,
    model_of,
    nodes_of,
    with_nodes,
    without_nodes,
)
from berth.core.simulation.recorded_timeline import timeline_of_recording
from berth.core.simulation.recorded_workload import LoggedWorkload, WorkloadReader
from berth.core.simulation.simulator import Simulation, SimulationPlan
from berth.core.simulation.statistics import statistics_of
from berth.core.state.cell import State
from berth.formats.recordings.recording import frames_of
from berth.schemas.envelope import decode
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeDescription
from berth.schemas.recording import Entry
from berth.schemas.status import SnapshotBody
from tests.support.recording_pages import recordings_in
from tests.support.recordings import head_at
from tests.support.simulations import a_plan, cluster_facts, planned, run_of, times_s

JOBS = (
    planned("a", 0, 100, 6, declared_s=100),
    planned("b", 10, 10, 8, declared_s=10),
    planned("c", 20, 30, 2, declared_s=30),
    planned("pair", 25, 40, 8, pods=2, switch=True),
    planned("back", 30, 10, 8, pods=2, cancel_s=60),
    planned("stopped", 200, 100, 8, cancel_s=250),
)
CLUSTER = "nodes=2,leaf=1"


def recorded() -> list[Entry]:
    return run_of(a_plan(*JOBS, cluster=CLUSTER))[2]


def logged(entries: list[Entry]) -> LoggedWorkload:
    return WorkloadReader(head_at()).read(entries)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cell.rec"
    path.write_bytes(b"".join(frames_of(head_at(), recorded())))
    return path


def test_a_recording_gives_back_its_jobs_with_the_times_they_ran() -> None:
    found = logged(recorded())
    assert {job.request.name: (job.at_ms, job.run_ms, job.cancel_ms) for job in found.workload.jobs} == {
        "a": (0, 100_000, 0),
        "b": (10_000, 10_000, 0),
        "c": (20_000, 30_000, 0),
        "pair": (25_000, 40_000, 0),
        "back": (30_000, 40_000, 60_000),  # it never ran: the middle run time is taken
        "stopped": (200_000, 50_000, 250_000),
    }
    assert found.settings == Settings()
    assert (found.begin_ms, found.end_ms) == (0, 250_000)
    assert len(found.facts) == len(cluster_facts(CLUSTER))
    assert found.workload.notes == [
        "jobs that never ran to an end and declared nothing, and run 40000 ms, the middle run time of all: 1"
    ]


def test_the_course_of_a_recording_is_that_of_the_simulation_that_made_it() -> None:
    _, simulated, entries = run_of(a_plan(*JOBS, cluster=CLUSTER))
    timeline = timeline_of_recording(head_at(), entries, words={})
    assert timeline.jobs == simulated.jobs
    assert (timeline.begin_ms, timeline.end_ms) == (0, 250_000)
    assert (timeline.nodes, timeline.leaves, timeline.node_chips) == (
        simulated.nodes,
        simulated.leaves,
        simulated.node_chips,
    )
    ours, theirs = (msgspec.structs.replace(statistics_of(known), title="") for known in (timeline, simulated))
    assert ours == theirs


def test_jobs_that_still_run_at_the_end_run_as_long_as_they_had_at_least() -> None:
    simulation_entries: list[Entry] = []
    plan = a_plan(planned("long", 0, 1000, 8, declared_s=500), planned("b", 5, 10, 8), cluster=CLUSTER)
    simulation = Simulation(plan, on_entry=simulation_entries.append)
    while simulation.now_ms < 15_000:
        simulation.step()
    found = logged(simulation_entries)
    assert {job.request.name: job.run_ms for job in found.workload.jobs} == {"long": 500_000, "b": 10_000}
    assert found.workload.notes == ["jobs that still ran at the end, and run at least as long as they had: 1"]
    timeline = timeline_of_recording(head_at(), simulation_entries, words={})
    assert times_s(timeline) == {"long": (0, -1), "b": (5, 15)}


def test_a_request_that_was_turned_away_comes_again_to_be_turned_away() -> None:
    jobs = (planned("wrong", 0, 10, 9), planned("a", 5, 10, 8))
    found = logged(run_of(a_plan(*jobs, cluster=CLUSTER))[2])
    assert [(job.request.name, job.at_ms) for job in found.workload.jobs] == [("wrong", 0), ("a", 5_000)]
    simulation, _, _ = run_of(SimulationPlan(workload=found.workload, facts=found.facts, settings=found.settings))
    assert [job.code for job in simulation.rejected] == ["invalid-request"]


def test_a_name_that_comes_again_gets_a_number() -> None:
    jobs = (planned("a", 0, 10, 8), planned("a", 20, 10, 8))
    found = logged(run_of(a_plan(*jobs, cluster=CLUSTER))[2])
    assert [job.request.name for job in found.workload.jobs] == ["a", "a-2"]
    assert found.workload.notes == ["jobs with the name of an earlier one, that got a number behind it: 1"]


def test_a_recording_that_starts_with_a_snapshot_keeps_the_jobs_that_were_there() -> None:
    entries = recorded()
    state = State(keeps=True)
    cut = 0
    while state.fold.at_ms < 30_000:
        entry = entries[cut]
        cut += 1
        if entry.subject:
            state.apply_fact(entry.subject, entry.sequence, entry.data)
        else:
            state.apply_record(entry.sequence, entry.data)
    head = msgspec.structs.replace(head_at(), start=decode(state.dump(), SnapshotBody))
    found = WorkloadReader(head).read(entries[cut:])
    assert found.begin_ms == 30_000
    at_ms = {job.request.name: job.at_ms for job in found.workload.jobs}
    assert at_ms == {"a": 0, "c": 0, "pair": 0, "back": 0, "stopped": 170_000}
    timeline = timeline_of_recording(head, entries[cut:], words={})
    assert {job.name for job in timeline.jobs} == set(at_ms)
    assert (timeline.begin_ms, timeline.moments[0].at_ms) == (30_000, 30_000)
    assert all(job.asked_ms >= 30_000 for job in timeline.jobs)


def test_nodes_are_taken_away_by_name_or_from_the_end() -> None:
    facts = cluster_facts("nodes=4,leaf=2,superpod=4")
    assert last_names(facts, 2) == ["node-02", "node-03"]
    left = without_nodes(facts, ["node-01"])
    assert [node.name for node in nodes_of(left)] == ["node-00", "node-02", "node-03"]
    plan = SimulationPlan(workload=a_plan(planned("a", 0, 10, 8, pods=4)).workload, facts=left, settings=Settings())
    simulation, _, _ = run_of(plan)
    assert [job.code for job in simulation.rejected] == ["larger-than-cluster"]


def test_a_node_whose_chips_are_shared_has_no_more_than_its_own() -> None:
    assert NodeDescription("n", chips=0b1111, allocatable=400).whole_chips == 4
    assert NodeDescription("n", chips=0b1111, allocatable=3).whole_chips == 3


def test_added_nodes_are_like_the_others_below_leaves_and_in_superpods_of_their_own() -> None:
    facts = with_nodes(cluster_facts("nodes=4,leaf=2,superpod=4"), 3, cell="simulation", like="")
    added = [node for node in nodes_of(facts) if node.name.startswith("added")]
    assert [(node.name, node.leaf, node.superpod, node.position) for node in added] == [
        ("added-000", "added-leaf-00", "1", 0),
        ("added-001", "added-leaf-00", "1", 1),
        ("added-002", "added-leaf-01", "1", 0),
    ]
    workload = a_plan(*(planned(f"p{number}", 0, 10, 8, pods=2, switch=True) for number in range(4))).workload
    _, timeline, _ = run_of(SimulationPlan(workload=workload, facts=facts, settings=Settings()))
    assert sorted(job.leaves for job in timeline.jobs if job.placed_ms == 0) == [1, 1, 1]
    assert timeline.leaves.count("added-leaf-00") == 2


def test_the_node_that_is_copied_is_named_or_of_a_product_that_is() -> None:
    nodes = [NodeDescription(name, product, "r", allocatable=free) for name, product, free in (
        ("a0", "a", 7), ("a1", "a", 8), ("a2", "a", 8), ("b0", "b", 4),
    )]  # fmt: skip
    assert [model_of(nodes, like).name for like in ("", "a", "b", "a0")] == ["a1", "a1", "b0", "a0"]
    with pytest.raises(UnknownNodeError):
        model_of(nodes, "c")


def what_if(*words: str | Path) -> int:
    return call(["what-if", *map(str, words)])


def test_the_record_the_control_and_the_change_stand_side_by_side(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what_if(file, "--set", "queue_policy=fifo", "--nodes", "+2", "--json") == OK
    found = msgspec.json.decode(capsys.readouterr().out)
    titles = ["as recorded", "simulated as it was", "queue_policy=fifo; nodes +2"]
    assert list(found["settings"]) == titles
    assert [found["settings"][title]["nodes"] for title in titles] == ["2, 16 chips", "2, 16 chips", "4, 32 chips"]
    recorded_, control, changed = found["figures"]
    assert recorded_["wait"] == control["wait"]
    assert changed["wait"]["mean_ms"] < control["wait"]["mean_ms"]
    assert found["notes"][0] == "added: 2 nodes of module910bx8 like node-00, 16 chips"
    assert found["notes"][-1].endswith("half of them within 0 s of the recorded moment, 95 % within 0 s")


def test_the_table_is_for_people_and_the_folder_for_keeping(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert what_if(file, "--nodes", "-1", "--out", folder) == OK
    out = capsys.readouterr().out
    assert "nodes -1: nodes=1, 8 chips" in out
    assert "rejected: team/pair (16 chips in 2 pods): larger-than-cluster" in out
    assert (folder / "report.html").is_file()
    titles = [one["title"] for one in recordings_in(folder / "map.html")]
    assert titles == ["as recorded", "simulated as it was", "nodes -1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a change: --set key=value, --nodes +16"),
        (["--set", "reserve_chps=3"], "'reserve_chps' is not a setting, expected 'reserve_chips'?"),
        (["--set", "queue_policy=best"], "queue_policy is 'best': expected one of fifo, skip, easy, conservative"),
        (["--nodes", "-2"], "--nodes is -2, expected a number from 1 to 1: the recording has 2 nodes"),
        (
            ["--nodes", "+2:modul910bx8"],
            "--nodes: no node and no product is named modul910bx8, expected such as module910bx8",
        ),
        (["--nodes", "-1:node-00"], "--nodes is -1:node-00, expected -1, or names of nodes to remove"),
        (["--nodes", "+0"], "--nodes is +0, expected a number from 1 to 100000"),
        (["--nodes", "+9999999"], "--nodes is +9999999, expected a number from 1 to 100000"),
        (
            ["--nodes", "node-00,node-01"],
            "--nodes removes all 2 nodes of the recording, expected at least one to remain",
        ),
        (
            ["--nodes", "node-0"],
            "node 'node-0' is in no fact of the recording, expected +16, -8, or names such as node-0",
        ),
    ],
)
def test_a_wrong_change_is_told_with_what_would_be_right(
    words: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert what_if(file, *words) == WRONG_USE
    assert said in capsys.readouterr().err


def test_the_conclusion_is_first_and_about_the_change_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert what_if(file, "--set", "reserve_depth=7") == OK
    assert capsys.readouterr().out.startswith(
        "There is no difference: all figures of reserve_depth=7 and 'simulated as it was' are equal.\n"
    )
    assert what_if(file, "--nodes", "+2") == OK
    assert "\nThe mean waiting time is shorter with 'nodes +2': " in f"\n{capsys.readouterr().out}"
