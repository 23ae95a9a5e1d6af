"""Pods that come in turn: some are made only when others are ready, so these do not wait for them."""

from typing import Any, Final

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey, OwnerKind
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, facts_of

LWS: Final = "leaderworkerset.sigs.k8s.io"
JOBSET: Final = "jobset.sigs.k8s.io"
SERVE: Final = OwnerKey("LeaderWorkerSet", "ns", "serve")
READY: Final = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
SET: Final = OwnerKey("JobSet", "ns", "s")
VCJOB: Final = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
STS: Final = ("apps/v1", "StatefulSet", "db", "sts-1")


def of_lws(index: int, **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod can have
    labels = {f"{LWS}/name": "serve", f"{LWS}/group-index": "0", f"{LWS}/group-key": "k"}
    name = f"serve-0-{index}"
    return a_pod(name, labels=labels | {f"{LWS}/worker-index": str(index)}, annotations={f"{LWS}/size": "3"}, **more)


def start(world: GangWorld, name: str, *pods: Pod) -> None:
    """Place a request, and let its pods run."""
    world.verdict(name)
    world.status(name, "placed")
    world.pods(*pods)
    world.outcome(name)
    world.status(name, "running")
    world.settle()


def a_leader_that_waits(spec: dict[str, Any]) -> GangWorld:
    world = GangWorld()
    world.pods(of_lws(0))
    world.settle()
    assert world.looks == [SERVE]
    world.gangs.set_owner(SERVE, facts_of(SERVE, dict(spec)))
    world.settle()
    return world


def test_10_a_leader_whose_workers_wait_for_it_starts_alone_and_they_start_together() -> None:
    world = a_leader_that_waits(READY)
    assert world.standing("lws.serve-0") == {0: "serve-0-0"}
    start(world, "lws.serve-0", of_lws(0, node="n0", phase="Running"))
    world.pods(of_lws(1))
    world.settle()
    assert {seen.hold for seen in world.members.values() if seen.job != "lws.serve-0"} == {
        "task worker: 1 of at least 2 pods exists"
    }
    world.pods(of_lws(2))
    world.settle()
    assert [request.min_available for request in world.published] == [1, 2]
    assert world.ranks(world.published[1].name) == {"serve-0-1": "1", "serve-0-2": "2"}
    assert world.published[1].annotations["berth/gang-pods"] == "3"


def test_a_worker_that_comes_in_place_of_one_that_ran_starts_alone() -> None:
    world = a_leader_that_waits(READY)
    start(world, "lws.serve-0", of_lws(0, node="n0", phase="Running"))
    world.pods(of_lws(1), of_lws(2))
    world.settle()
    second = world.published[1].name
    start(world, second, of_lws(1, node="n1", phase="Running"), of_lws(2, node="n2", phase="Running"))
    world.gangs.drop_pod("uid-serve-0-2")
    world.pods(of_lws(2, uid="again"))
    world.settle()
    assert [request.min_available for request in world.published] == [1, 2, 1]


@pytest.mark.parametrize("policy", ["LeaderCreated", ""])
def test_a_leader_waits_for_workers_that_are_made_with_it(policy: str) -> None:
    world = a_leader_that_waits({"startupPolicy": policy, "leaderWorkerTemplate": {"size": 3}})
    assert world.hold("lws.serve-0") == "1 of at least 3 pods exists"


def test_a_leader_whose_set_may_not_be_read_waits_for_as_many_pods_as_it_states() -> None:
    world = GangWorld()
    world.pods(of_lws(0))
    world.settle()
    world.gangs.set_owner(SERVE, None)
    world.settle()
    assert world.hold("lws.serve-0") == "1 of at least 3 pods exists"


def of_job_set(job: str, index: int, **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod can have
    labels = {f"{JOBSET}/jobset-name": "s", f"{JOBSET}/replicatedjob-name": job, f"{JOBSET}/job-index": "0"}
    annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
    return a_pod(f"s-{job}-0-{index}", labels=labels, annotations=annotations, **more)


def jobs(**counts: int) -> list[dict[str, Any]]:
    spec = {"completionMode": "Indexed"}
    return [
        {"name": name, "replicas": 1, "template": {"spec": spec | {"parallelism": count, "completions": count}}}
        for name, count in counts.items()
    ]


@pytest.mark.parametrize("how", ["InOrder", "dependsOn"])
def test_a_job_of_a_job_set_that_starts_after_another_starts_together(how: str) -> None:
    driver, workers = jobs(driver=1, workers=2)
    spec: dict[str, Any] = {"replicatedJobs": [driver, workers]}
    if how == "InOrder":
        spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
    else:
        workers["dependsOn"] = [{"name": "driver", "status": "Ready"}]
    world = GangWorld()
    world.pods(of_job_set("driver", 0))
    world.settle()
    world.gangs.set_owner(SET, facts_of(SET, spec))
    world.settle()
    start(world, "jobset.s", of_job_set("driver", 0, node="n0", phase="Running"))
    world.pods(of_job_set("workers", 1))
    world.settle()
    assert [request.min_available for request in world.published] == [1]
    world.pods(of_job_set("workers", 0))
    world.settle()
    assert [request.min_available for request in world.published] == [1, 2]
    assert world.ranks(world.published[1].name) == {"s-workers-0-0": "1", "s-workers-0-1": "2"}


def test_a_task_of_a_volcano_job_that_depends_on_another_does_not_keep_it_waiting() -> None:
    key = OwnerKey("VolcanoJob", "ns", "llm")
    tasks = [{"name": "master", "replicas": 1, "dependsOn": {"name": ["worker"]}}, {"name": "worker", "replicas": 2}]
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3, owner=VCJOB, by_task={"master": 1, "worker": 2}))
    for index in range(2):
        marks = {"volcano.sh/task-spec": "worker", "volcano.sh/task-index": str(index)}
        world.pods(a_pod(f"w-{index}", owner=VCJOB, group="pg", annotations=marks))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"minAvailable": 3, "tasks": tasks}))
    world.settle()
    assert world.requests["vcjob.llm"].min_available == 2


