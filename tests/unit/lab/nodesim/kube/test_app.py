"""Nodesim on an API server in memory: what a server that fails, forgets or lacks kinds does to it."""

import asyncio

import pytest
from msgspec.structs import replace

from berth.formats.ascend.device_info import parse_device_info
from berth.formats.ascend.pod_annotations import CONSUMED, PREDICATE_TIME
from berth.formats.ascend.tor_config import read_tor_config
from berth.lab.nodesim.kube_writes import KubeWrites
from berth.runtime.backoff import Backoff
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.kube.port import RefusedError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.simulation import BreakNode
from tests.support.bound_pods import RESOURCE, bind, bound, pod_body
from tests.support.fake_kube import FakeKube
from tests.support.kube_rules import Tree
from tests.support.played_cluster import QUICK, played
from tests.support.waiting import until

TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 2, name: "a2-{index}", leaf: {size: 2}}
faults:
  - {node: a2-1, chips: [3], kind: unhealthy}
"""
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/ns/pods"
DEVICES = "/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{}"


def phase(kube: FakeKube, name: str) -> str:
    return str(kube.object(f"{PODS}/{name}").get("status", {}).get("phase", ""))


def names(kube: FakeKube, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in kube.objects(path)]


def free(kube: FakeKube, node: str) -> int:
    found: Tree = kube.object(DEVICES.format(node))
    return parse_device_info(found["data"]["DeviceInfoCfg"]).chips[RESOURCE].free_mask


async def test_faults_of_the_file_are_in_the_first_report() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY):
        await until(
            lambda: len(kube.objects("/api/v1/configmaps")) == 3, deadline_s=5, what="two reports and the leaves"
        )
        assert (free(kube, "a2-0"), free(kube, "a2-1")) == (0xFF, 0xF7)
        node = kube.object(f"{NODES}/a2-1")
        await until(
            lambda: kube.object(f"{NODES}/a2-1")["status"]["allocatable"][RESOURCE] == "7", deadline_s=5, what=f"{node}"
        )


async def test_a_server_that_fails_now_and_then_costs_time_only() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        kube.fail(TransientError("busy"), method="PATCH", times=3)
        kube.fail(AmbiguousError("no answer"), method="PATCH", times=2, landed=True)
        await bound(kube, "ns", "p", "a2-0", [0, 1])
        await until(lambda: phase(kube, "p") == "Running", deadline_s=5, what="the pod to run")
        assert kube.object(f"{PODS}/p")["metadata"]["annotations"][PREDICATE_TIME] == CONSUMED
        await until(lambda: free(kube, "a2-0") == 0xFC, deadline_s=5, what="the report")
        counts = await cluster.counts()
        assert (counts.pods_bound, counts.chips_held, counts.double_allocations) == (1, 2, 0)


async def test_nodes_are_registered_although_the_server_stumbles_and_again_by_the_next_run() -> None:
    kube = FakeKube()
    kube.fail(TransientError("busy"), method="POST", part="nodes", times=2)
    kube.fail(AmbiguousError("no answer"), method="POST", part="nodes", landed=True)
    async with played(kube, TOPOLOGY):
        assert sorted(names(kube, NODES)) == ["a2-0", "a2-1"]
    await kube.patch(f"{NODES}/a2-0", {"metadata": {"annotations": {"baseDeviceInfos": "{}", "mine": "x"}}})
    async with played(kube, TOPOLOGY):
        notes = kube.object(f"{NODES}/a2-0")["metadata"]["annotations"]
        assert notes["mine"] == "x"
        assert notes["baseDeviceInfos"].startswith('{"Ascend910-0":')


async def test_the_map_of_leaf_switches_says_what_the_file_says() -> None:
    kube = FakeKube()
    maps = "/api/v1/namespaces/kube-system/configmaps/basic-tor-node-cm"
    loose = '  - {product: "310", name: loose}\n'
    text = TOPOLOGY.replace("faults:", "  - {product: module910bx8, name: b, leaf: a-leaf}\n" + loose + "faults:")
    servers = [("172.16.0.1", (("10.0.0.1", 0), ("10.0.0.2", 1))), ("172.16.0.2", (("10.0.0.3", 0),))]
    for more, places, level in (
        ("", 2, "double_layer"),
        ("switches: {places: 5}", 5, "double_layer"),
        ("switches: {level: single_layer}", 2, "single_layer"),
    ):
        async with played(kube, text + more):
            found = read_tor_config(kube.object(maps)["data"])
        assert [(leaf.address, leaf.servers) for leaf in found.leaves] == servers
        assert (found.places, found.level) == (places, level)


async def test_pods_that_vanish_unseen_are_missed_after_the_next_list() -> None:
    kube = FakeKube()
    async with played(kube, TOPOLOGY) as cluster:
        await bound(kube, "ns", "p", "a2-0", [0, 1])
        await until(lambda: phase(kube, "p") == "Running", deadline_s=5, what="the pod to run")
        kube.watching.clear()
        await kube.delete(f"{PODS}/p", grace_s=0)
        assert (await cluster.counts()).chips_held == 2
        kube.relist()
        kube.watching.set()
        await until(lambda: free(kube, "a2-0") == 0xFF, deadline_s=5, what="the chips to be free")
        assert (await cluster.counts()).chips_held == 0


async def test_pods_on_nodes_that_are_not_in_the_file_are_left_alone() -> None:
    kube = FakeKube()
    await kube.create(NODES, {"metadata": {"name": "real"}})
    async with played(kube, TOPOLOGY) as cluster:
        await kube.create(PODS, pod_body("ns", "p", [1]))
        await bind(kube, "ns", "p", "real", [0], at="1")
        await bound(kube, "ns", "q", "a2-0", [0])
        await until(lambda: phase(kube, "q") == "Running", deadline_s=5, what="the other pod to run")
        assert phase(kube, "p") == "Pending"
        assert "real" in await cluster.break_node(BreakNode("real", "kubelet"))


async def test_controllers_whose_kinds_the_server_lacks_are_not_played() -> None:
    kube = FakeKube(unserved={"ascendjobs"})
    async with played(kube, TOPOLOGY, agents=replace(QUICK, controllers=["volcano", "ascend"])):
        job = {"metadata": {"name": "j"}, "spec": {"schedulerName": "berth", "tasks": [{"name": "w", "template": {}}]}}
        await kube.create("/apis/batch.volcano.sh/v1alpha1/namespaces/ns/jobs", job)
        groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups"
        await until(lambda: len(names(kube, groups)) == 1, deadline_s=5, what="a PodGroup")


async def test_clusterd_drops_a_report_whose_sum_is_wrong() -> None:
    kube = FakeKube()
    path = "/api/v1/namespaces/mindx-dl/configmaps/cluster-info-device-0"
    async with played(kube, TOPOLOGY, agents=replace(QUICK, clusterd=True)):

        def text() -> str:
            return str(kube.object(path)["data"]["cluster-info-device-0"]) if path_is_there() else ""

        def path_is_there() -> bool:
            return "cluster-info-device-0" in names(kube, "/api/v1/namespaces/mindx-dl/configmaps")

        await until(lambda: text().count("CmName") == 2, deadline_s=5, what="both nodes in the chunk")
        broken = kube.object(DEVICES.format("a2-0"))["data"]["DeviceInfoCfg"].replace("Ascend910-7", "Ascend910-6")
        await kube.patch(DEVICES.format("a2-0"), {"data": {"DeviceInfoCfg": broken}})
        await bound(kube, "ns", "p", "a2-1", [0])
        await until(lambda: "Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-4" not in text(), deadline_s=5, what="a2-1")
        assert text().count("Ascend910-7") == 2


class TestWrites:
    """Order and number of writes."""

    @pytest.fixture
    def writes(self) -> KubeWrites:
        return KubeWrites(at_once=4, backoff=Backoff(first_s=0.001, max_s=0.002), log=DEFAULT_LOG)

    async def test_writes_about_an_object_keep_their_order_and_others_do_not_wait(self, writes: KubeWrites) -> None:
        done: list[str] = []
        gate = asyncio.Event()

        async def slow() -> None:
            await gate.wait()
            done.append("slow")

        async def quick(name: str) -> None:
            done.append(name)

        writes.put("a", slow)
        writes.put("a", lambda: quick("after"))
        writes.put("b", lambda: quick("other"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writes.run())
            await until(lambda: done == ["other"], deadline_s=5, what="the other object")
            gate.set()
            await until(lambda: len(writes) == 0, deadline_s=5, what="all writes")
            task.cancel()
        assert done == ["other", "slow", "after"]

    async def test_the_newest_makes_those_that_wait_needless_and_failures_are_tried_again(
        self, writes: KubeWrites
    ) -> None:
        done: list[int] = []
        failures = [TransientError("busy"), AmbiguousError("no answer")]

        async def write(number: int) -> None:
            if failures:
                raise failures.pop()
            if number == 1:
                raise RefusedError("gone", status=404)
            done.append(number)

        for number in range(5):
            writes.put("a", lambda number=number: write(number), is_newest=True)  # type: ignore[misc]  # a default argument
        writes.put("b", lambda: write(1))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writes.run())
            await until(lambda: len(writes) == 0, deadline_s=5, what="all writes")
            task.cancel()
        assert done == [0, 4]
        assert (writes.done, writes.refused) == (2, 1)

    async def test_what_is_forbidden_is_tried_for_a_while(self) -> None:
        writes = KubeWrites(
            at_once=1, backoff=Backoff(first_s=0.001, max_s=0.002), log=DEFAULT_LOG, forbidden_max_s=1.0
        )
        answers: list[Exception] = [RefusedError("roles unknown", status=403)] * 3
        done: list[str] = []

        async def write() -> None:
            if answers:
                raise answers.pop()
            done.append("a")

        async def never() -> None:
            done.append("b")
            raise RefusedError("no right", status=403)

        writes.put("a", write)
        writes.put("b", never)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(writes.run())
            await until(lambda: len(writes) == 0, deadline_s=5, what="all writes")
            task.cancel()
        assert done[:3] == ["a", "b", "b"]
        assert (writes.done, writes.refused) == (1, 1)


async def test_the_lease_of_each_node_whose_kubelet_lives_is_renewed() -> None:
    kube, leases = FakeKube(), "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    async with played(kube, TOPOLOGY, agents=replace(QUICK, lease_s=0.02)) as cluster:
        await until(lambda: names(kube, leases) == ["a2-0", "a2-1"], deadline_s=5, what="a Lease of each node")
        assert await cluster.break_node(BreakNode("a2-1", "kubelet")) == ""

        def renewed() -> list[str]:
            return [kube.object(f"{leases}/{name}")["spec"]["renewTime"] for name in ("a2-0", "a2-1")]

        first = renewed()
        await until(lambda: renewed()[0] > first[0], deadline_s=5, what="the Lease to be renewed")
        before = renewed()
        await until(lambda: renewed()[0] > before[0], deadline_s=5, what="the Lease to be renewed again")
        assert renewed()[1] == before[1], "its kubelet is dead"
