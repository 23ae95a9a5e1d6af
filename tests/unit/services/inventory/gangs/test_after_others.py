"""Pods that begin after others of their owner have ended: together, and as many as its minimum says."""

from typing import Any

import pytest

from berth.formats.kubernetes.objects import Pod
from tests.support.gang_world import GangWorld, a_pod, facts_of

SET = ("apps/v1", "ReplicaSet", "serve-1", "rs-1")


def of_job(job: str, index: int, *, chips: int, node: str = "", phase: str = "Pending") -> Pod:
    """A pod of a Job of a JobSet."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/jobset-uid": "js-1",
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    owner = ("batch/v1", "Job", f"js-{job}-0", f"job-{job}")
    return a_pod(f"js-{job}-0-{index}", labels=labels, owner=owner, chips=chips, node=node, phase=phase)


def a_job(name: str, pods: int, chips: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a job has
    """A replicated Job of a JobSet."""
    box = {"name": "main", "resources": {"limits": {"huawei.com/Ascend910": str(chips)}} if chips else {}}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "template": {"spec": {"schedulerName": "berth", "containers": [box]}},
    }
    return {"name": name, "replicas": 1, "template": {"spec": spec}} | more


def answer(world: GangWorld, found: dict[str, Any], uid: str) -> None:
    """Whoever reads the owner finds it."""
    while world.looks:
        key = world.looks.pop()
        world.gangs.set_owner(key, facts_of(key, found, uid=uid))
        world.settle()


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_job_of_a_jobset_that_begins_when_another_has_completed_starts_whole(*, is_kept: bool) -> None:
    after = a_job("node", 4, 8, dependsOn=[{"name": "initializer", "status": "Complete"}])
    found = {"replicatedJobs": [a_job("initializer", 1, 0), after]}
    world = GangWorld()
    world.pods(of_job("initializer", 0, chips=0))
    world.settle()
    answer(world, found, "js-1")
    (first,) = world.requests
    world.verdict(first)
    world.status(first, "placed")
    world.settle()
    world.pods(of_job("initializer", 0, chips=0, node="n0", phase="Running"))
    world.outcome(first)
    world.status(first, "running")
    world.settle()
    world.pods(of_job("initializer", 0, chips=0, node="n0", phase="Succeeded"))
    world.status(first, "succeeded")
    world.settle()
    if not is_kept:
        world.gangs.drop_pod("uid-js-initializer-0-0")
        world.settle()
    for count in (2, 4):
        world.pods(*[of_job("node", index, chips=8) for index in range(count)])
        world.settle(after_s=1)
        answer(world, found | {"status": {"replicatedJobsStatus": [{"name": "initializer", "succeeded": 1}]}}, "js-1")
    assert [one.min_available for one in world.published if one.resource] == [4]


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_ended_pods_that_a_replicaset_leaves_behind_are_none_of_its_replicas(phase: str) -> None:
    world = GangWorld()
    world.pods(*[a_pod(f"serve-1-{index}", owner=SET, phase=phase, node=f"n{index}") for index in range(4)])
    world.settle()
    for names in ("a", "abcd"):
        world.pods(*[a_pod(f"serve-1-{name}", owner=SET) for name in names])
        world.settle(after_s=1)
        answer(world, {"replicas": 4}, "rs-1")
    assert [one.min_available for one in world.published] == [4]
