"""The table of ``docs/reference/pod-fields.md`` says what the code does with each field of a pod."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import PodRequirements, pod_requirements
from berth.schemas.pod_constraints import PodConstraints

PAGE: Final = Path(__file__).parents[4] / "docs" / "reference" / "pod-fields.md"
VERDICTS: Final = ("enforced", "scored", "refused", "unused")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
TERM: Final = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
SPREAD: Final = {"topologyKey": "zone", "maxSkew": 1, "labelSelector": {"matchLabels": {"app": "a"}}}
NODES: Final = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
PORT: Final = {"containerPort": 80, "hostPort": 8080}
META: Final = Meta(name="p", namespace="ns")

READ_ELSEWHERE: Final = {
    "schedulerName": "scheduler_name",
    "schedulingGates": "scheduling_gates",
    "schedulingGroup": "scheduling_group",
    "workloadRef": "workload_ref",
    "nodeName": "node_name",
    "priority": "priority",
    "priorityClassName": "priority_class_name",
    "preemptionPolicy": "preemption_policy",
}
"""Fields that decide whether, when and with whom a pod is placed, and the attribute that is read."""
BY_THE_SERVER: Final = {"hostNetwork", "runtimeClassName"}
"""Fields whose effect the server writes into others."""


def box(**more: object) -> dict[str, Any]:
    return {"containers": [{"name": "main", **more}]}


EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "nodeSelector": {"nodeSelector": {"disk": "ssd"}},
    "affinity.nodeAffinity.required": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NODES]}}}},
    "affinity.nodeAffinity.preferred": {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": NODES}]}}},
    "affinity.podAffinity.required": {"affinity": {"podAffinity": {REQUIRED: [TERM]}}},
    "affinity.podAffinity.preferred": {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}}},
    "affinity.podAntiAffinity.required": {"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}},
    "affinity.podAntiAffinity.preferred": {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}}},
    "tolerations": {"tolerations": [{"key": "a", "operator": "Exists"}]},
    "tolerations.operator": {"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]},
    "topologySpreadConstraints.DoNotSchedule": {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "DoNotSchedule"}]},
    "topologySpreadConstraints.ScheduleAnyway": {"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]},
    "containers.resources": box(resources={"requests": {"rdma/hca": "1"}}),
    "containers.ports.hostPort": box(ports=[PORT]),
    "containers.ports.hostPort twice": box(ports=[PORT, PORT]),
    "initContainers": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}]},
    "overhead": {"overhead": {"cpu": "1"}},
    "resources": {"resources": {"requests": {"cpu": "2"}}},
    "resourceClaims": {"resourceClaims": [{"name": "r"}]},
    "volumes.persistentVolumeClaim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "volumes.ephemeral": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
    "volumes.awsElasticBlockStore": {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "x"}}]},
    "volumes.gcePersistentDisk": {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "x"}}]},
    "volumes.iscsi": {"volumes": [{"name": "v", "iscsi": {"iqn": "x"}}]},
    "volumes.rbd": {"volumes": [{"name": "v", "rbd": {"image": "x"}}]},
    "volumes, other sources": {"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]},
}  # fmt: skip


def rows() -> dict[str, tuple[str, str]]:
    """What the table says of each field, and the remark."""
    found = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        match = re.fullmatch(r"`([^`]+)`(.*)", cells[0])
        if line.startswith("|") and match is not None:
            field = match[1] + match[2]
            assert field not in found, f"{field} is there twice"
            assert cells[1] in VERDICTS, line
            found[field] = (cells[1], cells[2])
    return found


ROWS: Final = rows()


def asked(field: str) -> PodRequirements:
    spec = {"containers": [{"name": "main"}], **EXAMPLES[field]}
    return pod_requirements(msgspec.convert(spec, PodSpec), META)


def test_every_field_that_is_not_unused_has_an_example() -> None:
    told = {field for field, (verdict, _) in ROWS.items() if verdict != "unused"}
    assert told - EXAMPLES.keys() == READ_ELSEWHERE.keys() | BY_THE_SERVER
    assert EXAMPLES.keys() <= ROWS.keys()


def test_what_the_server_writes_elsewhere_says_so() -> None:
    assert {field for field, (_, remark) in ROWS.items() if "the server " in remark} == {
        *BY_THE_SERVER,
        "priorityClassName",
    }
    assert {attribute for attribute in READ_ELSEWHERE.values() if attribute not in PodSpec.__struct_fields__} == set()


@pytest.mark.parametrize("field", EXAMPLES)
def test_the_code_does_what_the_table_says(field: str) -> None:
    plain = pod_requirements(msgspec.convert({"containers": [{"name": "main"}]}, PodSpec), META)
    ask = asked(field)
    match ROWS[field][0]:
        case "refused":
            name = field.removesuffix(" twice").rpartition(".")[2]
            assert name in ask.wrong
            assert "expected" in ask.wrong
        case "unused":
            assert ask == plain
        case "scored":
            assert ask.wrong == ""
            assert ask.constraints is not None
            scored = {name: () for name in PodConstraints.__struct_fields__ if name.startswith("preferred_")}
            assert msgspec.structs.replace(ask.constraints, **scored) == PodConstraints()
            assert ask.constraints != PodConstraints()
        case _:
            assert ask.wrong == ""
            assert ask != plain
            assert ask.constraints is None or not any(
                getattr(ask.constraints, name)
                for name in PodConstraints.__struct_fields__
                if name.startswith("preferred_")
            )


def test_every_attribute_that_is_read_is_in_the_table() -> None:
    tops = {re.split(r"[.,]", field)[0] for field in ROWS}
    read = set(PodSpec.__struct_encode_fields__)
    assert read <= tops
