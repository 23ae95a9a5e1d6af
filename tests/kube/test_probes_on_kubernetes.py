"""Services that use an API server: not ready, with the reason, while it is unreachable; ready once they caught up."""

from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import READY_S, KubeCell
from tests.support.probes import answer, samples
from tests.support.processes import services
from tests.support.relay import relay
from tests.support.waiting import until_true

WAITS_FOR = {
    "inventory": "nodes, pods and groups are listed",
    "health": "the ConfigMaps are listed",
    "summary": "pods, nodes and summaries are listed",
    "binder": "the nodes of the cluster are not known yet",
    "nodesim": "the nodes are registered",
}
"""What each service says while the API server does not answer."""
COUNTS = {
    "inventory": "berth_inventory_nodes",
    "health": "berth_health_suspect_nodes",
    "summary": "berth_summary_jobs",
    "binder": "berth_binder_pending_gangs",
    "nodesim": "berth_nodesim_nodes",
}
"""A metric of each service's own."""
NODES = 4


def kubeconfig(api: KubeApi, folder: Path, user: str, port: int) -> Path:
    """A user's kubeconfig, with a port that is not the server's own."""
    path = api.server.write_kubeconfig(folder / f"kubeconfig-{user}-by-relay", user=user)
    text = path.read_text("utf-8")
    own = urlsplit(api.server.url)
    assert f"{own.hostname}:{own.port}" in text
    path.write_text(text.replace(f"{own.hostname}:{own.port}", f"{own.hostname}:{port}"), "utf-8")
    return path


@pytest.mark.processes
@pytest.mark.timeout(150)
async def test_services_are_ready_only_when_the_api_server_has_answered(
    kube_api: KubeApi, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path
) -> None:
    way, *free = free_ports(1 + len(WAITS_FOR))
    ports = dict(zip(WAITS_FOR, free, strict=True))
    with services(tmp_path, nats_server) as made:
        whole = KubeCell(
            made,
            folder=tmp_path,
            cell=cell,
            bus=real_bus,
            api=kube_api,
            settings={
                name: {"probes": {"port": port}, "kube": {"kubeconfig": kubeconfig(kube_api, tmp_path, name, way)}}
                for name, port in ports.items()
            },
        )
        async with aiohttp.ClientSession() as session:

            async def until_all(wanted: dict[str, tuple[int, str]]) -> None:
                found: dict[str, tuple[int, str]] = {}

                async def said() -> bool:
                    whole.check()
                    for name, port in ports.items():
                        found[name] = await answer(session, port, "readyz")
                    return found == wanted

                try:
                    await until_true(said, deadline_s=READY_S, what=f"/readyz says {wanted}")
                except AssertionError as error:
                    raise AssertionError(f"{error}; it says {found}{whole.logs()}") from error

            async def check_others(*, is_ready: bool) -> dict[str, float]:
                found: dict[str, float] = {}
                for name, port in ports.items():
                    assert await answer(session, port, "livez") == (200, "ok"), name
                    metrics = await samples(session, port)
                    assert metrics["berth_process_ready"] == is_ready, name
                    found[name] = metrics[COUNTS[name]]
                return found

            await whole.start(*whole.services)
            await until_all({name: (503, reason) for name, reason in WAITS_FOR.items()})
            assert set((await check_others(is_ready=False)).values()) == {0}
            async with relay(way, to=urlsplit(kube_api.server.url).port or 0):
                await until_all(dict.fromkeys(WAITS_FOR, (200, "ok")))

                async def counted() -> bool:
                    found = await check_others(is_ready=True)
                    return found["inventory"] == found["nodesim"] == NODES

                await until_true(counted, deadline_s=READY_S, what=f"{NODES} nodes are counted{whole.logs()}")
                await whole.stop()
