"""Jobs of Kubeflow with their real operator, which makes PodGroups of Volcano for them, and its webhooks."""

import pytest

from tests.support.operator_objects import KINDS, a_kubeflow_job, samples
from tests.support.operator_steps import suspend_and_resume
from tests.support.real_controllers import TRAINING_WITH_GROUPS
from tests.support.real_workloads import Workloads, has_condition

pytestmark = pytest.mark.timeout(120)
RELEASE = TRAINING_WITH_GROUPS
PODS = ("llm-master-0", "llm-worker-0", "llm-worker-1", "llm-worker-2")


async def test_a_master_and_workers_are_one_gang_in_order_of_their_indexes(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=3)
    await workloads.make(body)
    await workloads.until_whole(*PODS)
    await workloads.until_has(body, "runs", lambda one: has_condition(one, "Running"))
    await workloads.end(body)


async def test_servers_without_chips_are_part_of_the_gang(workloads: Workloads) -> None:
    body = a_kubeflow_job("TFJob", Chief=1, Worker=3, PS=(2, 0))
    await workloads.make(body)
    names = ("llm-chief-0", "llm-worker-0", "llm-worker-1", "llm-worker-2")
    await workloads.until_whole(*names, beside=["llm-ps-0", "llm-ps-1"])
    await workloads.end(body)


async def test_a_launcher_follows_its_workers(workloads: Workloads) -> None:
    body = a_kubeflow_job("MPIJob", Launcher=(1, 0), Worker=3)
    await workloads.make(body)
    await workloads.until_whole("llm-worker-0", "llm-worker-1", "llm-worker-2", beside=["llm-launcher"])
    await workloads.end(body)


async def test_a_job_that_succeeds_is_over(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=3, run_for="1s")
    await workloads.make(body)
    await workloads.until_has(body, "has succeeded", lambda one: has_condition(one, "Succeeded"))
    await workloads.until_over()


async def test_a_suspended_job_holds_nothing_and_comes_back_whole(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=3)
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await suspend_and_resume(workloads, body, "runPolicy", PODS, before)


async def test_a_pod_that_fails_with_a_code_for_another_try_gets_its_rank_again(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=3, policy="ExitCode")
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.fail(before[2], exit_code=137)
    await workloads.until_whole(*PODS, without=[before[2]], were=[*before[:2], before[3]])
    await workloads.end(body)


async def test_a_pod_of_a_lost_node_comes_back_with_its_rank(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=3, policy="ExitCode")
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.lose_node(before[3])
    await workloads.until_whole(*PODS, without=before[3:], were=before[:3])
    await workloads.end(body)


async def test_workers_that_are_added_get_the_next_ranks(workloads: Workloads) -> None:
    body = a_kubeflow_job(Master=1, Worker=2)
    await workloads.make(body)
    before = await workloads.until_whole(*PODS[:3])
    await workloads.change(body, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}})
    await workloads.until_whole(*PODS, were=before)
    await workloads.end(body)


async def test_a_job_without_room_waits_until_its_minimum_fits(workloads: Workloads) -> None:
    first, second = (
        a_kubeflow_job(Master=1, Worker=3),
        a_kubeflow_job(Master=1, Worker=3, run={"schedulingPolicy": {"minAvailable": 3}}),
    )
    second["metadata"]["name"] = "second"
    await workloads.make(first)
    before = await workloads.until_whole(*PODS)
    await workloads.make(second)
    await workloads.until_has(second, "has a PodGroup", lambda one: has_condition(one, "Created"))
    await workloads.drop(first)
    await workloads.until_whole(*[name.replace("llm", "second") for name in PODS], without=before, apart=True)
    await workloads.end(second)


@pytest.mark.timeout(500)
async def test_the_jobs_of_the_samples_run_and_end(workloads: Workloads) -> None:
    found = list(samples(RELEASE.manifests / "examples", *KINDS))
    assert len(found) > 20
    assert await workloads.try_samples(found, gangs=True) == {}
