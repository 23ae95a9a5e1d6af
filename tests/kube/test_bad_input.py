"""Wrong reports and wrong nodes: the last good value stays, it is said where one looks, and the rest goes on."""

import json
from collections.abc import Callable

import pytest

from berth.runtime.clock import SystemClock
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.device_texts import device_cfg, device_chunk, device_list, fault_row
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_cells import a_spec, a_volcano_job

pytestmark = pytest.mark.timeout(150)
CIM = {"mx-consumer-cim": "true"}
CLUSTERD = {"mx-consumer-volcano": "true"}
PLUGIN = "device plug-in"
TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2}}
"""
Making = Callable[..., InvalidInputCell]


@pytest.fixture
def make(target_of: TargetOf) -> Making:
    def target(**settings: dict[str, object]) -> InvalidInputCell:
        return target_of(TOPOLOGY, settings)

    return target


def now_s() -> int:
    return SystemClock().now_ms() // 1000


async def is_suspect(target: InvalidInputCell, node: str, *words: str, unhealthy: int) -> None:
    """The node is suspect with these words, and its last good report still counts."""

    found: NodeCondition | None = None

    async def fits() -> bool:
        nonlocal found
        found = await target.health(node)
        return found is not None and "is suspect" in found.reason and all(word in found.reason for word in words)

    await target.until(f"{node} is suspect: {words}", fits)
    assert found is not None
    assert (found.level, found.unhealthy) == (NodeHealth.OK, unhealthy), found


async def is_well(target: InvalidInputCell, node: str) -> None:
    async def fits() -> bool:
        found = await target.health(node)
        return found is not None and (found.level, found.unhealthy, found.reason) == (NodeHealth.OK, 0, "")

    await target.until(f"{node} is well", fits)


def wrong_reports() -> list[tuple[dict[str, str], tuple[str, ...]]]:
    """Data of ConfigMaps that cannot be taken, and what the node's reason then says."""
    good = device_cfg(device_list(), now_s())
    keyless = json.loads(good)
    del keyless["CheckCode"]
    empty = json.loads(good)
    del empty["DeviceInfo"]["DeviceList"]
    chipless = device_cfg({**device_list(), "huawei.com/Ascend910": "Ascend910-x"}, now_s())
    return [
        ({"DeviceInfoCfg": device_cfg(device_list(), now_s(), code="0" * 64)}, ("CheckCode is '0000", "expected")),
        ({"DeviceInfoCfg": good[:-40]}, ("DeviceInfoCfg is '{", "expected JSON")),
        ({"DeviceInfoCfg": json.dumps(keyless)}, ("CheckCode",)),
        ({"DeviceInfoCfg": json.dumps(empty)}, ("DeviceInfoCfg.",)),
        ({"DeviceInfoCfg": ""}, ("DeviceInfoCfg",)),
        ({"Other": good}, ("data.DeviceInfoCfg is None", "keys are ['Other']")),
        ({"DeviceInfoCfg": chipless}, ("'Ascend910-x'", "expected chip names")),
    ]


async def test_reports_that_cannot_be_read(make: Making) -> None:
    target = make()
    await target.cell.start()
    name = "mindx-dl-deviceinfo-a2-0"
    sick = device_cfg(device_list(unhealthy=[3], faults=[fault_row(3, "RestartNPU")]), now_s())
    await target.put_map("kube-system", name, CIM, {"DeviceInfoCfg": sick})

    async def unhealthy() -> int:
        found = await target.health("a2-0")
        return found.unhealthy if found is not None else 0

    await target.until_is("the good report counts", unhealthy, 1 << 3)
    for number, (data, words) in enumerate(wrong_reports(), start=1):
        await target.put_map("kube-system", name, CIM, data)
        await is_suspect(target, "a2-0", *words, unhealthy=1 << 3)
        await target.until_is(
            "health_refused_total", lambda: target.metric("health", "health_refused_total", source=PLUGIN), number
        )
    await target.until_is("one is suspect", lambda: target.metric("health", "health_suspect_nodes"), 1)
    (row,) = [row for row in await target.berth("nodes") if row["name"] == "a2-0"]
    assert "device plug-in is suspect: newest report refused" in json.dumps(row)

    async def told() -> bool:
        return bool(await target.events("Node", "a2-0", namespace="default"))

    await target.until("an Event on the node", told)
    ((reason, message, _),) = await target.events("Node", "a2-0", namespace="default")
    assert reason == "HealthSuspect"
    assert message.startswith("node a2-0: ")
    assert "device plug-in is suspect: newest report refused, " in message
    # Three pods that want all chips of a node go to the others; one that wants seven takes what is good of this one.
    await target.api.post(
        f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs",
        a_volcano_job("big", 3, 8, run_for="600s"),
    )
    pods = await target.cell.until_pods(target.namespace, {"Running": 3})
    assert {pod["spec"]["nodeName"] for pod in pods} == {"a2-1", "a2-2", "a2-3"}
    await target.pod("seven", a_spec(7), annotations={"berth/run-for": "600s"})
    await target.until_running("seven")
    pod = await target.api.get(f"/api/v1/namespaces/{target.namespace}/pods/seven")
    assert pod["spec"]["nodeName"] == "a2-0"
    assert "Ascend910-3" not in pod["metadata"]["annotations"]["huawei.com/Ascend910"].split(",")
    # The node's agent reports again when a pod has come, and all is well.
    await is_well(target, "a2-0")
    await target.until_is("nobody is suspect", lambda: target.metric("health", "health_suspect_nodes"), 0)
    await target.pod("one", a_spec(1), annotations={"berth/run-for": "600s"})
    await target.until_running("one")
    await target.cell.stop()


