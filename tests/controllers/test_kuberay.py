"""RayClusters with Ray's real operator, which makes no PodGroup for them."""

import pytest

from tests.support.operator_objects import a_ray_cluster, resized_cluster, samples
from tests.support.operator_steps import HEAD, WORKER, crowd_out_cluster, suspend_cluster
from tests.support.real_controllers import KUBERAY
from tests.support.real_workloads import Workloads

pytestmark = pytest.mark.timeout(120)
RELEASE = KUBERAY


async def test_a_head_and_all_hosts_of_its_replicas_are_one_gang(workloads: Workloads) -> None:
    body = a_ray_cluster(2, hosts=2)
    await workloads.make(body)
    await workloads.until_whole(*[WORKER] * 4, beside=HEAD)
    await workloads.end(body)


async def test_a_cluster_without_room_waits_whole(workloads: Workloads) -> None:
    await crowd_out_cluster(workloads, "3 of 5 pods find room")


async def test_a_suspended_cluster_holds_nothing_and_comes_back_whole(workloads: Workloads) -> None:
    await suspend_cluster(workloads)


async def test_a_worker_that_fails_is_made_anew_and_others_are_added(workloads: Workloads) -> None:
    body = a_ray_cluster(3, policy="Never")
    await workloads.make(body)
    before = await workloads.until_whole(*[WORKER] * 3, beside=HEAD)
    await workloads.fail(before[0])
    after = await workloads.until_whole(*[WORKER] * 3, beside=HEAD, without=before[:1], were=before[1:])
    await workloads.change(body, {"spec": {"workerGroupSpecs": resized_cluster(body, 5)}})
    await workloads.until_whole(*[WORKER] * 5, beside=HEAD, were=after[1:])
    await workloads.end(body)


@pytest.mark.timeout(500)
async def test_the_clusters_of_the_samples_run_and_end(workloads: Workloads) -> None:
    found = list(samples(RELEASE.manifests / "config" / "samples", "RayCluster"))
    assert len(found) > 30
    too_large = {"ray-cluster.tpu-v6e-256-multihost.yaml"}
    assert await workloads.try_samples([one for one in found if one[0] not in too_large], gangs=True) == {}
