"""What the tests on a real API server find there: custom resources, users with rights, and what stays after a test."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from berth.lab.cells.fleet import EXAMPLES
from berth.lab.servers.kube_assets import API_SERVER, kube_assets, program_in, version_of
from berth.lab.servers.kube_server import CONTROLLERS, KubeServer
from tests.support.kube_api import KubeApi, apply_crds, crds_in
from tests.support.kube_rights import SERVICES
from tests.support.kube_sweep import Sweep

CRDS: Final = (EXAMPLES / "crds", Path(__file__).parents[1] / "kube" / "crds")
"""Those of the demo, and those that only tests need."""
SHARED_NAMESPACES: Final = ("mindx-dl", "volcano-system")
USERS: Final = ("berth", "stranger", *SERVICES)
"""Users without rights, until somebody gives them a role: see ``kube_rights``."""


_GANG_MINOR: Final = 36
"""First version whose native PodGroups tests use."""


class NativeGangs(TypedDict, total=False):
    """Arguments of a :class:`~berth.lab.servers.kube_server.KubeServer` that serves native PodGroups."""

    controllers: tuple[str, ...]
    api_args: tuple[str, ...]
    controller_args: tuple[str, ...]


def native_gangs(*gates: str) -> NativeGangs:
    """Arguments of a server that serves native PodGroups, and whose controllers see to them; none for older versions.

    Args:
        gates: More feature gates that are on.
    """
    version = asyncio.run(version_of(program_in(kube_assets(), API_SERVER)))
    if int(version.split(".")[1]) < _GANG_MINOR:
        return {}
    flag = "--feature-gates=" + ",".join(f"{gate}=true" for gate in ("GenericWorkload", "GangScheduling", *gates))
    return {
        "controllers": (*CONTROLLERS, "podgroup-protection-controller"),
        "api_args": (flag, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
        "controller_args": (flag,),
    }


@dataclass(frozen=True)
class Prepared:
    """What all tests find: paths of the collections of custom resources, and of the objects that stay."""

    custom: tuple[str, ...]
    kept: frozenset[str]


def served(server: KubeServer) -> Iterator[KubeServer]:
    """A server for a fixture: it runs until the tests that use it have ended."""
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())


def prepare(server: KubeServer, *, folders: Sequence[Path] = CRDS) -> Prepared:
    """See to it that all definitions are served, and that the namespaces are there which tests share."""

    async def make() -> Prepared:
        async with KubeApi(server) as api:
            custom = await apply_crds(api, [crd for folder in folders for crd in crds_in(folder)])
            for name in SHARED_NAMESPACES:
                await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
            return Prepared(custom, await Sweep(api, custom=custom).survey())

    return asyncio.run(make())
