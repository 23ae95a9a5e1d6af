"""JobSets with their real controller and its webhooks: gangs are whole, ranks are right, nothing stays behind."""

import copy
from typing import Any

import pytest

from tests.support.kube_cells import a_spec
from tests.support.kustomize import Tree
from tests.support.real_controllers import JOBSET
from tests.support.real_workloads import Workloads, has_condition

pytestmark = pytest.mark.timeout(120)
RELEASE = JOBSET
PODS = ("llm-leader-0-0-", "llm-workers-0-0-", "llm-workers-0-1-", "llm-workers-1-0-", "llm-workers-1-1-")
"""Beginnings of the names of the pods of :func:`leader_and_workers`, by rank."""


def replicated(name: str, jobs: int, pods: int, *, chips: int = 8, run_for: str = "", **job: Any) -> Tree:  # noqa: ANN401  # fields of a Job's spec
    """Jobs of equal pods; a pod that fails fails its Job."""
    notes = {"berth/run-for": run_for} if run_for else {}
    template = {"metadata": {"annotations": notes}, "spec": a_spec(chips)}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template, **job}
    return {"name": name, "replicas": jobs, "template": {"spec": spec}}


def a_job_set(*jobs: Tree, name: str = "llm", notes: dict[str, str] | None = None, **spec: Any) -> Tree:  # noqa: ANN401  # fields of its spec
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": notes or {}},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def leader_and_workers(**spec: Any) -> Tree:  # noqa: ANN401  # fields of a JobSet's spec
    """The shape of most samples: a leader, and Jobs of workers."""
    return a_job_set(replicated("leader", 1, 1), replicated("workers", 2, 2), **spec)


async def test_a_leader_and_workers_are_one_gang_in_order_of_their_indexes(workloads: Workloads) -> None:
    body = leader_and_workers()
    await workloads.make(body)
    await workloads.until_whole(*PODS)
    await workloads.end(body)


async def test_more_than_ten_jobs_are_ranked_by_number(workloads: Workloads) -> None:
    body = a_job_set(replicated("w", 12, 1, chips=2))
    await workloads.make(body)
    await workloads.until_whole(*[f"llm-w-{number}-0-" for number in range(12)])
    await workloads.end(body)


async def test_a_leader_without_chips_is_part_of_the_gang(workloads: Workloads) -> None:
    body = a_job_set(replicated("driver", 1, 1, chips=0), replicated("workers", 1, 6))
    await workloads.make(body)
    await workloads.until_whole(*[f"llm-workers-0-{number}-" for number in range(6)], beside=["llm-driver-0-0-"])
    await workloads.end(body)


async def test_a_set_that_succeeds_is_over(workloads: Workloads) -> None:
    body = a_job_set(replicated("leader", 1, 1, run_for="1s"), replicated("workers", 2, 2, run_for="1s"))
    await workloads.make(body)
    await workloads.until_has(body, "is complete", lambda one: has_condition(one, "Completed"))
    await workloads.until_over()
    assert {one.phase for one in await workloads.jobs()} == {"succeeded"}


async def test_all_pods_of_a_set_that_is_restarted_get_their_ranks_again(workloads: Workloads) -> None:
    body = leader_and_workers(failurePolicy={"maxRestarts": 3})
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.fail(before[3])
    await workloads.until_whole(*PODS, without=before)
    assert (await workloads.read(body))["status"]["restarts"] == 1
    await workloads.end(body)


async def test_a_set_that_fails_leaves_nothing(workloads: Workloads) -> None:
    body = leader_and_workers()
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.fail(before[0])
    await workloads.until_has(body, "has failed", lambda one: has_condition(one, "Failed"))
    await workloads.until_over()


async def test_a_suspended_set_holds_nothing_and_comes_back_whole(workloads: Workloads) -> None:
    body = leader_and_workers(suspend=True)
    await workloads.make(body)
    await workloads.until_has(body, "is suspended", lambda one: has_condition(one, "Suspended"))
    assert await workloads.pods() == []
    await workloads.change(body, {"spec": {"suspend": False}})
    before = await workloads.until_whole(*PODS)
    await workloads.change(body, {"spec": {"suspend": True}})
    await workloads.until_over()
    await workloads.change(body, {"spec": {"suspend": False}})
    await workloads.until_whole(*PODS, without=before)
    await workloads.end(body)


async def test_a_pod_of_a_lost_node_comes_back_with_its_rank_and_the_others_stay(workloads: Workloads) -> None:
    body = a_job_set(replicated("leader", 1, 1), replicated("workers", 2, 2, backoffLimit=6))
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.lose_node(before[4])
    await workloads.until_whole(*PODS, without=before[4:], were=before[:4])
    await workloads.end(body)


async def test_a_set_whose_node_is_lost_restarts_whole_where_its_jobs_may_not_fail(workloads: Workloads) -> None:
    body = leader_and_workers(failurePolicy={"maxRestarts": 3})
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.lose_node(before[1])
    await workloads.until_whole(*PODS, without=before)
    await workloads.end(body)


