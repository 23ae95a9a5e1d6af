"""A provisioner of volumes, in place of a CSI driver's: it makes a volume for the node that a claim names, or refuses.

As the external provisioner of CSI it refuses by taking the selected node off the claim. The volume controller of
Kubernetes binds claim and volume to one another.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.support.kube_api import KubeApi, RefusedError
from tests.support.waiting import pause

SELECTED: Final = "volume.kubernetes.io/selected-node"
PROVISIONER: Final = "disk.example.com"
HOST: Final = "kubernetes.io/hostname"
_PACE_S: Final = 0.02
_CONFLICT: Final = 409
_CLAIMS: Final = "/api/v1/persistentvolumeclaims"
_VOLUMES: Final = "/api/v1/persistentvolumes"
Tree = dict[str, Any]


class StandInProvisioner:
    """Makes volumes.

    Args:
        api: As an admin.

    Attributes:
        refuses: Nodes for which it refuses, by name of a claim; the empty name stands for all claims.
        holds: Nodes for which it does nothing, likewise; it does when a node is removed here.
        asked: Claims and nodes for which it was asked, in their order.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self.refuses: dict[str, set[str]] = {}
        self.holds: dict[str, set[str]] = {}
        self.asked: list[tuple[str, str]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator["StandInProvisioner"]:
        """It works as long as the context is open."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._run(), name="provisioner")
            try:
                yield self
            finally:
                task.cancel()

    async def _run(self) -> None:
        while True:
            for claim in await self._api.items(_CLAIMS):
                node = (claim["metadata"].get("annotations") or {}).get(SELECTED, "")
                is_own = claim["spec"].get("storageClassName", "").startswith("made")
                if is_own and node and not claim["spec"].get("volumeName"):
                    await self._take(claim, node)
            await pause(_PACE_S)

    async def _take(self, claim: Tree, node: str) -> None:
        name = str(claim["metadata"]["name"])
        if self.asked[-1:] != [(name, node)] and (name, node) not in self.asked:
            self.asked.append((name, node))
        if _is_in(self.holds, name, node):
            return
        try:
            if _is_in(self.refuses, name, node):
                await self._refuse(claim)
            else:
                await self._api.post(_VOLUMES, _volume(claim, node))
        except RefusedError as error:  # it was made already, or the claim has changed
            if error.status != _CONFLICT:
                raise

    async def _refuse(self, claim: Tree) -> None:
        meta = claim["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}"
        version = {"resourceVersion": meta["resourceVersion"], "annotations": {SELECTED: None}}
        await self._api.patch(path, {"metadata": version})


def _is_in(table: dict[str, set[str]], claim: str, node: str) -> bool:
    return node in table.get(claim, ()) or node in table.get("", ())


def _volume(claim: Tree, node: str) -> Tree:
    meta, spec = claim["metadata"], claim["spec"]
    name = f"made-{meta['uid']}"
    tree = local_volume(name, node, storage_class=spec["storageClassName"])
    tree["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
    tree["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return tree


def local_volume(name: str, *nodes: str, storage_class: str = "local", size: str = "1Gi") -> Tree:
    """A volume that can be used from some nodes."""
    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": list(nodes)}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": PROVISIONER, "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
        },
    }


def a_claim(name: str, storage_class: str, *, size: str = "1Gi") -> Tree:
    """A claim of a class."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": spec | {"storageClassName": storage_class}}


def mounting(*claims: str) -> Tree:
    """Fields of a pod's spec that uses claims."""
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


async def make_classes(api: KubeApi, names: Iterable[str] = ("made", "local", "now")) -> None:
    """Make storage classes: ``made`` and ``local`` wait for the first pod, ``local`` makes no volumes."""
    for name in names:
        await api.post(
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": name},
                "provisioner": "kubernetes.io/no-provisioner" if name == "local" else PROVISIONER,
                "volumeBindingMode": "Immediate" if name == "now" else "WaitForFirstConsumer",
            },
        )
