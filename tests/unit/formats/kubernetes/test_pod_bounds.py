"""Pods with more conditions than any may have: refused with the field, and quickly."""

import time
from typing import Any

import msgspec
import pytest

from berth.formats.kubernetes.pod_spec import PodSpec
from berth.formats.kubernetes.pods import read_pod
from berth.schemas.intake import (
    CONTAINERS,
    EXPRESSIONS,
    PORTS,
    RESOURCES,
    SELECTOR,
    TERMS,
    TOLERATIONS,
    VALUES,
    VOLUMES,
    Bound,
)

CHIPS = {"name": "c", "resources": {"limits": {"huawei.com/Ascend910": 2}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(**fields: object) -> PodSpec:
    return msgspec.convert({"containers": [CHIPS]} | fields, PodSpec)


def near(count: int) -> list[dict[str, Any]]:
    return [{"topologyKey": f"zone-{number}"} for number in range(count)]


def conditions(count: int) -> list[dict[str, Any]]:
    return [{"key": f"k{number}", "operator": "Exists"} for number in range(count)]


def spec_of(field: str, count: int) -> PodSpec:
    """Spec with so many of what a field has."""
    ports = [{"hostPort": number + 1, "containerPort": 1} for number in range(count)]
    values = {"key": "k", "operator": "In", "values": ["v"] * count}
    specs: dict[str, dict[str, Any]] = {
        "containers": {"containers": [CHIPS, *({"name": "other"} for _ in range(count - 1))]},
        "initContainers": {"initContainers": [{"name": "other"}] * count},
        "containers[*].ports": {"containers": [{**CHIPS, "ports": ports}]},
        "containers[*].resources": {
            "containers": [CHIPS, {"resources": {"limits": {f"a.b/r{number}": 1 for number in range(count)}}}]
        },
        "nodeSelector": {"nodeSelector": {f"k{number}": "" for number in range(count)}},
        "tolerations": {"tolerations": [{"operator": "Exists"}] * count},
        "volumes": {"volumes": [{"name": f"v{number}"} for number in range(count)]},
        "topologySpreadConstraints": {
            "topologySpreadConstraints": [
                {"topologyKey": f"k{number}", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                for number in range(count)
            ]
        },
        f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms": {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [values]} for _ in range(count)]}
                }
            }
        },
        f"affinity.nodeAffinity.{PREFERRED}": {
            "affinity": {
                "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": conditions(count)}}]}
            }
        },
        f"affinity.podAffinity.{REQUIRED}": {"affinity": {"podAffinity": {REQUIRED: near(count)}}},
        f"affinity.podAntiAffinity.{PREFERRED}": {
            "affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": one} for one in near(count)]}}
        },
    }
    return pod(**specs[field])


BY_FIELD = {
    "containers": CONTAINERS,
    "initContainers": CONTAINERS,
    "containers[*].ports": PORTS,
    "containers[*].resources": RESOURCES,
    "nodeSelector": SELECTOR,
    "tolerations": TOLERATIONS,
    "volumes": VOLUMES,
    "topologySpreadConstraints": TERMS,
    f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms": TERMS,
    f"affinity.nodeAffinity.{PREFERRED}": EXPRESSIONS,
    f"affinity.podAffinity.{REQUIRED}": TERMS,
    f"affinity.podAntiAffinity.{PREFERRED}": TERMS,
}


@pytest.mark.parametrize(("field", "bound"), BY_FIELD.items(), ids=BY_FIELD.keys())
def test_a_pod_at_a_bound_is_read_and_one_above_it_is_refused(field: str, bound: Bound) -> None:
    assert read_pod(spec_of(field, bound.most))[1] == []
    ask, errors = read_pod(spec_of(field, bound.most + 1))
    assert (errors[0].field, errors[0].value, errors[0].expected) == (f"spec.{field}", bound.most + 1, bound.expected)
    assert ask.wrong == f"has spec.{field} of {bound.most + 1}: expected {bound.expected}"


def test_values_of_all_conditions_of_a_pod_are_counted_together() -> None:
    half = {"key": "k", "operator": "In", "values": ["v"] * (VALUES.most // 2 + 1)}
    terms = [{"matchExpressions": [half]}, {"matchExpressions": [half]}]
    _, errors = read_pod(pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}))
    assert (errors[0].value, errors[0].expected) == (VALUES.most + 2, VALUES.expected)


def test_a_pod_above_a_bound_takes_from_its_node_what_it_asks_for() -> None:
    ask, _ = read_pod(pod(tolerations=[{"operator": "Exists"}] * (TOLERATIONS.most + 1), nodeSelector={"a": "b"}))
    assert (ask.chips, ask.resource, ask.tolerations, ask.node_selector) == (2, "huawei.com/Ascend910", (), {"a": "b"})


def test_a_pod_with_very_many_ports_costs_no_more_than_its_length() -> None:
    def took_s(count: int) -> float:
        spec = spec_of("containers[*].ports", count)
        began_s = time.process_time()
        read_pod(spec)
        return time.process_time() - began_s

    assert took_s(20_000) < 200 * took_s(1_000) + 0.2  # each with each: 400 times as much
