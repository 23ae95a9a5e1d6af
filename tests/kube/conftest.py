"""A real API server for the tests of this folder: one for all of them, a namespace for each."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from berth.cli.app import call
from berth.lab.servers.kube_server import KubeServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from tests.support.binder_cluster import USER, World
from tests.support.binder_story import Story
from tests.support.cell_mode import CELLS
from tests.support.faulty_cell import Ask, RunningCell, running_cell
from tests.support.invalid_input_cell import InvalidInputCell, TargetOf
from tests.support.kube_api import KubeApi
from tests.support.kube_rights import grant
from tests.support.kube_sweep import Sweep
from tests.support.prepared_server import USERS, Prepared, native_gangs, prepare, served
from tests.support.processes import Service, services

_numbers = count(1)


@pytest.fixture(autouse=True)
def mode_of_cells(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is not marked ``processes`` has its cells in one process each, unless ``--cells`` is given."""
    is_marked = request.node.get_closest_marker("processes") is not None
    CELLS.is_joined = request.config.getoption("--cells") is None and not is_marked
    yield
    CELLS.is_joined = False


@pytest.fixture(scope="session")
def kube_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A server with controllers and native PodGroups; users may do nothing until somebody gives them a role.

    They are ``berth``, ``stranger``, and one for each service that speaks with it: see
    ``tests/support/kube_rights.py``.
    """
    folder = tmp_path_factory.mktemp("kube")
    server = KubeServer(folder, users=dict.fromkeys(USERS, ()), start_deadline_s=50, **native_gangs())
    yield from served(server)


@pytest.fixture(scope="session")
def kube_prepared(kube_server: KubeServer) -> Prepared:
    """All definitions of ``crds`` are served, and the namespace that tests share is there."""
    return prepare(kube_server)


@pytest.fixture
async def kube_api(kube_server: KubeServer, kube_prepared: Prepared) -> AsyncIterator[KubeApi]:
    """Calls as admin. When the test has ended, everything that it made is taken away."""
    async with KubeApi(kube_server) as api:
        yield api
        await Sweep(api, custom=kube_prepared.custom, kept=kube_prepared.kept).run()


@pytest.fixture
async def kubeconfig(kube_server: KubeServer, kube_api: KubeApi, tmp_path: Path) -> Path:
    """Kubeconfig of an ordinary user with the rights that ``k8s/`` gives to the inventory."""
    await grant(kube_api, "inventory", "inventory")
    return kube_server.write_kubeconfig(tmp_path / "kubeconfig", user="inventory")


@pytest.fixture
async def namespace(kube_api: KubeApi) -> str:
    """Name of a namespace that no other test uses; it goes with what the test made."""
    name = f"test-{next(_numbers)}"
    await kube_api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
async def world(kube_server: KubeServer, kube_api: KubeApi, namespace: str, tmp_path: Path) -> AsyncIterator[World]:
    """Nodes and pods for a binder, and a client with the rights that ``k8s/`` gives to it."""
    await grant(kube_api, USER, USER)
    config = KubeConfig(kubeconfig=kube_server.write_kubeconfig(tmp_path / "kubeconfig", user=USER))
    async with await Client.connect(config, clock=SystemClock()) as client:
        yield await World(kube_api, client, namespace).open()


@pytest.fixture
def binder(kube_server: KubeServer, nats_server: str, cell: str, tmp_path: Path) -> Iterator[Service]:
    """The service that binds pod after pod, not started yet."""
    settings: dict[str, Any] = {
        "kube": {"kubeconfig": str(kube_server.write_kubeconfig(tmp_path / "own", user=USER))},
        "one_at_a_time": False,
        "binds_at_once": 1,
    }
    with services(tmp_path, nats_server) as made:
        yield made.service("binder", cell, **settings)


@pytest.fixture
def story(world: World, real_bus: NatsBus) -> Story:
    """A gang of which two pods leave, for a binder."""
    return Story(real_bus, world)


@pytest.fixture
def running(kube_api: KubeApi, real_bus: NatsBus, nats_server: str, cell: str, tmp_path: Path) -> RunningCell:
    """Makes a cell that recovers jobs from faults run on the API server."""
    return running_cell(kube_api, real_bus, url=nats_server, cell=cell, folder=tmp_path)


@pytest.fixture
def ask(nats_server: str, cell: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Calls the command line; returns the document that it prints."""

    async def ask_now(*words: str) -> Any:  # noqa: ANN401  # a document
        capsys.readouterr()
        code = await asyncio.to_thread(call, [*words, "--json", "--url", nats_server, "--cell", cell])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    return ask_now


@pytest.fixture
def target_of(
    kube_api: KubeApi, real_bus: NatsBus, nats_server: str, namespace: str, tmp_path: Path
) -> Iterator[TargetOf]:
    """Makes a cell on the API server, in the namespace of the test."""
    with services(tmp_path, nats_server) as made:

        def target(topology: str, settings: Mapping[str, Mapping[str, object]] | None = None) -> InvalidInputCell:
            return InvalidInputCell(
                made,
                kube_api,
                real_bus,
                url=nats_server,
                namespace=namespace,
                folder=tmp_path,
                topology=topology,
                settings=settings,
            )

        yield target
