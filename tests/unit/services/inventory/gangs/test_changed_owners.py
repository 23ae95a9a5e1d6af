"""Owners that change while their pods wait or run: what they say now is what counts."""

from typing import Any

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.services.inventory.gangs.settings import GangSettings
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of

VCJOB = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
VOLCANO = OwnerKey("VolcanoJob", "ns", "llm")
SET = ("apps/v1", "ReplicaSet", "d", "rs-1")
REPLICAS = OwnerKey("ReplicaSet", "ns", "d")
STATEFUL = ("apps/v1", "StatefulSet", "s", "sts-1")
ORDINALS = OwnerKey("StatefulSet", "ns", "s")
LEAST = "huawei.com/schedule_minAvailable"
MEMBER = "scheduling.volcano.sh/group-min-member"
DESIRED = "deployment.kubernetes.io/desired-replicas"
ARGO = "rollout.argoproj.io/desired-replicas"
NAME = "replicaset.d"


def tasks(*sizes: tuple[str, int]) -> dict[str, Any]:
    return {"schedulerName": "berth", "tasks": [{"name": name, "replicas": size} for name, size in sizes]}


def of_task(task: str, start: int, count: int, **more: Any) -> list[Pod]:  # noqa: ANN401 - whatever a pod can have
    return [
        a_pod(
            f"llm-{task}-{index}",
            group="pg",
            labels={"volcano.sh/task-index": str(index)},
            annotations={"volcano.sh/task-spec": task},
            owner=VCJOB,
            **more,
        )
        for index in range(start, start + count)
    ]


def of_set(start: int, count: int, owner: tuple[str, str, str, str] = SET, **more: Any) -> list[Pod]:  # noqa: ANN401
    return [a_pod(f"{owner[2]}-{index}", owner=owner, **more) for index in range(start, start + count)]


def replicas(count: int, **annotations: str) -> Any:  # noqa: ANN401 - facts of an owner
    return facts_of(REPLICAS, {"replicas": count}, uid="rs-1", annotations=annotations)


def runs(world: GangWorld, name: str, pods: list[Pod]) -> None:
    world.verdict(name)
    world.status(name, "placed")
    world.pods(*pods)
    world.outcome(name)
    world.status(name, "running")
    world.settle()


def a_volcano_job() -> GangWorld:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, owner=VCJOB))
    world.pods(*of_task("w", 0, 2))
    world.settle()
    world.gangs.set_owner(VOLCANO, facts_of(VOLCANO, tasks(("w", 2)), uid="vc-1"))
    world.settle()
    return world


def a_volcano_job_that_runs() -> GangWorld:
    world = a_volcano_job()
    runs(world, "vcjob.llm", of_task("w", 0, 2, node="n1", phase="Running"))
    world.looks.clear()
    return world


def a_set_that_waits(count: int, **annotations: str) -> GangWorld:
    world = GangWorld()
    world.pods(*of_set(0, count))
    world.settle()
    world.gangs.set_owner(REPLICAS, replicas(count, **annotations))
    world.settle()
    world.verdict(NAME)
    world.status(NAME, "waiting")
    world.settle()
    world.looks.clear()
    return world


@pytest.mark.parametrize("first", ["pods", "group"])
@pytest.mark.parametrize("least", [3, 4])
def test_a_job_is_scaled_up_with_its_minimum_while_it_runs(first: str, least: int) -> None:
    """Case a/31."""
    world = a_volcano_job_that_runs()
    if first == "group":
        world.gangs.set_group(a_group("pg", least=least, owner=VCJOB, version="2"))
        world.settle()
    world.pods(*of_task("w", 2, 2))
    if first == "pods":
        world.settle()
        world.gangs.set_group(a_group("pg", least=least, owner=VCJOB, version="2"))
    world.settle()
    assert world.looks == [VOLCANO]
    assert [seen.hold for seen in world.members.values() if seen.hold] == []
    world.gangs.set_owner(VOLCANO, facts_of(VOLCANO, tasks(("w", 4)), uid="vc-1"))
    world.settle()
    assert sorted(request.min_available for request in world.requests.values()) == [1, 1, 2]


