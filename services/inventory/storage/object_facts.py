"""Facts about objects, one an object: published when they differ, and once more when the object is gone. Pure."""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from berth.formats.kubernetes.lean import Meta
from berth.schemas.facts import is_repeat
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import NamespaceSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, VolumeSeen

StorageFact: TypeAlias = ClaimSeen | NamespaceSeen | StorageSeen | VolumeSeen
M = TypeVar("M", ClaimSeen, NamespaceSeen, StorageSeen, VolumeSeen)
Key: TypeAlias = tuple[str, str]
"""Namespace, empty without, and name."""


class Named(Protocol):
    """An object of Kubernetes."""

    @property
    def metadata(self) -> Meta:
        """Its metadata."""


T = TypeVar("T", bound=Named)
T_contra = TypeVar("T_contra", contravariant=True)


class Taker(Protocol[T_contra]):
    """Who takes the objects of a kind."""

    def replace(self, objects: Iterable[T_contra]) -> None:
        """Take all objects."""

    def put(self, found: T_contra) -> None:
        """Take the current state of an object."""

    def drop(self, found: T_contra) -> None:
        """Take that an object is gone."""


class ObjectTable(Generic[T]):
    """All objects of a kind, by namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[Key, T] = {}
        self.is_changed = False
        """Something changed since it was last set to false."""

    def replace(self, objects: Iterable[T]) -> None:
        """Take all objects."""
        self.objects = {key_of(one): one for one in objects}
        self.is_changed = True

    def put(self, found: T) -> None:
        """Take the current state of an object."""
        self.objects[key_of(found)] = found
        self.is_changed = True

    def drop(self, found: T) -> None:
        """Take that an object is gone."""
        self.objects.pop(key_of(found), None)
        self.is_changed = True


class ObjectFacts(Generic[T, M]):
    """Facts about the objects of one kind.

    Args:
        fact_of: Fact about an object; None when nothing is to be said of it.
        gone_of: The fact that the object of a fact is gone.
    """

    def __init__(self, fact_of: Callable[[T], M | None], gone_of: Callable[[M], M]) -> None:
        self._fact_of: Callable[[T], M | None] = fact_of
        self._gone_of: Callable[[M], M] = gone_of
        self._now: dict[Key, M] = {}
        self._published: dict[Key, M] = {}
        self._dirty: dict[Key, None] = {}

    def restore(self, published: Iterable[M]) -> None:
        """Restore the facts that earlier runs published last."""
        for fact in published:
            if not fact.gone:
                self._published[_key(fact)] = fact
                self._dirty[_key(fact)] = None

    def replace(self, objects: Iterable[T]) -> None:
        """Take all objects."""
        listed = {key_of(one): fact for one in objects if (fact := self._fact_of(one)) is not None}
        self._dirty.update(dict.fromkeys(self._now.keys() | listed.keys()))
        self._now = listed

    def put(self, found: T) -> None:
        """Take the current state of an object."""
        fact = self._fact_of(found)
        if fact is None:
            self.drop(found)
        else:
            self._now[key_of(found)] = fact
            self._dirty[key_of(found)] = None

    def drop(self, found: T) -> None:
        """Take that an object is gone."""
        self._now.pop(key_of(found), None)
        self._dirty[key_of(found)] = None

    def due(self, at_ms: UnixMs) -> list[M]:
        """Facts that differ from the published ones, in the order of namespaces and names."""
        facts: list[M] = []
        for key in sorted(self._dirty):
            now, published = self._now.get(key), self._published.get(key)
            fact = now if now is not None else self._gone_of(published) if published is not None else None
            if fact is None or is_repeat(published, fact):
                del self._dirty[key]
            else:
                facts.append(msgspec.structs.replace(fact, at_ms=at_ms))
        return facts

    def note_published(self, fact: M) -> None:
        """Note that a fact was published."""
        if fact.gone:
            self._published.pop(_key(fact), None)
        else:
            self._published[_key(fact)] = fact


def key_of(found: Named) -> Key:
    """Key of an object."""
    return (found.metadata.namespace, found.metadata.name)


def _key(fact: StorageFact) -> Key:
    return (fact.namespace if isinstance(fact, ClaimSeen) else "", fact.name)
