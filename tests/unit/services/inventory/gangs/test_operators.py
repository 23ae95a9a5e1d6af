"""Clusters of Ray and jobs of Kubeflow without a PodGroup, and controllers of kinds that are not known."""

from typing import Any, Final

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey, OwnerKind
from berth.formats.kubernetes.workloads.registry import kinds
from berth.services.inventory.gangs.warnings import GANG_UNKNOWN
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of

RAY: Final = ("ray.io/v1", "RayCluster", "llm", "ray-1")
TYPE: Final = "training.kubeflow.org/replica-type"
INDEX: Final = "training.kubeflow.org/replica-index"
REPLICAS: Final[dict[str, str]] = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "MXJob": "mxReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}


def workers(count: int, replicas: int | None, **more: object) -> dict[str, Any]:
    """A worker group of so many replicas."""
    return {"groupName": "small", "replicas": replicas, "minReplicas": count} | more


def first_hold(kind: OwnerKind, spec: dict[str, Any], pod: Pod) -> str:
    """Why the first pod of an owner waits."""
    key = OwnerKey(kind, "ns", "llm")
    world = GangWorld()
    world.pods(pod)
    world.settle()
    assert world.looks == [key]
    world.gangs.set_owner(key, facts_of(key, spec))
    world.settle()
    return next(iter(world.members.values())).hold


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"workerGroupSpecs": [workers(0, 3)]}, 4),
        ({"workerGroupSpecs": [workers(2, None)]}, 3),
        ({"workerGroupSpecs": [workers(0, 9, maxReplicas=5)]}, 6),
        ({"workerGroupSpecs": [workers(0, 3, numOfHosts=4)]}, 13),
        ({"workerGroupSpecs": [workers(1, 3), workers(0, 2, groupName="large")]}, 6),
        ({"workerGroupSpecs": [workers(1, 3), workers(0, 2, groupName="large", suspend=True)]}, 4),
        ({"enableInTreeAutoscaling": True, "workerGroupSpecs": [workers(2, 3)]}, 3),
        ({"enableInTreeAutoscaling": True, "workerGroupSpecs": [workers(2, 3, numOfHosts=4)]}, 9),
        ({"enableInTreeAutoscaling": True, "workerGroupSpecs": [workers(2, 3), workers(1, 1, suspend=True)]}, 3),
    ],
)
def test_a_ray_cluster_starts_with_its_head_and_its_workers(spec: dict[str, Any], least: int) -> None:
    pod = a_pod("llm-head", owner=RAY, labels={"ray.io/group": "headgroup"})
    assert first_hold("RayCluster", spec, pod) == f"1 of at least {least} pods exists"


def test_a_suspended_ray_cluster_waits() -> None:
    spec = {"suspend": True, "workerGroupSpecs": [workers(0, 1)]}
    assert first_hold("RayCluster", spec, a_pod("llm-head", owner=RAY)) == "its job is suspended"


@pytest.mark.parametrize("kind", sorted(REPLICAS))
def test_all_pods_of_a_job_of_kubeflow_start_together(kind: OwnerKind) -> None:
    spec = {REPLICAS[kind]: {"Worker": {"replicas": 3}}}
    pod = a_pod("llm-worker-0", owner=("kubeflow.org/v1", kind, "llm", "u"), labels={TYPE: "worker", INDEX: "0"})
    assert first_hold(kind, spec, pod) == "1 of at least 3 pods exists"


