"""What constraints of pods depend on beside nodes and chips: read from the API server, published as facts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from berth.formats.kubernetes.storage_objects import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from berth.runtime.kube.port import Api, Change, Reflection
from berth.schemas.subjects import Subjects
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, VolumeSeen
from berth.services.inventory.namespace_queues import NamespaceQueues
from berth.services.inventory.publishing.publish_queue import PublishQueue
from berth.services.inventory.storage.collection import Storage
from berth.services.inventory.storage.object_facts import StorageFact, Taker
from berth.services.inventory.usage.collection import Usage

T = TypeVar("T")
STORAGE: Final = "/apis/storage.k8s.io/v1"
CAPACITIES: Final = ("storage.k8s.io/v1", "csistoragecapacities")
"""A kind that servers before 1.24 do not have; without it there are no capacities."""


@dataclass(frozen=True, slots=True)
class TakingEach(Generic[T]):
    """Handler of a reflection that hands over one object at a time.

    Attributes:
        taker: Who takes the objects.
        changed: Called after them.
    """

    taker: Taker[T]
    changed: Callable[[], None]

    def replace(self, objects: list[T]) -> None:
        """Take all objects."""
        self.taker.replace(objects)
        self.changed()

    def change(self, changes: list[tuple[Change, T]]) -> None:
        """Take changes."""
        for change, found in changes:
            if change == "DELETED":
                self.taker.drop(found)
            else:
                self.taker.put(found)
        self.changed()


class ConstraintFacts:
    """Usage of nodes, storage of the cluster, and its namespaces.

    Args:
        changed: Called when there may be something to publish.
        take_queues: Takes the queue of each namespace that names one.
    """

    def __init__(self, changed: Callable[[], None], take_queues: Callable[[Mapping[str, str]], None]) -> None:
        self.usage = Usage()
        self.storage = Storage()
        self._changed = changed
        self._namespaces = NamespaceQueues(self.storage.namespaces, take_queues)

    def restore(self, usage: Iterable[UsageSeen], storage: Iterable[StorageFact]) -> None:
        """Restore the facts that earlier runs published last."""
        self.usage.restore(usage)
        self.storage.restore(storage)

    def reflections(self, api: Api, *, has_capacities: bool) -> list[Reflection]:
        """Reflections of all kinds; ``has_capacities`` states whether the server has :data:`CAPACITIES`."""

        def of(path: str, kind: type[T], taker: Taker[T]) -> Reflection:
            return api.reflect(path, kind, TakingEach(taker, self._changed))

        storage = self.storage
        found = [
            of("/api/v1/namespaces", Namespace, self._namespaces),
            of("/api/v1/persistentvolumeclaims", PersistentVolumeClaim, storage.claims),
            of("/api/v1/persistentvolumes", PersistentVolume, storage.volumes),
            of(f"{STORAGE}/storageclasses", StorageClass, storage.classes),
            of(f"{STORAGE}/csidrivers", CsiDriver, storage.drivers),
            of(f"{STORAGE}/csinodes", CsiNode, self.usage.volume_limits),
        ]
        if has_capacities:
            found.append(of(f"{STORAGE}/csistoragecapacities", CsiStorageCapacity, storage.capacities))
        return found

    async def publish(
        self, queue: PublishQueue, subjects: Subjects, domain_of: Mapping[str, str], at_ms: UnixMs
    ) -> bool:
        """Publish what is new; returns whether all of it was stored."""
        storage = self.storage.due(at_ms)
        if not await queue.publish(storage, lambda fact: _subject(subjects, fact), self.storage.note_published):
            return False
        usage = self.usage.due(domain_of, at_ms)
        return await queue.publish(usage, lambda seen: subjects.fact_usage(seen.domain), self.usage.note_published)


def _subject(subjects: Subjects, fact: StorageFact) -> str:
    match fact:
        case ClaimSeen():
            return subjects.fact_claim(fact.namespace, fact.name)
        case VolumeSeen():
            return subjects.fact_volume(fact.name)
        case StorageSeen():
            return subjects.fact_storage(fact.name)
        case NamespaceSeen():
            return subjects.fact_namespace(fact.name)
