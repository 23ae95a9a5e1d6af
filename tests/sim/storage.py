"""Volumes of a simulated cell: the controllers of claims and volumes, and a provisioner that makes volumes or refuses.

They are as late as the API server's watches may be, and do each step once they see that it is due: an object that has
changed meanwhile is looked at anew.
"""

from random import Random
from typing import Final

from tests.sim.kube import SimKube
from tests.sim.loop import SimLoop
from tests.support.kube_rules import Place, Tree
from tests.support.stand_in_provisioner import HOST, PROVISIONER, SELECTED, a_claim, local_volume

CLAIMS: Final = "/api/v1/namespaces/ns/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
PODS: Final = "/api/v1/namespaces/ns/pods"
KINDS: Final = ("made", "made", "made", "local", "now", "none")
"""Storage classes of claims; the last one does not exist."""
PROTECTED: Final = "kubernetes.io/pvc-protection"
_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_LATEST_S: Final = 0.3


class SimStorage:
    """See above.

    Args:
        loop: The simulation.
        kube: The API server.
        chance: Of delays and refusals.

    Attributes:
        refuses: The share of volumes that the provisioner refuses to make.
        late_s: How long it takes on top.
    """

    def __init__(self, loop: SimLoop, kube: SimKube, chance: Random) -> None:
        self.refuses = 0.25
        self.late_s = 0.0
        self._loop = loop
        self._kube = kube
        self._random = chance.random

    def begin(self, nodes: list[str]) -> None:
        """Make classes, a local volume of some nodes, and limits of the nodes."""
        for name in ("made", "local", "now"):
            body = {
                "metadata": {"name": name},
                "provisioner": "kubernetes.io/no-provisioner" if name == "local" else PROVISIONER,
                "volumeBindingMode": "Immediate" if name == "now" else "WaitForFirstConsumer",
            }
            self._kube.put(CLASSES, body)
        for number, node in enumerate(nodes):
            if number % 2:
                volume = local_volume(f"local-{node}", node)
                self._kube.put(VOLUMES, {**volume, "status": {"phase": "Available"}})
            driver = {"name": PROVISIONER, "nodeID": node, "allocatable": {"count": 1 + number % 3}}
            self._kube.put(CSI_NODES, {"metadata": {"name": node}, "spec": {"drivers": [driver]}})

    def claim(self, name: str, kind: str) -> None:
        """Make a claim, unless it is there."""
        if self._claim(name) is None:
            body = a_claim(name, kind)
            body["metadata"]["finalizers"] = [PROTECTED]
            self._kube.put(CLAIMS, {**body, "status": {"phase": "Pending"}})

    def unclaim(self, name: str) -> None:
        """Delete a claim; it is gone once no pod uses it."""
        if self._claim(name) is not None:
            self._kube.confirm(f"{CLAIMS}/{name}")

    def names(self) -> list[str]:
        """Names of all claims."""
        return [claim["metadata"]["name"] for claim in self._kube.objects(CLAIMS)]

    def changed(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        """An object changed."""
        if place.plural == "persistentvolumeclaims":
            self._soon(place.name)
        elif place.plural == "persistentvolumes":
            reference = ((new or old or {}).get("spec") or {}).get("claimRef") or {}
            if reference:
                self._soon(reference["name"])
        elif place.plural == "pods" and (new is None or "deletionTimestamp" in new["metadata"]):
            for volume in (old or {}).get("spec", {}).get("volumes") or ():
                if "persistentVolumeClaim" in volume:
                    self._soon(volume["persistentVolumeClaim"]["claimName"])

    def _soon(self, claim: str, after_s: float = 0.0) -> None:
        delay_s = after_s + 0.01 + self._random() * _LATEST_S
        self._loop.call_later(delay_s, self._look, claim, context=self._kube.lane.context)

    def _claim(self, name: str) -> Tree | None:
        return next((claim for claim in self._kube.objects(CLAIMS) if claim["metadata"]["name"] == name), None)

    def _look(self, name: str) -> None:
        """Do what is due about a claim and its volume."""
        if self._kube.is_down:
            self._soon(name, 1.0)
            return
        claim = self._claim(name)
        for volume in list(self._kube.objects(VOLUMES)):
            reference = volume["spec"].get("claimRef") or {}
            if reference.get("name") == name and (claim is None or _is_of_former(reference, claim)):
                self._let_go(volume)
        if claim is None:
            return
        if "deletionTimestamp" in claim["metadata"]:
            if not self._is_used(name):
                meta = {**claim["metadata"], "finalizers": []}
                self._kube.put(CLAIMS, {**claim, "metadata": meta})
        elif _COMPLETED not in (claim["metadata"].get("annotations") or {}):
            self._bind(claim)

    def _is_used(self, claim: str) -> bool:
        return any(
            (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim
            for pod in self._kube.objects(PODS)
            for volume in pod["spec"].get("volumes") or ()
            if pod["spec"].get("nodeName")
        )

    def _let_go(self, volume: Tree) -> None:
        """The claim of a volume is gone: a local one is free again, another one goes."""
        name = volume["metadata"]["name"]
        if volume["spec"]["storageClassName"] != "local":
            self._kube.confirm(f"{VOLUMES}/{name}")
            return
        spec = {key: value for key, value in volume["spec"].items() if key != "claimRef"}
        meta = {**volume["metadata"], "annotations": {}}
        self._kube.put(VOLUMES, {**volume, "metadata": meta, "spec": spec, "status": {"phase": "Available"}})

    def _bind(self, claim: Tree) -> None:
        meta = claim["metadata"]
        kind, node = claim["spec"]["storageClassName"], (meta.get("annotations") or {}).get(SELECTED, "")
        volume = next(
            (
                one
                for one in self._kube.objects(VOLUMES)
                if ((one["spec"].get("claimRef") or {}).get("uid")) == meta["uid"]
            ),
            None,
        )
        if volume is not None:
            self._complete(claim, volume)
        elif (kind == "made" and node) or kind == "now":
            self._loop.call_later(self.late_s, self._provision, meta["name"], context=self._kube.lane.context)

    def _provision(self, name: str) -> None:
        claim = self._claim(name)
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            return
        meta, kind = claim["metadata"], claim["spec"]["storageClassName"]
        annotations = meta.get("annotations") or {}
        node = annotations.get(SELECTED, "")
        made = f"made-{meta['uid']}"
        if any(one["metadata"]["name"] == made for one in self._kube.objects(VOLUMES)) or (kind == "made" and not node):
            return
        if kind == "made" and self._random() < self.refuses:
            left = {key: value for key, value in annotations.items() if key != SELECTED}
            self._kube.put(CLAIMS, {**claim, "metadata": {**meta, "annotations": left}})
            return
        volume = local_volume(made, node, storage_class=kind)
        if kind == "now":
            del volume["spec"]["nodeAffinity"]
        volume["spec"]["claimRef"] = {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "ns", "name": name, "uid": meta["uid"],
        }  # fmt: skip
        self._kube.put(VOLUMES, {**volume, "status": {"phase": "Pending"}})

    def _complete(self, claim: Tree, volume: Tree) -> None:
        """Bind claim and volume to one another."""
        self._kube.put(VOLUMES, {**volume, "status": {"phase": "Bound"}})
        meta = claim["metadata"]
        annotations = {**(meta.get("annotations") or {}), _COMPLETED: "yes"}
        spec = {**claim["spec"], "volumeName": volume["metadata"]["name"]}
        self._kube.put(
            CLAIMS,
            {**claim, "metadata": {**meta, "annotations": annotations}, "spec": spec, "status": {"phase": "Bound"}},
        )


def _is_of_former(reference: Tree, claim: Tree) -> bool:
    return reference.get("uid", "") not in {"", claim["metadata"]["uid"]}


__all__ = ["CLAIMS", "HOST", "KINDS", "SimStorage"]
