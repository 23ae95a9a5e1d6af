"""The table of fields of PodGroups in ``docs/reference/workloads.md`` says what the code does with each of them."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import PodGroup, PodGroupSpec
from berth.formats.kubernetes.workloads.kinds.coscheduling import CoPodGroupSpec
from berth.formats.kubernetes.workloads.kinds.native_groups import NativePodGroupSpec
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.services.inventory.gangs.warnings import ignored_constraints
from tests.support.gang_world import facts_of

PAGE: Final = Path(__file__).parents[4] / "docs" / "reference" / "workloads.md"
READ: Final[dict[str, type[Lean]]] = {
    "Kubernetes": NativePodGroupSpec,
    "Volcano": PodGroupSpec,
    "coscheduling": CoPodGroupSpec,
}
EXAMPLES: Final[dict[str, Any]] = {
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "parentCompositePodGroupName": "tree",
    "networkTopology": {"mode": "hard"},
    "subGroupPolicy": [{"name": "a"}],
}
SERVED: Final[dict[str, set[str]]] = {
    "Kubernetes": {
        *("podGroupTemplateRef", "workloadRef", "schedulingPolicy", "schedulingConstraints", "resourceClaims"),
        *("disruptionMode", "priorityClassName", "priority", "preemptionPolicy", "parentCompositePodGroupName"),
    },
    "Volcano": {
        *("minMember", "minTaskMember", "minResources", "queue", "priorityClassName"),
        *("networkTopology", "subGroupPolicy"),
    },
    "coscheduling": {"minMember", "minResources", "scheduleTimeoutSeconds"},
}
"""Fields that the APIs have: Kubernetes 1.36 and 1.37, Volcano 1.15, scheduler-plugins 0.31."""


def rows() -> dict[tuple[str, str], str]:
    """What the table says of each field, by API and field."""
    text = PAGE.read_text("utf-8").partition("## Fields of PodGroups")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (\w+) \| `(\w+)` \| (read|refused|named|unused) \|", text, re.MULTILINE)
    return {(api, field): verdict for api, field, verdict in found}


ROWS: Final = rows()


@pytest.mark.parametrize("api", sorted(SERVED))
def test_every_field_of_a_podgroup_is_in_the_table(api: str) -> None:
    assert {field for one, field in ROWS if one == api} == SERVED[api]


@pytest.mark.parametrize("api", sorted(READ))
def test_what_is_decoded_is_read_refused_or_named(api: str) -> None:
    used = {field for (one, field), verdict in ROWS.items() if one == api and verdict != "unused"}
    assert set(READ[api].__struct_encode_fields__) == used


@pytest.mark.parametrize("field", sorted(field for (_, field), verdict in ROWS.items() if verdict == "refused"))
def test_a_refused_field_is_named_in_the_reason(field: str) -> None:
    assert field in facts_of(OwnerKey("NativePodGroup", "ns", "g"), {field: EXAMPLES[field]}).refused


@pytest.mark.parametrize("field", sorted(field for (_, field), verdict in ROWS.items() if verdict == "named"))
def test_a_named_field_is_named_in_an_event(field: str) -> None:
    assert field in ignored_constraints(msgspec.convert({"spec": {field: EXAMPLES[field]}}, PodGroup), members=())
