"""Nodesim on a real API server, with bindings made by hand."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from berth.formats.ascend.cluster_info import read_devices
from berth.formats.ascend.device_info import parse_device_info, parse_switch_info
from berth.formats.ascend.node_info import parse_node_info
from berth.formats.ascend.pod_annotations import CONSUMED
from berth.formats.ascend.tor_config import read_tor_config
from berth.formats.kubernetes.nodes import read_node
from berth.formats.kubernetes.objects import Node
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from berth.schemas.simulation import BreakNode
from tests.support.bound_pods import RESOURCE, bind, bound, pod_body
from tests.support.kube_api import KubeApi
from tests.support.played_cluster import QUICK, played
from tests.support.waiting import until_true

TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 2, name: "a2-{index}", leaf: {size: 2}}
  - {product: superpod910a3x16, count: 1, name: "a3-{index}", superpod: {size: 1}}
"""
DEVICE_INFO = "/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{}"
CONFIGURATION = "ascend.kubectl.kubernetes.io/ascend-910-configuration"


@pytest.fixture
async def client(kube_server: KubeServer, kube_prepared: object, tmp_path: Path) -> AsyncIterator[Client]:
    assert kube_prepared
    config = KubeConfig(kubeconfig=kube_server.write_kubeconfig(tmp_path / "kubeconfig"))
    async with await Client.connect(config, clock=SystemClock(), user_agent="test") as found:
        yield found


async def pod(api: KubeApi, namespace: str, name: str) -> dict[str, Any]:
    return await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")


