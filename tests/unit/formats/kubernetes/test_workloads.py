"""Which gang a pod belongs to, its place in there, and how large the gang is: pods as the controllers make them."""

from typing import Any

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.membership import base_name, membership, natural
from berth.formats.kubernetes.workloads.port import GangKey, OwnerKey
from berth.formats.kubernetes.workloads.registry import paths
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of

RS = ("apps/v1", "ReplicaSet", "web-5d8", "rs-1")
STS = ("apps/v1", "StatefulSet", "db", "sts-1")
JOB = ("batch/v1", "Job", "train", "job-1")
VCJOB = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
ACJOB = ("mindxdl.gitee.com/v1", "AscendJob", "llm", "ac-1")
LWS = "leaderworkerset.sigs.k8s.io"
JOBSET = "jobset.sigs.k8s.io"


@pytest.mark.parametrize(
    ("pod", "key", "look"),
    [
        (a_pod("p", group="pg", owner=VCJOB), GangKey("podgroup", "ns", "pg"), None),
        (a_pod("p", spec={"schedulingGroup": {"podGroupName": "g"}}, owner=JOB), GangKey("native", "ns", "g"), OwnerKey("NativePodGroup", "ns", "g")),
        (a_pod("p", spec={"workloadRef": {"name": "w", "podGroup": "a", "podGroupReplicaKey": "0"}}), GangKey("workload", "ns", "w.a.0"), OwnerKey("Workload", "ns", "w", "a")),
        (a_pod("p", labels={f"{LWS}/name": "l", f"{LWS}/group-index": "2", f"{LWS}/group-key": "k"}, annotations={f"{LWS}/size": "4"}, owner=STS), GangKey("lws", "ns", "l-2", "k"), None),
        (a_pod("p", labels={f"{LWS}/name": "l", f"{LWS}/group-key": "k"}), GangKey("lws", "ns", "l-0", "k"), OwnerKey("LeaderWorkerSet", "ns", "l")),
        (a_pod("p", labels={f"{JOBSET}/jobset-name": "s", f"{JOBSET}/jobset-uid": "u"}, owner=JOB), GangKey("jobset", "ns", "s", "u"), OwnerKey("JobSet", "ns", "s")),
        (a_pod("p", labels={f"{JOBSET}/jobset-name": "s", "batch.kubernetes.io/job-name": "s-w-0"}, spec={"schedulingGroup": {"podGroupName": "s-w-0-586cd-s-w-0-pgt-0-6895d"}}), GangKey("jobset", "ns", "s"), OwnerKey("JobSet", "ns", "s")),
        (a_pod("p", labels={f"{JOBSET}/jobset-name": "s", "batch.kubernetes.io/job-name": "s-w-0"}, spec={"schedulingGroup": {"podGroupName": "s"}}), GangKey("native", "ns", "s"), OwnerKey("NativePodGroup", "ns", "s")),
        (a_pod("p", labels={"scheduling.x-k8s.io/pod-group": "c"}, owner=JOB), GangKey("cosched", "ns", "c"), OwnerKey("CoPodGroup", "ns", "c")),
        (a_pod("p", owner=RS), GangKey("replicaset", "ns", "web-5d8", "rs-1"), OwnerKey("ReplicaSet", "ns", "web-5d8")),
        (a_pod("p", owner=STS), GangKey("statefulset", "ns", "db", "sts-1"), OwnerKey("StatefulSet", "ns", "db")),
        (a_pod("p", owner=JOB), GangKey("job", "ns", "train", "job-1"), OwnerKey("Job", "ns", "train")),
        (a_pod("p", owner=VCJOB), GangKey("vcjob", "ns", "llm", "vc-1"), OwnerKey("VolcanoJob", "ns", "llm")),
        (a_pod("p", owner=ACJOB), GangKey("acjob", "ns", "llm", "ac-1"), OwnerKey("AscendJob", "ns", "llm")),
        (a_pod("p", owner=("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", "l-1")), GangKey("lws", "ns", "l", "l-1"), OwnerKey("LeaderWorkerSet", "ns", "l")),
        (a_pod("p", owner=("ray.io/v1", "RayCluster", "r", "r-1")), GangKey("raycluster", "ns", "r", "r-1"), OwnerKey("RayCluster", "ns", "r")),
        (a_pod("p", owner=("ray.io/v2", "RayCluster", "r", "r-1")), GangKey("raycluster", "ns", "r", "r-1"), None),
        (a_pod("p", owner=("argoproj.io/v1alpha1", "Workflow", "w", "w-1")), GangKey("workflow", "ns", "w", "w-1"), None),
        (a_pod("p"), GangKey("pod", "ns", "p", "uid-p"), None),
    ],
)  # fmt: skip
def test_the_first_rule_that_applies_gives_the_gang(pod: Pod, key: GangKey, look: OwnerKey | None) -> None:
    found = membership(pod)
    assert (found.key, found.look) == (key, look)


