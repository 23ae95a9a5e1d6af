"""A generated cluster on an API server: made there, read back as the server keeps it, and taken away."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from tests.support.constraint_clusters import NAMESPACES, ClusterObjects
from tests.support.kube_api import KubeApi, RefusedError

Tree = dict[str, Any]

CLUSTER_KINDS: Final = (
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/csinodes",
)
NAMESPACED_KINDS: Final = ("/api/v1/pods", "/api/v1/persistentvolumeclaims")
CAPACITIES: Final = "/apis/storage.k8s.io/v1/csistoragecapacities"
NAMESPACE_LIST: Final = "/api/v1/namespaces"
_STATUS_WITH_THE_OBJECT: Final = "/api/v1/nodes"
_NOT_FOUND: Final = 404


class Seen(NamedTuple):
    """All objects of a cluster, by path of the list over all namespaces."""

    lists: Mapping[str, list[Tree]]

    def of(self, path: str) -> list[Tree]:
        return self.lists[path]


class ConstraintWorld:
    """A generated cluster. Entered, it is on the server; left, it is gone. The namespaces stay.

    Args:
        api: As an admin.
        cluster: What to make.
    """

    def __init__(self, api: KubeApi, cluster: ClusterObjects) -> None:
        self._api = api
        self._cluster = cluster

    async def __aenter__(self) -> Self:
        await self.clear()
        for name, labels in self._cluster.namespaces.items():
            if await self._api.status_of("GET", f"{NAMESPACE_LIST}/{name}") == _NOT_FOUND:
                await self._api.post(NAMESPACE_LIST, {"metadata": {"name": name}})
            await self._api.patch(f"{NAMESPACE_LIST}/{name}", {"metadata": {"labels": labels}})
        for path, tree in self._cluster.objects:
            await self._make(path, tree)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.clear()

    @property
    def waiting_pods(self) -> str:
        """Path of the pods that wait."""
        return f"/api/v1/namespaces/{NAMESPACES[0]}/pods"

    async def add_waiting(self) -> None:
        """Make the pods that ask for a place."""
        for waiting in self._cluster.waiting:
            await self._api.post(self.waiting_pods, waiting.pod)

    async def seen(self) -> Seen:
        """All objects as the server keeps them."""
        paths = (*CLUSTER_KINDS, *NAMESPACED_KINDS, CAPACITIES, NAMESPACE_LIST)
        return Seen({path: await self._api.items(path) for path in paths})

    async def clear(self) -> None:
        """Take everything away but the namespaces."""
        for namespace in (*NAMESPACES, "default"):
            for kind in ("pods", "persistentvolumeclaims", "csistoragecapacities"):
                root = "/apis/storage.k8s.io/v1" if kind.startswith("csi") else "/api/v1"
                await self._empty(f"{root}/namespaces/{namespace}/{kind}")
        for path in CLUSTER_KINDS:
            await self._empty(path)

    async def _empty(self, path: str) -> None:
        """Delete all objects of a collection, those with finalizers too.

        Raises:
            RefusedError: The server refuses, and not because there is no such namespace.
        """
        try:
            await self._api.delete(path)
        except RefusedError as error:
            if error.status != _NOT_FOUND:
                raise
        for one in await self._api.items(path):
            await self._api.patch(f"{path}/{one['metadata']['name']}", {"metadata": {"finalizers": None}})
            await self._api.delete(f"{path}/{one['metadata']['name']}")

    async def _make(self, path: str, tree: Tree) -> None:
        """Make an object, then its status, then begin its deletion if it has a finalizer."""
        made = await self._api.post(path, tree)
        own = f"{path}/{made['metadata']['name']}"
        if "status" in tree and path != _STATUS_WITH_THE_OBJECT:
            await self._api.patch(f"{own}/status", {"status": tree["status"]})
        if tree["metadata"].get("finalizers"):
            await self._api.delete(own)