async def until_pod(
    api: KubeApi, namespace: str, name: str, condition: Callable[[dict[str, Any]], object], what: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def holds() -> bool:
        found.update(await pod(api, namespace, name))
        return bool(condition(found))

    await until_true(holds, deadline_s=20, what=f"{name}: {what}")
    return found


async def devices(api: KubeApi, node: str) -> dict[str, str]:
    return dict((await api.get(DEVICE_INFO.format(node)))["data"])


async def free_chips(api: KubeApi, node: str) -> int:
    return parse_device_info((await devices(api, node))["DeviceInfoCfg"]).chips[RESOURCE].free_mask


async def test_nodes_register_as_the_device_plugin_and_kubelet_would_have_them(
    kube_api: KubeApi, client: Client
) -> None:
    async with played(client, TOPOLOGY, agents=replace(QUICK, lease_s=0.5)):
        listed = {item["metadata"]["name"]: item for item in await kube_api.items("/api/v1/nodes")}
        assert sorted(listed) == ["a2-0", "a2-1", "a3-0"]
        readings = {name: read_node(await client.get(f"/api/v1/nodes/{name}", Node)) for name in listed}
        assert all(not reading.reasons for reading in readings.values())
        assert {name: reading.node.product for name, reading in readings.items()} == {
            "a2-0": "module910bx8",
            "a2-1": "module910bx8",
            "a3-0": "superpod910a3x16",
        }
        assert [readings[name].node.allocatable for name in sorted(readings)] == [8, 8, 16]
        infos = json.loads(listed["a3-0"]["metadata"]["annotations"]["baseDeviceInfos"])
        assert len({info["IP"] for info in infos.values()}) == 16
        leaves = read_tor_config(
            (await kube_api.get("/api/v1/namespaces/kube-system/configmaps/basic-tor-node-cm"))["data"]
        )
        assert sorted(leaves.slots()) == [readings["a2-0"].node.address, readings["a2-1"].node.address]

        async def are_alive() -> bool:
            leases = await kube_api.items("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
            return {"a2-0", "a2-1", "a3-0"} <= {lease["metadata"]["name"] for lease in leases}

        await until_true(are_alive, deadline_s=20, what="leases of all nodes")
    cordoned = {"spec": {"unschedulable": True}}
    await kube_api.patch("/api/v1/nodes/a2-0", cordoned)
    uid = (await kube_api.get("/api/v1/nodes/a2-0"))["metadata"]["uid"]
    async with played(client, TOPOLOGY):
        found = await kube_api.get("/api/v1/nodes/a2-0")
    assert (found["metadata"]["uid"], found["spec"]["unschedulable"]) == (uid, True)


async def test_a_pod_goes_through_the_process_in_which_the_scheduler_counts_chips_itself(
    kube_api: KubeApi, client: Client, namespace: str
) -> None:
    async with played(client, TOPOLOGY, agents=replace(QUICK, start_s=0.3, report_s=0.3), run_default_s=10) as cluster:
        await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", pod_body(namespace, "p", [2]))
        before = await pod(kube_api, namespace, "p")
        assert before["status"]["phase"] == "Pending"
        assert "nodeName" not in before["spec"]
        await bind(client, namespace, "p", "a2-0", [4, 5], at="1763640000000000001")
        taken = await until_pod(
            kube_api,
            namespace,
            "p",
            lambda seen: seen["metadata"]["annotations"]["predicate-time"] == CONSUMED,
            "taken",
        )
        assert taken["metadata"]["annotations"][RESOURCE] == "Ascend910-4,Ascend910-5"
        told = await until_pod(
            kube_api, namespace, "p", lambda seen: "huawei.com/AscendReal" in seen["metadata"]["annotations"], "told"
        )
        notes = told["metadata"]["annotations"]
        assert notes["huawei.com/AscendReal"] == "Ascend910-4,Ascend910-5"
        assert len(notes["huawei.com/kltDev"].split(",")) == 2
        configuration = json.loads(notes[CONFIGURATION])
        infos = json.loads((await kube_api.get("/api/v1/nodes/a2-0"))["metadata"]["annotations"]["baseDeviceInfos"])
        assert configuration["pod_name"] == "p"
        assert configuration["server_id"] == told["metadata"]["uid"]
        assert [device["device_id"] for device in configuration["devices"]] == ["4", "5"]
        assert [device["device_ip"] for device in configuration["devices"]] == [
            infos["Ascend910-4"]["IP"],
            infos["Ascend910-5"]["IP"],
        ]
        runs = await until_pod(kube_api, namespace, "p", lambda seen: seen["status"]["phase"] == "Running", "running")
        status = runs["status"]
        assert status["podIP"]
        assert status["hostIP"] == configuration["host_ip"]
        assert status["containerStatuses"][0]["containerID"].startswith("containerd://")
        assert {item["type"]: item["status"] for item in status["conditions"]}["Ready"] == "True"
        assert (await cluster.counts()).chips_held == 2
        await until_pod(kube_api, namespace, "p", lambda seen: seen["status"]["phase"] == "Succeeded", "over")
        counts = await cluster.counts()
        assert (counts.pods_bound, counts.pods_ended, counts.chips_held, counts.swapped) == (1, 1, 0, 0)


async def test_a_pod_goes_through_the_process_in_which_the_device_plugin_lists_free_chips(
    kube_api: KubeApi, client: Client, namespace: str
) -> None:
    async with played(client, TOPOLOGY):

        async def lists(mask: int) -> None:
            async def holds() -> bool:
                return await free_chips(kube_api, "a2-0") == mask

            await until_true(holds, deadline_s=20, what=f"free chips {mask:#x}")

        await until_true(lambda: has_report(kube_api, "a2-0"), deadline_s=20, what="the first report")
        await lists(0xFF)
        await bound(client, namespace, "p", "a2-0", [0, 3])
        await lists(0xFF & ~0b1001)
        await kube_api.delete(f"/api/v1/namespaces/{namespace}/pods/p", grace_s=30)
        await lists(0xFF)


async def has_report(api: KubeApi, node: str) -> bool:
    return await api.status_of("GET", DEVICE_INFO.format(node)) == 200


async def test_two_equal_pods_bound_at_once_get_one_anothers_chips_when_kubelet_turns_them_round(
    kube_api: KubeApi, client: Client, namespace: str
) -> None:
    async with played(client, TOPOLOGY, agents=replace(QUICK, admit_s=4, seed=3)) as cluster:
        for name in ("first", "second"):
            await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", pod_body(namespace, name, [2]))
        await bind(client, namespace, "first", "a2-0", [0, 1], at="100")
        await bind(client, namespace, "second", "a2-0", [2, 3], at="200")
        for name in ("first", "second"):
            await until_pod(
                kube_api,
                namespace,
                name,
                lambda seen: "huawei.com/AscendReal" in seen["metadata"]["annotations"],
                "told",
            )
        assert (await cluster.counts()).swapped == 2
        first = (await pod(kube_api, namespace, "first"))["metadata"]["annotations"]
        assert first["huawei.com/AscendReal"] == "Ascend910-2,Ascend910-3"
        assert first[RESOURCE] == "Ascend910-0,Ascend910-1"


async def test_a_pod_for_which_there_is_no_annotation_fails(kube_api: KubeApi, client: Client, namespace: str) -> None:
    async with played(client, TOPOLOGY) as cluster:
        await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", pod_body(namespace, "bare", [2]))
        await bind(client, namespace, "bare", "a2-0", [], at="")
        await kube_api.post(f"/api/v1/namespaces/{namespace}/pods", pod_body(namespace, "two", [1, 1]))
        await bind(client, namespace, "two", "a2-1", [0, 1], at="100")
        for name in ("bare", "two"):
            seen = await until_pod(
                kube_api, namespace, name, lambda found: found["status"]["phase"] == "Failed", "refused"
            )
            assert seen["status"]["reason"] == "UnexpectedAdmissionError"
        counts = await cluster.counts()
        assert (counts.admission_errors, counts.pods_failed, counts.pods_bound) == (2, 2, 0)


async def test_faults_change_the_reports_and_their_sums_are_right(kube_api: KubeApi, client: Client) -> None:
    async with played(client, TOPOLOGY, agents=replace(QUICK, clusterd=True)) as cluster:
        assert await cluster.break_node(BreakNode("a3-0", "chip", [3], level="SeparateNPU")) == ""
        assert await cluster.break_node(BreakNode("a3-0", "network", [4])) == ""
        assert await cluster.break_node(BreakNode("a3-0", "switch", level="Separate")) == ""
        assert await cluster.break_node(BreakNode("a3-0", "node", level="PreSeparateFault")) == ""
        assert "expected one of" in await cluster.break_node(BreakNode("a3-0", "magic"))

        async def is_told() -> bool:
            if not await has_report(kube_api, "a3-0"):
                return False
            data = await devices(kube_api, "a3-0")
            lists = parse_device_info(data["DeviceInfoCfg"]).chips[RESOURCE]
            switch = parse_switch_info(data["SwitchInfoCfg"])
            return (lists.unhealthy, lists.network_unhealthy, switch.node_status) == (8, 16, "UnHealthy")

        await until_true(is_told, deadline_s=20, what="the faults in the report")
        report = parse_device_info((await devices(kube_api, "a3-0"))["DeviceInfoCfg"])
        assert [(row.npu_name, row.level_name) for row in report.faults] == [
            ("Ascend910-3", "SeparateNPU"),
            ("Ascend910-4", "PreSeparateNPU"),
        ]
        path = "/api/v1/namespaces/mindx-dl/configmaps/"

        async def node_fault() -> bool:
            return await kube_api.status_of("GET", f"{path}mindx-dl-nodeinfo-a3-0") == 200

        await until_true(node_fault, deadline_s=20, what="NodeD's report")
        found = await kube_api.get(f"{path}mindx-dl-nodeinfo-a3-0")
        assert parse_node_info(found["data"]["NodeInfo"]).node_status == "PreSeparate"

        async def is_merged() -> bool:
            if await kube_api.status_of("GET", f"{path}cluster-info-device-0") != 200:
                return False
            chunk = await kube_api.get(f"{path}cluster-info-device-0")
            text = chunk["data"]["cluster-info-device-0"]
            entries = read_devices(text, {}, name="cluster-info-device-0").entries
            nodes = (await kube_api.get(f"{path}cluster-info-node-cm"))["data"]["cluster-info-node-cm"]
            return (
                sorted(entries) == ["a2-0", "a2-1", "a3-0"]
                and entries["a3-0"].value.chips[RESOURCE].unhealthy == 8
                and '"NodeStatus":"UnHealthy"' in nodes  # idle: ClusterD decides so
            )

        await until_true(is_merged, deadline_s=20, what="ClusterD's view")
        status = (await kube_api.get("/api/v1/nodes/a3-0"))["status"]
        assert (status["capacity"][RESOURCE], status["allocatable"][RESOURCE]) == ("16", "15")
        assert await cluster.break_node(BreakNode("a3-0", "node", repair=True)) == ""

        async def is_repaired() -> bool:
            return await kube_api.status_of("GET", f"{path}mindx-dl-nodeinfo-a3-0") == 404

        await until_true(is_repaired, deadline_s=20, what="NodeD's report gone")


async def test_a_dead_plugin_leaves_its_report_and_a_dead_kubelet_the_node(kube_api: KubeApi, client: Client) -> None:
    async with played(client, TOPOLOGY) as cluster:
        await until_true(lambda: has_report(kube_api, "a2-1"), deadline_s=20, what="the first report")
        version = (await kube_api.get(DEVICE_INFO.format("a2-1")))["metadata"]["resourceVersion"]
        assert await cluster.break_node(BreakNode("a2-1", "plugin")) == ""

        async def ready(node: str) -> str:
            conditions = (await kube_api.get(f"/api/v1/nodes/{node}"))["status"]["conditions"]
            return next(str(item["status"]) for item in conditions if item["type"] == "Ready")

        async def has_none() -> bool:
            return bool((await kube_api.get("/api/v1/nodes/a2-1"))["status"]["allocatable"][RESOURCE] == "0")

        async def is_down() -> bool:
            return await ready("a2-0") == "Unknown"

        async def is_up() -> bool:
            return await ready("a2-0") == "True"

        await until_true(has_none, deadline_s=20, what="no chips on a2-1")
        assert await cluster.break_node(BreakNode("a2-0", "kubelet", lasts_ms=8_000)) == ""
        await until_true(is_down, deadline_s=20, what="a2-0 not ready")
        await until_true(is_up, deadline_s=20, what="a2-0 to be well by itself")
        assert await cluster.break_node(BreakNode("a2-1", "chip", [0])) == ""
        assert await cluster.break_node(BreakNode("a2-0", "chip", [1])) == ""

        async def neighbour_tells() -> bool:
            report = parse_device_info((await devices(kube_api, "a2-0"))["DeviceInfoCfg"])
            return report.chips[RESOURCE].unhealthy == 0b10

        await until_true(neighbour_tells, deadline_s=20, what="a later fault in the report of a living plug-in")
        assert (await kube_api.get(DEVICE_INFO.format("a2-1")))["metadata"]["resourceVersion"] == version


async def test_a_restart_takes_over_the_pods_that_run(kube_api: KubeApi, client: Client, namespace: str) -> None:
    async with played(client, TOPOLOGY):
        await bound(client, namespace, "p", "a2-0", [6, 7])
        await until_pod(kube_api, namespace, "p", lambda seen: seen["status"]["phase"] == "Running", "running")
        await until_pod(
            kube_api, namespace, "p", lambda seen: "huawei.com/kltDev" in seen["metadata"]["annotations"], "told"
        )
    async with played(client, TOPOLOGY) as cluster:
        assert (await cluster.counts()).chips_held == 2
        await bound(client, namespace, "thief", "a2-0", [7], at="200")
        await until_pod(kube_api, namespace, "thief", lambda seen: seen["status"]["phase"] == "Running", "running")
        assert (await cluster.counts()).double_allocations == 1
        await kube_api.delete(f"/api/v1/namespaces/{namespace}/pods/p", grace_s=30)

        async def is_gone() -> bool:
            return await kube_api.status_of("GET", f"/api/v1/namespaces/{namespace}/pods/p") == 404

        await until_true(is_gone, deadline_s=20, what="the pod to be gone")
        assert (await cluster.counts()).chips_held == 0