@pytest.mark.parametrize(("policy", "requests"), [("WaitForWorkersReady", [2]), ("AtStartup", [])])
def test_workers_of_an_mpi_job_with_a_podgroup_do_not_wait_for_a_launcher_that_waits_for_them(
    policy: str, requests: list[int]
) -> None:
    key, owner = OwnerKey("MPIJob", "ns", "llm"), ("kubeflow.org/v2beta1", "MPIJob", "llm", "mpi-1")
    specs = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3, owner=owner))
    for index in range(2):
        labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
        world.pods(a_pod(f"w-{index}", owner=owner, group="pg", labels=labels))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"launcherCreationPolicy": policy, "mpiReplicaSpecs": specs}))
    world.settle()
    assert [request.min_available for request in world.published] == requests


@pytest.mark.parametrize("least", [None, 1, 4])
def test_16_pods_of_an_ordered_stateful_set_start_one_by_one_in_blocks_of_their_own(least: int | None) -> None:
    key = OwnerKey("StatefulSet", "ns", "db")
    world = GangWorld()
    if least is not None:
        world.gangs.set_group(a_group("pg", least=least, owner=STS))
    group = "pg" if least is not None else ""
    world.pods(a_pod("db-0", owner=STS, group=group, chips=16))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"replicas": 2}, annotations={"sp-block": "32"}))
    world.settle()
    (name,) = world.requests
    start(world, name, a_pod("db-0", owner=STS, group=group, chips=16, node="n0", phase="Running"))
    world.pods(a_pod("db-1", owner=STS, group=group, chips=16))
    world.settle()
    assert [(one.min_available, one.annotations["sp-block"]) for one in world.published] == [(1, "16"), (1, "16")]
    assert world.ranks(world.published[1].name) == {"db-1": "1"}


@pytest.mark.parametrize(("block", "made"), [("64", "64"), ("128", "64"), ("24", "24"), ("none", "none"), ("0", "0")])
def test_the_block_of_pods_that_start_together_is_the_largest_part_of_the_given_one(block: str, made: str) -> None:
    driver, workers = jobs(driver=0, workers=4)
    spec = {"replicatedJobs": [workers, driver], "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    world = GangWorld()
    world.pods(*(of_job_set("workers", index, chips=16) for index in range(4)))
    world.settle()
    world.gangs.set_owner(SET, facts_of(SET, spec, annotations={"sp-block": block}))
    world.settle()
    assert world.requests["jobset.s"].annotations["sp-block"] == made


@pytest.mark.parametrize("kind", ["StatefulSet", "JobSet"])
def test_pods_of_owners_without_turns_keep_their_blocks(kind: OwnerKind) -> None:
    key = OwnerKey(kind, "ns", "db")
    spec: dict[str, Any] = {"replicas": 2, "podManagementPolicy": "Parallel", "replicatedJobs": jobs(workers=2)}
    labels = {f"{JOBSET}/jobset-name": "db", f"{JOBSET}/replicatedjob-name": "workers"} if kind == "JobSet" else {}
    world = GangWorld()
    for index in range(2):
        world.pods(a_pod(f"db-{index}", owner=STS if kind == "StatefulSet" else None, labels=labels, chips=16))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, spec, annotations={"sp-block": "32"}))
    world.settle()
    assert [(one.min_available, one.annotations["sp-block"]) for one in world.published] == [(2, "32")]


def a_group_of_a_set(policy: str | None) -> GangWorld:
    """A PodGroup of the user with the first pod of a StatefulSet; without a policy the set may not be read."""
    key = OwnerKey("StatefulSet", "ns", "db")
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=4))
    world.pods(a_pod("db-0", owner=STS, group="pg"))
    world.settle()
    assert world.looks == [key]
    spec = {"replicas": 4, "podManagementPolicy": policy}
    world.gangs.set_owner(key, facts_of(key, spec) if policy is not None else None)
    world.settle()
    return world


