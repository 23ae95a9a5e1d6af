"""The binder as a process on a real API server: killed at any point it goes on, and so does it when the server is."""

from pathlib import Path
from typing import Any

import pytest

from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.fault_points import BINDER_POINTS
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from berth.services.binder.cluster import Gang
from tests.support.binder_cluster import USER, World
from tests.support.binder_story import BinderLedger
from tests.support.kube_api import KubeApi
from tests.support.kube_binder import a_gang
from tests.support.kube_rights import grant
from tests.support.processes import services
from tests.support.waiting import until, until_true


async def all_bound(cell: BinderLedger, gang: Gang, nodes: list[str]) -> None:
    """Wait for the outcome; every pod is where it belongs, with times that only grow on each node."""

    async def is_reported() -> bool:
        return await cell.outcome(gang) is not None

    await until_true(is_reported, deadline_s=40, what="an outcome")
    told = await cell.outcome(gang)
    assert told is not None
    assert (told.state, told.bound, told.failures) == ("bound", len(nodes), [])
    pods = [await cell.world.pod(f"p{rank}") for rank in range(len(nodes))]
    assert [pod["spec"]["nodeName"] for pod in pods] == nodes
    times = [(pod["spec"]["nodeName"], pod["metadata"]["annotations"]["predicate-time"]) for pod in pods]
    assert len(set(times)) == len(times)


@pytest.mark.parametrize("point", BINDER_POINTS)
async def test_killed_at_any_point_the_binder_goes_on_where_it_was(
    world: World, kube_server: KubeServer, nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path, *, point: str
) -> None:
    nodes = [world.node(rank % 3) for rank in range(12)]
    gang = a_gang("job", nodes, [(rank // 3,) for rank in range(12)], namespace=world.namespace)
    made = BinderLedger(real_bus, world)
    settings: dict[str, Any] = {
        "kube": {"kubeconfig": str(kube_server.write_kubeconfig(tmp_path / "own", user=USER))},
        "one_at_a_time": False,
        "binds_at_once": 2,
    }
    with services(tmp_path, nats_server) as started:
        binder = started.service("binder", cell, **settings)
        count = 5 if point.startswith("bind") else 1
        binder.start(fault_point=f"{point}:{count}")
        await made.place(gang, 12)
        assert await binder.ended() < 0
        binder.start()
        await until(
            lambda: "ledger folded" in binder.whole_log().partition("--- start 2")[2],
            deadline_s=20,
            what="a second start",
        )
        await all_bound(made, gang, nodes)
        await binder.stop()


@pytest.mark.timeout(120)
async def test_an_api_server_that_is_killed_in_the_middle_of_a_gang_is_waited_for(
    nats_server: str, real_bus: NatsBus, cell: str, tmp_path: Path
) -> None:
    async with KubeServer(tmp_path / "kube", users={USER: ()}, controllers=()) as server, KubeApi(server) as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": "ns"}})
        await grant(api, USER, USER)
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig", user=USER)
        async with await Client.connect(KubeConfig(kubeconfig=kubeconfig), clock=SystemClock()) as client:
            world = await World(api, client, "ns").open()
            nodes = [world.node(rank % 3) for rank in range(60)]
            gang = a_gang("job", nodes, [(rank // 3,) for rank in range(60)], namespace="ns")
            made = BinderLedger(real_bus, world)
            with services(tmp_path, nats_server) as started:
                settings: dict[str, Any] = {
                    "kube": {"kubeconfig": str(kubeconfig)},
                    "one_at_a_time": False,
                    "binds_at_once": 2,
                }
                binder = started.service("binder", cell, retry_wait_max_s=1, **settings)
                binder.start()
                await made.place(gang, 60)

                async def is_begun() -> bool:
                    return bool(await world.node_of("p5"))

                await until_true(is_begun, deadline_s=30, what="the first bindings")
                await server.kill_api()
                await server.restart_api()
                await all_bound(made, gang, nodes)
                await binder.stop()
