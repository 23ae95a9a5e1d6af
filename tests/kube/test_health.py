"""The health service on a real API server and a real bus, with no more rights than it needs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berth.core.cluster.node_packing import pack_nodes, unpack_health
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.inboxes import inbox_of_agent
from berth.runtime.instruments import Instruments
from berth.runtime.kube.config import KubeConfig
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.subjects import StreamName
from berth.services.health.app import serve
from berth.services.health.config import HealthConfig
from berth.services.health.metrics import HealthMetrics
from tests.support.device_texts import RES, device_cfg, device_chunk, device_list, fault_row, node_cfg, switch_entry
from tests.support.kube_api import KubeApi
from tests.support.waiting import until_true

OK, SUB, NO_NEW, EVICT = NodeHealth
CORE = "/api/v1/namespaces"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces"
NAMES = ("kube-system", "mindx-dl")
CIM = {"mx-consumer-cim": "true"}
VOLCANO = {"mx-consumer-volcano": "true"}


class Cell:
    """A cell with nodes, and a health service that reads a cluster."""

    def __init__(self, bus: NatsBus, api: KubeApi, config: HealthConfig) -> None:
        self.bus = bus
        self.api = api
        self.config = config
        self.now_s = SystemClock().now_ms() // 1000

    @asynccontextmanager
    async def service(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                serve(self.bus, SystemClock(), self.config, Instruments.make(HealthMetrics), stop), name="health"
            )
            try:
                yield
            finally:
                stop.set()
                await asyncio.wait([task], timeout=10)

    async def nodes(self, *names: str) -> None:
        found = [NodeDescription(name=name, resource=RES, chips=0xFF, allocatable=8) for name in names]
        await self.bus.publish(self.bus.subjects.fact_node("d"), encode(pack_nodes("d", found)))

    async def put(self, namespace: str, name: str, labels: dict[str, str], data: dict[str, str]) -> None:
        """Make a ConfigMap, or replace what it holds, as a device plug-in does: first an update."""
        path = f"{CORE}/{namespace}/configmaps"
        body = {"metadata": {"name": name, "labels": labels}, "data": data}
        if any(one["metadata"]["name"] == name for one in await self.api.items(path)):
            await self.api.call("PUT", f"{path}/{name}", body)
        else:
            await self.api.post(path, body)

    async def device(self, node: str, text: str) -> None:
        await self.put("kube-system", f"mindx-dl-deviceinfo-{node}", CIM, {"DeviceInfoCfg": text})

    async def chunk(self, name: str, text: str) -> None:
        await self.put("mindx-dl", name, VOLCANO, {name: text})

    async def has(self, node: str, **fields: object) -> NodeCondition:
        """Wait until the fact says this of a node.

        Raises:
            AssertionError: It does not in time; shows what it says.
        """
        seen: NodeCondition | None = None

        async def fits() -> bool:
            nonlocal seen
            stored = await self.bus.last(StreamName.FACTS, self.bus.subjects.fact_health("d"))
            rows = unpack_health(decode(stored.data, HealthSeen)) if stored is not None else []
            seen = next((row for row in rows if row.name == node), None)
            return seen is not None and all(getattr(seen, key) == value for key, value in fields.items())

        try:
            await until_true(fits, deadline_s=20, what="")
        except AssertionError:
            raise AssertionError(f"{node} is {seen}, not {fields}") from None
        assert seen is not None
        return seen


@pytest.fixture
async def cell(real_bus: NatsBus, kube_server: KubeServer, kube_api: KubeApi, tmp_path: Path) -> AsyncIterator[Cell]:
    """A cell whose service may read ConfigMaps of two namespaces, and nothing else."""
    for namespace in NAMES:
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
        await kube_api.post(f"{ROLES}/{namespace}/roles", {"metadata": {"name": "health"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "health"}
        user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "berth"}
        binding = {"metadata": {"name": "health"}, "roleRef": role, "subjects": [user]}
        await kube_api.post(f"{ROLES}/{namespace}/rolebindings", binding)
    kubeconfig = kube_server.write_kubeconfig(tmp_path / "kubeconfig", user="berth")
    yield Cell(real_bus, kube_api, HealthConfig(kube=KubeConfig(kubeconfig=kubeconfig), tick_s=0.05))
    for namespace in NAMES:
        for plural in ("rolebindings", "roles"):
            await kube_api.delete(f"{ROLES}/{namespace}/{plural}/health")


async def test_configmaps_of_device_plug_ins_and_of_noded(cell: Cell) -> None:
    await cell.nodes("a", "b")
    await cell.device("a", device_cfg(device_list(unhealthy=[7], faults=[fault_row(7, "RestartNPU")]), cell.now_s))
    await cell.device("other", "no node of ours")
    async with cell.service():
        await cell.has("a", level=OK, unhealthy=128, reason="device plug-in: Ascend910-7 RestartNPU 80E24E00")
        await cell.has("b", level=NO_NEW)
        await cell.device("b", device_cfg(device_list(network=[1], recovering=[2]), cell.now_s))
        await cell.has("b", level=OK, network_unhealthy=2, recovering=4, reason="")
        await cell.device("a", device_cfg(device_list(), cell.now_s + 1, code="0" * 64))
        noded = {"NodeInfo": node_cfg("UnHealthy", [("CPU", 0, "00AA", "SeparateFault")])}
        await cell.put("mindx-dl", "mindx-dl-nodeinfo-b", CIM, noded)
        await cell.has("b", level=EVICT)
        await cell.api.delete(f"{CORE}/mindx-dl/configmaps/mindx-dl-nodeinfo-b")
        await cell.has("b", level=OK, reason="")
        found = await cell.has("a", unhealthy=128)
        assert "device plug-in is suspect: newest report refused, DeviceInfoCfg.CheckCode is '0000" in found.reason
        await cell.device("a", device_cfg(device_list(), cell.now_s + 2))
        await cell.has("a", unhealthy=0, reason="")


async def test_an_old_report_of_a_plug_in_that_died(cell: Cell) -> None:
    await cell.nodes("a")
    await cell.device("a", device_cfg(device_list(), cell.now_s - 840))
    async with cell.service():
        await cell.has("a", level=NO_NEW, reason="device plug-in: report is more than 10 min old (limit 10 min)")
        await cell.device("a", device_cfg(device_list(), cell.now_s))
        await cell.has("a", level=OK, reason="")


async def test_chunks_of_clusterd(cell: Cell) -> None:
    cell.config = HealthConfig(source="clusterd", kube=cell.config.kube, tick_s=0.05)
    await cell.nodes("a", "b")
    good, sick = device_list(), device_list(unhealthy=[1])
    await cell.chunk("cluster-info-device-0", device_chunk({"a": (good, cell.now_s)}))
    await cell.chunk("cluster-info-device-1", device_chunk({"b": (sick, cell.now_s)}))
    await cell.chunk("cluster-info-node-cm", "")
    async with cell.service():
        await cell.has("a", level=OK, reason="")
        await cell.has("b", level=OK, unhealthy=2)
        await cell.chunk("cluster-info-device-1", "")
        await cell.chunk(
            "cluster-info-device-0", device_chunk({"b": (good, cell.now_s + 1), "a": (sick, cell.now_s + 1)})
        )
        await cell.has("a", unhealthy=2)
        await cell.has("b", unhealthy=0, level=OK)
        status = {"FaultDevList": [], "NodeStatus": "PreSeparate", "UpdateTime": cell.now_s * 1000}
        await cell.chunk("cluster-info-node-cm", json.dumps({"mindx-dl-nodeinfo-a": status}))
        await cell.has("a", level=NO_NEW, unhealthy=2)
        switch = {"mindx-dl-switchinfo-b": switch_entry("SubHealthy", "SubHealthFault", cell.now_s)}
        await cell.chunk("cluster-info-switch-0", json.dumps(switch))
        await cell.has("b", level=SUB)
        await cell.chunk("cluster-info-node-cm", "")
        await cell.has("a", level=OK, unhealthy=2)


async def test_an_agent_reports_beside_the_configmaps(cell: Cell, nats_server: str) -> None:
    await cell.nodes("a")
    await cell.device("a", device_cfg(device_list(unhealthy=[0]), cell.now_s))
    async with cell.service():
        await cell.has("a", unhealthy=1)
        subject = cell.bus.subjects.report_health("a")
        report = {
            "node": "a",
            "unhealthy": [3],
            "level": "sub-health",
            "reason": "fan 2 is slow",
            "source": "bmc-agent",
        }
        inbox = inbox_of_agent("a")
        async with await NatsBus.connect(nats_server, cell.bus.subjects.cell, name="agent", inbox=inbox) as agent:
            assert await agent.request(subject, json.dumps(report).encode(), timeout_s=5) == b'{"ok":true}'
            wrong = json.loads(await agent.request(subject, b'{"node":"a","level":"bad"}', timeout_s=5))
        await cell.has("a", unhealthy=0b1001, level=SUB, reason="agent bmc-agent: level sub-health, fan 2 is slow")
        assert wrong == {"ok": False, "error": "level is 'bad', expected one of ok, sub-health, no-new-work, evict"}


async def test_a_restart_goes_on_where_it_was(cell: Cell) -> None:
    await cell.nodes("a")
    await cell.device("a", device_cfg(device_list(unhealthy=[5]), cell.now_s))
    async with cell.service():
        await cell.has("a", unhealthy=32)
    before = (await cell.bus.state(StreamName.FACTS)).last_seq
    await cell.device("a", device_cfg(device_list(unhealthy=[6]), cell.now_s + 1))
    async with cell.service():
        await cell.has("a", unhealthy=64)
        assert (await cell.bus.state(StreamName.FACTS)).last_seq == before + 1
    with pytest.raises(TransientError):
        await cell.bus.request(cell.bus.subjects.report_health("a"), b"{}", timeout_s=1)
