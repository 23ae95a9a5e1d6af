"""Jobs of Kubeflow with their real operator, which makes no PodGroups for them."""

import pytest

from tests.support.operator_objects import KINDS, a_kubeflow_job, samples
from tests.support.operator_steps import suspend_and_resume
from tests.support.real_controllers import TRAINING
from tests.support.real_workloads import Workloads

pytestmark = pytest.mark.timeout(120)
RELEASE = TRAINING
PODS = ("llm-master-0", "llm-worker-0", "llm-worker-1", "llm-worker-2")


async def test_a_master_and_workers_are_one_gang_in_order_of_their_indexes(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=3)
    await workloads.make(body)
    await workloads.until_whole(*PODS)
    await workloads.end(body)


async def test_a_launcher_follows_its_workers(workloads: Workloads) -> None:
    body = a_kubeflow_job("MPIJob", Launcher=(1, 0), Worker=3)
    await workloads.make(body)
    await workloads.until_whole("llm-worker-0", "llm-worker-1", "llm-worker-2", beside=["llm-launcher"], apart=True)
    await workloads.end(body)


async def test_a_job_without_room_waits_whole(workloads: Workloads) -> None:
    first, second = a_kubeflow_job(Master=1, Worker=3), a_kubeflow_job(Master=1, Worker=3)
    second["metadata"]["name"] = "second"
    await workloads.make(first)
    before = await workloads.until_whole(*PODS)
    await workloads.make(second)
    await workloads.until_told("second-", "2 of 4 pods find room")
    await workloads.drop(first)
    await workloads.until_whole(*[name.replace("llm", "second") for name in PODS], without=before)
    await workloads.end(second)


async def test_a_pod_that_fails_gets_its_rank_again_and_a_suspended_job_comes_back(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=3, policy="ExitCode")
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.fail(before[2], exit_code=137)
    after = await workloads.until_whole(*PODS, without=[before[2]], were=[*before[:2], before[3]])
    await suspend_and_resume(workloads, body, "runPolicy", PODS, after)


@pytest.mark.timeout(500)
async def test_the_jobs_of_the_samples_run_and_end(workloads: Workloads) -> None:
    found = list(samples(RELEASE.manifests / "examples", *KINDS))
    assert len(found) > 20
    # Its template names a PodGroup, which the operator makes only where it is told to make them.
    without = {"tensorflow/distribution_strategy/estimator-API/distributed_tfjob.yaml"}
    assert await workloads.try_samples([one for one in found if one[0] not in without], gangs=False) == {}