def test_ranks_follow_the_new_sizes_of_tasks() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, owner=VCJOB))
    world.pods(*of_task("a", 0, 1), *of_task("b", 0, 1))
    world.settle()
    world.gangs.set_owner(VOLCANO, facts_of(VOLCANO, tasks(("a", 1), ("b", 3)), uid="vc-1"))
    world.settle()
    runs(world, "vcjob.llm", [*of_task("a", 0, 1, node="n1"), *of_task("b", 0, 1, node="n2")])
    world.pods(*of_task("b", 2, 1), *of_task("a", 1, 1))
    world.looks.clear()
    world.settle()
    assert world.looks == [VOLCANO], "task a is larger than it was, and the job is not"
    world.gangs.set_owner(VOLCANO, facts_of(VOLCANO, tasks(("a", 2), ("b", 3)), uid="vc-1"))
    world.settle()
    found = {pod: rank for name in world.requests for pod, rank in world.ranks(name).items()}
    assert found == {"llm-a-0": "0", "llm-b-0": "1", "llm-a-1": "2", "llm-b-2": "4"}, "rank 1 is taken"


def test_a_set_that_grows_while_it_waits_starts_as_a_whole() -> None:
    world = a_set_that_waits(2)
    world.pods(*of_set(2, 2))
    world.settle()
    assert (world.looks, world.withdrawn) == ([REPLICAS], [])
    world.gangs.set_owner(REPLICAS, replicas(4))
    world.settle()
    assert [why for _, _, why in world.withdrawn] == ["its minimum is now 4, not 2"]
    assert world.requests[NAME].min_available == 4


def test_a_minimum_that_is_lowered_while_the_gang_waits_counts() -> None:
    world = a_set_that_waits(4, **{LEAST: "4"})
    world.settle(after_s=30)
    assert world.looks == [REPLICAS]
    world.gangs.set_owner(REPLICAS, replicas(4, **{LEAST: "2"}))
    world.settle()
    assert [why for _, _, why in world.withdrawn] == ["its minimum is now 2, not 4"]
    assert world.requests[NAME].min_available == 2


def test_a_job_that_waits_goes_to_the_queue_that_it_names_now() -> None:
    world = a_set_that_waits(2, **{"volcano.sh/queue-name": "a"})
    assert world.requests[NAME].queue == "a"
    world.settle(after_s=30)
    world.gangs.set_owner(REPLICAS, replicas(2, **{"volcano.sh/queue-name": "b"}))
    world.settle()
    assert world.withdrawn == []
    assert [request.queue for request in world.published] == ["a", "b"]
    assert len({request.uid for request in world.published}) == 1


def test_pods_of_a_job_that_is_no_longer_suspended_start_at_once() -> None:
    key, owner = OwnerKey("Job", "ns", "j"), ("batch/v1", "Job", "j", "job-1")
    world = GangWorld()
    world.pods(a_pod("j-0", owner=owner, node="n1", phase="Running"))
    world.settle()
    world.pods(a_pod("j-1", owner=owner))
    world.settle()
    spec = {"parallelism": 3, "completions": 3}
    world.gangs.set_owner(key, facts_of(key, spec | {"suspend": True}, uid="job-1"))
    world.settle()
    assert world.hold("job.j") == "its job is suspended"
    world.looks.clear()
    world.pods(a_pod("j-2", owner=owner))
    world.settle()
    assert world.looks == [key]
    world.gangs.set_owner(key, facts_of(key, dict(spec), uid="job-1"))
    world.settle()
    assert len(world.requests) == 2


def test_pods_of_a_job_that_runs_partly_and_is_suspended_start_when_it_is_resumed_though_no_pod_comes() -> None:
    key, owner = OwnerKey("Job", "ns", "j"), ("batch/v1", "Job", "j", "job-1")
    world = GangWorld(GangSettings(look_again_s=5))
    world.pods(a_pod("j-0", owner=owner, node="n1", phase="Running"), a_pod("j-1", owner=owner))
    world.settle()
    spec = {"parallelism": 3, "completions": 3}
    world.gangs.set_owner(key, facts_of(key, spec | {"suspend": True}, uid="job-1"))
    world.settle()
    world.looks.clear()
    world.settle(after_s=5)
    assert world.looks == [key]
    world.gangs.set_owner(key, facts_of(key, dict(spec), uid="job-1"))
    world.settle()
    assert len(world.requests) == 1


def test_an_error_that_is_still_there_after_another_read_is_reported_once() -> None:
    world = a_volcano_job_that_runs()
    world.gangs.set_group(a_group("pg", least=8, owner=VCJOB, version="2"))
    world.pods(*of_task("w", 2, 2))
    for _ in range(3):
        world.settle()
        world.gangs.set_owner(VOLCANO, facts_of(VOLCANO, tasks(("w", 4)), uid="vc-1"))
        world.settle()
    assert world.looks == [VOLCANO]
    (hold,) = [seen.hold for seen in world.members.values() if seen.hold]
    assert hold == "minMember 8 is more than the 4 pods of the job: a configuration error"


