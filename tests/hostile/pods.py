"""Pods that a namespace of a real API server gets at once, and how long the pod of another one waits for its place."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from berth.lab.servers.kube_server import KubeServer
from berth.products.catalogue import NODE_PRODUCTS
from berth.runtime.bus.nats_bus import NatsBus
from tests.hostile.loads import Load
from tests.hostile.measured_cell import BYSTANDER, CLUSTER, DECENT, TENANT, MeasuredCell
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, a_container
from tests.support.processes import Service, services

Tree = dict[str, Any]
_PODS_PER_S: Final = 100
"""Few enough that an API server beside the cell is not what the bystander waits for."""

_START_S: Final = 240.0
"""Longest start of a part of the API server beside other work."""


class PodCell(MeasuredCell):
    """A cell whose tenants create pods.

    Args:
        bus: A connection to the cell, with all rights.
        api: Calls of the API server by tenants.
        own: Calls by the bystander, on connections of its own.
        running: The services of the cell.
    """

    def __init__(self, bus: NatsBus, api: KubeApi, own: KubeApi, running: Mapping[str, Service]) -> None:
        super().__init__(bus, running)
        self.api = api
        self._own = own

    async def submit(self, name: str) -> str:
        """Create a pod as the bystander does; returns the name of its request."""
        await self._own.post(_pods_of(BYSTANDER), _pod(name, "module910x8", 1))
        return f"pod.{name}"


@asynccontextmanager
async def pod_cell(folder: Path, url: str, cell: str) -> AsyncIterator[PodCell]:
    """A cell on an API server of its own, with a namespace for each tenant."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(KubeServer(folder / "kube", controllers=(), start_deadline_s=_START_S))
        api, own = [await stack.enter_async_context(KubeApi(server)) for _ in range(2)]
        for name in (TENANT, BYSTANDER, *DECENT):
            await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        bus = await stack.enter_async_context(await NatsBus.connect(url, cell, name="hostile"))
        made = stack.enter_context(services(folder, url))
        berth = KubeCell(made, folder=folder, cell=cell, bus=bus, api=api, topology=CLUSTER)
        await berth.start()
        found = PodCell(bus, api, own, berth.services)
        stack.push_async_callback((await found.follow()).stop)
        yield found


def _pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _pod(name: str, product: str, chips: int) -> Tree:
    known = NODE_PRODUCTS[product]
    annotations = {"berth/run-for": "1s"} | ({"huawei.com/schedule_policy": known.policy} if known.policy else {})
    return {
        "metadata": {"name": name, "labels": dict(known.job_labels), "annotations": annotations},
        "spec": {
            "schedulerName": "berth",
            "restartPolicy": "Never",
            "nodeSelector": dict(known.selector),
            "containers": [a_container(chips, resource=known.resource)],
        },
    }


async def _flood(cell: PodCell, number: int) -> None:
    await cell.api.post(_pods_of(TENANT), _pod(f"small-{number}", "module910bx8", 8))


async def _share(cell: PodCell, number: int) -> None:
    namespace = DECENT[number % len(DECENT)]
    await cell.api.post(_pods_of(namespace), _pod(f"small-{number}", "module910bx8", 8))


MANY_PODS: Final = Load("many-pods", _flood, _share, _PODS_PER_S)
"""A flood of one namespace, against as many pods of several."""
