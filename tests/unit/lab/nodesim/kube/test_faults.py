"""Faults on an API server in memory: nodes that leave, leaf switches, failing pods, and planned ones."""

import pytest

from berth.lab.nodesim.fault_plan import FaultPlanConfig, GivenFault
from berth.schemas.simulation import BreakNode
from tests.support.bound_pods import RESOURCE, bind, pod_body
from tests.support.fake_kube import FakeKube
from tests.support.kube_rules import Tree
from tests.support.played_cluster import played
from tests.support.waiting import until

TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2, name: "leaf-{index}"}}
"""
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/ns/pods"


def names(kube: FakeKube) -> list[str]:
    return [item["metadata"]["name"] for item in kube.objects(NODES)]


def ready(kube: FakeKube) -> list[bool]:
    def is_ready(node: Tree) -> bool:
        return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])

    return [is_ready(node) for node in kube.objects(NODES)]


async def a_pod(kube: FakeKube, name: str, node: str, *, policy: str = "Never") -> None:
    body = pod_body("ns", name, [1])
    await kube.create(PODS, {**body, "spec": {**body["spec"], "restartPolicy": policy}})
    await bind(kube, "ns", name, node, [int(name[-1])], at=name[-1])


def status(kube: FakeKube, name: str) -> Tree:
    found: Tree = kube.object(f"{PODS}/{name}").get("status", {})
    return found


async def until_running(kube: FakeKube, *pods: str) -> None:
    await until(
        lambda: {status(kube, name).get("phase") for name in pods} == {"Running"}, deadline_s=5, what=f"{pods} run"
    )


async def test_a_node_that_is_gone_is_deleted_and_registered_again_and_its_pods_stay() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        await a_pod(kube, "p-1", "a2-1")
        await until_running(kube, "p-1")
        assert await cluster.break_node(BreakNode("a2-1", "gone")) == ""
        await until(lambda: names(kube) == ["a2-0", "a2-2", "a2-3"], deadline_s=5, what="the node is gone")
        assert status(kube, "p-1")["phase"] == "Running"
        assert await cluster.break_node(BreakNode("a2-1", "chip", [3])) == ""
        assert await cluster.break_node(BreakNode("a2-1", "gone", repair=True)) == ""
        await until(lambda: names(kube) == ["a2-0", "a2-1", "a2-2", "a2-3"], deadline_s=5, what="it is back")
        await until(lambda: ready(kube) == [True] * 4, deadline_s=5, what="it is ready")
        found = kube.object(f"{NODES}/a2-1")
        assert "baseDeviceInfos" in found["metadata"]["annotations"]
        await until(
            lambda: kube.object(f"{NODES}/a2-1")["status"]["allocatable"][RESOURCE] == "7",
            deadline_s=5,
            what="its chip is unhealthy",
        )
        assert (await cluster.counts()).pods_live == 1


async def test_a_leaf_breaks_and_is_repaired_with_all_its_nodes() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        assert await cluster.break_node(BreakNode("leaf-1", "kubelet", leaf=True)) == ""
        await until(lambda: ready(kube) == [True, True, False, False], deadline_s=5, what="its nodes are not ready")
        assert await cluster.break_node(BreakNode("leaf-1", "kubelet", leaf=True, repair=True)) == ""
        await until(lambda: ready(kube) == [True] * 4, deadline_s=5, what="they are ready")
        assert await cluster.break_node(BreakNode("a2-0", "kubelet", leaf=True)) == (
            "leaf switch is 'a2-0', expected a leaf switch of the topology file"
        )
        assert "expected a leaf switch" in await cluster.break_node(BreakNode("", "kubelet", leaf=True))


async def test_a_container_that_fails_ends_its_pod_or_is_started_again() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        await a_pod(kube, "p-1", "a2-0")
        await a_pod(kube, "p-2", "a2-0", policy="OnFailure")
        await until_running(kube, "p-1", "p-2")
        assert await cluster.break_node(BreakNode("a2-0", "container", pod="ns/p-2", exit_code=137)) == ""
        await until(
            lambda: status(kube, "p-2")["containerStatuses"][0]["restartCount"] == 1, deadline_s=5, what="it runs again"
        )
        (again,) = status(kube, "p-2")["containerStatuses"]
        assert (status(kube, "p-2")["phase"], again["lastState"]["terminated"]["exitCode"]) == ("Running", 137)
        assert "running" in again["state"]
        assert await cluster.break_node(BreakNode("a2-0", "container")) == ""  # the first by name
        await until(lambda: status(kube, "p-1")["phase"] == "Failed", deadline_s=5, what="the other fails")
        assert status(kube, "p-1")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
        assert (await cluster.counts()).pods_live == 1


async def test_a_relation_fault_is_a_label_of_the_pod() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        await a_pod(kube, "p-1", "a2-0")
        await until_running(kube, "p-1")

        def labels() -> object:
            return kube.object(f"{PODS}/p-1")["metadata"].get("labels")

        assert await cluster.break_node(BreakNode("a2-0", "relation")) == ""
        await until(lambda: labels() == {"fault-type": "Separate"}, deadline_s=5, what="the usual label")
        assert await cluster.break_node(BreakNode("a2-0", "relation", level="SubHealth", pod="ns/p-1")) == ""
        await until(lambda: labels() == {"fault-type": "SubHealth"}, deadline_s=5, what="the other label")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (BreakNode("a2-0", "container", pod="ns/none"), "pod is 'ns/none', expected a running pod of node a2-0"),
        (BreakNode("a2-0", "container", lasts_ms=1), "has no chips, code, end or repair"),
        (BreakNode("a2-0", "container", level="x"), "and no level"),
        (BreakNode("a2-0", "relation", level="x"), "level is 'x', expected one of Separate, SubHealth, software"),
        (BreakNode("a2-0", "relation"), "pod is '', expected a running pod of node a2-0"),
        (BreakNode("a2-0", "container", repair=True), "has no chips, code, end or repair"),
        (BreakNode("a2-0", "gone", [1]), "expected none: a fault of kind gone has no chips"),
        (BreakNode("a2-0", "gone", level="x"), "expected none: a fault of kind gone has no level"),
        (BreakNode("a2-9", "gone"), "node is 'a2-9', expected a node of the topology file"),
    ],
)
async def test_a_request_that_makes_no_sense_says_why(request_: BreakNode, reason: str) -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        assert reason in await cluster.break_node(request_)
        assert names(kube) == ["a2-0", "a2-1", "a2-2", "a2-3"]


async def test_planned_faults_come_at_their_times_and_wrong_ones_are_left_out() -> None:
    kube = FakeKube()
    given = [
        GivenFault(at_s=0.05, node="a2-9", fault="kubelet"),
        GivenFault(at_s=0.05, node="leaf-0", fault="kubelet", leaf=True),
        GivenFault(at_s=0.2, node="a2-3", fault="gone"),
    ]
    async with played(kube, TOPOLOGY, fault_plan=FaultPlanConfig(given=given)):
        await until(lambda: ready(kube)[:2] == [False, False], deadline_s=5, what="the leaf fails")
        await until(lambda: names(kube) == ["a2-0", "a2-1", "a2-2"], deadline_s=5, what="a node leaves")
