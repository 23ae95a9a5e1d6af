"""An inventory between a real API server and a real bus, and what it said."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from berth.core.cluster.node_packing import unpack_nodes
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.config import BusConfig
from berth.runtime.instruments import Instruments
from berth.runtime.kube.config import KubeConfig
from berth.schemas.envelope import decode
from berth.schemas.facts import NodesSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest
from berth.schemas.message import Message
from berth.schemas.nodes import NodeDescription
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.app import serve as dispatch
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.inventory.app import serve
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.metrics import InventoryMetrics
from tests.support.kube_api import KubeApi
from tests.support.waiting import pause, until_true

M = TypeVar("M", bound=Message)
RESOURCE = "huawei.com/Ascend910"
DEADLINE_S = 20.0


@asynccontextmanager
async def inventory(url: str, cell: str, kubeconfig: Path, *, gangs: GangSettings | None = None) -> AsyncIterator[asyncio.Task[None]]:  # fmt: skip
    """An inventory of its own, which is asked to stop at the end."""
    config = InventoryConfig(
        kube=KubeConfig(kubeconfig=kubeconfig),
        gangs=gangs or GangSettings(scheduler_names=("berth",)),
        settle_s=0.05,
        kinds_retry_s=0.5,
    )
    stop = asyncio.Event()
    async with await NatsBus.connect(url, cell, name="inventory") as bus, asyncio.TaskGroup() as group:
        task = group.create_task(
            serve(bus, SystemClock(), config, Instruments.make(InventoryMetrics), stop), name="inventory"
        )
        try:
            yield task
        finally:
            stop.set()
            await asyncio.wait([task], timeout=DEADLINE_S)


@asynccontextmanager
async def dispatcher(url: str, cell: str) -> AsyncIterator[None]:
    """A dispatcher that scores by itself."""
    stop = asyncio.Event()
    config = DispatcherConfig(shards=0, lease_s=2, bus=BusConfig(url=url, cell=cell))
    async with await NatsBus.connect(url, cell, name="dispatcher") as bus, asyncio.TaskGroup() as group:
        group.create_task(
            dispatch(bus, SystemClock(), config, Instruments.make(DispatcherMetrics), stop), name="dispatcher"
        )
        try:
            yield
        finally:
            stop.set()


class Heard:
    """What a bus has been told."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    async def all(self, stream: StreamName, kind: type[M], filters: tuple[str, ...]) -> list[M]:
        return [decode(stored.data, kind) for stored in await self._bus.read(stream, filters=filters)]

    async def facts(self, name: str, kind: type[M]) -> list[M]:
        return await self.all(StreamName.FACTS, kind, (self._bus.subjects.facts(name),))

    async def count(self) -> int:
        """Messages of the inventory so far."""
        subjects = self._bus.subjects
        kinds = tuple(subjects.facts(kind) for kind in ("node", "topology", "pod", "member"))
        facts = await self._bus.read(StreamName.FACTS, filters=kinds)
        return len(facts) + len(await self._bus.read(StreamName.INTAKE))

    async def nodes(self) -> dict[str, NodeDescription]:
        last = {fact.domain: fact for fact in await self.facts("node", NodesSeen)}
        return {node.name: node for fact in last.values() for node in unpack_nodes(fact)}

    async def pods(self) -> dict[str, list[str]]:
        """Phases by gang, as last said."""
        last = {fact.gang: fact for fact in await self.facts("pod", PodsSeen)}
        return {gang: [PodPhase(phase).name for phase in fact.phase] for gang, fact in last.items()}

    async def requests(self) -> list[JobRequest]:
        return await self.all(StreamName.INTAKE, JobRequest, (f"{self._bus.subjects.root}intake.request.>",))

    async def quiet(self) -> int:
        """Wait until nothing more is said; how many messages there are."""
        counts = list(range(-1, -7, -1))

        async def settled() -> bool:
            counts.append(await self.count())
            await pause(0.3)
            return len(set(counts[-6:])) == 1

        await until_true(settled, deadline_s=DEADLINE_S, what="silence")
        return counts[-1]


async def make_node(api: KubeApi, name: str, *, chips: int = 8, address: str = "") -> None:
    """A ready node with chips, as the device plug-in and kubelet would have it."""
    infos = {f"Ascend910-{chip}": {"IP": f"10.1.0.{chip}"} for chip in range(chips)}
    await api.post(
        "/api/v1/nodes",
        {
            "metadata": {
                "name": name,
                "labels": {"accelerator-type": "module-910b-8", "accelerator": "huawei-Ascend910"},
                "annotations": {"baseDeviceInfos": json.dumps(infos)},
            }
        },
    )
    amounts = {"cpu": "100", "memory": "100Gi", "pods": "110", RESOURCE: str(chips)}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "by a test"}],
        "addresses": [{"type": "InternalIP", "address": address or "192.0.2.1"}],
    }
    await api.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def pod_of(name: str, *, scheduler: str = "berth", group: str = "", chips: int = 2) -> dict[str, Any]:
    """A pod that waits for a place."""
    amounts = {"cpu": "1", "memory": "1Gi"} | ({RESOURCE: str(chips)} if chips else {})
    return {
        "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": group} if group else {}},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": {"accelerator-type": "module-910b-8"},
            "containers": [{"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}],
        },
    }


async def bind_pod(api: KubeApi, namespace: str, name: str, node: str, **annotations: str) -> None:
    """Bind a pod as a scheduler would; two underscores in a key stand for a slash."""
    found = {key.replace("__", "/"): value for key, value in annotations.items()}
    await api.post(
        f"/api/v1/namespaces/{namespace}/pods/{name}/binding",
        {"metadata": {"name": name, "annotations": found}, "target": {"kind": "Node", "name": node}},
    )


async def set_phase(api: KubeApi, namespace: str, name: str, phase: str) -> None:
    """Say of a pod what kubelet would say."""
    await api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": {"phase": phase}})