@pytest.mark.parametrize(
    ("pod", "task", "rank", "source"),
    [
        (a_pod("x-3", annotations={"hccl/rankIndex": "7"}, env={"VC_TASK_INDEX": "1"}), "worker", 7, "7"),
        (a_pod("db-3", owner=STS), "worker", 3, "3"),
        (a_pod("db-3", owner=STS, labels={"apps.kubernetes.io/pod-index": "5"}), "worker", 5, "5"),
        (a_pod("p", owner=VCJOB, env={"VC_TASK_INDEX": "2"}, annotations={"volcano.sh/task-spec": "ps"}), "ps", None, "0.2"),
        (a_pod("p", owner=VCJOB, annotations={"volcano.sh/task-spec": "ps", "volcano.sh/task-index": "4"}), "ps", None, "0.4"),
        (a_pod("p", owner=JOB, annotations={"batch.kubernetes.io/job-completion-index": "6"}), "worker", 6, "6"),
        (a_pod("p", owner=JOB), "worker", None, ""),
        (a_pod("p", owner=ACJOB, labels={"training.kubeflow.org/replica-type": "Master", "training.kubeflow.org/replica-index": "0"}), "master", None, "0.0"),
        (a_pod("p", owner=STS, labels={f"{LWS}/name": "l", f"{LWS}/group-key": "k", f"{LWS}/worker-index": "0"}), "leader", 0, "0"),
        (a_pod("p", labels={f"{JOBSET}/jobset-name": "s", f"{JOBSET}/replicatedjob-name": "w", f"{JOBSET}/job-index": "1"}, annotations={"batch.kubernetes.io/job-completion-index": "3"}), "w", None, "1.3"),
        (a_pod("p", labels={f"{JOBSET}/jobset-name": "s", f"{JOBSET}/replicatedjob-name": "w"}, annotations={"volcano.sh/task-spec": "ps", "volcano.sh/task-index": "4", "batch.kubernetes.io/job-completion-index": "3"}), "ps", None, "0.3"),
        (a_pod("p", labels={f"{LWS}/name": "l", f"{LWS}/worker-index": "0", "ray.io/group": "headgroup"}), "headgroup", 0, "0"),
        (a_pod("p", owner=JOB, labels={"training.kubeflow.org/replica-index": "2"}, annotations={"volcano.sh/task-index": "4", "batch.kubernetes.io/job-completion-index": "6"}), "worker", None, "0.2"),
        (a_pod("p", labels={"training.kubeflow.org/replica-index": "2"}, env={"VC_TASK_INDEX": "5"}), "worker", None, "0.5"),
        (a_pod("p", annotations={"hccl/rankIndex": "-1"}), "worker", None, ""),
    ],
)  # fmt: skip
def test_sources_of_rank_by_their_order(pod: Pod, task: str, rank: int | None, source: str) -> None:
    found = membership(pod)
    assert (found.task, found.rank, found.source) == (task, rank, source)


def test_names_of_requests_tell_the_kind_and_fit_into_a_name() -> None:
    group = a_group("podgroup-1", owner=VCJOB)
    assert base_name(GangKey("podgroup", "ns", "podgroup-1"), group) == "vcjob.llm"
    assert base_name(GangKey("podgroup", "ns", "mine"), a_group("mine")) == "podgroup.mine"
    assert base_name(GangKey("podgroup", "ns", "x"), a_group("x", owner=ACJOB)) == "acjob.llm"
    first, second = (base_name(GangKey("pod", "ns", "a" * 252 + end), None) for end in "bc")
    assert first != second
    assert len(first) <= 253 - 17
    assert sorted(["w-10", "w-9", "w"], key=natural) == ["w", "w-9", "w-10"]


def test_native_groups_are_looked_for_in_every_version() -> None:
    found = paths(OwnerKey("NativePodGroup", "ns", "g"))
    assert found[0] == "/apis/scheduling.k8s.io/v1/namespaces/ns/podgroups/g"
    assert "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups/g" in found
    assert paths(OwnerKey("JobSet", "ns", "s")) == ("/apis/jobset.x-k8s.io/v1alpha2/namespaces/ns/jobsets/s",)