# Rollouts


@pytest.mark.parametrize("key", [LEAST, MEMBER])
@pytest.mark.parametrize("where", ["owner", "pods", "group"])
def test_the_first_pod_of_a_rollout_starts_though_the_minimum_is_larger(key: str, where: str) -> None:
    """Cases a/10 and b/14."""
    world = GangWorld()
    annotations = {key: "4"}
    pod = a_pod(
        "d-0", owner=SET, group="pg" if where == "group" else "", annotations=annotations if where == "pods" else {}
    )
    if where == "group":
        world.gangs.set_group(a_group("pg", least=4, owner=SET))
    world.pods(pod)
    world.settle()
    said = {DESIRED: "4"} | (annotations if where == "owner" else {})
    world.gangs.set_owner(REPLICAS, replicas(1, **said))
    world.settle()
    assert [request.min_available for request in world.requests.values()] == [1]


def test_a_rollout_that_lacks_pods_says_so() -> None:
    world = GangWorld()
    world.pods(*of_set(0, 1))
    world.settle()
    world.gangs.set_owner(REPLICAS, replicas(2, **{DESIRED: "4", LEAST: "4"}))
    world.settle()
    assert world.hold(NAME) == ("1 of at least 2 pods exists; a rollout is going on: ReplicaSet d has 2 of 4 replicas")
    world.pods(*of_set(1, 1))
    world.settle()
    assert world.requests[NAME].min_available == 2


@pytest.mark.parametrize("desired", ["", "2", "four"])
def test_without_a_rollout_a_minimum_above_the_size_stays_an_error(desired: str) -> None:
    world = GangWorld()
    world.pods(*of_set(0, 2))
    world.settle()
    world.gangs.set_owner(REPLICAS, replicas(2, **{LEAST: "4", **({DESIRED: desired} if desired else {})}))
    world.settle()
    assert world.hold(NAME) == f"annotation {LEAST} 4 is more than the 2 pods of the job: a configuration error"


def test_pods_of_the_old_template_start_while_a_stateful_set_keeps_a_partition() -> None:
    """Scaled down with its minimum in the template: below the partition, pods keep the larger one."""
    world = GangWorld()
    world.pods(*of_set(0, 2, STATEFUL, annotations={LEAST: "4"}))
    world.settle()
    spec = {
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "status": {"currentRevision": "s-1", "updateRevision": "s-2"},
    }
    world.gangs.set_owner(ORDINALS, facts_of(ORDINALS, spec, uid="sts-1"))
    world.settle()
    assert [request.min_available for request in world.requests.values()] == [2]


OLD = ("apps/v1", "ReplicaSet", "web-old", "rs-old")
NEW = ("apps/v1", "ReplicaSet", "web-new", "rs-new")


@pytest.mark.parametrize("annotations", [{DESIRED: "2"}, {ARGO: "2"}, {}])
def test_new_pods_of_a_rollout_start_one_by_one_where_there_is_no_room_for_all(annotations: dict[str, str]) -> None:
    """With ``maxSurge: 100%`` the new ReplicaSet has all pods at once, and old ones go as these are ready."""
    world = GangWorld()

    def answer(name: str, uid: str) -> None:
        key = OwnerKey("ReplicaSet", "ns", name)
        world.gangs.set_owner(key, facts_of(key, {"replicas": 2}, uid=uid, annotations=annotations))
        world.settle()

    world.pods(*of_set(0, 2, OLD))
    world.settle()
    answer("web-old", "rs-old")
    runs(world, "replicaset.web-old", of_set(0, 2, OLD, node="n", phase="Running"))
    world.pods(*of_set(0, 2, NEW))
    world.settle()
    answer("web-new", "rs-new")
    assert world.requests["replicaset.web-new"].min_available == 2
    world.verdict("replicaset.web-new", accepted_seq=5)
    world.status("replicaset.web-new", "waiting", code="no-room")
    world.settle()
    expected = 1 if annotations else 2
    assert world.requests["replicaset.web-new"].min_available == expected
    assert len(world.withdrawn) == 2 - expected
    if annotations:
        world.verdict("replicaset.web-new", accepted_seq=7)
        runs(world, "replicaset.web-new", of_set(0, 1, NEW, node="n", phase="Running"))
        (later,) = [name for name in world.requests if name.startswith("replicaset.web-new-")]
        world.verdict(later, accepted_seq=8)
        world.status(later, "waiting", code="no-room")
        world.settle(after_s=60)
        assert len(world.withdrawn) == 1, "it waits for the old pods"


