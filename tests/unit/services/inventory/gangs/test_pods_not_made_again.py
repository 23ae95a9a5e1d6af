"""Requests whose pods are gone: they wait for others as long as the owner makes some, and otherwise end at once."""

import pytest

from berth.formats.kubernetes.workloads.port import OwnerKey
from tests.support.gang_world import GangWorld, a_pod, facts_of
from tests.unit.services.inventory.gangs.test_changed_owners import (
    NAME,
    REPLICAS,
    VOLCANO,
    a_set_that_waits,
    a_volcano_job,
    of_set,
    of_task,
    replicas,
    runs,
    tasks,
)


def a_set_that_grows() -> tuple[GangWorld, str, str]:
    """Two pods of it run and a third waits; its request, and the uid of this pod."""
    world = a_set_that_waits(2)
    runs(world, NAME, of_set(0, 2, node="n1", phase="Running"))
    world.gangs.set_owner(REPLICAS, replicas(3))
    (extra,) = of_set(2, 1)
    world.pods(extra)
    world.settle()
    world.gangs.set_owner(REPLICAS, replicas(3))
    world.settle()
    (late,) = world.requests.keys() - {NAME}
    world.verdict(late)
    world.status(late, "waiting")
    return world, late, extra.metadata.uid


@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_a_pod_that_waits_and_goes_as_its_set_is_scaled_down_asks_for_nothing(*, is_deleted_first: bool) -> None:
    world, late, extra = a_set_that_grows()
    for is_deleted in (is_deleted_first, not is_deleted_first):
        assert world.withdrawn == []
        if is_deleted:
            world.gangs.drop_pod(extra)
        else:
            world.gangs.set_owner(REPLICAS, replicas(2))
        world.settle()
    assert [(name, why) for name, _, why in world.withdrawn] == [
        (late, "its pod is gone, and no other one will be made")
    ]


def test_a_request_whose_pod_is_made_again_keeps_its_place_in_the_queue() -> None:
    world, _, extra = a_set_that_grows()
    world.gangs.drop_pod(extra)
    world.settle()
    assert world.withdrawn == []


def test_a_set_that_waits_and_is_scaled_to_none_asks_for_nothing() -> None:
    world = a_set_that_waits(2)
    world.gangs.set_owner(REPLICAS, replicas(0))
    for pod in of_set(0, 2):
        world.gangs.drop_pod(pod.metadata.uid)
    world.settle()
    assert [why for _, _, why in world.withdrawn] == ["its pods are gone, and no other one will be made"]


def test_a_volcano_job_that_waits_and_is_scaled_to_none_asks_for_nothing() -> None:
    world = a_volcano_job()
    world.verdict("vcjob.llm")
    world.status("vcjob.llm", "waiting")
    world.gangs.set_owner(VOLCANO, facts_of(VOLCANO, tasks(("w", 0)), uid="vc-1"))
    for pod in of_task("w", 0, 2):
        world.gangs.drop_pod(pod.metadata.uid)
    world.settle()
    assert [why for _, _, why in world.withdrawn] == ["its pods are gone, and no other one will be made"]


def test_a_job_that_has_failed_while_it_waited_asks_for_nothing() -> None:
    key, owner = OwnerKey("Job", "ns", "j"), ("batch/v1", "Job", "j", "job-1")
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    world = GangWorld()
    pods = [a_pod(f"j-{index}", owner=owner) for index in range(2)]
    world.pods(*pods)
    world.settle()
    world.gangs.set_owner(key, facts_of(key, dict(spec), uid="job-1"))
    world.settle()
    world.verdict("job.j")
    world.status("job.j", "waiting")
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
    world.gangs.set_owner(key, facts_of(key, spec | {"status": failed}, uid="job-1"))
    world.settle()
    assert world.withdrawn == [], "its pods are still there"
    for pod in pods:
        world.gangs.drop_pod(pod.metadata.uid)
    world.settle()
    assert [why for _, _, why in world.withdrawn] == ["Job j has ended: Failed"]


def test_an_aborted_volcano_job_waits_until_it_is_resumed() -> None:
    world = a_volcano_job()
    world.verdict("vcjob.llm", accepted_seq=7)
    world.status("vcjob.llm", "waiting")
    for phase, withdrawn in (("Aborting", 1), ("Aborted", 1), ("Pending", 1)):
        state = {"status": {"state": {"phase": phase}}}
        world.gangs.set_owner(VOLCANO, facts_of(VOLCANO, tasks(("w", 2)) | state, uid="vc-1"))
        world.settle()
        assert [why for _, _, why in world.withdrawn] == ["its job is suspended"] * withdrawn
    assert [one.since_seq for one in world.published] == [0, 7]
