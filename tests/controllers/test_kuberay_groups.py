"""RayClusters with Ray's real operator, which makes PodGroups of Volcano for them, and its webhook."""

from typing import Any

import pytest

from tests.support.kube_cells import a_spec
from tests.support.kustomize import Tree
from tests.support.real_controllers import KUBERAY_WITH_GROUPS
from tests.support.real_workloads import Workloads, uids

pytestmark = pytest.mark.timeout(120)
RELEASE = KUBERAY_WITH_GROUPS
WORKER = "ray-w-worker-"
HEAD = ["ray-head-"]


def a_cluster(workers: int, *, hosts: int = 1, least: int | None = None, policy: str = "Always", **spec: Any) -> Tree:  # noqa: ANN401  # fields of its spec
    """A RayCluster: a head without chips, and workers with all chips of a node each."""
    group = {
        "groupName": "w",
        "replicas": workers,
        "minReplicas": workers if least is None else least,
        "maxReplicas": 6,
        "numOfHosts": hosts,
        "rayStartParams": {},
        "template": {"spec": a_spec(8, policy=policy)},
    }
    head = {"rayStartParams": {}, "template": {"spec": a_spec(0, policy="Always")}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray"},
        "spec": {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group], **spec},
    }


async def test_a_head_and_workers_are_one_gang(workloads: Workloads) -> None:
    body = a_cluster(3)
    await workloads.make(body)
    await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.until_has(body, "is ready", lambda one: one.get("status", {}).get("state") == "ready")
    await workloads.drop(body)
    await workloads.until_over()


async def test_all_hosts_of_a_replica_are_part_of_the_gang(workloads: Workloads) -> None:
    body = a_cluster(2, hosts=2)
    await workloads.make(body)
    await workloads.until_whole(*[WORKER] * 4, beside=HEAD)
    await workloads.drop(body)
    await workloads.until_over()


async def test_workers_that_are_added_and_removed_leave_the_others_alone(workloads: Workloads) -> None:
    body = a_cluster(2)
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 2, beside=HEAD)
    await workloads.change(body, {"spec": {"workerGroupSpecs": resized(body, 4)}})
    after = await workloads.until_whole(*[WORKER] * 4, beside=HEAD, were=before)
    await workloads.change(body, {"spec": {"workerGroupSpecs": resized(body, 2)}})

    async def shrinks() -> bool:
        return len(await workloads.pods()) == len(HEAD) + 2

    await workloads.until("two workers are left", shrinks)
    left = uids(await workloads.pods())
    ranks = [rank for rank, pod in enumerate(after) if pod["metadata"]["uid"] in left]
    await workloads.until_whole(*[WORKER] * 2, beside=HEAD, ranks=ranks, apart=True)
    await workloads.drop(body)
    await workloads.until_over()


async def test_a_suspended_cluster_holds_nothing_and_comes_back_whole(workloads: Workloads) -> None:
    body = a_cluster(2)
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 2, beside=HEAD)
    await workloads.change(body, {"spec": {"suspend": True}})
    await workloads.until_over()
    await workloads.change(body, {"spec": {"suspend": False}})
    await workloads.until_whole(*[WORKER] * 2, beside=HEAD, without=before)
    await workloads.drop(body)
    await workloads.until_over()


async def test_a_worker_of_a_lost_node_is_made_anew(workloads: Workloads) -> None:
    body = a_cluster(3)
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.lose_node(before[1])
    await workloads.until_whole(*[WORKER] * 3, beside=HEAD, without=before[1:2], were=[before[0], before[2]])
    await workloads.drop(body)
    await workloads.until_over()


async def test_a_worker_that_fails_is_made_anew(workloads: Workloads) -> None:
    body = a_cluster(3, policy="Never")
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.fail(before[0])
    await workloads.until_whole(*[WORKER] * 3, beside=HEAD, without=before[:1], were=before[1:])
    await workloads.drop(body)
    await workloads.until_over()


async def test_a_cluster_of_workers_that_may_be_fewer_starts_with_the_fewest(workloads: Workloads) -> None:
    """With autoscaling the PodGroup has the head and the least number of workers as its minimum."""
    body = a_cluster(6, least=2, enableInTreeAutoscaling=True)
    other = a_cluster(3)
    other["metadata"]["name"] = "other"
    await workloads.make(other)
    await workloads.until_whole(*["other-w-worker-"] * 3, beside=["other-head-"])
    await workloads.make(body)
    await workloads.until_count("ray-w-worker-", running=3, waiting=3)
    await workloads.drop(other)
    await workloads.until_count("ray-w-worker-", running=6, waiting=0)
    await workloads.drop(body)
    await workloads.until_over()


async def test_a_cluster_without_room_waits_whole(workloads: Workloads) -> None:
    first, second = a_cluster(3), a_cluster(4)
    second["metadata"]["name"] = "second"
    await workloads.make(first)
    before = await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.make(second)
    await workloads.until_told("second-", "PodGroup is Pending: asks for 32 huawei.com/Ascend910, 24 are free")
    await workloads.drop(first)
    await workloads.until_whole(*["second-w-worker-"] * 4, beside=["second-head-"], without=before)
    await workloads.drop(second)
    await workloads.until_over()


def resized(body: Tree, workers: int) -> list[Tree]:
    """Its worker groups with another number of replicas."""
    return [group | {"replicas": workers, "minReplicas": workers} for group in body["spec"]["workerGroupSpecs"]]
