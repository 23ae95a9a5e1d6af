"""Nodesim beside real nodes and controllers on an API server in memory: it leaves alone what it has not made."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from berth.lab.nodesim.config import AgentsConfig
from berth.lab.nodesim.ownership import MADE_BY
from berth.schemas.simulation import BreakNode
from tests.support.bound_pods import bound, pod_body
from tests.support.fake_kube import FakeKube
from tests.support.kube_rules import Tree
from tests.support.played_cluster import QUICK, played
from tests.support.waiting import until, until_true

TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 2, name: "a2-{index}", leaf: {size: 2}}
"""
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/ns/pods"
JOBS: Final = "/apis/mindxdl.gitee.com/v1/namespaces/ns/ascendjobs"
VOLCANO_JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs"
GROUPS: Final = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
MAPS: Final = "/api/v1/namespaces/{}/configmaps/{}"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CONTROLLERS: Final = replace(QUICK, controllers=["volcano", "ascend", "podgroup"])
TEMPLATE: Final = {"spec": {"containers": [{"name": "c"}]}}


def names(kube: FakeKube, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in kube.objects(path)]


def is_there(kube: FakeKube, path: str) -> bool:
    collection, _, name = path.rpartition("/")
    return name in names(kube, collection)


def body_of(name: str, scheduler: str = "berth") -> Tree:
    specs = {"Master": {"replicas": 1, "template": TEMPLATE}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "replicaSpecs": specs}}


def pod_of(name: str, owner: dict[str, Any] | None) -> Tree:
    """A running pod on a real node with the labels of a training job."""
    labels = {"training.kubeflow.org/job-name": "mine", "training.kubeflow.org/replica-type": "master"}
    found = pod_body("ns", name, [0], {"labels": labels, "ownerReferences": [owner] if owner else []})
    return {
        **found,
        "spec": {**found["spec"], "schedulerName": "default-scheduler", "nodeName": "real"},
        "status": {"phase": "Running"},
    }


def owner(kind: str, uid: str, version: str = "mindxdl.gitee.com/v1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "name": "mine", "uid": uid, "controller": True}


async def work_is_done(kube: FakeKube) -> None:
    """Wait until the controllers have done what follows from all that came before."""
    await kube.create(JOBS, body_of("last"))
    await until(
        lambda: any(name.startswith("last-") for name in names(kube, GROUPS)), deadline_s=5, what="the last PodGroup"
    )


@pytest.mark.parametrize(
    "controller",
    [owner("PyTorchJob", "k", "kubeflow.org/v1"), owner("AscendJob", "k"), owner("Job", "k", "batch.volcano.sh/v1alpha1"), None],
)  # fmt: skip
async def test_pods_of_other_controllers_live_whatever_their_labels_say(controller: dict[str, Any] | None) -> None:
    kube = FakeKube()
    kube.put(PODS, pod_of("mine-master-0", controller))
    kube.put(PODS, pod_of("mine-master-1", controller))
    before = kube.objects(PODS)
    async with played(kube, TOPOLOGY, agents=CONTROLLERS):
        job = await kube.create(JOBS, body_of("mine"))
        await work_is_done(kube)
        await kube.delete(f"{JOBS}/mine")
        await until(lambda: len(names(kube, GROUPS)) == 1, deadline_s=5, what="the PodGroup of the deleted job gone")
        assert kube.objects(PODS) == before, job


async def test_a_job_gets_its_pod_once_the_pod_of_another_has_left_its_name() -> None:
    kube = FakeKube()
    kube.put(PODS, pod_of("mine-master-0", None))
    async with played(kube, TOPOLOGY, agents=CONTROLLERS):
        await kube.create(JOBS, body_of("mine"))
        await until(lambda: names(kube, GROUPS) != [], deadline_s=5, what="the PodGroup")
        (group,) = names(kube, GROUPS)
        await kube.patch(f"{GROUPS}/{group}", {"status": {"phase": "Inqueue"}})
        await until(
            lambda: len([call for call in kube.calls if (call.method, call.path) == ("POST", PODS)]) == 1,
            deadline_s=5,
            what="the pod refused",
        )
        kube.confirm(f"{PODS}/mine-master-0")
        await until(lambda: names(kube, PODS) == ["mine-master-0"], deadline_s=5, what="the pod")
        assert MADE_BY in kube.object(f"{PODS}/mine-master-0")["metadata"]["annotations"]


async def test_children_of_a_job_that_went_while_nodesim_was_away_go() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY, agents=CONTROLLERS):
        await kube.create(JOBS, body_of("mine"))
        await until(lambda: names(kube, GROUPS) != [], deadline_s=5, what="the PodGroup")
        (group,) = names(kube, GROUPS)
        await kube.patch(f"{GROUPS}/{group}", {"status": {"phase": "Inqueue"}})
        await until(lambda: names(kube, PODS) == ["mine-master-0"], deadline_s=5, what="the pod")
    await kube.delete(f"{JOBS}/mine")
    async with played(kube, TOPOLOGY, agents=CONTROLLERS):
        await until(lambda: names(kube, PODS) == names(kube, GROUPS) == [], deadline_s=5, what="both gone")


@pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler"])
async def test_jobs_of_other_schedulers_are_those_of_other_controllers(scheduler: str) -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY, agents=CONTROLLERS):
        tasks = [{"name": "w", "replicas": 1, "template": TEMPLATE}]
        await kube.create(JOBS, body_of("mine", scheduler))
        await kube.create(
            VOLCANO_JOBS, {"metadata": {"name": "v"}, "spec": {"schedulerName": scheduler, "tasks": tasks}}
        )
        found = pod_body("ns", "p", [1])
        await kube.create(PODS, {**found, "spec": {**found["spec"], "schedulerName": scheduler}})
        await work_is_done(kube)
        assert [name for name in names(kube, GROUPS) if not name.startswith("last-")] == []
        assert "status" not in kube.object(f"{JOBS}/mine")
        assert "status" not in kube.object(f"{VOLCANO_JOBS}/v")
        assert "annotations" not in kube.object(f"{PODS}/p")["metadata"]


async def test_a_job_whose_pods_another_controller_has_made_is_left_to_it() -> None:
    kube = FakeKube()
    job = kube.put(JOBS, {**body_of("mine"), "status": {"conditions": [{"type": "Running", "status": "True"}]}})
    failed = pod_of("mine-master-0", owner("AscendJob", job["metadata"]["uid"]))
    kube.put(PODS, {**failed, "status": {"phase": "Failed"}})
    before = (kube.objects(JOBS), kube.objects(PODS))
    async with played(kube, TOPOLOGY, agents=CONTROLLERS):
        await work_is_done(kube)
        assert names(kube, GROUPS) == [f"last-{kube.object(f'{JOBS}/last')['metadata']['uid']}"]
        assert (kube.objects(JOBS)[1:], kube.objects(PODS)) == before


async def test_a_real_node_with_the_name_of_a_simulated_one_is_not_taken_over() -> None:
    kube = FakeKube()
    real = kube.put(
        NODES, {"metadata": {"name": "a2-1", "labels": {"mine": "x"}}, "status": {"capacity": {"cpu": "1"}}}
    )
    kube.put(LEASES, {"metadata": {"name": "a2-1"}, "spec": {"holderIdentity": "mine"}})
    pod = kube.put(PODS, pod_body("ns", "p", [1]) | {"spec": {"nodeName": "a2-1", "containers": []}})
    async with played(kube, TOPOLOGY, agents=replace(QUICK, lease_s=0.1)) as cluster:
        await bound(kube, "ns", "q", "a2-0", [0])
        await until(lambda: is_running(kube, "q"), deadline_s=5, what="the pod of the simulated node to run")
        await until(lambda: names(kube, LEASES) == ["a2-0", "a2-1"], deadline_s=5, what="the Lease")
        assert "a2-1" in await cluster.break_node(BreakNode("a2-1", "gone"))
        assert kube.object(f"{NODES}/a2-1") == real
        assert kube.object(f"{PODS}/p") == pod
        assert kube.object(f"{LEASES}/a2-1")["spec"] == {"holderIdentity": "mine"}
        assert not is_there(kube, MAPS.format("kube-system", "mindx-dl-deviceinfo-a2-1"))
        assert (await cluster.counts()).nodes == 1


def is_running(kube: FakeKube, name: str) -> bool:
    return bool(kube.object(f"{PODS}/{name}").get("status", {}).get("phase") == "Running")


async def test_a_node_that_took_the_place_of_a_simulated_one_is_neither_changed_nor_deleted() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        kube.confirm(f"{NODES}/a2-1")
        real = kube.put(NODES, {"metadata": {"name": "a2-1"}, "status": {"capacity": {"cpu": "1"}}})
        assert await cluster.break_node(BreakNode("a2-1", "gone")) == ""
        await until(
            lambda: [call.path for call in kube.calls if call.method == "DELETE"][-1:] == [f"{NODES}/a2-1"],
            deadline_s=5,
            what="the deletion refused",
        )
        assert kube.object(f"{NODES}/a2-1") == real


