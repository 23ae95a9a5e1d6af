"""A real API server for the tests of this folder, with a cell and controllers of others on it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from tests.support.cell_mode import CELLS
from tests.support.command import berth
from tests.support.kube_api import KubeApi
from tests.support.kube_cells import KubeCell
from tests.support.kube_sweep import Sweep
from tests.support.prepared_server import CRDS, USERS, Prepared, native_gangs, prepare, served
from tests.support.processes import services
from tests.support.real_controllers import RealController
from tests.support.real_workloads import Workloads

TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 6, name: "a2-{index}", leaf: {size: 2}}
"""
LASTING_S: Final = 3_600
"""How long pods without a run time of their own run: far beyond any test."""
_numbers = count(1)


@pytest.fixture(autouse=True)
def mode_of_cells() -> Iterator[None]:
    """The services of a cell are one process."""
    CELLS.is_joined = True
    yield
    CELLS.is_joined = False


@pytest.fixture(scope="session")
def kube_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A server with its own controllers; users may do nothing until somebody gives them a role."""
    folder = tmp_path_factory.mktemp("kube")
    server = KubeServer(folder, users=dict.fromkeys(USERS, ()), start_deadline_s=50, **native_gangs())
    yield from served(server)


@pytest.fixture(scope="session")
def kube_prepared(kube_server: KubeServer) -> Prepared:
    """Definitions of the demo are served, and the namespaces that tests share are there."""
    return prepare(kube_server, folders=CRDS[:1])


@pytest.fixture
async def kube_api(kube_server: KubeServer, kube_prepared: Prepared) -> AsyncIterator[KubeApi]:
    """Calls as admin. When the test has ended, everything that it made is taken away."""
    async with KubeApi(kube_server) as api:
        yield api
        await Sweep(api, custom=kube_prepared.custom, kept=kube_prepared.kept).run()


@pytest.fixture(scope="module")
def controller(
    request: pytest.FixtureRequest,
    kube_server: KubeServer,
    kube_prepared: Prepared,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealController]:
    """The controller that the module names as ``RELEASE``, while its tests run."""
    assert kube_prepared.custom, "Volcano's definitions are there before a controller looks for them"
    release = request.module.RELEASE
    found = RealController(release, kube_server, tmp_path_factory.mktemp(release.name))
    asyncio.run(found.start())
    try:
        yield found
    finally:
        asyncio.run(found.stop())


@pytest.fixture
async def workloads(
    kube_api: KubeApi,
    real_bus: NatsBus,
    nats_server: str,
    cell: str,
    tmp_path: Path,
    controller: RealController,
) -> AsyncIterator[Workloads]:
    """Workloads of the module's ``controller``, in a namespace of the test, on a cell of six nodes with 8 chips each.

    What a test leaves is taken away before the cell stops, so that a controller makes nothing anew.
    """
    name = f"test-{next(_numbers)}"
    await kube_api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    kubeconfig = kube_api.server.write_kubeconfig(tmp_path / "kubeconfig")

    async def findings() -> list[object]:
        words = ("fsck", "--cluster", "--kubeconfig", str(kubeconfig), "--json")
        code, out, err = await berth(*words, url=nats_server, cell=cell)
        assert code in {0, 1}, err
        found: list[object] = json.loads(out)["findings"]
        return found

    with services(tmp_path, nats_server) as made:
        settings: dict[str, Mapping[str, object]] = {
            "nodesim": {"run_default_s": LASTING_S, "agents": {"controllers": []}},
            "inventory": {"gangs": {"scheduler_names": ["berth", "volcano"]}},
        }
        world = KubeCell(
            made, folder=tmp_path, cell=cell, bus=real_bus, api=kube_api, topology=TOPOLOGY, settings=settings
        )
        await world.start()
        found = Workloads(world, controller, name, findings)
        yield found
        await found.drop_all()
        await world.stop()
    await kube_api.delete(f"/api/v1/namespaces/{name}")