def test_pods_of_a_group_over_a_set_that_makes_them_in_turn_start_one_by_one() -> None:
    world = a_group_of_a_set("OrderedReady")
    start(world, "podgroup.pg", a_pod("db-0", owner=STS, group="pg", node="n0", phase="Running"))
    world.pods(a_pod("db-1", owner=STS, group="pg"))
    world.settle()
    assert [request.min_available for request in world.published] == [1, 1]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("Parallel", ""),
        (
            None,
            "; StatefulSet db makes no further pod before this one is ready, unless its podManagementPolicy is Parallel",
        ),
    ],
)
def test_pods_of_a_group_over_another_set_wait_for_one_another(policy: str | None, why: str) -> None:
    world = a_group_of_a_set(policy)
    assert world.hold("podgroup.pg") == f"1 of at least 4 pods exists{why}"
    world.pods(a_pod("db-1", owner=STS, group="pg"))
    world.settle()
    assert world.hold("podgroup.pg") == "2 of at least 4 pods exist"


def test_a_native_group_over_a_set_that_may_make_its_pods_in_turn_names_the_field() -> None:
    group = OwnerKey("NativePodGroup", "ns", "g")
    world = GangWorld()
    world.pods(a_pod("db-0", owner=STS, spec={"schedulingGroup": {"podGroupName": "g"}}))
    world.settle()
    world.gangs.set_owner(group, facts_of(group, {"schedulingPolicy": {"gang": {"minCount": 2}}}))
    world.settle()
    assert world.hold("native.g").startswith("1 of at least 2 pods exists; StatefulSet db makes no further pod before")


def test_the_name_of_a_later_request_is_not_that_of_the_gang() -> None:
    world = a_leader_that_waits(READY)
    start(world, "lws.serve-0", of_lws(0, node="n0", phase="Running"))
    world.pods(of_lws(1), of_lws(2))
    world.settle()
    assert BASE not in world.requests
    assert world.published[1].name.startswith("lws.serve-0-")


def test_workers_of_a_leader_with_a_podgroup_of_its_own_start_together_too() -> None:
    leader = ("v1", "Pod", "serve-0", "uid-serve-0-0")
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=1, owner=leader))
    marked = {index: of_lws(index, group="pg") for index in range(3)}
    world.pods(marked[0])
    world.settle()
    assert world.looks == [SERVE]
    world.gangs.set_owner(SERVE, facts_of(SERVE, dict(READY)))
    world.settle()
    (name,) = world.requests
    start(world, name, of_lws(0, group="pg", node="n0", phase="Running"))
    world.pods(marked[1])
    world.settle()
    world.pods(marked[2])
    world.settle()
    assert [request.min_available for request in world.published] == [1, 2]


@pytest.mark.parametrize("found", [True, False])
def test_a_podgroup_of_all_pods_of_a_job_set_does_not_wait_for_jobs_that_wait_for_others(*, found: bool) -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3, owner=("trainer.kubeflow.org/v1alpha1", "TrainJob", "s", "t-1")))
    world.pods(of_job_set("data", 0, group="pg"))
    world.settle()
    data, node = jobs(data=1, node=2)
    spec = {"replicatedJobs": [data, node | {"dependsOn": [{"name": "data", "status": "Complete"}]}]}
    world.gangs.set_owner(SET, facts_of(SET, spec) if found else None)
    world.settle()
    assert [request.min_available for request in world.published] == ([1] if found else [])


@pytest.mark.parametrize(
    ("levels", "made"),
    [("level1=2,level2=4", "level1=1,level2=1"), ("level2=4, level1=2", "level1=1,level2=1"), ("level1=x", "level1=x")],
)
def test_groups_of_levels_are_as_small_as_the_pods_that_start_together(levels: str, made: str) -> None:
    key = OwnerKey("StatefulSet", "ns", "db")
    world = GangWorld()
    world.pods(a_pod("db-0", owner=STS))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"replicas": 4}, annotations={"huawei.com/affinity-config": levels}))
    world.settle()
    assert [one.annotations["huawei.com/affinity-config"] for one in world.published] == [made]


@pytest.mark.parametrize(("least", "requests"), [(2, [1, 1, 1]), (3, [1, 2])])
def test_pods_of_a_later_task_beyond_the_minimum_start_alone(least: int, requests: list[int]) -> None:
    key = OwnerKey("VolcanoJob", "ns", "llm")
    tasks = [{"name": "ps", "replicas": 1}, {"name": "worker", "replicas": 2, "dependsOn": {"name": ["ps"]}}]

    def pod(task: str, index: int, **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod can have
        marks = {"volcano.sh/task-spec": task, "volcano.sh/task-index": str(index)}
        return a_pod(f"{task}-{index}", owner=VCJOB, group="pg", annotations=marks, **more)

    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=least, owner=VCJOB))
    world.pods(pod("ps", 0))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"minAvailable": least, "tasks": tasks}))
    world.settle()
    start(world, "vcjob.llm", pod("ps", 0, node="n0", phase="Running"))
    world.pods(pod("worker", 0), pod("worker", 1))
    world.settle()
    assert [request.min_available for request in world.published] == requests