def first_request(key: OwnerKey, spec: dict[str, Any], *pods: Pod, **metadata: object) -> tuple[str, list[str]]:
    """What is told under the gang's name, and the names of all requests, once the owner was read."""
    world = GangWorld()
    world.pods(*pods)
    world.settle()
    assert world.looks == [key]
    assert not world.requests
    world.gangs.set_owner(key, facts_of(key, spec, **metadata))
    world.settle()
    hold = next((seen.hold for seen in world.members.values() if seen.hold), "")
    return hold, sorted(f"{name}:{sum(task.replicas for task in it.tasks)}" for name, it in world.requests.items())


def many(
    count: int,
    owner: tuple[str, str, str, str] | None = None,
    **more: Any,  # noqa: ANN401 - whatever a pod can have
) -> list[Pod]:
    return [a_pod(f"p-{index}", owner=owner, **more) for index in range(count)]


def test_a_deployment_with_chips_starts_together_and_one_without_pod_by_pod() -> None:
    key = OwnerKey("ReplicaSet", "ns", "web-5d8")
    assert first_request(key, {"replicas": 3}, *many(3, RS)) == ("", ["replicaset.web-5d8:3"])
    hold, requests = first_request(key, {"replicas": 3}, *many(2, RS))
    assert (hold, requests) == ("2 of at least 3 pods exist", [])
    _, requests = first_request(key, {"replicas": 3}, *many(2, RS, chips=0))
    assert [name.rpartition(":")[2] for name in requests] == ["1", "1"]


def test_annotations_outrank_the_size_of_a_deployment() -> None:
    key = OwnerKey("ReplicaSet", "ns", "web-5d8")
    own = {"annotations": {"huawei.com/schedule_minAvailable": "2", "scheduling.volcano.sh/group-min-member": "1"}}
    assert first_request(key, {"replicas": 3}, *many(2, RS), **own) == ("", ["replicaset.web-5d8:2"])
    pods = many(2, RS, annotations={"scheduling.volcano.sh/group-min-member": "2"})
    assert first_request(key, {"replicas": 3}, *pods) == ("", ["replicaset.web-5d8:2"])
    pods = many(2, RS, annotations={"huawei.com/schedule_minAvailable": "two"})
    hold, requests = first_request(key, {"replicas": 3}, *pods)
    assert hold == "annotation huawei.com/schedule_minAvailable is 'two': expected a whole number from 0 to 1000000"
    assert requests == []
    pods = many(2, RS, annotations={"huawei.com/schedule_minAvailable": "8"})
    hold, _ = first_request(key, {"replicas": 4}, *pods)
    assert hold == (
        "annotation huawei.com/schedule_minAvailable 8 is more than the 4 pods of the job: a configuration error"
    )


def test_a_stateful_set_is_a_gang_only_when_its_pods_come_together() -> None:
    key = OwnerKey("StatefulSet", "ns", "db")
    assert first_request(key, {"replicas": 3}, a_pod("db-0", owner=STS)) == ("", ["statefulset.db:1"])
    parallel = {"replicas": 3, "podManagementPolicy": "Parallel"}
    hold, _ = first_request(key, parallel, a_pod("db-0", owner=STS))
    assert hold == "1 of at least 3 pods exists"


def test_an_indexed_job_is_a_gang_and_a_plain_one_is_not() -> None:
    key = OwnerKey("Job", "ns", "train")
    indexed = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    pods = [
        a_pod(f"p-{at}", owner=JOB, annotations={"batch.kubernetes.io/job-completion-index": str(at)})
        for at in range(4)
    ]
    assert first_request(key, indexed, *pods) == ("", ["job.train:4"])
    assert first_request(key, indexed, *pods[:3])[0] == "3 of at least 4 pods exist"
    assert first_request(key, {**indexed, "completions": 2}, *pods[:2]) == ("", ["job.train:2"])
    _, requests = first_request(key, {"parallelism": 2}, *many(2, JOB))
    assert [name.rpartition(":")[2] for name in requests] == ["1", "1"]
    assert first_request(key, {**indexed, "suspend": True}, *pods)[0] == "its job is suspended"


def test_the_last_pods_of_a_job_do_not_wait_for_those_that_succeeded() -> None:
    key = OwnerKey("Job", "ns", "train")
    indexed = {"parallelism": 4, "completions": 6, "completionMode": "Indexed"}
    done = [a_pod(f"d-{at}", owner=JOB, node="n", phase="Succeeded") for at in range(3)]
    assert first_request(key, indexed, *done, *many(1, JOB)) == ("", ["job.train:1"])