async def test_chunks_of_clusterd_that_are_empty_cut_or_lack_a_node(make: Making) -> None:
    target = make(health={"source": "clusterd"})
    await target.cell.start()
    nodes = [f"a2-{number}" for number in range(4)]
    sick = device_list(unhealthy=[0])
    await chunk(target, 0, {"a2-0": (sick, now_s()), "a2-1": (device_list(), now_s())})
    await chunk(target, 1, {"a2-2": (device_list(), now_s()), "a2-3": (device_list(), now_s())})
    for node in nodes[1:]:
        await is_well(target, node)
    # A chunk without its node, and one that is empty: what was said last holds, and nobody is suspect.
    await chunk(target, 0, {"a2-0": (sick, now_s() + 1)})
    await put_chunk(target, 1, "")
    await target.pod("all-of-one", a_spec(8), annotations={"berth/run-for": "600s"})
    await target.until_running("all-of-one")
    for node in nodes[1:]:
        await is_well(target, node)
    await target.until_is("health_suspect_nodes", lambda: target.metric("health", "health_suspect_nodes"), 0)
    # An entry that lacks its list: its node is suspect, its neighbour's new word is taken.
    both = json.loads(device_chunk({"a2-0": (sick, now_s() + 2), "a2-1": (device_list(), now_s() + 2)}))
    del both["mindx-dl-deviceinfo-a2-0"]["DeviceList"]
    await put_chunk(target, 0, json.dumps(both))
    await is_suspect(target, "a2-0", "DeviceList", unhealthy=1)
    await is_well(target, "a2-1")
    await target.until_is(
        "health_refused_total", lambda: target.metric("health", "health_refused_total", source=PLUGIN), 1
    )
    # A chunk that is cut off: all that it held are suspect, and work all the same.
    await put_chunk(target, 0, json.dumps(both)[:-30])
    await is_suspect(target, "a2-1", "cluster-info-device-0 is ", "expected JSON", unhealthy=0)
    await target.until_is(
        "health_refused_total", lambda: target.metric("health", "health_refused_total", source="ClusterD"), 1
    )
    await target.pod("more", a_spec(8), annotations={"berth/run-for": "600s"})
    await target.pod("most", a_spec(8), annotations={"berth/run-for": "600s"})
    await target.until_running("more", "most")

    async def told() -> list[str]:
        return [reason for reason, _, _ in await target.events("Node", "a2-1", namespace="default")]

    await target.until_is("an Event on the node", told, ["HealthSuspect"])
    await chunk(target, 0, {node: (device_list(), now_s() + 3) for node in ("a2-0", "a2-1")})
    await is_well(target, "a2-0")
    await is_well(target, "a2-1")
    await target.pod("last", a_spec(8), annotations={"berth/run-for": "600s"})
    await target.until_running("last")
    assert await target.cell.check_chips(target.namespace) == 32
    await target.cell.stop()


async def chunk(target: InvalidInputCell, number: int, reports: dict[str, tuple[dict[str, str], int]]) -> None:
    await put_chunk(target, number, device_chunk(reports))


async def put_chunk(target: InvalidInputCell, number: int, text: str) -> None:
    name = f"cluster-info-device-{number}"
    await target.put_map("mindx-dl", name, CLUSTERD, {name: text})


@pytest.mark.processes
async def test_nodes_without_chips_with_one_address_and_unreadable_switches(make: Making) -> None:
    target = make(inventory={"event_apart_s": 1})
    await target.cell.start()
    await node_without_chips(target)
    leaves = await leaves_of(target)
    assert len(set(leaves.values())) == 2
    await two_with_one_address(target, leaves)
    await unreadable_switches(target, leaves)
    await target.cell.stop()


