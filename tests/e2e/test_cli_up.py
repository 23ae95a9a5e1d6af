"""The command line against everything that it starts: submit, look, explain, cancel, stop."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from berth.cli.app import call
from tests.support.cell_mode import CELLS
from tests.support.waiting import SLACK, until

pytestmark = pytest.mark.timeout(90)

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 7, name: "a2-{index}"}
  - {product: module910x8, count: 2, name: "a1-{index}"}
  - {product: 310p-duo, count: 2, name: "duo-{index}"}
faults:
  - {node: a2-6, chips: [0], kind: unhealthy}
"""
# Two that start at once may both find the usual port of the page free.
UP = (sys.executable, "-m", "berth.cli", "up", "--port", "0", "--page-port", "0")
# A round waits for a scorer on a busy machine instead of deciding without it.
PATIENT = ("/usr/bin/env", "BERTH_GATHER_TIMEOUT_S=20")
VERDICT_S = SLACK * 30
ALL = ("api", "binder", "dispatcher", "gateway", "nodesim", "scorer-0", "scorer-1")
Ask = Callable[..., tuple[int, Any, str]]


def a_manifest(name: str, **spec: object) -> str:
    spec = {"product": "module910bx8", "chips": 8, "runFor": "1s"} | spec
    return json.dumps({"apiVersion": "berth/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})


def wait_until(condition: Callable[[], object], *, what: str) -> None:
    """Wait for a condition that runs commands: each has an event loop of its own, so it gets a thread."""
    with ThreadPoolExecutor(1) as pool:
        asyncio.run(until(lambda: pool.submit(condition).result(), deadline_s=20, what=what))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A fleet for all tests of this module; at its end it must stop cleanly and leave nothing running."""
    folder = tmp_path_factory.mktemp("up")
    topology = folder / "topology.yaml"
    topology.write_text(TOPOLOGY)
    command = [*PATIENT, *UP, "--json", "--topology", str(topology), *(["--one"] if CELLS.is_one else [])]
    with (folder / "err").open("w") as errors:
        process = subprocess.Popen(  # noqa: S603  # our own words
            [*command, "--store", str(folder / "store")], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (folder / "err").read_text()
    told = json.loads(line)
    yield told
    process.send_signal(signal.SIGTERM)
    process.stdout.close()
    assert process.wait(timeout=SLACK * 40) == 0, (folder / "err").read_text()
    assert [name for name, pid in told["pids"].items() if Path(f"/proc/{pid}").exists()] == []


@pytest.fixture
def ask(running: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ask:
    """Run a command with ``--json``; ``manifest`` is written to a file that is added to its words.

    ``submit`` waits longer for verdicts than by default.
    """

    def run(*words: str, manifest: str = "") -> tuple[int, Any, str]:
        more = ["--timeout", f"{VERDICT_S:g}"] if words[0] == "submit" else []
        if manifest:
            path = tmp_path / "job.yaml"
            path.write_text(manifest)
            more.append(str(path))
        code = call([*words, *more, "--json", "--url", running["url"]])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run


def test_up_tells_where_it_is_and_what_runs(running: dict[str, Any]) -> None:
    assert running["nodes"] == 11
    assert sorted(running["pids"]) == sorted([*(["cell"] if CELLS.is_one else ALL), "nats-server"])


def test_up_starts_a_page_that_its_token_opens(running: dict[str, Any]) -> None:
    def ask(path: str, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(running["page"] + path, headers=headers)  # noqa: S310  # of this machine
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  # likewise
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    assert ask("")[0] == 200
    assert ask("api/v1/me")[0] == 401
    status, body = ask("api/v1/me", Authorization=f"Bearer {running['page_token']}")
    assert (status, json.loads(body)["submit"]) == (200, ["*"])
    kept = Path(running["folder"]) / "page-token"
    assert (kept.read_text().strip(), kept.stat().st_mode & 0o777) == (running["page_token"], 0o600)


def test_three_manifests_are_placed_explained_and_one_is_cancelled(ask: Ask) -> None:
    files = [str(EXAMPLES / name) for name in ("soft-share-job.yaml", "volcano-job.yaml", "batch-job.yaml")]
    code, out, _ = ask("submit", *files)
    assert code == 0
    assert [(job["name"], job["verdict"]) for job in out["jobs"]] == [
        ("notebooks", "accepted"),
        ("resnet", "accepted"),
        ("infer", "accepted"),
    ]
    assert [bool(job["status"]["ranks"]) for job in out["jobs"]] == [False, True, True], "no node shares its chips"

    _, rows, _ = ask("jobs", "--namespace", "vision")
    assert [(row["name"], [rank["node"] for rank in row["ranks"]]) for row in rows] == [("resnet", ["a2-0", "a2-1"])]

    code, told, _ = ask("explain", "vision/resnet")
    assert code == 0
    choices = told["explanation"]["choices"]
    assert [(choice["node"], choice["runner_up"]["node"]) for choice in choices] == [("a2-0", "a2-1"), ("a2-1", "a2-2")]
    assert told["explanation"]["is_confirmed"]
    assert not told["explanation"]["basis"]["is_current"]

    _, nodes, _ = ask("nodes")
    by_name = {node["name"]: node for node in nodes}
    assert by_name["a2-0"]["used"] == list(range(8))
    assert by_name["a2-6"]["unhealthy"] == [0]

    code, row, _ = ask("cancel", "resnet", "--namespace", "vision")
    assert code == 0
    assert row["phase"] in {"ending", "cancelled"}
    wait_until(lambda: not ask("jobs", "--namespace", "vision")[1], what="the cancelled job is over")
    code, _, err = ask("cancel", "vision/resnet")
    assert code == 1
    assert "cannot be cancelled: it was cancelled already" in err
    told = ask("explain", "vision/resnet")[1]
    assert told["explanation"]["choices"][0]["node"] == "a2-0"


def test_wait_ends_when_a_job_is_placed(ask: Ask) -> None:
    code, out, _ = ask("submit", "--wait", manifest=a_manifest("quick", runFor="30s"))
    assert code == 0
    assert out["jobs"][0]["status"]["phase"] in {"placed", "bound", "running"}
    assert ask("cancel", "quick")[0] == 0


def test_a_job_larger_than_the_cluster_is_told_so_and_the_rest_goes_on(ask: Ask) -> None:
    code, out, _ = ask("submit", "--wait", manifest=a_manifest("huge", replicas=40))
    assert code == 1
    status = out["jobs"][0]["status"]
    assert (status["code"], status["field"], status["value"]) == ("larger-than-cluster", "tasks[0].replicas", "40")
    assert "there are 56 in all, on 7 nodes that it may use" in status["expected"]
    told = ask("explain", "huge")[1]
    assert any(line.startswith("It waits: larger than the cluster") for line in told["sentences"])
    assert told["explanation"]["unblocking"]["ways"][0]["events"][0]["kind"] == "nodes-come"
    assert ask("cancel", "huge")[0] == 0


def test_a_waiting_job_is_explained_with_the_nearest_nodes(ask: Ask) -> None:
    assert ask("submit", manifest=a_manifest("seven", replicas=7))[0] == 0
    told = ask("explain", "seven")[1]
    assert told["phase"] == "waiting"
    assert (told["explanation"]["nearest"][0]["node"], told["explanation"]["nearest"][0]["free"]) == ("a2-6", 7)
    assert ask("cancel", "seven")[0] == 0


def test_a_held_job_waits_until_it_is_released(ask: Ask) -> None:
    assert ask("submit", manifest=a_manifest("eight", replicas=7))[0] == 0
    assert ask("hold", "eight", "--reason", "no data yet")[0] == 0
    told = ask("explain", "eight")[1]
    assert told["phase"] == "waiting"
    assert any("held by" in line and "no data yet" in line for line in told["sentences"]), told["sentences"]
    (row,) = (row for row in ask("jobs")[1] if row["name"] == "eight")
    assert "no data yet" in row["sentence"]
    assert ask("release", "eight")[0] == 0
    assert ask("priority", "eight", "-4")[0] == 0
    (row,) = (row for row in ask("jobs")[1] if row["name"] == "eight")
    assert row["priority"] == -4
    assert ask("cancel", "eight")[0] == 0


def test_a_job_that_is_over_is_told_as_it_waited_by_the_cell_and_by_a_recording(ask: Ask, tmp_path: Path) -> None:
    wait_until(
        lambda: not any(row["ranks"] and row["ranks"][0]["node"].startswith("a2-") for row in ask("jobs")[1]),
        what="the jobs of the tests before have left the nodes",
    )
    assert ask("submit", "--wait", manifest=a_manifest("before", replicas=2, runFor="15s"))[0] == 0
    assert ask("submit", manifest=a_manifest("after", replicas=6))[0] == 0
    waits = ask("explain", "after")[1]
    assert waits["phase"] == "waiting"
    events = waits["explanation"]["unblocking"]["ways"][0]["events"]
    assert [(event["kind"], event["job"]) for event in events] == [("job-ends", "default/before")]
    basis = waits["explanation"]["basis"]
    at = f"ledger:{basis['ledger_seq']}"
    wait_until(lambda: ask("explain", "after")[1]["phase"] == "succeeded", what="the job that waited has run")
    placed = ask("explain", "after")[1]["explanation"]["basis"]
    assert abs(placed["at_ms"] - events[0]["end_ms"]) < 4_000 * SLACK, "the declared end was about right"
    file = tmp_path / "a.rec"
    assert ask("record", str(file))[0] == 0
    for words in (("--at", at), ("--at", at, "--log", str(file))):
        code, told, _ = ask("explain", "after", *words)
        of_round = basis | {"is_current": False, "round": told["explanation"]["basis"]["round"]}
        expected = waits["explanation"] | {
            "basis": of_round,
            "expected_start": told["explanation"].get("expected_start"),
        }
        assert (code, told["phase"], told["explanation"]) == (0, "waiting", expected)
        assert of_round["round"] > basis["round"], "what waits now is explained on the state of now, not by a round"
    assert ask("explain", "after", "--log", str(file))[1]["explanation"]["basis"] == placed


@pytest.mark.parametrize(
    ("spec", "field", "value", "expected"),
    [
        ({"product": "module910bxx8"}, "spec.product", "'module910bxx8'", "'module910bx8'?"),
        ({"product": "module910x8", "chips": 3}, "spec.chips", "3", "1 to 8 except 3, 5, 6, 7"),
        ({"replicas": 0}, "spec.replicas", "0", "at least one pod"),
        ({"product": "module910x8", "chips": 4, "replicas": 2}, "spec", "8 chips in 2 pods", "strict_job_shape"),
        ({"softShare": {"aicore": 20, "hbmMib": 5, "policy": "best"}}, "spec.softShare.policy", "'best'", "best-effort"),
        ({"product": None, "resource": "huawei.com/Ascend910-2c"}, "spec.resource", "huawei.com/Ascend910-2c", "whole chips"),
        ({"product": None, "resource": "huawei.com/Ascend310", "chips": 1, "labels": {"npu-310-strategy": "row"}}, "metadata.labels.npu-310-strategy", "row", "chip or card"),
        ({"labels": {"subHealthyStrategy": "maybe"}}, "metadata.labels.subHealthyStrategy", "maybe", "setting strict_label_values"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_is_refused_and_nothing_is_sent(
    ask: Ask, spec: dict[str, object], field: str, value: str, expected: str
) -> None:
    bad = json.loads(a_manifest("bad", **spec))
    bad["spec"] = {key: part for key, part in bad["spec"].items() if part is not None}
    bad["metadata"]["labels"] = bad["spec"].pop("labels", {})
    code, out, _ = ask("submit", manifest=f"{a_manifest('good')}\n---\n{json.dumps(bad)}")
    assert code == 1
    assert out["jobs"] == []
    (fault,) = out["faults"]
    assert (fault["field"], fault["value"]) == (field, value)
    assert expected in fault["expected"]
    assert {row["name"] for row in ask("jobs", "--all")[1]}.isdisjoint({"good", "bad"})


def test_every_error_of_all_files_is_told(ask: Ask, tmp_path: Path) -> None:
    broken, short = tmp_path / "broken.yaml", tmp_path / "short.yaml"
    broken.write_text("{a: [")
    short.write_text("apiVersion: berth/v1\nkind: Job\nspec: {product: module910bx8}\n")
    code, out, _ = ask(
        "submit", str(broken), str(short), str(tmp_path / "none.yaml"), manifest=a_manifest("x", chips=9)
    )
    assert code == 1
    assert [(Path(fault["file"]).name, fault["field"]) for fault in out["faults"]] == [
        ("broken.yaml", "line 1, column 6"),
        ("short.yaml", "metadata"),
        ("none.yaml", ""),
        ("job.yaml", "spec.chips"),
    ]


def test_a_name_in_use_is_refused(ask: Ask) -> None:
    assert ask("submit", manifest=a_manifest("long", runFor="30s"))[0] == 0
    code, out, _ = ask("submit", manifest=a_manifest("long"))
    assert code == 1
    refusal = out["jobs"][0]["refusal"]
    assert (refusal["code"], refusal["field"], refusal["value"]) == ("name-in-use", "metadata.name", "default/long")
    assert "another name" in refusal["expected"]
    assert ask("cancel", "long")[0] == 0


def test_a_name_that_nobody_has_is_answered_with_near_ones(ask: Ask) -> None:
    assert ask("submit", manifest=a_manifest("training"))[0] == 0
    code, out, err = ask("explain", "trainin")
    assert (code, out) == (1, None)
    assert "no job is named default/trainin; near names: default/training" in err


def test_a_drained_node_accepts_no_work_until_it_is_undrained(ask: Ask) -> None:
    def row_of(name: str) -> dict[str, Any] | None:
        return next((row for row in ask("jobs", "--all")[1] if row["name"] == name), None)

    code, row, err = ask("drain", "a1-0", "--reason", "new card")
    assert code == 0, err
    assert (row["kind"], row["name"], row["nodes"], row["reason"]) == ("node", "a1-0", ["a1-0"], "new card")
    assert ask("drain", "a1-1")[0] == 0
    assert ask("submit", manifest=a_manifest("kept-out", product="module910x8"))[0] == 0
    wait_until(lambda: "2 are drained" in (row_of("kept-out") or {"sentence": ""})["sentence"], what="it waits")
    _, nodes, _ = ask("nodes")
    assert {node["name"] for node in nodes if node["drained_ms"]} == {"a1-0", "a1-1"}
    _, faults, _ = ask("faults")
    assert [(one["kind"], one["name"]) for one in faults["drains"]] == [("node", "a1-0"), ("node", "a1-1")]
    assert ask("undrain", "a1-1") == (0, {"kind": "node", "name": "a1-1"}, "")
    wait_until(lambda: (row_of("kept-out") or {"ranks": []})["ranks"], what="it starts on the node that is back")
    assert [rank["node"] for rank in (row_of("kept-out") or {})["ranks"]] == ["a1-1"]
    code, _, err = ask("undrain", "a1-1")
    assert (code, "no drain of a1-1; drained: node a1-0" in err) == (1, True)
    assert ask("undrain", "a1-0")[0] == 0
    code, _, err = ask("drain", "a1-9")
    assert (code, "near names: node a1-" in err) == (1, True)
    code, _, err = ask("drain", "a1-0", "--at", "2020-01-01T00:00:00Z")
    assert (code, "which is over" in err) == (2, True)


def test_a_cell_that_is_not_there_is_named(running: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["jobs", "--url", running["url"], "--cell", "elsewhere"]) == 1
    assert "has no cell 'elsewhere'" in capsys.readouterr().err


def test_what_people_see_is_one_line_a_job_and_a_drawing(
    running: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["jobs", "--all", "--url", running["url"]]) == 0
    assert capsys.readouterr().out.startswith("JOB ")
    assert call(["nodes", "--url", running["url"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11 + 2
    assert "network-unhealthy" in lines[-1]


def test_a_service_that_is_killed_comes_back(running: dict[str, Any], ask: Ask) -> None:
    os.kill(running["pids"]["cell" if CELLS.is_one else "dispatcher"], signal.SIGKILL)
    code, out, _ = ask("submit", manifest=a_manifest("after"))
    assert code == 0
    assert out["jobs"][0]["verdict"] == "accepted"


def test_a_server_that_is_killed_comes_back_with_its_store(running: dict[str, Any], ask: Ask) -> None:
    """What was written in the last moment may be lost without ``--sync always``; what is older is there."""
    before = {row["name"] for row in ask("jobs", "--all")[1]}
    os.kill(running["pids"]["nats-server"], signal.SIGKILL)
    wait_until(lambda: ask("jobs", "--all")[0] == 0, what="the server answers again")
    assert before
    assert {row["name"] for row in ask("jobs", "--all")[1]} >= before - {"after"}
    code, out, _ = ask("submit", manifest=a_manifest("later"))
    assert code == 0, out


def test_a_folder_in_use_is_not_used_twice(running: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["up", "--port", "0", "--store", running["folder"]]) == 1
    assert "is in use by another berth" in capsys.readouterr().err


def test_a_service_that_cannot_run_ends_up_with_the_end_of_its_log(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603  # our own words
        ["/usr/bin/env", "BERTH_LEASE_S=never", f"TMPDIR={tmp_path}", *UP],
        cwd=ROOT, capture_output=True, text=True, timeout=SLACK * 60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "dispatcher ended with code 2; the end of its log:" in done.stderr
    assert "lease_s" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_faults_of_leaf_switches_and_of_pods_say_why_they_cannot_be(ask: Ask) -> None:
    code, _, err = ask("nodes", "break", "no-leaf", "--fault", "kubelet", "--leaf")
    assert code == 1
    assert "leaf switch is 'no-leaf', expected a leaf switch of the topology file" in err
    assert "expected a leaf switch" in ask("nodes", "repair", "no-leaf", "--fault", "kubelet", "--leaf")[2]
    code, _, err = ask("nodes", "break", "duo-1", "--fault", "container", "--pod", "a/b", "--exit-code", "137")
    assert code == 1
    assert "fault is 'container', which is simulated on an API server only" in err


def test_a_node_breaks_and_is_repaired(ask: Ask) -> None:
    def unhealthy() -> list[int]:
        (node,) = [node for node in ask("nodes")[1] if node["name"] == "duo-1"]
        return list(node["unhealthy"])

    code, told, _ = ask("nodes", "break", "duo-1", "--fault", "chip", "--chips", "2,4-5", "--level", "SeparateNPU")
    assert (code, told["chips"]) == (0, [2, 4, 5])
    assert unhealthy() == [2, 4, 5]
    assert ask("nodes", "repair", "duo-1", "--fault", "chip", "--chips", "4")[0] == 0
    assert unhealthy() == [2, 5]
    assert ask("nodes", "repair", "duo-1", "--fault", "chip")[0] == 0
    assert unhealthy() == []
    code, _, err = ask("nodes", "break", "duo-1", "--fault", "chip", "--chips", "0", "--level", "Bad")
    assert code == 1
    assert "level is 'Bad', expected one of NotHandleFault" in err
    code, _, err = ask("nodes", "break", "duo-1", "--fault", "chip", "--chips", "3-1")
    assert code == 2
    assert "--chips is '3-1'" in err
    code, _, err = ask("nodes", "break", "duo-1", "--fault", "chip", "--chips", "0", "--for", "soon")
    assert code == 2
    assert "--for is 'soon'" in err
