"""Watches of owners of gangs: a kind is watched from the first time on that an object of it was read.

So a kind that nobody uses, or that the server does not have, costs nothing. An owner is read again when the watch shows
it otherwise than it was read; of other objects nothing is kept.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from berth.formats.kubernetes.owners import OWNER_TYPES, OwnerKey, OwnerKind, OwnerObject
from berth.runtime.kube.port import Change, Handler

_NAMESPACES: Final = "/namespaces/"
_NOT_WATCHED: Final[frozenset[OwnerKind]] = frozenset({"ReplicaSet"})
"""Most of them belong to nobody whom Berth serves, and their statuses change with each of their pods."""


class Start(Protocol):
    """Reflects a collection until cancelled, as soon as the server lets it be listed."""

    def __call__(self, path: str, kind: type[OwnerObject], handler: Handler[OwnerObject]) -> Coroutine[Any, Any, None]:
        """See the class."""


class OwnerWatches:
    """Kinds of owners that are watched.

    Args:
        see: Called with each object that a watch shows, by its kind, and whether it is gone.
    """

    def __init__(self, see: Callable[[OwnerKind, OwnerObject, bool], None]) -> None:
        self._see = see
        self._paths: dict[OwnerKind, str] = {}
        self._news = asyncio.Event()

    def need(self, key: OwnerKey, path: str) -> None:
        """Watch the kind of an owner that was read at ``path``, unless it is watched."""
        if key.kind not in self._paths and key.kind not in _NOT_WATCHED:
            self._paths[key.kind] = _collection_of(path)
            self._news.set()

    async def run(self, start: Start) -> None:
        """Watch the kinds until cancelled."""
        watched: set[OwnerKind] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                await self._news.wait()
                self._news.clear()
                for kind in self._paths.keys() - watched:
                    watched.add(kind)
                    watch = start(self._paths[kind], OWNER_TYPES[kind], _Seen(kind, self._see))
                    group.create_task(watch, name=f"reflect {kind}")


class _Seen:
    """Handler of the reflection of a kind."""

    def __init__(self, kind: OwnerKind, see: Callable[[OwnerKind, OwnerObject, bool], None]) -> None:
        self._kind = kind
        self._see = see

    def replace(self, objects: list[OwnerObject]) -> None:
        """Take all objects; those that are not among them are read again in time, by whoever needs them."""
        for one in objects:
            self._see(self._kind, one, False)  # noqa: FBT003  # as the type says

    def change(self, changes: list[tuple[Change, OwnerObject]]) -> None:
        """Take changes."""
        for change, one in changes:
            self._see(self._kind, one, change == "DELETED")


def _collection_of(path: str) -> str:
    """Collection of all namespaces that an object is in."""
    root, _, rest = path.partition(_NAMESPACES)
    return f"{root}/{rest.split('/')[1]}"