async def node_without_chips(target: InvalidInputCell) -> None:
    """The chips of a node are not named any more: it takes no work, and the pod that has some stays."""
    await target.pod("early", a_spec(4), annotations={"berth/run-for": "600s"})
    await target.until_running("early")
    pod = await target.api.get(f"/api/v1/namespaces/{target.namespace}/pods/early")
    bare = pod["spec"]["nodeName"]
    node = await target.api.get(f"/api/v1/nodes/{bare}")
    infos = node["metadata"]["annotations"]["baseDeviceInfos"]
    before = await target.metric("inventory", "inventory_problems_total", kind="Node")
    await annotate(target, bare, None)
    await event_on(
        target, bare, "NodeInvalid", f"node {bare}: annotation baseDeviceInfos is missing: expected a JSON map"
    )
    await target.until_is(
        "inventory_problems_total",
        lambda: target.metric("inventory", "inventory_problems_total", kind="Node"),
        before + 1,
    )

    async def chips() -> int:
        return {node.name: node.chips for node in await target.nodes()}[bare]

    await target.until_is("the node has no chips", chips, 0)
    await target.api.post(
        f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs",
        a_volcano_job("big", 3, 8, run_for="600s"),
    )
    await target.cell.until_pods(target.namespace, {"Running": 4})
    await target.pod("waits", a_spec(4), annotations={"berth/run-for": "600s"})
    status = await target.cell.until_status(target.namespace, "pod.waits", "waiting")
    assert status.sentence == "0 of 3 nodes fit: 3 have fewer than 4 free chips"  # of those with chips
    await target.until_told(["waits"], status.sentence)
    await annotate(target, bare, infos)
    await target.until_running("waits")
    assert await target.cell.check_chips(target.namespace) == 32
    await target.api.delete(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs/big")
    await target.drop_pod("early")
    await target.drop_pod("waits")
    await target.cell.until_pods(target.namespace, {})


async def two_with_one_address(target: InvalidInputCell, leaves: dict[str, str]) -> None:
    """They stand below no switch, and both work."""
    first, second = "a2-0", "a2-2"
    node = await target.api.get(f"/api/v1/nodes/{first}")
    other = await target.api.get(f"/api/v1/nodes/{second}")
    own = other["status"]["addresses"]
    await address(target, second, node["status"]["addresses"])
    await target.until_is("no place", lambda: leaves_of(target), leaves | {first: "", second: ""})
    await event_on(target, first, "NodeInvalid", f"as on {second}: expected an address of its own")
    await event_on(target, second, "NodeInvalid", f"as on {first}: expected an address of its own")
    await target.api.post(
        f"/apis/batch.volcano.sh/v1alpha1/namespaces/{target.namespace}/jobs",
        a_volcano_job("four", 4, 8, run_for="600s"),
    )
    pods = await target.cell.until_pods(target.namespace, {"Running": 4})
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 4
    await address(target, second, own)
    await target.until_is("places again", lambda: leaves_of(target), leaves)


async def unreadable_switches(target: InvalidInputCell, leaves: dict[str, str]) -> None:
    """The last ones hold, also across a restart."""
    path = "/api/v1/namespaces/kube-system/configmaps/basic-tor-node-cm"
    text = (await target.api.get(path))["data"]["tor_info"]
    await target.api.patch(path, {"data": {"tor_info": text[:-25]}})

    async def told() -> list[str]:
        found = await target.events("ConfigMap", "basic-tor-node-cm", namespace="kube-system")
        return [reason for reason, message, _ in found if "the last valid value stays in force" in message]

    await target.until_is("an Event on the ConfigMap", told, ["SwitchesInvalid"])
    await target.until_is(
        "inventory_problems_total", lambda: target.metric("inventory", "inventory_problems_total", kind="ConfigMap"), 1
    )
    assert await leaves_of(target) == leaves
    await target.cell.restart("inventory")
    await target.api.patch("/api/v1/nodes/a2-3", {"metadata": {"labels": {"seen": "again"}}})

    async def labelled() -> bool:
        return any("seen" in node.labels for node in await target.nodes())

    await target.until("the inventory is back", labelled)
    assert await leaves_of(target) == leaves


async def leaves_of(target: InvalidInputCell) -> dict[str, str]:
    return {node.name: node.leaf for node in await target.nodes()}


async def annotate(target: InvalidInputCell, node: str, infos: str | None) -> None:
    await target.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"baseDeviceInfos": infos}}})


async def address(target: InvalidInputCell, node: str, addresses: list[dict[str, str]]) -> None:
    await target.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"addresses": addresses}})


async def event_on(target: InvalidInputCell, node: str, reason: str, words: str) -> None:
    async def told() -> bool:
        found = await target.events("Node", node, namespace="default")
        return any(one == reason and words in message for one, message, _ in found)

    await target.until(f"an Event on {node}", told)