async def test_a_set_without_room_waits_whole_and_starts_when_there_is_room(workloads: Workloads) -> None:
    first = a_job_set(replicated("w", 1, 3), name="first")
    second = a_job_set(replicated("w", 2, 2), name="second")
    await workloads.make(first)
    before = await workloads.until_whole("first-w-0-0-", "first-w-0-1-", "first-w-0-2-")
    await workloads.make(second)
    await workloads.until_told("second-w-", "")
    await workloads.drop(first)
    await workloads.until_whole("second-w-0-0-", "second-w-0-1-", "second-w-1-0-", "second-w-1-1-", without=before)
    await workloads.end(second)


async def test_a_set_of_the_same_name_is_another_gang(workloads: Workloads) -> None:
    body = leader_and_workers()
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.drop(body)
    await workloads.make(body)
    await workloads.until_whole(*PODS, without=before)
    await workloads.end(body)


async def test_jobs_that_start_in_order_are_ranked_as_if_they_came_together(workloads: Workloads) -> None:
    body = leader_and_workers(startupPolicy={"startupPolicyOrder": "InOrder"})
    await workloads.make(body)
    await workloads.until_whole(*PODS, apart=True)
    await workloads.end(body)


async def test_jobs_that_depend_on_others_follow_them(workloads: Workloads) -> None:
    workers = replicated("workers", 2, 2) | {"dependsOn": [{"name": "leader", "status": "Ready"}]}
    body = a_job_set(replicated("leader", 1, 1), workers)
    await workloads.make(body)
    await workloads.until_whole(*PODS, apart=True)
    await workloads.end(body)


async def test_jobs_with_a_domain_each_follow_their_leaders(workloads: Workloads) -> None:
    """Pods other than the first of a Job are refused until that has a node, and then must go to its domain."""
    body = a_job_set(replicated("workers", 2, 2), notes={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"})
    await label_racks(workloads, 2)
    await workloads.make(body)
    pods = await workloads.until_whole(*PODS[1:], apart=True)
    racks = [await rack_of(workloads, pod) for pod in pods]
    assert racks[0] == racks[1] != racks[2] == racks[3]
    await workloads.end(body)


async def test_a_job_that_is_restarted_alone_gets_its_ranks_again(workloads: Workloads) -> None:
    body = leader_and_workers(failurePolicy={"maxRestarts": 3, "rules": [{"name": "r", "action": "RestartJob"}]})
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.fail(before[3])
    await workloads.until_whole(*PODS, without=before[3:], were=before[:3])
    await workloads.end(body)


async def test_a_set_that_grows_and_shrinks_keeps_its_ranks(workloads: Workloads) -> None:
    job = replicated("w", 1, 2, completionMode="Indexed")
    body = a_job_set(job)
    await workloads.make(body)
    names = [f"llm-w-0-{number}-" for number in range(4)]
    before = await workloads.until_whole(*names[:2])
    await workloads.change(body, {"spec": {"replicatedJobs": [resized(job, 4)]}})
    after = await workloads.until_whole(*names, were=before)
    await workloads.change(body, {"spec": {"replicatedJobs": [resized(job, 1)]}})
    await workloads.until_whole(*names[:1], without=after[1:])
    await workloads.end(body)


async def test_a_set_gets_the_nodes_that_its_queue_chose_while_it_was_suspended(workloads: Workloads) -> None:
    """As Kueue does it: the template gets labels of nodes together with the end of the suspension."""
    body = a_job_set(replicated("w", 1, 2), suspend=True)
    await label_racks(workloads, 2)
    await workloads.make(body)
    await workloads.until_has(body, "is suspended", lambda one: has_condition(one, "Suspended"))
    jobs = (await workloads.read(body))["spec"]["replicatedJobs"]
    jobs[0]["template"]["spec"]["template"]["spec"]["nodeSelector"]["rack"] = "2"
    await workloads.change(body, {"spec": {"suspend": False, "replicatedJobs": jobs}})
    pods = await workloads.until_whole("llm-w-0-0-", "llm-w-0-1-")
    assert [await rack_of(workloads, pod) for pod in pods] == ["2", "2"]
    await workloads.end(body)


async def test_a_set_is_restarted_by_a_controller_that_was_away(workloads: Workloads) -> None:
    body = leader_and_workers(failurePolicy={"maxRestarts": 3})
    await workloads.make(body)
    before = await workloads.until_whole(*PODS)
    await workloads.controller.kill()
    await workloads.fail(before[4])
    await workloads.controller.restart()
    await workloads.until_whole(*PODS, without=before)
    await workloads.end(body)


def resized(job: Tree, pods: int) -> Tree:
    """The same Jobs with another number of pods."""
    found = copy.deepcopy(job)
    found["template"]["spec"] |= {"parallelism": pods, "completions": pods}
    return found


async def label_racks(workloads: Workloads, size: int) -> None:
    """Label all nodes with racks of so many nodes, in order of their names."""
    names = sorted(node["metadata"]["name"] for node in await workloads.api.items("/api/v1/nodes"))
    for at, name in enumerate(names):
        await workloads.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"rack": str(at // size)}}})


async def rack_of(workloads: Workloads, pod: Tree) -> str:
    node = await workloads.api.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
    return str(node["metadata"]["labels"]["rack"])
