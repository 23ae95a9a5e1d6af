"""A cell on a real API server that recovers jobs from faults, and what tests see of the jobs."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from berth.schemas.columns import unpack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import HealthSeen
from berth.schemas.simulation import BreakNode, NodeBroken
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, Tree, a_spec, chips_of
from tests.support.kube_rights import FAULT_OBJECTS, grant
from tests.support.waiting import until_true

JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
ASCEND_JOBS: Final = "/apis/mindxdl.gitee.com/v1/namespaces/{}/ascendjobs"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
COUNTERS: Final = "/api/v1/namespaces/volcano-system/configmaps"
REASONS: Final = "/api/v1/namespaces/mindx-dl/configmaps"
DEADLINE_S: Final = 30.0
FAULTS: Final = {
    "enabled": True,
    "escalate_block_ms": 1_000,
    "escalate_superpod_ms": 2_000,
    "escalate_job_ms": 4_000,
}
"""Section ``faults`` of the dispatcher."""


class Seat(NamedTuple):
    """A bound pod."""

    uid: str
    node: str
    chips: int


def settings(**agents: object) -> dict[str, Mapping[str, object]]:
    """Settings of the services: faults are handled, and told to others.

    Args:
        agents: Settings ``agents`` of nodesim.
    """
    return {
        "dispatcher": {"faults": FAULTS},
        "summary": {"fault_objects": {"written_by": "berth"}, "settle_s": 0.05},
        "nodesim": {"agents": agents, "run_default_s": 3_600},
    }


async def start(world: KubeCell) -> None:
    """Start a cell; summary may write the ConfigMaps about faults."""
    await grant(world.api, "summary", "summary", FAULT_OBJECTS)
    await world.start()


def ascend_job(name: str, workers: int, *, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Tree:
    """An AscendJob with a master and workers, each with all chips of a node."""
    specs = {
        kind: {"replicas": count, "restartPolicy": "Never", "template": {"spec": a_spec(8)}}
        for kind, count in (("Master", 1), ("Worker", workers))
    }
    return {
        "apiVersion": "mindxdl.gitee.com/v1",
        "kind": "AscendJob",
        "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)},
        "spec": {
            "schedulerName": "berth",
            "runPolicy": {"schedulingPolicy": {"minAvailable": workers + 1}},
            "replicaSpecs": specs,
        },
    }


async def pods_of(api: KubeApi, namespace: str, job: str) -> list[Tree]:
    """Pods of a job, by name."""
    found = await api.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in found if pod["metadata"]["ownerReferences"][0]["name"] == job]


def seats_of(pods: list[Tree]) -> dict[int, Seat]:
    """Running pods by rank."""
    return {
        int(pod["metadata"]["annotations"]["berth/rank"]): Seat(
            pod["metadata"]["uid"], pod["spec"]["nodeName"], chips_of(pod)
        )
        for pod in pods
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


async def until_seats(
    world: KubeCell, namespace: str, job: str, count: int, *, without: frozenset[str] = frozenset()
) -> dict[int, Seat]:
    """Wait until so many pods of a job run, and none of the pods named (uid) is there; returns them by rank.

    Raises:
        AssertionError: They do not in time; shows pods, status and logs.
    """
    found: dict[int, Seat] = {}
    pods: list[Tree] = []

    async def there() -> bool:
        nonlocal found, pods
        world.check()
        pods = await pods_of(world.api, namespace, job)
        found = seats_of(pods)
        return len(found) == len(pods) == count and not without & {seat.uid for seat in found.values()}

    try:
        await until_true(there, deadline_s=DEADLINE_S, what=f"{count} pods of {job} run")
    except AssertionError as error:
        lines = [f"{pod['metadata']['name']}: {pod['status']} {pod['metadata'].get('annotations')}" for pod in pods]
        statuses = [one for one in await statuses_of(world) if one.name.endswith(job)]
        raise AssertionError("\n".join([str(error), *lines, str(statuses), world.logs()])) from error
    return found


async def statuses_of(world: KubeCell) -> list[JobStatus]:
    """Statuses of all jobs."""
    return [decode(stored.data, JobStatus) for stored in await world.bus.read(StreamName.STATUS)]


async def break_node(world: KubeCell, wish: BreakNode) -> None:
    """Break or repair something of the simulated cluster."""
    answer = await world.bus.request(world.bus.subjects.sim("break"), encode(wish), timeout_s=5)
    assert decode(answer, NodeBroken).reason == ""


async def unusable_chips(world: KubeCell, node: str) -> int:
    """Mask of the chips of a node that the newest facts call unhealthy or withheld."""
    for stored in await world.bus.read(StreamName.LATEST, filters=(world.bus.subjects.facts("health"),)):
        seen = decode(stored.data, HealthSeen)
        names = unpack_names(seen.names)
        if node in names:
            row = names.index(node)
            masks = [np.frombuffer(column, "<u8") for column in (seen.unhealthy, seen.withheld) if column]
            return int(np.bitwise_or.reduce([column[row] for column in masks]))
    return 0


async def told(api: KubeApi, folder: str, name: str, key: str) -> dict[str, Any]:
    """JSON in a key of a ConfigMap; nothing where it is missing or empty."""
    for item in await api.items(folder, fieldSelector=f"metadata.name={name}"):
        found: dict[str, Any] = json.loads(item.get("data", {}).get(key) or "{}")
        return found
    return {}
