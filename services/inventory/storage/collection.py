"""Claims, volumes, storage classes and namespaces of the cluster, and the facts about them. Pure."""

from collections.abc import Iterable

from berth.formats.kubernetes.storage import claim_of, storage_of, volume_of
from berth.formats.kubernetes.storage_objects import (
    CsiDriver,
    CsiStorageCapacity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import NamespaceSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, VolumeSeen
from berth.services.inventory.storage.object_facts import ObjectFacts, ObjectTable, StorageFact, key_of


class Storage:
    """Storage of the cluster, and its namespaces."""

    def __init__(self) -> None:
        self.namespaces: ObjectFacts[Namespace, NamespaceSeen] = ObjectFacts(
            _namespace, lambda fact: NamespaceSeen(fact.name, gone=True)
        )
        self.claims: ObjectFacts[PersistentVolumeClaim, ClaimSeen] = ObjectFacts(
            claim_of, lambda fact: ClaimSeen(fact.namespace, fact.name, gone=True)
        )
        self.volumes: ObjectFacts[PersistentVolume, VolumeSeen] = ObjectFacts(
            volume_of, lambda fact: VolumeSeen(fact.name, gone=True)
        )
        self.classes: ObjectTable[StorageClass] = ObjectTable()
        self.drivers: ObjectTable[CsiDriver] = ObjectTable()
        self.capacities: ObjectTable[CsiStorageCapacity] = ObjectTable()
        self._storages: ObjectFacts[StorageClass, StorageSeen] = ObjectFacts(
            self._storage, lambda fact: StorageSeen(fact.name, gone=True)
        )
        self._capacities: dict[str, list[CsiStorageCapacity]] = {}
        """By storage class, in the order of namespaces and names."""

    def restore(self, published: Iterable[StorageFact]) -> None:
        """Restore the facts that earlier runs published last."""
        found = list(published)
        self.namespaces.restore(fact for fact in found if isinstance(fact, NamespaceSeen))
        self.claims.restore(fact for fact in found if isinstance(fact, ClaimSeen))
        self.volumes.restore(fact for fact in found if isinstance(fact, VolumeSeen))
        self._storages.restore(fact for fact in found if isinstance(fact, StorageSeen))

    def due(self, at_ms: UnixMs) -> list[StorageFact]:
        """Facts that differ from the published ones. What claims refer to comes before them."""
        tables = (self.classes, self.drivers, self.capacities)
        if any(table.is_changed for table in tables):
            for table in tables:
                table.is_changed = False
            self._capacities = {}
            for one in sorted(self.capacities.objects.values(), key=key_of):
                self._capacities.setdefault(one.storage_class_name, []).append(one)
            self._storages.replace(self.classes.objects.values())
        return [
            *self.namespaces.due(at_ms),
            *self._storages.due(at_ms),
            *self.volumes.due(at_ms),
            *self.claims.due(at_ms),
        ]

    def note_published(self, fact: StorageFact) -> None:
        """Note that a fact was published."""
        match fact:
            case ClaimSeen():
                self.claims.note_published(fact)
            case VolumeSeen():
                self.volumes.note_published(fact)
            case StorageSeen():
                self._storages.note_published(fact)
            case NamespaceSeen():
                self.namespaces.note_published(fact)

    def _storage(self, found: StorageClass) -> StorageSeen:
        driver = self.drivers.objects.get(("", found.provisioner))
        return storage_of(
            found,
            has_capacity=driver is not None and driver.spec.storage_capacity,
            capacities=self._capacities.get(found.metadata.name, ()),
        )


def _namespace(found: Namespace) -> NamespaceSeen:
    return NamespaceSeen(found.metadata.name, dict(sorted((found.metadata.labels or {}).items())))
