"""Wrong reports and wrong nodes: the last good value stays, it is said where one looks, and the rest goes on."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from berth.core.cluster.node_packing import unpack_nodes
from berth.runtime.bus.client import NatsBus
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import decode
from berth.schemas.facts import NodeHealth, NodesSeen
from berth.schemas.nodes import NodeDescription
from berth.schemas.subjects import StreamName
from tests.support.bad_yard import CandidatePool
from tests.support.device_texts import device_cfg, device_chunk, device_list, fault_row
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import a_spec, a_volcano_job
from tests.support.processes import services

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
Making = Callable[..., CandidatePool]


@pytest.fixture
def make(kube_api: KubeApi, real_bus: NatsBus, nats_server: str, namespace: str, tmp_path: Path) -> Iterator[Making]:
    with services(tmp_path, nats_server) as made:

        def yard(**settings: dict[str, object]) -> CandidatePool:
            return CandidatePool(
                made,
                kube_api,
                real_bus,
                url=nats_server,
                namespace=namespace,
                folder=tmp_path,
                topology=TOPOLOGY,
                settings=settings,
            )

        yield yard


def now_s() -> int:
    return SystemClock().now_ms() // 1000


async def is_suspect(yard: CandidatePool, node: str, *words: str, unhealthy: int) -> None:
    """The node is suspect with these words, and its last good report still counts."""

    async def fits() -> bool:
        found = await yard.health(node)
        return found is not None and "is suspect" in found.reason and all(word in found.reason for word in words)

    await yard.until(f"{node} is suspect: {words}", fits)
    found = await yard.health(node)
    assert found is not None
    assert (found.level, found.unhealthy) == (NodeHealth.OK, unhealthy), found


async def is_well(yard: CandidatePool, node: str) -> None:
    async def fits() -> bool:
        found = await yard.health(node)
        return found is not None and (found.level, found.unhealthy, found.reason) == (NodeHealth.OK, 0, "")

    await yard.until(f"{node} is well", fits)


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
    yard = make()
    await yard.cell.start()
    name = "mindx-dl-deviceinfo-a2-0"
    sick = device_cfg(device_list(unhealthy=[3], faults=[fault_row(3, "RestartNPU")]), now_s())
    await yard.put_map("kube-system", name, CIM, {"DeviceInfoCfg": sick})

    async def unhealthy() -> int:
        found = await yard.health("a2-0")
        return found.unhealthy if found is not None else 0

    await yard.until_is("the good report counts", unhealthy, 1 << 3)
    for number, (data, words) in enumerate(wrong_reports(), start=1):
        await yard.put_map("kube-system", name, CIM, data)
        await is_suspect(yard, "a2-0", *words, unhealthy=1 << 3)
        assert await yard.metric("health", "health_refused_total", source=PLUGIN) == number
    await yard.until_is("one is suspect", lambda: yard.metric("health", "health_suspect_nodes"), 1)
    (row,) = [row for row in await yard.berth("nodes") if row["name"] == "a2-0"]
    assert "device plug-in is suspect: newest report refused" in json.dumps(row)

    async def told() -> bool:
        return bool(await yard.events("Node", "a2-0", namespace="default"))

    await yard.until("an Event on the node", told)
    ((reason, message, _),) = await yard.events("Node", "a2-0", namespace="default")
    assert reason == "HealthSuspect"
    assert message.startswith("node a2-0: ")
    assert "device plug-in is suspect: newest report refused, " in message
    # Three pods that want all chips of a node go to the others; one that wants seven takes what is good of this one.
    await yard.api.post(
        f"/apis/batch.volcano.sh/v1alpha1/namespaces/{yard.namespace}/jobs", a_volcano_job("big", 3, 8, run_for="600s")
    )
    pods = await yard.cell.until_pods(yard.namespace, {"Running": 3})
    assert {pod["spec"]["nodeName"] for pod in pods} == {"a2-1", "a2-2", "a2-3"}
    await yard.pod("seven", a_spec(7), annotations={"berth/run-for": "600s"})
    await yard.until_running("seven")
    pod = await yard.api.get(f"/api/v1/namespaces/{yard.namespace}/pods/seven")
    assert pod["spec"]["nodeName"] == "a2-0"
    assert "Ascend910-3" not in pod["metadata"]["annotations"]["huawei.com/Ascend910"].split(",")
    # The node's agent reports again when a pod has come, and all is well.
    await is_well(yard, "a2-0")
    await yard.until_is("nobody is suspect", lambda: yard.metric("health", "health_suspect_nodes"), 0)
    await yard.pod("one", a_spec(1), annotations={"berth/run-for": "600s"})
    await yard.until_running("one")
    await yard.cell.stop()


async def test_chunks_of_clusterd_that_are_empty_cut_or_lack_a_node(make: Making) -> None:
    yard = make(health={"source": "clusterd"})
    await yard.cell.start()
    nodes = [f"a2-{number}" for number in range(4)]
    sick = device_list(unhealthy=[0])
    await chunk(yard, 0, {"a2-0": (sick, now_s()), "a2-1": (device_list(), now_s())})
    await chunk(yard, 1, {"a2-2": (device_list(), now_s()), "a2-3": (device_list(), now_s())})
    for node in nodes[1:]:
        await is_well(yard, node)
    # A chunk without its node, and one that is empty: what was said last holds, and nobody is suspect.
    await chunk(yard, 0, {"a2-0": (sick, now_s() + 1)})
    await put_chunk(yard, 1, "")
    await yard.pod("all-of-one", a_spec(8), annotations={"berth/run-for": "600s"})
    await yard.until_running("all-of-one")
    for node in nodes[1:]:
        await is_well(yard, node)
    assert await yard.metric("health", "health_suspect_nodes") == 0
    # An entry that lacks its list: its node is suspect, its neighbour's new word is taken.
    both = json.loads(device_chunk({"a2-0": (sick, now_s() + 2), "a2-1": (device_list(), now_s() + 2)}))
    del both["mindx-dl-deviceinfo-a2-0"]["DeviceList"]
    await put_chunk(yard, 0, json.dumps(both))
    await is_suspect(yard, "a2-0", "DeviceList", unhealthy=1)
    await is_well(yard, "a2-1")
    assert await yard.metric("health", "health_refused_total", source=PLUGIN) == 1
    # A chunk that is cut off: all that it held are suspect, and work all the same.
    await put_chunk(yard, 0, json.dumps(both)[:-30])
    await is_suspect(yard, "a2-1", "cluster-info-device-0 is ", "expected JSON", unhealthy=0)
    assert await yard.metric("health", "health_refused_total", source="ClusterD") == 1
    await yard.pod("more", a_spec(8), annotations={"berth/run-for": "600s"})
    await yard.pod("most", a_spec(8), annotations={"berth/run-for": "600s"})
    await yard.until_running("more", "most")

    async def told() -> list[str]:
        return [reason for reason, _, _ in await yard.events("Node", "a2-1", namespace="default")]

    await yard.until_is("an Event on the node", told, ["HealthSuspect"])
    await chunk(yard, 0, {node: (device_list(), now_s() + 3) for node in ("a2-0", "a2-1")})
    await is_well(yard, "a2-0")
    await is_well(yard, "a2-1")
    await yard.pod("last", a_spec(8), annotations={"berth/run-for": "600s"})
    await yard.until_running("last")
    assert await yard.cell.check_chips(yard.namespace) == 32
    await yard.cell.stop()


async def chunk(yard: CandidatePool, number: int, reports: dict[str, tuple[dict[str, str], int]]) -> None:
    await put_chunk(yard, number, device_chunk(reports))


async def put_chunk(yard: CandidatePool, number: int, text: str) -> None:
    name = f"cluster-info-device-{number}"
    await yard.put_map("mindx-dl", name, CLUSTERD, {name: text})


async def test_nodes_without_chips_with_one_address_and_unreadable_switches(make: Making) -> None:
    yard = make(inventory={"event_apart_s": 1})
    await yard.cell.start()
    await node_without_chips(yard)
    leaves = await leaves_of(yard)
    assert len(set(leaves.values())) == 2
    await two_with_one_address(yard, leaves)
    await unreadable_switches(yard, leaves)
    await yard.cell.stop()


async def node_without_chips(yard: CandidatePool) -> None:
    """The chips of a node are not named any more: it takes no work, and the pod that has some stays."""
    await yard.pod("early", a_spec(4), annotations={"berth/run-for": "600s"})
    await yard.until_running("early")
    pod = await yard.api.get(f"/api/v1/namespaces/{yard.namespace}/pods/early")
    bare = pod["spec"]["nodeName"]
    node = await yard.api.get(f"/api/v1/nodes/{bare}")
    infos = node["metadata"]["annotations"]["baseDeviceInfos"]
    before = await yard.metric("inventory", "inventory_problems_total", kind="Node")
    await annotate(yard, bare, None)
    await event_on(
        yard, bare, "NodeInvalid", f"node {bare}: annotation baseDeviceInfos is missing: expected a JSON map"
    )
    assert await yard.metric("inventory", "inventory_problems_total", kind="Node") == before + 1
    assert (await chips(yard))[bare] == 0
    await yard.api.post(
        f"/apis/batch.volcano.sh/v1alpha1/namespaces/{yard.namespace}/jobs", a_volcano_job("big", 3, 8, run_for="600s")
    )
    await yard.cell.until_pods(yard.namespace, {"Running": 4})
    await yard.pod("waits", a_spec(4), annotations={"berth/run-for": "600s"})
    status = await yard.cell.until_status(yard.namespace, "pod.waits", "waiting")
    assert status.sentence.startswith("0 of 4 nodes fit"), status.sentence
    await yard.until_told(["waits"], status.sentence)
    await annotate(yard, bare, infos)
    await yard.until_running("waits")
    assert await yard.cell.check_chips(yard.namespace) == 32
    await yard.api.delete(f"/apis/batch.volcano.sh/v1alpha1/namespaces/{yard.namespace}/jobs/big")
    await yard.drop_pod("early")
    await yard.drop_pod("waits")
    await yard.cell.until_pods(yard.namespace, {})


async def two_with_one_address(yard: CandidatePool, leaves: dict[str, str]) -> None:
    """They stand below no switch, and both work."""
    first, second = "a2-0", "a2-2"
    node = await yard.api.get(f"/api/v1/nodes/{first}")
    other = await yard.api.get(f"/api/v1/nodes/{second}")
    own = other["status"]["addresses"]
    await address(yard, second, node["status"]["addresses"])
    await yard.until_is("no place", lambda: leaves_of(yard), leaves | {first: "", second: ""})
    await event_on(yard, first, "NodeInvalid", f"as on {second}: expected an address of its own")
    await event_on(yard, second, "NodeInvalid", f"as on {first}: expected an address of its own")
    await yard.api.post(
        f"/apis/batch.volcano.sh/v1alpha1/namespaces/{yard.namespace}/jobs", a_volcano_job("four", 4, 8, run_for="600s")
    )
    pods = await yard.cell.until_pods(yard.namespace, {"Running": 4})
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 4
    await address(yard, second, own)
    await yard.until_is("places again", lambda: leaves_of(yard), leaves)


async def unreadable_switches(yard: CandidatePool, leaves: dict[str, str]) -> None:
    """The last ones hold, also across a restart."""
    path = "/api/v1/namespaces/kube-system/configmaps/basic-tor-node-cm"
    text = (await yard.api.get(path))["data"]["tor_info"]
    await yard.api.patch(path, {"data": {"tor_info": text[:-25]}})

    async def told() -> list[str]:
        found = await yard.events("ConfigMap", "basic-tor-node-cm", namespace="kube-system")
        return [reason for reason, message, _ in found if "the last valid value stays in force" in message]

    await yard.until_is("an Event on the ConfigMap", told, ["SwitchesInvalid"])
    assert await yard.metric("inventory", "inventory_problems_total", kind="ConfigMap") == 1
    assert await leaves_of(yard) == leaves
    await yard.cell.restart("inventory")
    await yard.api.patch("/api/v1/nodes/a2-3", {"metadata": {"labels": {"seen": "again"}}})

    async def labelled() -> bool:
        return any("seen" in (row.labels or {}) for fact in await facts(yard) for row in fact.classes)

    await yard.until("the inventory is back", labelled)
    assert await leaves_of(yard) == leaves


async def facts(yard: CandidatePool) -> list[NodesSeen]:
    found = await yard.bus.read(StreamName.LATEST, filters=(yard.bus.subjects.facts("node"),))
    return [decode(stored.data, NodesSeen) for stored in found]


async def nodes_of(yard: CandidatePool) -> list[NodeDescription]:
    return [node for fact in await facts(yard) for node in unpack_nodes(fact)]


async def leaves_of(yard: CandidatePool) -> dict[str, str]:
    return {node.name: node.leaf for node in await nodes_of(yard)}


async def chips(yard: CandidatePool) -> dict[str, int]:
    return {node.name: node.chips for node in await nodes_of(yard)}


async def annotate(yard: CandidatePool, node: str, infos: str | None) -> None:
    await yard.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"baseDeviceInfos": infos}}})


async def address(yard: CandidatePool, node: str, addresses: list[dict[str, str]]) -> None:
    await yard.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"addresses": addresses}})


async def event_on(yard: CandidatePool, node: str, reason: str, words: str) -> None:
    async def told() -> bool:
        found = await yard.events("Node", node, namespace="default")
        return any(one == reason and words in message for one, message, _ in found)

    await yard.until(f"an Event on {node}", told)