@pytest.mark.parametrize(
    ("kind", "policies", "types", "least"),
    [
        ("PyTorchJob", {}, {"Master": 1, "Worker": 3}, 4),
        ("PyTorchJob", {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}, {"Master": 1, "Worker": 3}, 2),
        ("PyTorchJob", {"elasticPolicy": {"minReplicas": 2}}, {"Worker": 5}, 2),
        ("PyTorchJob", {"elasticPolicy": {"minReplicas": 2}}, {"Master": 1, "Worker": 5}, 3),
        ("PyTorchJob", {"elasticPolicy": {"maxReplicas": 5}}, {"Worker": 5}, 5),
        (
            "PaddleJob",
            {"elasticPolicy": {"minReplicas": 2}, "runPolicy": {"schedulingPolicy": {"minAvailable": 4}}},
            {"Worker": 5},
            4,
        ),
        ("MPIJob", {}, {"Launcher": 1, "Worker": 4}, 4),
        ("MPIJob", {"runPolicy": {"schedulingPolicy": {"minAvailable": 5}}}, {"Launcher": 1, "Worker": 4}, 4),
        ("MPIJob", {"runPolicy": {"schedulingPolicy": {"minAvailable": 2}}}, {"Launcher": 1, "Worker": 4}, 2),
    ],
)
def test_a_job_of_kubeflow_starts_with_the_fewest_pods_that_it_names(
    kind: OwnerKind, policies: dict[str, Any], types: dict[str, int], least: int
) -> None:
    spec = policies | {REPLICAS[kind]: {name: {"replicas": count} for name, count in types.items()}}
    pod = a_pod("llm-worker-0", owner=("kubeflow.org/v1", kind, "llm", "u"), labels={TYPE: "worker", INDEX: "0"})
    assert first_hold(kind, spec, pod) == f"1 of at least {least} pods exists"


def test_pods_of_a_job_of_kubeflow_have_the_ranks_of_their_indexes_after_the_master() -> None:
    key, owner = OwnerKey("PyTorchJob", "ns", "llm"), ("kubeflow.org/v1", "PyTorchJob", "llm", "u")
    world = GangWorld()
    for name, index in (("worker", 1), ("master", 0), ("worker", 0)):
        world.pods(a_pod(f"{name}-{index}", owner=owner, labels={TYPE: name, INDEX: str(index)}))
    world.settle()
    specs = {"Worker": {"replicas": 2}, "Master": {"replicas": 1}}
    world.gangs.set_owner(
        key, facts_of(key, {"pytorchReplicaSpecs": specs, "runPolicy": {"schedulingPolicy": {"queue": "q"}}})
    )
    world.settle()
    assert world.ranks("pytorchjob.llm") == {"master-0": "0", "worker-0": "1", "worker-1": "2"}
    assert world.requests["pytorchjob.llm"].queue == "q"


@pytest.mark.parametrize("final", ["Succeeded", "Failed"])
def test_a_job_of_kubeflow_that_has_ended_makes_no_pods(final: str) -> None:
    status = {"conditions": [{"type": final, "status": "True"}]}
    assert facts_of(OwnerKey("TFJob", "ns", "llm"), {"status": status}).final == final


@pytest.mark.parametrize("key", ["huawei.com/schedule_minAvailable", "scheduling.volcano.sh/group-min-member"])
def test_an_annotation_says_how_many_pods_of_a_ray_cluster_start_together_even_where_it_may_not_be_read(
    key: str,
) -> None:
    world = GangWorld()
    world.pods(*(a_pod(f"w-{index}", owner=RAY, annotations={key: "2"}) for index in range(2)))
    world.settle()
    world.gangs.set_owner(OwnerKey("RayCluster", "ns", "llm"), None)
    world.settle()
    assert [request.min_available for request in world.published] == [2]


def test_a_ray_cluster_that_may_not_be_read_holds_its_pods() -> None:
    world = GangWorld()
    world.pods(a_pod("w-0", owner=RAY))
    world.settle()
    world.gangs.set_owner(OwnerKey("RayCluster", "ns", "llm"), None)
    world.settle()
    assert world.hold("raycluster.llm") == "RayCluster llm does not exist or cannot be read"


@pytest.mark.parametrize(("version", "known"), [("v1", "MPIJob"), ("v2beta1", "MPIJob"), ("v3", None)])
def test_an_unknown_version_of_an_operator_is_an_unknown_kind(version: str, known: str | None) -> None:
    found = kinds().of_controller(f"kubeflow.org/{version}", "MPIJob")
    assert (found.name if found is not None else None) == known


