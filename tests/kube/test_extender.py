"""A real kube-scheduler with the extender: pods with chips go where Berth has placed them, bound by Berth's binder."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from berth.formats.ascend.pod_annotations import ATTEMPT, JOB
from berth.lab.servers.kube_server import KubeServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from tests.support.certificates import authority, certificate
from tests.support.extended_scheduler import ExtendedScheduler, documented_config
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell, Tree, a_container, a_spec
from tests.support.processes import Service, services
from tests.support.waiting import until_true

OURS: Final = "npu"
"""Scheduler whose pods Berth takes over."""
STRANGE: Final = "plain"
"""Scheduler whose pods Berth does not know."""
TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 2, name: "a2-{index}", leaf: {size: 2}}
"""


def pod(name: str, scheduler: str, chips: int) -> Tree:
    """A pod that runs for long."""
    spec = a_spec(chips, scheduler=scheduler)
    if not chips:
        spec["containers"] = [a_container()]
    return {"metadata": {"name": name, "annotations": {"berth/run-for": "600s"}}, "spec": spec}


def said(found: Tree) -> str:
    """Message of the condition that kube-scheduler writes to a pod without a node; empty before."""
    conditions = found.get("status", {}).get("conditions") or []
    return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")


def test_the_page_has_the_settings_without_which_it_would_decide() -> None:
    (extender,) = documented_config()["extenders"]
    assert extender["ignorable"] is False
    assert extender.items() >= {"filterVerb": "filter", "bindVerb": "bind", "preemptVerb": "preempt"}.items()
    assert extender["tlsConfig"].keys() == {"caFile", "certFile", "keyFile"}


class Stage:
    """A cell, its gateway with an extender, a kube-scheduler that asks it, and a namespace for pods."""

    def __init__(
        self, world: KubeCell, gateway: Service, scheduler: ExtendedScheduler, api: KubeApi, namespace: str
    ) -> None:
        self.world = world
        self.gateway = gateway
        self.scheduler = scheduler
        self.namespace = namespace
        self._api = api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def make(self, name: str, scheduler: str, chips: int) -> None:
        """Make a pod."""
        await self._api.post(self._pods, pod(name, scheduler, chips))

    async def drop(self, name: str) -> None:
        """Delete a pod."""
        await self._api.delete(f"{self._pods}/{name}")

    async def get(self, name: str) -> Tree:
        """A pod."""
        found: Tree = await self._api.call("GET", f"{self._pods}/{name}")
        return found

    async def until_said(self, name: str, text: str) -> None:
        """Wait until kube-scheduler says of a pod why it has no node; it must have none meanwhile.

        Raises:
            AssertionError: It does not say it in time, or the pod has a node.
        """
        found: Tree = {}

        async def is_said() -> bool:
            nonlocal found
            found = await self.get(name)
            assert "nodeName" not in found["spec"], (found, self.scheduler.log())
            return text in said(found)

        try:
            await until_true(is_said, deadline_s=60, what=f"{name}: {text}")
        except AssertionError as error:
            logs = f"{self.gateway.log()}\n{self.scheduler.log()}"
            raise AssertionError(f"{error}; {said(found)!r}\n{logs}") from error

    async def until_runs(self, name: str, node: str = "") -> None:
        """Wait until a pod runs, on a node if one is named."""

        async def runs() -> bool:
            found = await self.get(name)
            at = str(found["spec"].get("nodeName", ""))
            return found["status"]["phase"] == "Running" and at == (node or at)

        await until_true(runs, deadline_s=60, what=f"{name} runs: {self.scheduler.log()}")


@pytest.fixture
async def stage(
    kube_server: KubeServer,
    kube_api: KubeApi,
    real_bus: NatsBus,
    nats_server: str,
    cell: str,
    namespace: str,
    tmp_path: Path,
) -> AsyncIterator[Stage]:
    """Everything runs, but the binder rests."""
    own, clients = authority(tmp_path, "own"), authority(tmp_path, "clients")
    cert, key = certificate(tmp_path, "gateway", own)
    (port,) = free_ports(1)
    section: dict[str, Any] = {
        "port": port,
        "tls_cert_file": cert,
        "tls_key_file": key,
        "client_ca_file": clients,
        "bind_wait_s": 0.2,
    }
    with services(tmp_path, nats_server) as made:
        world = KubeCell(
            made,
            folder=tmp_path,
            cell=cell,
            bus=real_bus,
            api=kube_api,
            topology=TOPOLOGY,
            settings={"inventory": {"gangs": {"scheduler_names": ["berth", OURS]}}},
        )
        gateway = made.service("gateway", cell, port=0, access="open", extender=section)
        await world.start()
        gateway.start()
        await world.services["binder"].stop()
        async with ExtendedScheduler(
            kube_server,
            tmp_path / "scheduler",
            url=f"https://127.0.0.1:{port}",
            ca=own,
            certificate=certificate(tmp_path, "kube-scheduler", clients),
            names=(OURS, STRANGE),
        ) as scheduler:
            yield Stage(world, gateway, scheduler, kube_api, namespace)
        await world.stop()
        await gateway.stop()


@pytest.mark.processes
@pytest.mark.timeout(280)
async def test_kube_scheduler_follows_the_decisions_of_berth(stage: Stage) -> None:
    world, namespace = stage.world, stage.namespace

    # While the binder is away nobody binds, although the node is decided.
    await stage.make("first", OURS, 8)
    status = await world.until_status(namespace, "pod.first", "placed")
    assert status.placement is not None
    (node,) = status.placement.names()
    await stage.until_said("first", f"the binder of Berth has not bound this pod to node {node} yet")

    # The binder binds, with the annotations that only it writes.
    await world.start("binder")
    await stage.until_runs("first", node)
    annotations = (await stage.get("first"))["metadata"]["annotations"]
    assert annotations.items() >= {JOB: "pod.first", ATTEMPT: "1"}.items()

    # What has no room, and what Berth does not know, gets no node and the reason.
    await stage.make("second", OURS, 8)
    await stage.until_runs("second")
    await stage.make("third", OURS, 8)
    await stage.make("stray", STRANGE, 8)
    await stage.until_said("third", "waits: ")
    await stage.until_said("stray", "not requested through Berth")

    # Pods without chips are none of its business.
    await stage.make("plain", STRANGE, 0)
    await stage.until_runs("plain")

    # Room for the third comes when the first is deleted: nobody was evicted for it.
    assert {(await stage.get(name))["status"]["phase"] for name in ("first", "second")} == {"Running"}
    await stage.drop("first")
    await stage.until_runs("third", node)
    assert await world.check_chips(namespace) == 16
    await stage.until_said("stray", "not requested through Berth")
