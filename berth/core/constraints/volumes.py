"""Volumes: claims, volumes and storage classes as facts show them, and the nodes that they leave to a pod.

The rules are those of kube-scheduler's plug-ins VolumeBinding, VolumeRestrictions and NodeVolumeLimits for
PersistentVolumeClaims; which volume a claim gets is chosen as there: the smallest that suits, ties by name.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.selectors import selects
from berth.core.constraints.topology import Topology
from berth.schemas.facts import is_repeat
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, UnboundSeen, VolumeSeen

K = TypeVar("K", ClaimName, str)
F = TypeVar("F", ClaimSeen, VolumeSeen, StorageSeen, UnboundSeen)
Disk = tuple[str, str]
"""CSI driver, and identity of a volume for it."""
_ONCE_POD: Final = "ReadWriteOncePod"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class ClaimVolumes(NamedTuple):
    """What a claim needs of a node."""

    rows: Fits
    """Nodes from which its volume can be used, or for which one can be made, shape (rows,)."""
    choices: Sequence[VolumeSeen] = ()
    """Free volumes that suit it, the smallest first; each pod needs one of its own."""


class Volumes:
    """Facts about volumes."""

    def __init__(self) -> None:
        self.claims: dict[ClaimName, ClaimSeen] = {}
        self.volumes: dict[str, VolumeSeen] = {}
        self.storage: dict[str, StorageSeen] = {}
        self._failures: dict[ClaimName, UnboundSeen] = {}

    def apply(self, fact: ClaimSeen | VolumeSeen | StorageSeen | UnboundSeen) -> bool:
        """Take over a fact; returns whether it says something else than the one before, its time left out."""
        match fact:
            case ClaimSeen():
                return _put(self.claims, ClaimName(fact.namespace, fact.name), fact, is_there=not fact.gone)
            case VolumeSeen():
                return _put(self.volumes, fact.name, fact, is_there=not fact.gone)
            case StorageSeen():
                return _put(self.storage, fact.name, fact, is_there=not fact.gone)
            case UnboundSeen():
                name = ClaimName(fact.namespace, fact.name)
                return _put(self._failures, name, fact, is_there=has_failed(fact))

    @property
    def is_known(self) -> bool:
        """Whether any such fact is there."""
        return bool(self.claims or self.volumes or self.storage)

    def is_exclusive(self, name: ClaimName) -> bool:
        """Whether one pod alone may use a claim."""
        claim = self.claims.get(name)
        return claim is not None and _ONCE_POD in claim.access

    def is_leaving(self, name: ClaimName) -> bool:
        """Whether a claim is being deleted: it is there while pods use it, and takes no further one."""
        claim = self.claims.get(name)
        return claim is not None and claim.deleting

    def waits(self, name: ClaimName) -> bool:
        """Whether the volume of a claim is chosen when a pod is placed, and is not chosen yet."""
        return self.is_open(name) and not self.claims[name].selected_node

    def is_open(self, name: ClaimName) -> bool:
        """Whether a claim is not bound, and is bound when a pod is placed that uses it."""
        claim = self.claims.get(name)
        if claim is None or claim.phase != "pending" or claim.volume:
            return False
        storage = self.storage.get(claim.storage_class)
        return storage is not None and storage.waits

    def failure(self, name: ClaimName) -> UnboundSeen | None:
        """With what a claim could not be bound; None for nothing, and for a claim of the name that is another one."""
        found, claim = self._failures.get(name), self.claims.get(name)
        return found if found is not None and claim is not None and found.uid == claim.uid else None

    def obstacle(self, name: ClaimName) -> str:
        """What a claim would have to be for a pod to use it, if none can whatever the node; empty otherwise."""
        claim = self.claims.get(name)
        if claim is None:
            return "one that exists"
        if claim.deleting:
            return "one that is not being deleted"
        if claim.phase == "lost":
            return "one that has not lost its volume"
        if claim.phase == "bound":
            return "" if claim.volume in self.volumes else "one whose volume exists"
        return "" if self.is_open(name) else "one that is bound, or whose StorageClass waits for the first pod"

    def disk(self, name: ClaimName) -> Disk | None:
        """What a claim attaches to a node; None when that counts against no limit."""
        claim = self.claims.get(name)
        if claim is None:
            return None
        if claim.phase == "bound":
            volume = self.volumes.get(claim.volume)
            return (volume.driver, volume.handle) if volume is not None and volume.driver else None
        storage = self.storage.get(claim.storage_class)
        if storage is None or storage.provisioner in {"", _NO_PROVISIONER}:
            return None
        return storage.provisioner, f"{name.namespace}/{name.name}"

    def of_claim(self, name: ClaimName, topology: Topology, *, skips_failed: bool = False) -> ClaimVolumes:
        """Nodes that a claim leaves to a pod.

        Args:
            name: The claim.
            topology: The nodes.
            skips_failed: Leave out nodes and volumes with which it could not be bound.
        """
        nowhere = ClaimVolumes(np.zeros(topology.rows, np.bool_))
        claim = self.claims.get(name)
        if claim is None or claim.deleting or claim.phase == "lost":
            return nowhere
        if claim.phase == "bound":
            volume = self.volumes.get(claim.volume)
            return nowhere if volume is None else ClaimVolumes(topology.matching(tuple(volume.affinity)))
        storage = self.storage.get(claim.storage_class)
        if claim.volume or storage is None or not storage.waits:
            return nowhere  # it is bound without regard to pods, and is not bound yet
        failure = self.failure(name) if skips_failed else None
        made = self._provisioned(claim, storage, topology)
        for node in failure.nodes if failure is not None else ():
            made &= ~topology.named(node)
        if claim.selected_node:
            return ClaimVolumes(made & topology.named(claim.selected_node))
        return ClaimVolumes(made, self._choices(name, claim, failure.volumes if failure is not None else ()))

    def _provisioned(self, claim: ClaimSeen, storage: StorageSeen, topology: Topology) -> Fits:
        """Nodes for which a volume can be made."""
        if storage.provisioner in {"", _NO_PROVISIONER}:
            return np.zeros(topology.rows, np.bool_)
        found = topology.matching(tuple(storage.topologies))
        if storage.has_capacity:
            reached = np.zeros(topology.rows, np.bool_)
            for part in storage.capacities:
                if (part.volume_max or part.capacity) >= claim.size:
                    reached |= topology.selected(part.nodes)
            found = found & reached
        return found

    def _choices(self, name: ClaimName, claim: ClaimSeen, without: Sequence[str]) -> list[VolumeSeen]:
        """Volumes that may be bound to a claim, the smallest first; ones that are reserved for it exclude all others.

        Access modes and labels of a reserved volume do not count, as for kube-scheduler.
        """
        suits = [
            volume
            for volume in self.volumes.values()
            if not volume.deleting
            and volume.name not in without
            and volume.storage_class == claim.storage_class
            and volume.size >= claim.size
            and volume.mode == claim.mode
        ]
        kept = [volume for volume in suits if volume.claim == name and volume.claim_uid in {"", claim.uid}]
        free = (
            volume
            for volume in suits
            if volume.claim is None
            and set(claim.access) <= set(volume.access)
            and (claim.selector is None or selects(claim.selector, volume.labels))
        )
        return sorted(kept or free, key=lambda volume: (volume.size, volume.name))


def has_failed(fact: UnboundSeen) -> bool:
    """Whether a fact reports a failure; it takes former ones back otherwise."""
    return bool(fact.nodes or fact.volumes)


def disks_of(names: Iterable[ClaimName], volumes: Volumes) -> dict[Disk, None]:
    """What claims attach to a node, each once."""
    return dict.fromkeys(disk for name in names if (disk := volumes.disk(name)) is not None)


def _put(table: dict[K, F], key: K, fact: F, *, is_there: bool) -> bool:
    before = table.get(key)
    if not is_there:
        table.pop(key, None)
        return before is not None
    table[key] = fact
    return not is_repeat(before, fact)
