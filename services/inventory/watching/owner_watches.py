"""Watches of owners of gangs: a kind is watched from the first time on that an object of it was read.

So a kind that nobody uses, or that the server does not have, costs nothing. An owner is read again when the watch shows
it otherwise than it was read; of other objects nothing is kept. Where a watch is refused, and while it is late, owners
are read as without one.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from berth.formats.kubernetes.workloads.port import OwnerKey, OwnerKind, OwnerObject
from berth.formats.kubernetes.workloads.registry import kinds
from berth.runtime.kube.port import Change, Handler
from berth.services.inventory.gang_collection import Gangs

_NAMESPACES: Final = "/namespaces/"


Start: TypeAlias = Callable[[str, type[OwnerObject], Handler[OwnerObject]], Coroutine[Any, Any, None]]
"""Reflects the collection at a path until cancelled, as soon as the server lets it be listed."""


class OwnerWatches:
    """Kinds of owners that are watched.

    Args:
        gangs: Told of what the watches show.
        on_change: Called when an owner is to be read because of it.
    """

    def __init__(self, gangs: Gangs, on_change: Callable[[], None]) -> None:
        self._gangs = gangs
        self._on_change = on_change
        self._watched: dict[OwnerKind, None] = {}
        self._new: asyncio.Queue[tuple[OwnerKind, str]] = asyncio.Queue()
        """Kinds whose watch is to begin, with their paths; each comes once."""

    def need(self, key: OwnerKey, path: str) -> None:
        """Watch the kind of an owner that was read at ``path``, unless it is watched."""
        if key.kind not in self._watched:
            self._watched[key.kind] = None
            self._new.put_nowait((key.kind, _collection_of(path)))

    async def run(self, start: Start) -> None:
        """Watch the kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                kind, path = await self._new.get()
                watch = start(path, kinds().named[kind].struct, _Seen(kind, self._gangs, self._on_change))
                group.create_task(watch, name=f"reflect {kind}")


class _Seen:
    """Handler of the reflection of a kind."""

    def __init__(self, kind: OwnerKind, gangs: Gangs, on_change: Callable[[], None]) -> None:
        self._kind = kind
        self._gangs = gangs
        self._on_change = on_change

    def replace(self, objects: list[OwnerObject]) -> None:
        """Take all objects."""
        if self._gangs.replace_owners(self._kind, objects):
            self._on_change()

    def change(self, changes: list[tuple[Change, OwnerObject]]) -> None:
        """Take changes."""
        for change, one in changes:
            if self._gangs.change_owner(self._kind, one, is_gone=change == "DELETED"):
                self._on_change()


def _collection_of(path: str) -> str:
    """Collection of all namespaces that an object is in."""
    root, _, rest = path.partition(_NAMESPACES)
    return f"{root}/{rest.split('/')[1]}"
