"""The table of fields of owners in ``docs/reference/workloads.md`` has what the code reads of each of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
from msgspec import inspect

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.kubernetes.workloads.kinds.job_set import JobSetSpec
from berth.formats.kubernetes.workloads.kinds.kubeflow import KubeflowJobSpec
from berth.formats.kubernetes.workloads.kinds.leader_worker_set import LeaderWorkerSetSpec
from berth.formats.kubernetes.workloads.kinds.ray_cluster import RayClusterSpec

PAGE: Final = Path(__file__).parents[4] / "docs" / "reference" / "workloads.md"
READ: Final[dict[str, type[Lean]]] = {
    "JobSet": JobSetSpec,
    "LeaderWorkerSet": LeaderWorkerSetSpec,
    "RayCluster": RayClusterSpec,
    "Kubeflow": KubeflowJobSpec,
}


def rows() -> dict[tuple[str, str], str]:
    """What the table says of each field, by owner and path; what is below a path is not in it again."""
    text = PAGE.read_text("utf-8").partition("## Fields of owners")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (\w+) \| `([*.\w]+)` \| (read|pod|unused) \|", text, re.MULTILINE)
    return {(owner, path): verdict for owner, path, verdict in found}


ROWS: Final = rows()


def any_kind(path: str) -> str:
    """A path below the replica types of a job of Kubeflow, which each kind names after itself."""
    return re.sub(r"^\w+ReplicaSpecs(\.\*)?", "*ReplicaSpecs", path)


def decoded(kind: inspect.Type, path: str = "") -> Iterator[tuple[str, str]]:
    """Paths that are decoded, each with the verdict that it must have."""
    match kind:
        case inspect.UnionType(types=types):
            for one in types:
                yield from decoded(one, path)
        case inspect.ListType(item_type=item) | inspect.DictType(value_type=item):
            yield from decoded(item, path)
        case inspect.StructType(cls=cls) if cls is Template:
            yield path, "pod"
        case inspect.StructType(cls=cls) if cls is Meta:
            pass
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from decoded(field.type, f"{path}.{field.encode_name}".strip("."))
        case inspect.NoneType():
            pass
        case _:
            yield path, "read"


def test_every_field_of_a_leaderworkerset_is_in_the_table() -> None:
    told = {path.removeprefix("leaderWorkerTemplate.") for owner, path in ROWS if owner == "LeaderWorkerSet"}
    assert told == {
        *("replicas", "rolloutStrategy", "startupPolicy", "networkConfig"),
        *("leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy", "volumeClaimTemplates"),
        "persistentVolumeClaimRetentionPolicy",
    }


@pytest.mark.parametrize("owner", sorted(READ))
def test_what_is_decoded_is_what_the_table_says(owner: str) -> None:
    found = {any_kind(path): verdict for path, verdict in decoded(msgspec.inspect.type_info(READ[owner]))}
    assert {path: verdict for (one, path), verdict in ROWS.items() if one == owner and verdict != "unused"} == found
