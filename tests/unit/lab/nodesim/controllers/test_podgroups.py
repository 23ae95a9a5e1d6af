"""Volcano's controller of PodGroups as it is played: what pods of other controllers, and pods alone, get."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from berth.lab.nodesim.controllers.podgroups import PodGroupController
from berth.lab.nodesim.kube_writes import KubeWrites
from berth.runtime.backoff import Backoff
from berth.runtime.logs import DEFAULT_LOG
from tests.support.fake_kube import FakeKube
from tests.support.kube_rules import Tree
from tests.support.waiting import until

PODS = "/api/v1/namespaces/ns/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
LEAST = "scheduling.volcano.sh/group-min-member"
OWNERS = [
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("batch/v1", "Job", "jobs"),
]


@asynccontextmanager
async def controlled(kube: FakeKube) -> AsyncIterator[None]:
    backoff = Backoff(first_s=0.01, max_s=0.02)
    writes = KubeWrites(at_once=2, backoff=backoff, log=DEFAULT_LOG)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(writes.run(), name="write"),
            group.create_task(
                PodGroupController(kube, ["volcano"], writes, lambda: 0.0, DEFAULT_LOG).run(), name="control"
            ),
        ]
        yield
        for task in tasks:
            task.cancel()


def put_pod(kube: FakeKube, owner: Tree | None = None) -> None:
    requests = {"cpu": "2", "huawei.com/Ascend910": "8"}
    kube.put(
        PODS,
        {
            "metadata": {"name": "p", "uid": "uid-p", "ownerReferences": [owner] if owner else []},
            "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Pending"},
        },
    )


async def group_of(kube: FakeKube, name: str) -> Tree:
    """The PodGroup that the pod is told of."""

    def told() -> bool:
        notes = kube.object(f"{PODS}/p")["metadata"].get("annotations") or {}
        return notes.get("scheduling.k8s.io/group-name") == name

    async with controlled(kube):
        await until(told, deadline_s=5, what="the pod to be told its PodGroup")
    return kube.object(f"{GROUPS}/{name}")


@pytest.mark.parametrize(("version", "kind", "plural"), OWNERS)
async def test_pods_of_an_owner_start_together_as_its_annotation_says(version: str, kind: str, plural: str) -> None:
    kube = FakeKube()
    kube.put(
        f"/apis/{version}/namespaces/ns/{plural}",
        {"metadata": {"name": "o", "uid": "uid-o", "annotations": {LEAST: "3"}}},
    )
    put_pod(kube, {"apiVersion": version, "kind": kind, "name": "o", "uid": "uid-o", "controller": True})
    group = await group_of(kube, "podgroup-uid-o")
    assert group["spec"]["minMember"] == 3
    assert group["spec"]["minResources"] == {"cpu": "6000m", "huawei.com/Ascend910": "24"}
    assert group["metadata"]["ownerReferences"] == [
        {
            "apiVersion": version,
            "kind": kind,
            "name": "o",
            "uid": "uid-o",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


@pytest.mark.parametrize("annotation", [None, "0", "many", "\u00b2"])
async def test_without_a_number_each_pod_of_an_owner_starts_alone(annotation: str | None) -> None:
    kube = FakeKube()
    notes = {} if annotation is None else {LEAST: annotation}
    kube.put("/apis/apps/v1/namespaces/ns/replicasets", {"metadata": {"name": "o", "uid": "u", "annotations": notes}})
    put_pod(kube, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": True})
    assert (await group_of(kube, "podgroup-u"))["spec"]["minMember"] == 1


@pytest.mark.parametrize(
    "owner",
    [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u", "controller": True},
        {"apiVersion": "example.com/v1", "kind": "Trainer", "name": "o", "uid": "u", "controller": True},
    ],
    ids=["gone", "of an unknown kind"],
)
async def test_a_pod_whose_owner_cannot_be_read_starts_alone(owner: Tree) -> None:
    kube = FakeKube()
    put_pod(kube, owner)
    assert (await group_of(kube, "podgroup-u"))["spec"]["minMember"] == 1


async def test_a_pod_alone_has_a_group_that_it_owns() -> None:
    kube = FakeKube()
    put_pod(kube)
    group = await group_of(kube, "podgroup-uid-p")
    assert group["spec"]["minMember"] == 1
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"], owner["uid"]) == ("v1", "Pod", "p", "uid-p")


REPLICA_SETS = "/apis/apps/v1/namespaces/ns/replicasets"


def scale(kube: FakeKube, replicas: int) -> Tree:
    kube.put(REPLICA_SETS, {"metadata": {"name": "o", "uid": "u"}, "spec": {"replicas": replicas}})
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": True}


async def test_deployment_life_a_replica_set_without_replicas_loses_its_group_and_gets_another_one() -> None:
    kube = FakeKube()
    put_pod(kube, scale(kube, 1))
    first = await group_of(kube, "podgroup-u")
    async with controlled(kube):
        scale(kube, 0)
        await until(lambda: not kube.objects(GROUPS), deadline_s=5, what="the group to go before the pod")
    kube.confirm(f"{PODS}/p")
    put_pod(kube, scale(kube, 1))
    assert (await group_of(kube, "podgroup-u"))["metadata"]["uid"] != first["metadata"]["uid"]


async def test_a_group_that_another_controller_has_made_stays() -> None:
    kube = FakeKube()
    scale(kube, 0)
    kube.put(GROUPS, {"metadata": {"name": "podgroup-u"}})
    async with controlled(kube):
        path = f"{GROUPS}/podgroup-u"
        await until(lambda: ("GET", path) in {call[:2] for call in kube.calls}, deadline_s=5, what="a look at it")
    assert [call for call in kube.calls if call.method == "DELETE"] == []
    assert kube.objects(GROUPS)


@pytest.mark.parametrize(("phase", "is_kept"), [("Inqueue", False), ("Running", True)])
async def test_deployment_life_annotations_of_others_are_lost_while_a_group_is_admitted(
    phase: str,
    is_kept: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    kube = FakeKube()
    put_pod(kube, scale(kube, 2))
    group = await group_of(kube, "podgroup-u")
    notes = {**group["metadata"]["annotations"], "huawei.com/schedule_enqueue_time": "1"}
    kube.put(GROUPS, {**group, "metadata": {**group["metadata"], "annotations": notes}, "status": {"phase": phase}})
    kube.confirm(f"{PODS}/p")
    put_pod(kube, scale(kube, 2))
    found = (await group_of(kube, "podgroup-u"))["metadata"]["annotations"]
    assert found == (notes if is_kept else group["metadata"]["annotations"])


async def test_a_pod_that_has_a_node_already_is_told_its_group_all_the_same() -> None:
    kube = FakeKube()
    put_pod(kube)
    found = kube.object(f"{PODS}/p")
    kube.put(PODS, {**found, "spec": {**found["spec"], "nodeName": "n"}})
    assert (await group_of(kube, "podgroup-uid-p"))["spec"]["minMember"] == 1