async def test_nodesim_is_no_kubelet_of_a_node_that_took_the_place_of_a_simulated_one() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        kube.confirm(f"{NODES}/a2-1")
        real = kube.put(NODES, {"metadata": {"name": "a2-1"}, "status": {"capacity": {"cpu": "1"}}})
        assert await cluster.break_node(BreakNode("a2-1", "plugin")) == ""

        async def is_left() -> bool:
            return (await cluster.counts()).nodes == 1

        await until_true(is_left, deadline_s=5, what="the node left alone")
        pod = kube.put(PODS, pod_body("ns", "p", [1]) | {"spec": {"nodeName": "a2-1", "containers": []}})
        await bound(kube, "ns", "q", "a2-0", [0])
        await until(lambda: is_running(kube, "q"), deadline_s=5, what="the pod of the simulated node to run")
        assert (kube.object(f"{NODES}/a2-1"), kube.object(f"{PODS}/p")) == (real, pod)


@pytest.mark.parametrize("fault", ["kubelet", "gone"])
async def test_a_simulated_node_that_was_restored_under_another_uid_is_still_one(fault: str) -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        found = kube.object(f"{NODES}/a2-1")
        kube.confirm(f"{NODES}/a2-1")
        metadata = {key: value for key, value in found["metadata"].items() if key != "uid"}
        kube.put(NODES, {**found, "metadata": metadata})
        assert await cluster.break_node(BreakNode("a2-1", fault)) == ""

        def is_done() -> bool:
            if fault == "gone":
                return not is_there(kube, f"{NODES}/a2-1")
            return bool(kube.object(f"{NODES}/a2-1")["status"]["conditions"][0]["status"] == "Unknown")

        await until(is_done, deadline_s=5, what=f"{fault} of the node")


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("kube-system", "basic-tor-node-cm"),
        ("kube-system", "mindx-dl-deviceinfo-a2-0"),
        ("mindx-dl", "mindx-dl-nodeinfo-a2-0"),
        ("mindx-dl", "cluster-info-device-0"),
    ],
)
async def test_a_config_map_that_another_has_made_stays(namespace: str, name: str) -> None:
    kube = FakeKube()
    path = MAPS.format(namespace, name)
    before = kube.put(path, {"metadata": {"name": name}, "data": {"mine": "x"}})
    nodes = MAPS.format("mindx-dl", "cluster-info-node-cm")

    def of_clusterd() -> str:
        return str(kube.object(nodes)["data"]["cluster-info-node-cm"]) if is_there(kube, nodes) else ""

    async with played(kube, TOPOLOGY, agents=replace(QUICK, clusterd=True)) as cluster:
        assert await cluster.break_node(BreakNode("a2-0", "node")) == ""
        assert await cluster.break_node(BreakNode("a2-1", "node")) == ""
        await until(
            lambda: "a2-1" in of_clusterd(), deadline_s=5, what="the reports of NodeD and what ClusterD made of them"
        )
        assert kube.object(path) == before


async def test_a_report_that_somebody_deleted_is_made_again() -> None:
    kube = FakeKube()
    path = MAPS.format("kube-system", "mindx-dl-deviceinfo-a2-0")
    async with played(kube, TOPOLOGY) as cluster:
        await until(lambda: is_there(kube, path), deadline_s=5, what="the report")
        kube.confirm(path)
        assert await cluster.break_node(BreakNode("a2-0", "chip", chips=[1])) == ""
        await until(lambda: is_there(kube, path), deadline_s=5, what="the report of the fault")


async def test_the_recovery_service_labels_no_group_of_another_operator() -> None:
    kube = FakeKube()
    labels = {"process-recover-enable": "pause"}
    mine = kube.put(GROUPS, {"metadata": {"name": "mine", "labels": labels}, "status": {"phase": "Running"}})
    own = {"name": "own", "labels": labels, "annotations": {MADE_BY: "nodesim"}}
    kube.put(GROUPS, {"metadata": own, "status": {"phase": "Running"}})
    async with played(kube, TOPOLOGY, agents=AgentsConfig(recovery=True)):
        await until(
            lambda: kube.object(f"{GROUPS}/own")["metadata"]["labels"]["process-recover-enable"] == "on",
            deadline_s=5,
            what="the own group",
        )
        assert kube.object(f"{GROUPS}/mine") == mine
