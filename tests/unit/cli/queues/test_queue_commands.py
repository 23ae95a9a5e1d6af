"""``berth queues``: what is wrong with a file, who may use what, and the tree."""

import json
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.cli.output import FAILED, OK, WRONG_USE

QUEUES = """
apiVersion: berth/v1
kind: Queue
metadata: {name: research}
spec: {capability: {huawei.com/Ascend910: 96}, weight: 3}
---
apiVersion: berth/v1
kind: Queue
metadata: {name: llm}
spec: {parent: research, guarantee: {resource: {huawei.com/Ascend910: 16}}, namespaces: [nlp]}
---
apiVersion: berth/v1
kind: Queue
metadata: {name: vision}
spec: {parent: research, state: Closing}
"""
WRONG = """
---
apiVersion: berth/v1
kind: Queue
metadata: {name: lost}
spec: {parent: nowhere}
---
apiVersion: berth/v1
kind: Queue
metadata: {name: odd}
spec: {weight: 0}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(QUEUES)
    return path


def test_valid_queues_pass(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["queues", "check", str(file)]) == OK
    assert capsys.readouterr().out == "3 queues, all are valid\n"


def test_what_is_wrong_is_said_all_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(QUEUES + WRONG)
    assert call(["queues", "check", str(file)]) == FAILED
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"error: {file}: document 5: spec.weight: is 0, expected a whole number from 1 to 65535",
        "error: queue lost is not valid: its parent nowhere does not exist",
    ]
    assert out == "5 queues, 2 of them not valid; all others work on\n"


@pytest.mark.parametrize("wrong", ["spec: 5", "spec: {}, status: {state: 5}", "spec: {weight: x}, status: 5"])
def test_each_wrong_field_of_a_queue_is_said_once(file: Path, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    file.write_text(f"{{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {{name: q}}, {wrong}}}")
    assert call(["queues", "check", str(file)]) == FAILED
    out, err = capsys.readouterr()
    assert err.count("error: ") == wrong.count(": 5") + wrong.count(": x")
    assert out == "1 queue, 1 of them not valid; all others work on\n"


@pytest.mark.parametrize(
    ("namespace", "line"),
    [
        ("nlp", "jobs of namespace nlp may use: default, llm, vision (closed)"),
        ("web", "jobs of namespace web may use: default, vision (closed)"),
    ],
)
def test_the_queues_of_a_namespace_are_named(
    file: Path, capsys: pytest.CaptureFixture[str], namespace: str, line: str
) -> None:
    assert call(["queues", "check", str(file), namespace]) == OK
    assert capsys.readouterr().out.splitlines()[0] == line


def test_a_check_for_programs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(QUEUES + WRONG)
    assert call(["queues", "check", str(file), "nlp", "--json"]) == FAILED
    found = json.loads(capsys.readouterr().out)
    assert (found["queues"], len(found["faults"])) == (5, 2)
    assert (found["usable"], found["closed"]) == (["default", "llm", "vision"], ["vision"])


def test_the_tree_has_limits_and_entitlements(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["queues", "show", str(file), "--cluster", "nodes=16"]) == OK
    assert capsys.readouterr().out.splitlines() == [
        "QUEUE               STATE    ENTITLED  LIMIT  KEPT FREE  NAMESPACES",
        "huawei.com/Ascend910",
        "  root              Open     128       -      -          all",
        "    default (made)  Open     0         128    -          all",
        "    research        Open     96        96     -          all",
        "      llm           Open     48        96     16         nlp",
        "      vision        Closing  48        80     -          all",
    ]


def test_without_a_cluster_entitlements_are_not_known(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["queues", "show", str(file)]) == OK
    out = capsys.readouterr().out.splitlines()
    assert out[4] == "    research        Open     -         96     -          all"
    assert out[-1] == "entitlements need a cluster: --cluster FILE, or a root with a capability"


def test_the_tree_for_programs_has_wrong_queues_last(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(QUEUES + WRONG)
    assert call(["queues", "show", str(file), "--cluster", "nodes=16", "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert [queue["name"] for queue in found["queues"]] == [
        "root",
        "default",
        "research",
        "llm",
        "vision",
        "lost",
        "odd",
    ]
    assert found["queues"][3]["entitlement"]["huawei.com/Ascend910"] == 4800
    assert found["queues"][5]["reason"] == "its parent nowhere does not exist"


def test_more_deserved_than_there_is_is_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(QUEUES.replace("guarantee: {resource: {huawei.com/Ascend910: 16}}", "deserved: {cpu: 4000}"))
    assert call(["queues", "show", str(file), "--cluster", "nodes=16"]) == OK
    assert "queues below research are entitled to 928 cpu more than research" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    assert call(["queues", "check", str(path)]) == WRONG_USE
    assert capsys.readouterr().err.startswith(f"error: {path} ")