def test_of_a_kind_that_is_not_known_it_is_said_that_its_pods_start_one_by_one() -> None:
    world = GangWorld()
    world.pods(*(a_pod(f"w-{index}", owner=("example.com/v1", "Thing", "t", "t-1")) for index in range(2)))
    world.settle()
    said = {
        GANG_UNKNOWN: "the pods of Thing t start one by one: the kind is not known; annotation "
        "huawei.com/schedule_minAvailable of the pods says how many of them start together"
    }
    assert world.looks == []
    assert world.warnings == [said, said]


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(
            "p", owner=("example.com/v1", "Thing", "t", "t-1"), annotations={"huawei.com/schedule_minAvailable": "1"}
        ),
        a_pod("p", owner=("example.com/v1", "Thing", "t", "t-1"), chips=0),
        a_pod("p", owner=("apps/v1", "DaemonSet", "d", "d-1")),
        a_pod("p"),
    ],
    ids=["annotation", "no-chips", "daemonset", "no-controller"],
)
def test_nothing_is_said_of_pods_that_are_alone_or_say_how_many_they_are(pod: Pod) -> None:
    world = GangWorld()
    world.pods(pod)
    world.settle()
    assert world.warnings == [{}]


VCJOB: Final = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")


@pytest.mark.parametrize("least", [None, 0])
def test_a_volcano_job_without_a_minimum_starts_what_fits(least: int | None) -> None:
    key = OwnerKey("VolcanoJob", "ns", "llm")
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=least, owner=VCJOB, by_task={"worker": 3}))
    for index in range(3):
        marks = {"volcano.sh/task-spec": "worker", "volcano.sh/task-index": str(index)}
        world.pods(a_pod(f"w-{index}", owner=VCJOB, group="pg", annotations=marks))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"tasks": [{"name": "worker", "replicas": 3}]}))
    world.settle()
    assert [request.min_available for request in world.published] == [1, 1, 1]


def test_ranks_of_a_stateful_set_begin_at_0_whatever_its_first_ordinal_is() -> None:
    key, owner = OwnerKey("StatefulSet", "ns", "db"), ("apps/v1", "StatefulSet", "db", "sts-1")
    world = GangWorld()
    world.pods(*(a_pod(f"db-{index}", owner=owner) for index in (5, 6, 7)))
    world.settle()
    spec = {"replicas": 3, "podManagementPolicy": "Parallel", "ordinals": {"start": 5}}
    world.gangs.set_owner(key, facts_of(key, spec))
    world.settle()
    assert world.ranks("statefulset.db") == {"db-5": "0", "db-6": "1", "db-7": "2"}


@pytest.mark.parametrize(("chips", "first"), [("0", 0), ("8", 1)])
def test_ranks_of_workers_whose_launcher_is_a_worker_too_follow_it(chips: str, first: int) -> None:
    key, owner = OwnerKey("MPIJob", "ns", "llm"), ("kubeflow.org/v2beta1", "MPIJob", "llm", "mpi-1")
    world = GangWorld()
    world.pods(*(a_pod(f"w-{index}", owner=owner, labels={TYPE: "worker", INDEX: str(index)}) for index in (1, 2)))
    world.settle()
    template = {"spec": {"containers": [{"resources": {"limits": {"huawei.com/Ascend910": chips}}}]}}
    specs = {"Launcher": {"replicas": 1, "template": template}, "Worker": {"replicas": 2}}
    world.gangs.set_owner(key, facts_of(key, {"runLauncherAsWorker": True, "mpiReplicaSpecs": specs}))
    world.settle()
    assert world.ranks("mpijob.llm") == {"w-1": str(first), "w-2": str(first + 1)}


def test_where_an_operator_made_a_podgroup_it_says_what_counts() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, owner=RAY))
    world.pods(*(a_pod(f"w-{index}", owner=RAY, group="pg", labels={"ray.io/group": "small"}) for index in range(2)))
    world.settle()
    assert world.looks == []
    assert [request.min_available for request in world.published] == [2]