def test_a_job_set_is_as_large_as_all_its_jobs() -> None:
    key = OwnerKey("JobSet", "ns", "s")
    jobs = [
        {"name": "driver", "replicas": 1, "template": {"spec": {}}},
        {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2}}},
    ]
    world = GangWorld()
    for job, child, index in (("workers", 1, 1), ("workers", 0, 0), ("driver", 0, 0), ("workers", 0, 1)):
        labels = {f"{JOBSET}/jobset-name": "s", f"{JOBSET}/replicatedjob-name": job, f"{JOBSET}/job-index": str(child)}
        index_of = {"batch.kubernetes.io/job-completion-index": str(index)}
        world.pods(
            a_pod(f"{job}-{child}-{index}", labels=labels, annotations=index_of, chips=8 if job != "driver" else 0)
        )
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"replicatedJobs": jobs}))
    world.settle()
    assert world.hold("jobset.s") == "4 of at least 5 pods exist"
    labels = {f"{JOBSET}/jobset-name": "s", f"{JOBSET}/replicatedjob-name": "workers", f"{JOBSET}/job-index": "1"}
    world.pods(a_pod("workers-1-0", labels=labels, annotations={"batch.kubernetes.io/job-completion-index": "0"}))
    world.settle()
    request = world.requests["jobset.s"]
    assert [(task.name, task.replicas, task.chips) for task in request.tasks] == [("driver", 1, 0), ("workers", 4, 8)]
    assert world.ranks("jobset.s") == {
        "driver-0-0": "", "workers-0-0": "0", "workers-0-1": "1", "workers-1-0": "2", "workers-1-1": "3",
    }  # fmt: skip


