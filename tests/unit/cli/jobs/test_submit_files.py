"""What ``berth submit`` reads from files before it knows a cell."""

import json
from pathlib import Path

import pytest

from berth.cli.app import call
from berth.cli.jobs.requests import Read, read_requests

OWN = """
apiVersion: berth/v1
kind: Job
metadata: {name: mixed}
spec:
  resource: huawei.com/Ascend910
  nodeSelector: {accelerator-type: module-910b-8}
  tasks:
    - {name: launcher, replicas: 1, cpu: 1, memory: 1Gi}
    - {name: worker, replicas: 2, chips: 8, cpu: 8, memory: 64Gi}
"""
MINDSPORE = """
apiVersion: mindxdl.gitee.com/v1
kind: AscendJob
metadata: {name: ms}
spec:
  replicaSpecs:
    Scheduler:
      template: {spec: {nodeSelector: {accelerator-type: module-910b-8}, containers: [{name: ascend}]}}
    Worker:
      replicas: 2
      template:
        spec:
          nodeSelector: {accelerator-type: module-910b-8}
          containers: [{name: ascend, resources: {limits: {huawei.com/Ascend910: 8}}}]
"""
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: rings-config-mixed}
data: {hccl.json: '{"status":"initializing"}'}
---
"""


def reading_of(folder: Path, text: str) -> Read:
    file = folder / "jobs.yaml"
    file.write_text(text)
    return read_requests((str(file),))


@pytest.mark.parametrize("text", [OWN, MINDSPORE])
def test_a_job_that_mixes_pods_with_and_without_chips_is_valid_without_a_cell(tmp_path: Path, text: str) -> None:
    found = reading_of(tmp_path, text)
    assert found.faults == []
    (sent,) = found.requests
    assert [task.chips for task in sent.request.tasks] == [0, 8]


def test_a_job_is_refused_before_a_cell_is_known_by_the_rules_of_this_release(tmp_path: Path) -> None:
    text = OWN.replace("chips: 8", "chips: 3").replace("module-910b-8", "module")
    (fault,) = reading_of(tmp_path, text).faults
    assert (fault.code, fault.field) == ("invalid-request", "spec.tasks[1].chips")


def test_a_job_above_a_bound_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    annotations = "".join(f"    key-{number}: x\n" for number in range(300))
    text = OWN.replace("metadata: {name: mixed}", f"metadata:\n  name: mixed\n  annotations:\n{annotations}")
    (fault,) = reading_of(tmp_path, text).faults
    assert (fault.code, fault.field, fault.value) == ("too-large", "metadata.annotations", "300 annotations")
    tasks = "".join(f"    - {{name: t{number}, cpu: 1}}\n" for number in range(5_000))
    (fault,) = reading_of(tmp_path, OWN.partition("    - ")[0] + tasks).faults
    assert (fault.field, fault.value, fault.expected) == ("spec.tasks", "a list of 5000", "at most 4096 tasks of a job")


def test_all_errors_of_a_document_are_told_with_the_fields_of_the_file(tmp_path: Path) -> None:
    unread = "apiVersion: berth/v1\nkind: Job\nmetadata: {name: y, nme: z}\nspec: {product: module910bx8, replica: 2, chips: 8, priority: high, cpus: 3}\n"
    assert [fault.field for fault in reading_of(tmp_path, unread).faults] == [
        "metadata.nme", "spec.replica", "spec.cpus", "spec.priority",
    ]  # fmt: skip
    refused = "apiVersion: berth/v1\nkind: Job\nmetadata: {name: x, labels: {tor-affinity: abc}}\nspec: {product: module910bx8, replicas: 2, chips: 9}\n"
    assert [fault.field for fault in reading_of(tmp_path, refused).faults] == [
        "metadata.labels.tor-affinity", "spec.chips",
    ]  # fmt: skip


def test_what_may_be_missing_because_of_an_error_before_is_not_told(tmp_path: Path) -> None:
    text = "apiVersion: berth/v1\nkind: Job\nmetadata: {name: y}\nspec: {product: modul, chips: 8}\n"
    assert [fault.field for fault in reading_of(tmp_path, text).faults] == ["spec.product"]


VOLCANO = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: v}
spec:
  minAvailable: 9
  tasks:
  - {name: none, replicas: 0, template: {spec: {containers: [{name: c, image: i}]}}}
  - name: a
    replicas: 2
    template:
      metadata: {labels: {tor-affinity: qqq}}
      spec:
        nodeSelector: {accelerator-type: module-910b-8}
        containers:
        - {name: side, image: i}
        - {name: c, image: i, resources: {limits: {huawei.com/Ascend910: 9}, requests: {huawei.com/Ascend910: 9}}}
"""


def test_fields_of_a_volcano_job_are_those_of_its_tasks(tmp_path: Path) -> None:
    faults = reading_of(tmp_path, VOLCANO).faults
    assert [fault.field for fault in faults] == [
        "spec.minAvailable", "spec.tasks[1].template.metadata.labels.tor-affinity",
    ]  # fmt: skip
    faults = reading_of(tmp_path, VOLCANO.replace("minAvailable: 9", "minAvailable: 2").replace("qqq", "'null'")).faults
    place = "spec.tasks[1].template.spec.containers[1].resources.limits['huawei.com/Ascend910']"
    assert [fault.field for fault in faults] == [place]


def test_virtual_npus_are_refused_as_such(tmp_path: Path) -> None:
    text = OWN.replace("huawei.com/Ascend910", "huawei.com/Ascend910-2c")
    (fault,) = reading_of(tmp_path, text).faults
    assert (fault.code, fault.value) == ("unsupported-vnpu", "huawei.com/Ascend910-2c")


def test_other_kinds_are_skipped_with_a_note(tmp_path: Path) -> None:
    found = reading_of(tmp_path, CONFIG_MAP + OWN)
    assert [sent.key for sent in found.requests] == [("default", "mixed")]
    (note,) = found.skipped
    assert note.endswith("jobs.yaml: document 1: ConfigMap rings-config-mixed (v1) is no job; it is skipped")


def test_the_note_is_printed_and_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(CONFIG_MAP + OWN.replace("chips: 8", "chips: many"))
    assert call(["submit", str(file), "--json"]) == 1
    printed = capsys.readouterr()
    (note,) = json.loads(printed.out)["skipped"]
    assert f"warning: {note}" in printed.err
    assert "ConfigMap rings-config-mixed" in note


def test_a_file_that_cannot_be_read_is_a_fault_and_the_others_are_read(tmp_path: Path) -> None:
    latin, good = tmp_path / "latin.yaml", tmp_path / "good.yaml"
    latin.write_bytes(b"# gr\xfc\xdfe")
    good.write_text(OWN)
    found = read_requests((str(tmp_path / "none.yaml"), str(latin), str(tmp_path), str(good)))
    assert [(Path(fault.file).name, fault.value) for fault in found.faults] == [
        ("none.yaml", "unreadable (No such file or directory)"),
        ("latin.yaml", "not UTF-8 at byte 4"),
        (tmp_path.name, "unreadable (Is a directory)"),
    ]
    assert [sent.key for sent in found.requests] == [("default", "mixed")]


def test_a_file_with_other_kinds_only_is_a_fault(tmp_path: Path) -> None:
    (fault,) = reading_of(tmp_path, CONFIG_MAP).faults
    assert (fault.value, "at least one job" in fault.expected) == ("only ConfigMap", True)
