"""Numbers and states of owners, as they are read."""

from typing import Any

import pytest

from berth.formats.kubernetes.workloads.port import OwnerKey, OwnerKind
from tests.support.gang_world import facts_of


def _true(*types: str) -> dict[str, Any]:
    return {"conditions": [{"type": one, "status": "True"} for one in types]}


@pytest.mark.parametrize(
    ("kind", "status", "final"),
    [
        ("Job", _true("Suspended", "Complete"), "Complete"),
        ("Job", _true("Failed"), "Failed"),
        ("Job", _true("SuccessCriteriaMet"), ""),
        ("Job", {"conditions": [{"type": "Failed", "status": "False"}]}, ""),
        ("Job", {"succeeded": 1}, ""),
        ("VolcanoJob", {"state": {"phase": "Completed"}}, "Completed"),
        ("VolcanoJob", {"state": {"phase": "Failed"}}, "Failed"),
        ("VolcanoJob", {"state": {"phase": "Terminated"}}, "Terminated"),
        ("VolcanoJob", {"state": {"phase": "Completing"}}, ""),
        ("VolcanoJob", {"state": {"phase": "Aborted"}}, ""),
        ("VolcanoJob", {"state": None}, ""),
        ("AscendJob", _true("Created", "Succeeded"), "Succeeded"),
        ("AscendJob", _true("Failed"), "Failed"),
        ("AscendJob", _true("Created", "Restarting"), ""),
        ("JobSet", _true("Completed"), "Completed"),
        ("JobSet", _true("Failed"), "Failed"),
        ("JobSet", _true("StartupPolicyCompleted"), ""),
        ("StatefulSet", _true("Failed"), ""),
    ],
)
def test_an_owner_that_has_ended_makes_no_pods_any_more(kind: OwnerKind, status: dict[str, Any], final: str) -> None:
    assert facts_of(OwnerKey(kind, "ns", "train"), {"status": status}).final == final


@pytest.mark.parametrize("kind", ["Job", "VolcanoJob", "AscendJob", "JobSet"])
def test_an_owner_without_a_status_has_not_ended(kind: OwnerKind) -> None:
    assert facts_of(OwnerKey(kind, "ns", "train"), {}).final == ""
