"""A health service on a bus and an API server in memory, with a clock that moves when told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from berth.core.cluster.node_packing import pack_nodes, unpack_health
from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import HealthSeen, PodPhase, PodsSeen
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.subjects import StreamName
from berth.services.health.app import serve_on
from berth.services.health.config import HealthConfig
from berth.services.health.metrics import HealthMetrics
from tests.support.clock import ManualClock
from tests.support.device_texts import RES, device_cfg, device_list
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import PickyServer
from tests.support.waiting import until

SYSTEM = "/api/v1/namespaces/kube-system/configmaps"
MINDX = "/api/v1/namespaces/mindx-dl/configmaps"
CIM = {"mx-consumer-cim": "true"}
VOLCANO = {"mx-consumer-volcano": "true"}


def a_node(name: str, **fields: Any) -> NodeDescription:  # noqa: ANN401 - of a node
    return NodeDescription(**{"name": name, "resource": RES, "chips": 0xFF, "allocatable": 8, **fields})


class World:
    """A bus, an API server, and a health service that comes and goes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = PickyServer(self.clock)
        self.bus = FakeBus(self.server, "test")
        self.kube = FakeKube(clock=self.clock)
        self.config = HealthConfig(tick_s=0.005, retry_wait_max_s=0.01)

    def configure(self, **fields: Any) -> None:  # noqa: ANN401 - of the settings
        self.config = msgspec.structs.replace(self.config, **fields)

    @asynccontextmanager
    async def service(self, bus: FakeBus | None = None) -> AsyncIterator[None]:
        stop = asyncio.Event()
        bus = bus or FakeBus(self.server, "test")
        api = self.kube if self.config.source != "none" else None
        async with asyncio.TaskGroup() as group:
            task = group.create_task(
                serve_on(api, bus, self.clock, self.config, Instruments.make(HealthMetrics), stop), name="health"
            )
            try:
                await until(lambda: self.server.services or task.done(), deadline_s=5, what="the service to listen")
                yield
            finally:
                stop.set()
                await asyncio.wait([task], timeout=5)
        await bus.close()

    async def put(self, subject: str, message: Message) -> None:
        await self.bus.publish(subject, encode(message))

    async def nodes(self, domain: str, *nodes: NodeDescription) -> None:
        await self.put(self.bus.subjects.fact_node(domain), pack_nodes(domain, nodes))

    async def pods(self, gang: str, **held: int) -> None:
        names = sorted(held)
        fact = PodsSeen(
            namespace="ns",
            gang=gang,
            uid="u",
            attempt=1,
            rank=pack(range(len(names)), 4),
            nodes=pack_names(names),
            node_index=pack(range(len(names)), 4),
            phase=pack([PodPhase.RUNNING] * len(names), 1),
            chips=pack([held[name] for name in names], 8),
        )
        await self.put(self.bus.subjects.fact_pod("ns", gang), fact)

    @property
    def now_s(self) -> int:
        return self.clock.now_ms() // 1000

    def device_map(self, node: str, text: str, *, switch: str = "") -> None:
        data = {"DeviceInfoCfg": text, "ManuallySeparateNPU": ""} | ({"SwitchInfoCfg": switch} if switch else {})
        meta = {"name": f"mindx-dl-deviceinfo-{node}", "namespace": "kube-system", "labels": CIM}
        self.kube.put(SYSTEM, {"metadata": meta, "data": data})

    def device(self, node: str, *, switch: str = "", **lists: Any) -> None:  # noqa: ANN401 - of a device list
        self.device_map(node, device_cfg(device_list(**lists), self.now_s), switch=switch)

    def noded(self, node: str, text: str) -> None:
        meta = {"name": f"mindx-dl-nodeinfo-{node}", "namespace": "mindx-dl", "labels": CIM}
        self.kube.put(MINDX, {"metadata": meta, "data": {"NodeInfo": text, "updateTime": "2026-11-20T11:41:02Z"}})

    def chunk(self, name: str, text: str) -> None:
        meta = {"name": name, "namespace": "mindx-dl", "labels": VOLCANO}
        self.kube.put(MINDX, {"metadata": meta, "data": {name: text}})

    def history(self, domain: str) -> list[HealthSeen]:
        stream = self.server.stream(self.bus.subjects.stream(StreamName.FACTS))
        subject = self.bus.subjects.fact_health(domain)
        found = [stored for _, stored in sorted(stream.messages.items()) if stored.subject == subject]
        return [decode(stored.data, HealthSeen) for stored in found]

    def published(self, node: str, domain: str = "d") -> NodeCondition | None:
        history = self.history(domain)
        rows = unpack_health(history[-1]) if history else []
        return next((row for row in rows if row.name == node), None)

    async def has(self, node: str, domain: str = "d", **fields: object) -> NodeCondition:
        def fits() -> bool:
            row = self.published(node, domain)
            return row is not None and all(getattr(row, key) == value for key, value in fields.items())

        try:
            await until(fits, deadline_s=5, what="")
        except AssertionError:
            raise AssertionError(f"{node} is {self.published(node, domain)}, not {fields}") from None
        row = self.published(node, domain)
        assert row is not None
        return row

    async def ask(self, report: bytes, node: str = "a") -> dict[str, Any]:
        answer = await self.bus.request(self.bus.subjects.report_health(node), report, timeout_s=5)
        found: dict[str, Any] = json.loads(answer)
        return found
