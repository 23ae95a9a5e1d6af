"""Errors of jobs: the path that an error names leads to the value that it tells, in the document as it was written."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.cli.jobs.requests import faults_of, read_requests, refusals_of
from berth.core.state.cell import State
from berth.formats.yaml_tree import shown
from berth.schemas.ledger import Settings
from berth.services.api.request_errors import RequestError
from berth.services.api.submission import judge, read_submission

Path = tuple[str | int, ...]
NPU = "huawei.com/Ascend910"
STEP = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+)\]|\['([^']*)'\]")


def template(chips: int) -> dict[str, Any]:
    limits = {NPU: chips, "cpu": "4", "memory": "8Gi"}
    return {
        "metadata": {"labels": {"app": "x", "tor-affinity": "null"}, "annotations": {"sp-block": "16"}},
        "spec": {
            "nodeSelector": {"accelerator-type": "module-910b-8"},
            "containers": [{"name": "side"}, {"name": "main", "resources": {"limits": limits}}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
        },
    }


def job(version: str, kind: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    labels = {"tor-affinity": "null", "subHealthyStrategy": "ignore", "fault-scheduling": "grace"}
    metadata = {"name": "train", "uid": "u", "labels": labels, "annotations": annotations}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


JOBS = [
    job(
        "berth/v1",
        "Job",
        {
            "product": "module910bx8",
            "replicas": 2,
            "chips": 8,
            "cpu": 4,
            "queue": "q",
            "minAvailable": 2,
            "runFor": "9s",
        },
        **{"huawei.com/schedule_minAvailable": "2"},
    ),
    job(
        "berth/v1",
        "Job",
        {
            "resource": NPU,
            "policy": "chip8-node8",
            "nodeSelector": {"accelerator-type": "module-910b-8"},
            "near": {"app": "x"},
            "tasks": [{"name": "none", "replicas": 0}, {"name": "a", "replicas": 2, "chips": 8, "memory": "8Gi"}],
        },
        **{"berth/run-for": "9s"},
    ),
    job("berth/v1", "Job", {"resource": NPU, "chips": 1, "softShare": {"aicore": 9, "hbmMib": 1, "policy": "elastic"}}),
    job(
        "batch.volcano.sh/v1alpha1",
        "Job",
        {
            "minAvailable": 2,
            "queue": "q",
            "tasks": [
                {"name": "none", "replicas": 0, "template": template(0)},
                {"name": "a", "replicas": 2, "template": template(8)},
            ],
        },
    ),
    job(
        "mindxdl.gitee.com/v1",
        "AscendJob",
        {
            "runPolicy": {"schedulingPolicy": {"minAvailable": 2, "queue": "q"}},
            "replicaSpecs": {
                "Master": {"replicas": 1, "template": template(8)},
                "Worker": {"replicas": 1, "template": template(8)},
            },
        },
    ),
    job(
        "batch/v1",
        "Job",
        {"parallelism": 2, "completions": 2, "template": template(8)},
        **{"scheduling.volcano.sh/group-min-member": "2", "scheduling.volcano.sh/queue-name": "q"},
    ),
]
RENAMED = "(another name)"
WRONG: list[object] = [
    0, -1, 3, 99, 10**12, "x", "A_B", "0", "9", "", "huawei.com/npu-2c", "y" * 400, [], ["x"], {}, {"x": 1}, True, None,
    {f"key-{number}": "x" for number in range(300)}, "level1=2,level2=3",
    RENAMED,
]  # fmt: skip


def entries(value: object) -> dict[str | int, object]:
    if isinstance(value, list):
        return dict(enumerate(value))
    return dict(value) if isinstance(value, dict) else {}


def fields(value: object, path: Path = ()) -> Iterator[Path]:
    for key, below in entries(value).items():
        yield (*path, key)
        yield from fields(below, (*path, key))


def parsed(path: str) -> Path:
    steps = list(STEP.finditer(path))
    assert "".join(step[0] for step in steps) == path, path
    return tuple(int(step[2]) if step[2] else step[1] or step[3] for step in steps)


def changed(document: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    """The document with another value of one field; ``RENAMED`` for another name of it."""
    found = copy.deepcopy(document)
    *parent, key = path
    place: Any = found
    for step in parent:
        place = place[step]
    if value == RENAMED and isinstance(place, dict):
        place[f"{NPU}-2c"] = place.pop(key)
    else:
        place[key] = value
    return found


def leads_to(document: dict[str, Any], field: str, value: str) -> None:
    """Check that the value of an error is at its path; what is missing would be there."""
    *parent, key = parsed(field)
    place: object = document
    for step in parent:
        place = entries(place)[step]
    if value.strip("'") in {"", "missing"}:
        assert entries(place).get(key) in {None, ""}
        return
    found, told = entries(place)[key], value.removeprefix("only ")
    if isinstance(found, str | int | float) and told != "an unknown field":
        assert told in {shown(found), str(key)} or str(found).startswith(told)


@settings(max_examples=100)
@given(data=st.data(), value=st.sampled_from(WRONG))
def test_the_path_of_an_error_leads_to_its_value_in_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, value: object
) -> None:
    right = data.draw(st.sampled_from(JOBS))
    document = changed(right, data.draw(st.sampled_from(list(fields(right)))), value)
    file = tmp_path_factory.getbasetemp() / "job.json"
    file.write_text(json.dumps(document))
    read = read_requests((str(file),))
    refused = (fault for sent in read.requests for fault in faults_of(sent, refusals_of(sent.request, Settings())))
    for fault in (*read.faults, *refused):
        leads_to(document, fault.field, fault.value)


@pytest.mark.parametrize("right", JOBS, ids=lambda job: f"{job['apiVersion']}-{len(job['spec'])}")
def test_the_path_of_an_error_leads_to_its_value_in_a_submission(right: dict[str, Any]) -> None:
    for path in fields(right):
        for value in WRONG:
            sent = {"job": changed(right, path, value)}
            try:
                judge(read_submission(msgspec.json.encode(sent), ""), State(), now_ms=1)
            except RequestError as error:
                field, _, rest = error.error.partition(" is ")
                leads_to(sent, field, rest.partition(", expected ")[0])
