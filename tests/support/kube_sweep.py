"""Leaves the cluster after a test as it was before."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from tests.support.kube_api import KubeApi, RefusedError
from tests.support.waiting import until_true

_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"
_WORKLOADS: Final = (
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/replicasets",
    "/apis/batch/v1/jobs",
)
_OTHERS: Final = (
    "/api/v1/configmaps",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    "/apis/scheduling.k8s.io/v1alpha2/workloads",
)
_EVENTS_IN: Final = ("default", "kube-system")
"""Namespaces of Events about what belongs to no test's own namespace: nodes, config maps of the system."""
_OF_THE_SYSTEM: Final = re.compile(r"/kube-root-ca\.crt$|/(cluster)?role(binding)?s/system:")
_NAMESPACES: Final = "/api/v1/namespaces"
_OF_A_TEST: Final = re.compile(r"test-\d+\Z")
"""Namespaces that tests get."""
_NOT_FOUND: Final = 404
_GONE_S: Final = 20.0


class Sweep:
    """Takes away what a test made: workloads, pods, nodes, custom resources, roles, leases, Events, its namespace.

    Args:
        api: As an admin.
        custom: Paths of the collections of custom resources.
        kept: Paths of objects that stay, see :meth:`survey`.
    """

    def __init__(self, api: KubeApi, *, custom: Sequence[str], kept: frozenset[str] = frozenset()) -> None:
        self._api = api
        self._others = (*custom, *_OTHERS)
        self._kept = kept

    async def survey(self) -> frozenset[str]:
        """Paths of what exists now, apart from workloads, pods and nodes."""
        return frozenset([path async for path, _ in self._objects(self._others)])

    async def run(self) -> None:
        """Delete everything that shall not stay, workloads first, and wait until no pod is left."""
        await self._delete(_WORKLOADS)
        await until_true(self._no_pod_is_left, deadline_s=_GONE_S, what="all pods are gone")
        await self._api.delete(_NODES)
        await self._delete(self._others)
        for namespace in _EVENTS_IN:
            await self._api.delete(f"{_NAMESPACES}/{namespace}/events")
        for one in await self._api.items(_NAMESPACES):
            if _OF_A_TEST.match(one["metadata"]["name"]):
                await self._drop(one)

    async def _drop(self, namespace: Mapping[str, Any]) -> None:
        """Take away a namespace, and what is left in it but for kinds that nobody watches, such as its Events.

        Without its finalizer it goes at once. Otherwise a controller asks the server to delete all collections that
        there are, which takes more CPU time than many a test.
        """
        path = f"{_NAMESPACES}/{namespace['metadata']['name']}"
        await self._api.call("PUT", f"{path}/finalize", {**namespace, "spec": {"finalizers": []}})
        for _ in range(2):  # the first time the server notes that it ends
            await self._api.delete(path)
        for kind in ("configmaps", "serviceaccounts", "secrets", "services"):  # controllers made some of these
            await self._api.delete(f"{path}/{kind}")

    async def _delete(self, collections: Sequence[str]) -> None:
        async for path, one in self._objects(collections):
            if path not in self._kept and not _OF_THE_SYSTEM.search(path):
                await self._let_go(path, one)
                await self._api.delete(path)

    async def _objects(self, collections: Sequence[str]) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        for collection in collections:
            for one in await self._api.items(collection):
                yield path_of(collection, one), one

    async def _no_pod_is_left(self) -> bool:
        """Delete all pods, also those that wait for a kubelet or for a controller."""
        pods = await self._api.items(_PODS)
        for pod in pods:
            await self._let_go(path_of(_PODS, pod), pod)
        for namespace in sorted({pod["metadata"]["namespace"] for pod in pods}):
            await self._api.delete(f"/api/v1/namespaces/{namespace}/pods")
        return not pods

    async def _let_go(self, path: str, one: Mapping[str, Any]) -> None:
        """Take away finalizers, which hold the object until somebody has seen its end.

        Raises:
            RefusedError: The server refuses, and not because the object is gone.
        """
        if one["metadata"].get("finalizers"):
            try:
                await self._api.patch(path, {"metadata": {"finalizers": None}})
            except RefusedError as error:
                if error.status != _NOT_FOUND:
                    raise


def path_of(collection: str, one: Mapping[str, Any]) -> str:
    """Path of an object of a collection that spans namespaces."""
    root, _, kind = collection.rpartition("/")
    namespace = one["metadata"].get("namespace")
    return "/".join([root, *(["namespaces", namespace] if namespace else []), kind, one["metadata"]["name"]])