def test_jobs_of_a_job_set_that_come_later_are_not_waited_for() -> None:
    key = OwnerKey("JobSet", "ns", "s")
    jobs: list[dict[str, Any]] = [
        {"name": "one", "replicas": 1, "template": {"spec": {"parallelism": 2}}},
        {"name": "two", "replicas": 3, "template": {"spec": {}}, "dependsOn": [{"name": "one", "status": "Ready"}]},
    ]
    assert facts_of(key, {"replicatedJobs": jobs}).min_count == 2
    del jobs[1]["dependsOn"]
    assert facts_of(key, {"replicatedJobs": jobs}).min_count == 5
    assert facts_of(key, {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": "InOrder"}}).min_count == 2


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


@pytest.mark.parametrize(
    ("of_set", "of_job", "minimum"),
    [
        ({EXCLUSIVE: "rack"}, {}, 4),
        ({}, {EXCLUSIVE: "rack"}, 5),
        ({EXCLUSIVE: "rack", "alpha.jobset.sigs.k8s.io/node-selector": "true"}, {}, 8),
    ],
    ids=["of the set", "of a job", "nodes labelled beforehand"],
)
def test_of_jobs_with_a_domain_each_only_the_first_pods_start_together(
    of_set: dict[str, str], of_job: dict[str, str], minimum: int
) -> None:
    jobs: list[dict[str, Any]] = [
        {"name": "one", "replicas": 1, "template": {"spec": {"parallelism": 2}}},
        {"name": "two", "replicas": 3, "template": {"metadata": {"annotations": of_job}, "spec": {"parallelism": 2}}},
    ]
    found = facts_of(OwnerKey("JobSet", "ns", "s"), {"replicatedJobs": jobs}, annotations=of_set)
    assert found.min_count == minimum


def test_a_leader_and_its_workers_are_a_gang_of_the_size_they_tell() -> None:
    world = GangWorld()
    for index in range(4):
        labels = {
            f"{LWS}/name": "l", f"{LWS}/group-index": "1", f"{LWS}/group-key": "k", f"{LWS}/worker-index": str(index),
        }  # fmt: skip
        world.pods(a_pod(f"l-1-{index}", labels=labels, annotations={f"{LWS}/size": "4"}, chips=8 if index else 4))
        world.settle()
        assert bool(world.requests) == (index == 3)
    assert world.looks == [OwnerKey("LeaderWorkerSet", "ns", "l")], "it may say that the leader comes first"
    request = world.requests["lws.l-1"]
    assert [(task.name, task.replicas, task.chips) for task in request.tasks] == [("leader", 1, 4), ("worker", 3, 8)]
    assert list(world.ranks("lws.l-1").values()) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("key", "spec", "pod", "name"),
    [
        (OwnerKey("CoPodGroup", "ns", "c"), {"minMember": 2}, {"labels": {"scheduling.x-k8s.io/pod-group": "c"}}, "cosched.c"),
        (OwnerKey("NativePodGroup", "ns", "g"), {"schedulingPolicy": {"gang": {"minCount": 2}}}, {"spec": {"schedulingGroup": {"podGroupName": "g"}}}, "native.g"),
        (OwnerKey("Workload", "ns", "w", "a"), {"podGroups": [{"name": "b"}, {"name": "a", "policy": {"gang": {"minCount": 2}}}]}, {"spec": {"workloadRef": {"name": "w", "podGroup": "a"}}}, "workload.w.a"),
        (OwnerKey("LeaderWorkerSet", "ns", "l"), {"leaderWorkerTemplate": {"size": 2}}, {"labels": {f"{LWS}/name": "l", f"{LWS}/group-key": "k"}}, "lws.l-0"),
        (OwnerKey("VolcanoJob", "ns", "llm"), {"minAvailable": 2, "tasks": [{"replicas": 3}]}, {"owner": VCJOB}, "vcjob.llm"),
        (OwnerKey("AscendJob", "ns", "llm"), {"replicaSpecs": {"Worker": {"replicas": 2}}}, {"owner": ACJOB}, "acjob.llm"),
    ],
)  # fmt: skip
def test_objects_that_tell_the_minimum(key: OwnerKey, spec: dict[str, Any], pod: dict[str, Any], name: str) -> None:
    assert first_request(key, spec, *many(1, **pod))[0] == "1 of at least 2 pods exists"
    assert first_request(key, spec, *many(2, **pod)) == ("", [f"{name}:2"])


def test_a_native_group_without_a_gang_policy_starts_pod_by_pod() -> None:
    key = OwnerKey("NativePodGroup", "ns", "g")
    pods = many(2, spec={"schedulingGroup": {"podGroupName": "g"}})
    _, requests = first_request(key, {"schedulingPolicy": {"basic": {}}}, *pods)
    assert [name.rpartition(":")[2] for name in requests] == ["1", "1"]


@pytest.mark.parametrize(
    ("key", "pod", "hold"),
    [
        (OwnerKey("JobSet", "ns", "s"), {"labels": {f"{JOBSET}/jobset-name": "s"}}, "JobSet s does not exist or cannot be read"),
        (OwnerKey("ReplicaSet", "ns", "web-5d8"), {"owner": RS}, "ReplicaSet web-5d8 does not exist or cannot be read"),
        (OwnerKey("CoPodGroup", "ns", "c"), {"labels": {"scheduling.x-k8s.io/pod-group": "c"}}, "PodGroup c does not exist or cannot be read"),
    ],
)  # fmt: skip
def test_an_owner_that_cannot_be_read_holds_the_gang_and_is_read_again(
    key: OwnerKey, pod: dict[str, Any], hold: str
) -> None:
    world = GangWorld()
    world.pods(*many(1, **pod))
    world.settle()
    world.gangs.set_owner(key, None)
    world.settle()
    assert [seen.hold for seen in world.members.values()] == [hold]
    assert world.gangs.next_due_ms() == world.now_ms + 30_000
    world.settle(after_s=30)
    assert world.looks == [key, key]
    assert [seen.hold for seen in world.members.values()] == [hold]


@pytest.mark.parametrize(
    ("key", "spec", "owner"),
    [
        (OwnerKey("ReplicaSet", "ns", "web-5d8"), {"replicas": 2}, RS),
        (OwnerKey("StatefulSet", "ns", "db"), {"replicas": 2, "podManagementPolicy": "Parallel"}, STS),
        (OwnerKey("Job", "ns", "train"), {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}, JOB),
    ],
    ids=["ReplicaSet", "StatefulSet", "Job"],
)
def test_a_podgroup_of_one_that_volcano_makes_for_a_controller_says_nothing_of_its_size(
    key: OwnerKey, spec: dict[str, Any], owner: tuple[str, str, str, str]
) -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=1, owner=owner))
    world.pods(*many(1, owner, group="pg"))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, spec))
    world.settle()
    assert [seen.hold for seen in world.members.values()] == ["1 of at least 2 pods exists"]
    world.pods(a_pod("p-1", owner=owner, group="pg"))
    world.settle()
    assert [request.min_available for request in world.requests.values()] == [2]
