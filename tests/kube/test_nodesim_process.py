"""Nodesim as a process between a real API server and a real bus, killed while pods start."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from berth.schemas.envelope import decode
from berth.schemas.simulation import SimCounts
from tests.support.bound_pods import bound
from tests.support.kube_api import KubeApi
from tests.support.processes import Service
from tests.support.waiting import until_true

TOPOLOGY = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 2, name: "a2-{index}"}
"""


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[tuple[NatsBus, str]]:
    async with (
        EmbeddedServer(tmp_path / "nats") as server,
        await NatsBus.connect(server.url, "sim", name="test", inbox="_INBOX.person.test") as bus,
    ):
        yield bus, server.url


async def test_a_killed_nodesim_goes_on_with_the_pods_as_the_api_shows_them(
    kube_server: KubeServer, kube_api: KubeApi, namespace: str, cell: tuple[NatsBus, str], tmp_path: Path
) -> None:
    bus, url = cell
    topology = tmp_path / "cluster.yaml"
    topology.write_text(TOPOLOGY, "utf-8")
    kubeconfig = kube_server.write_kubeconfig(tmp_path / "kubeconfig")
    settings: dict[str, Any] = {
        "topology_file": str(topology),
        "kube": {"kubeconfig": str(kubeconfig)},
        "agents": {"start_s": 0.5, "report_s": 0.2},
    }

    def nodesim(run_s: float) -> Service:
        """A nodesim whose pods run for so long; nobody ends before it is wanted."""
        own = settings | {"run_default_s": run_s}
        return Service(tmp_path, "nodesim", url=url, cell="sim", settings=own, label=f"-{run_s:g}")

    service, ending = nodesim(600), nodesim(1)

    async def counts() -> SimCounts | None:
        try:
            return decode(await bus.request(bus.subjects.sim("counts"), b"", timeout_s=0.5), SimCounts)
        except TransientError:
            return None

    async def stands() -> bool:
        return await counts() is not None

    async def phases() -> list[str]:
        return [item["status"]["phase"] for item in await kube_api.items(f"/api/v1/namespaces/{namespace}/pods")]

    try:
        service.start()
        await until_true(stands, deadline_s=20, what=f"nodesim to answer: {service.log()}")
        config = KubeConfig(kubeconfig=kubeconfig)
        async with await Client.connect(config, clock=SystemClock(), user_agent="test") as client:
            for index in range(4):
                await bound(client, namespace, f"p{index}", "a2-0", [2 * index, 2 * index + 1], at=str(100 + index))

        async def is_one_taken() -> bool:
            seen = await counts()
            return seen is not None and seen.pods_bound > 0

        await until_true(is_one_taken, deadline_s=20, what="a pod to be taken")
        await service.kill()
        service.start()

        async def all_run() -> bool:
            return await phases() == ["Running"] * 4

        await until_true(all_run, deadline_s=20, what=f"all pods to run: {service.log()}")
        seen = decode(await bus.request(bus.subjects.sim("counts"), b"", timeout_s=20), SimCounts)
        assert (seen.chips_held, seen.double_allocations, seen.pods_failed) == (8, 0, 0)

        async def all_end() -> bool:
            return await phases() == ["Succeeded"] * 4

        await service.kill()
        ending.start()
        await until_true(all_end, deadline_s=20, what="all pods to end")
        await ending.stop()
    finally:
        service.destroy()
        ending.destroy()
