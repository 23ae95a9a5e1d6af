"""RayClusters with Ray's real operator, which makes PodGroups of Volcano for them, and its webhook."""

import pytest

from tests.support.operator_objects import a_ray_cluster, resized_cluster, samples
from tests.support.operator_steps import HEAD, WORKER, crowd_out_cluster, suspend_cluster
from tests.support.real_controllers import KUBERAY_WITH_GROUPS
from tests.support.real_workloads import Workloads, uids

pytestmark = pytest.mark.timeout(120)
RELEASE = KUBERAY_WITH_GROUPS


async def test_a_head_and_workers_are_one_gang(workloads: Workloads) -> None:
    body = a_ray_cluster(3)
    await workloads.make(body)
    await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.until_has(body, "is ready", lambda one: one.get("status", {}).get("state") == "ready")
    await workloads.end(body)


async def test_all_hosts_of_a_replica_are_part_of_the_gang(workloads: Workloads) -> None:
    body = a_ray_cluster(2, hosts=2)
    await workloads.make(body)
    await workloads.until_whole(*[WORKER] * 4, beside=HEAD)
    await workloads.end(body)


async def test_workers_that_are_added_and_removed_leave_the_others_alone(workloads: Workloads) -> None:
    body = a_ray_cluster(2)
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 2, beside=HEAD)
    await workloads.change(body, {"spec": {"workerGroupSpecs": resized_cluster(body, 4)}})
    after = await workloads.until_whole(*[WORKER] * 4, beside=HEAD, were=before)
    await workloads.change(body, {"spec": {"workerGroupSpecs": resized_cluster(body, 2)}})

    async def shrinks() -> bool:
        return len(await workloads.pods()) == len(HEAD) + 2

    await workloads.until("two workers are left", shrinks)
    left = uids(await workloads.pods())
    ranks = [rank for rank, pod in enumerate(after) if pod["metadata"]["uid"] in left]
    await workloads.until_whole(*[WORKER] * 2, beside=HEAD, ranks=ranks, apart=True)
    await workloads.end(body)


async def test_a_suspended_cluster_holds_nothing_and_comes_back_whole(workloads: Workloads) -> None:
    await suspend_cluster(workloads)


async def test_a_worker_of_a_lost_node_is_made_anew(workloads: Workloads) -> None:
    body = a_ray_cluster(3)
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.lose_node(before[1])
    await workloads.until_whole(*[WORKER] * 3, beside=HEAD, without=before[1:2], were=[before[0], before[2]])
    await workloads.end(body)


async def test_a_worker_that_fails_is_made_anew(workloads: Workloads) -> None:
    body = a_ray_cluster(3, policy="Never")
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.fail(before[0])
    await workloads.until_whole(*[WORKER] * 3, beside=HEAD, without=before[:1], were=before[1:])
    await workloads.end(body)


async def test_a_cluster_of_workers_that_may_be_fewer_starts_with_the_fewest(workloads: Workloads) -> None:
    """With autoscaling the PodGroup has the head and the least number of workers as its minimum."""
    body = a_ray_cluster(6, least=2, enableInTreeAutoscaling=True)
    other = a_ray_cluster(3)
    other["metadata"]["name"] = "other"
    await workloads.make(other)
    await workloads.until_whole(*["other-w-worker-"] * 3, beside=["other-head-"])
    await workloads.make(body)
    await workloads.until_count("ray-w-worker-", running=3, waiting=3)
    await workloads.drop(other)
    await workloads.until_count("ray-w-worker-", running=6, waiting=0)
    await workloads.end(body)


async def test_a_cluster_without_room_waits_whole(workloads: Workloads) -> None:
    await crowd_out_cluster(workloads, "PodGroup is Pending: asks for 32 huawei.com/Ascend910, 24 are free")


@pytest.mark.timeout(500)
async def test_the_clusters_of_the_samples_run_and_end(workloads: Workloads) -> None:
    found = list(samples(RELEASE.manifests / "config" / "samples", "RayCluster"))
    assert len(found) > 30
    too_large = {"ray-cluster.tpu-v6e-256-multihost.yaml"}
    assert await workloads.try_samples([one for one in found if one[0] not in too_large], gangs=True) == {}