def test_a_rollout_of_argo_counts_as_that_of_a_deployment() -> None:
    world = GangWorld()
    world.pods(*of_set(0, 1))
    world.settle()
    world.gangs.set_owner(REPLICAS, replicas(1, **{ARGO: "4", LEAST: "4"}))
    world.settle()
    assert world.requests[NAME].min_available == 1


# Ranks


def test_a_minimum_that_was_right_before_the_job_was_scaled_down_is_no_configuration_error() -> None:
    world = a_set_that_waits(4, **{LEAST: "4"})
    runs(world, NAME, of_set(0, 4, node="n1"))
    for pod in of_set(1, 3):
        world.gangs.drop_pod(pod.metadata.uid)
    world.gangs.set_owner(REPLICAS, replicas(2, **{LEAST: "4"}))
    world.pods(*of_set(4, 1))
    world.settle(after_s=60)
    world.gangs.set_owner(REPLICAS, replicas(2, **{LEAST: "4"}))
    world.settle()
    (hold,) = [seen.hold for seen in world.members.values() if seen.hold]
    assert hold == (
        f"annotation {LEAST} 4 is more than the 2 pods of the job, which had as many before: lower the minimum, or scale"
        " the job up"
    )


@pytest.mark.parametrize(("least", "is_fragile"), [("2", False), ("4", True)])
def test_the_minimum_of_an_owner_that_changed_while_its_pods_ran_counts_for_a_lost_rank(
    least: str, *, is_fragile: bool
) -> None:
    world = a_set_that_waits(4)
    runs(world, NAME, of_set(0, 4, node="n1", phase="Running"))
    world.settle(after_s=3_600)
    world.gangs.drop_pod("uid-d-3")
    world.pods(a_pod("d-9", owner=SET))
    world.settle()
    assert [request.min_available for request in world.published] == [4], "the owner is read first"
    assert world.looks == [REPLICAS]
    world.gangs.set_owner(REPLICAS, replicas(4, **{LEAST: least}))
    world.settle()
    assert [(one.min_available, one.is_fragile) for one in world.published] == [(4, False), (1, is_fragile)]


def test_a_pod_that_comes_while_others_run_is_requested_in_the_queue_that_its_owner_names_now() -> None:
    world = a_set_that_waits(2)
    runs(world, NAME, of_set(0, 2, node="n1", phase="Running"))
    world.settle(after_s=3_600)
    world.gangs.drop_pod("uid-d-1")
    world.pods(a_pod("d-9", owner=SET))
    world.settle()
    world.gangs.set_owner(REPLICAS, replicas(2, **{"scheduling.volcano.sh/queue-name": "gold"}))
    world.settle()
    assert [(one.name == NAME, one.queue) for one in world.published] == [
        (True, "default"),
        (True, "gold"),  # for its next attempt
        (False, "gold"),
    ]


def test_a_request_of_an_owner_that_is_suspended_is_withdrawn_and_made_again_with_its_age_when_it_goes_on() -> None:
    key, owner = OwnerKey("Job", "ns", "j"), ("batch/v1", "Job", "j", "job-1")
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    world = GangWorld()
    world.pods(*(a_pod(f"j-{index}", owner=owner) for index in range(2)))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, dict(spec), uid="job-1"))
    world.settle()
    world.verdict("job.j", accepted_seq=7)
    world.status("job.j", "waiting")
    world.gangs.set_owner(key, facts_of(key, spec | {"suspend": True}, uid="job-1"))
    world.settle()
    assert [why for _, _, why in world.withdrawn] == ["its job is suspended"]
    assert world.hold("job.j") == "its job is suspended"
    world.gangs.set_owner(key, facts_of(key, dict(spec), uid="job-1"))
    world.settle()
    assert [(one.min_available, one.since_seq) for one in world.published] == [(2, 0), (2, 7)]


def test_a_job_that_runs_keeps_its_places_when_it_is_suspended() -> None:
    key, owner = OwnerKey("Job", "ns", "j"), ("batch/v1", "Job", "j", "job-1")
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    world = GangWorld()
    world.pods(*(a_pod(f"j-{index}", owner=owner) for index in range(2)))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, dict(spec), uid="job-1"))
    world.settle()
    runs(world, "job.j", [a_pod(f"j-{index}", owner=owner, node="n1", phase="Running") for index in range(2)])
    world.gangs.set_owner(key, facts_of(key, spec | {"suspend": True}, uid="job-1"))
    world.settle()
    assert world.withdrawn == []
