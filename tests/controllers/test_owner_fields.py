"""Every field that the definitions of operators have is in the table of fields of owners, or below one that is."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.support.kube_api import crds_in
from tests.support.real_controllers import JOBSET, KUBERAY, TRAINING, Release
from tests.unit.formats.kubernetes.test_owner_fields import ROWS, any_kind

KINDS: Final = {
    "JobSet": (JOBSET, "JobSet"),
    "RayCluster": (KUBERAY, "RayCluster"),
    "Kubeflow": (TRAINING, ""),
}
"""Release of the operator of each owner, and the kind; empty for all kinds of the release."""
OF_OTHERS: Final = {"runLauncherAsWorker", "launcherCreationPolicy"}
"""Fields of mpi-operator."""


def leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of fields that have no fields of their own; lists and maps are as their entries."""
    inner = schema.get("items") or schema.get("additionalProperties")
    properties = schema.get("properties")
    if properties:
        for name, field in properties.items():
            yield from leaves(field, f"{path}.{name}".strip("."))
    elif isinstance(inner, Mapping):
        yield from leaves(inner, path)
    else:
        yield path


def fields_of(release: Release, kind: str) -> set[str]:
    """Leaves of the specs of all versions that a release serves."""
    found: set[str] = set()
    for one in crds_in(release.manifests / release.definitions):
        if one["kind"] != "CustomResourceDefinition" or (kind and one["spec"]["names"]["kind"] != kind):
            continue
        for version in one["spec"]["versions"]:
            spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            found.update(any_kind(path) for path in leaves(spec))
    return found


@pytest.mark.parametrize("owner", sorted(KINDS))
def test_every_field_of_an_owner_is_in_the_table(owner: str) -> None:
    fields = fields_of(*KINDS[owner])
    told = {path for one, path in ROWS if one == owner}
    covered = {field: [path for path in told if f"{field}.".startswith(f"{path}.")] for field in fields}
    assert [field for field, by in sorted(covered.items()) if not by] == []
    assert told - {path for by in covered.values() for path in by} <= OF_OTHERS, "no row is about nothing"
