"""All processes of a cell and its Kubernetes API server; only the nodes and their agents are simulated.

Services run with the rights that ``k8s/base/rights`` grants them. The simulated cluster, which acts as kubelets and
controllers, has all rights.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from berth.cli.cluster.folded_nodes import judged_nodes
from berth.cli.output import CommandError
from berth.formats.manifests.gang_request import ManifestError
from berth.formats.yaml_documents import read_documents
from berth.lab.cells.fleet import EXAMPLES, Fleet, read_topology
from berth.lab.cells.processes import GivenUpError
from berth.lab.servers.kube_assets import API_SERVER, CONTROLLER_MANAGER, ETCD
from berth.lab.servers.kube_server import ADMIN, KubeServer
from berth.runtime.bus.port import Bus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.kube.client import KubeApi
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Api, RefusedError

RIGHTS: Final = Path(__file__).parents[3] / "k8s" / "base" / "rights"
"""Rights of each service; missing if Berth was installed without its tree."""
CRDS: Final = EXAMPLES / "crds"
NAMESPACES: Final = ("mindx-dl",)
"""Namespaces of a cluster with MindCluster."""
_USER: Final = "system:serviceaccount:berth-system:{}"
_READERS: Final = ("summary", "health", "inventory")
_WITH_RIGHTS: Final = (*_READERS, "binder")
_COLLECTIONS: Final = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}
_QUICK: Final[dict[str, dict[str, Any]]] = {
    "inventory": {"gangs": {"vanished_s": 2.0}},
    "nodesim": {
        "terminating_s": 0.2,
        "agents": {"controllers": ["volcano", "ascend"], "report_s": 0.5, "start_s": 0.2},
    },
}
"""Settings for a cluster that runs for a minute."""
PARTS: Final = (ETCD, API_SERVER, CONTROLLER_MANAGER)
_TAIL_LINES: Final = 5
_SERVED_S: Final = 30.0
_LOOK_S: Final = 0.1


class KubeFleet(Fleet):
    """The processes of a cell on Kubernetes, and of its API server.

    Args:
        root: Folder for data, settings and logs; made if missing, never removed.
        topology: File that describes the simulated cluster.
        shards: Number of scorers; with 0 the dispatcher scores. None: all services are one process.
        cell: Name of the cell.
        print_progress: Called with each line about the progress.

    Raises:
        CommandError: The programs of Kubernetes are not available.
    """

    def __init__(
        self,
        root: Path,
        *,
        topology: Path,
        shards: int | None,
        cell: str,
        print_progress: Callable[[str], None],
    ) -> None:
        super().__init__(
            root,
            topology=topology,
            shards=shards,
            cell=cell,
            print_progress=print_progress,
            is_alone=True,
        )
        self._has_rights = RIGHTS.is_dir()
        users = {_USER.format(name): _groups() for name in _WITH_RIGHTS} if self._has_rights else {}
        try:
            self.kube = KubeServer(root / "kube", users=users)
        except FatalError as error:
            raise CommandError(str(error)) from error

    async def start(self) -> None:
        """Start the API server, create the kinds and namespaces of Volcano and MindCluster, then start all others.

        Raises:
            CommandError: As of the base, or the API server does not start.
        """
        read_topology(self._topology)
        try:
            await self.kube.start()
        except FatalError as error:
            raise CommandError(*str(error).splitlines()) from error
        self._print_progress(f"kube-apiserver {self.kube.version} is ready")
        if not self._has_rights:
            self._print_progress(f"{RIGHTS} is not there: all services run as {ADMIN}")
        async with await self.connect() as api:
            await prepare(api, has_rights=self._has_rights)
        await super().start()

    async def stop(self) -> None:
        """Stop the services in order, then both servers."""
        try:
            await super().stop()
        finally:
            await self.kube.stop()

    async def connect(self) -> KubeApi:
        """A connection to the API server, as its admin."""
        kubeconfig = self.kube.write_kubeconfig(self.root / "kubeconfig" / ADMIN)
        config = KubeConfig(kubeconfig=kubeconfig)
        return await KubeApi.connect(config, clock=SystemClock(), user_agent="berth-demo")

    def _services(self) -> list[tuple[str, str, dict[str, Any]]]:
        # Services that write to the cluster are stopped first, then the dispatcher, then readers, then the cluster.
        found: list[tuple[str, str, dict[str, Any]]] = [("api", "api", {})]
        found += [("binder", "binder", self._settings("binder")), *self._scorers()]
        found.append(("dispatcher", "dispatcher", {"shards": self._shards, "decisions": {"needs_health": True}}))
        found += [(name, name, self._settings(name)) for name in _READERS]
        nodesim = self._settings("nodesim", ADMIN) | {"topology_file": self._topology.resolve()}
        return [*found, ("nodesim", "nodesim", nodesim)]

    def _settings(self, service: str, user: str = "") -> dict[str, Any]:
        name = user or (_USER.format(service) if self._has_rights else ADMIN)
        kubeconfig = self.kube.write_kubeconfig(self.root / "kubeconfig" / service, user=name)
        return {"kube": {"kubeconfig": kubeconfig.resolve()}, **_QUICK.get(service, {})}

    async def _is_ready(self, bus: Bus) -> bool:
        """In addition to the base: the health of every node is published."""
        if not await super()._is_ready(bus):
            return False
        try:
            result = await judged_nodes(bus)
        except TransientError:
            return False
        return sum(judged.condition.updated_ms > 0 for judged in result.values()) >= self.nodes

    async def _restart_server_if_ended(self) -> None:
        await super()._restart_server_if_ended()
        for name in PARTS:
            if name not in self.kube.pids:
                lines = self.kube.log_path(name).read_text("utf-8", errors="replace").splitlines()
                raise GivenUpError("\n".join([f"{name} ended; the end of its log:", *lines[-_TAIL_LINES:]]))


async def prepare(api: Api, *, has_rights: bool) -> None:
    """Create the namespaces, kinds and rights that a cell needs, and wait until the kinds are served.

    Args:
        api: A new API server.
        has_rights: Grant the rights of ``k8s/base/rights``.

    Raises:
        CommandError: A kind is not served in time.
    """
    for namespace in NAMESPACES:
        await api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    crds = _objects(CRDS)
    for body in [*crds, *(_objects(RIGHTS) if has_rights else [])]:
        namespace = body["metadata"].get("namespace", "")
        await api.create(_COLLECTIONS[body["kind"]].format(namespace=namespace), body)
    try:
        async with asyncio.timeout(_SERVED_S):
            for crd in crds:
                spec = crd["spec"]
                version = f"{spec['group']}/{spec['versions'][0]['name']}"
                while not await _is_served(api, version, spec["names"]["plural"]):  # noqa: ASYNC110  # the server has no notification
                    await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise CommandError(f"the API server does not serve its custom resources after {_SERVED_S:g} s") from error


def _groups() -> Sequence[str]:
    return ("system:serviceaccounts", "system:serviceaccounts:berth-system")


def _objects(folder: Path) -> list[dict[str, Any]]:
    """Objects in the files of a folder, in order of their names."""
    return [
        tree.mapping()
        for file in sorted(folder.glob("*.yaml"))
        for tree in read_documents(file.read_text("utf-8"), ManifestError)
    ]


async def _is_served(api: Api, group_version: str, plural: str) -> bool:
    try:
        return await api.serves(group_version, plural)
    except (TransientError, RefusedError):
        return False
