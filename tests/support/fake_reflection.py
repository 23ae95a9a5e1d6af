"""Reflection of a collection of a server in memory."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Change, Handler
from tests.support.kube_rules import Place, Test, Tree

T = TypeVar("T")
_AGAIN_S = 0.01


class FakeReflection(Generic[T]):
    """Lists, then hands over what it is told.

    Args:
        place: Collection.
        kind: Struct of one object.
        handler: Takes lists and changes.
        test: Tells the objects that are looked for.
        listed: Gives all of them, or raises what the server answers; a refusal ends the run.
        group: It is in this list while it runs.
        gate: While it is not set, nothing is handed over.
    """

    def __init__(
        self,
        place: Place,
        kind: type[T],
        handler: Handler[T],
        test: Test,
        *,
        listed: Callable[[], list[Tree]],
        group: "list[FakeReflection[Any]]",
        gate: asyncio.Event,
    ) -> None:
        self.synced = asyncio.Event()
        self.lists = self.watches = self.events = self.errors = 0
        self._place = place
        self._kind = kind
        self._handler = handler
        self._test = test
        self._listed = listed
        self._group = group
        self._gate = gate
        self._news = asyncio.Event()
        self._changes: list[tuple[Change, Tree]] = []
        self._is_listing = True

    async def run(self) -> None:
        self._group.append(self)
        self.relist()
        try:
            while True:
                await self._news.wait()
                await self._gate.wait()
                self._news.clear()
                try:
                    self._hand_over()
                except TransientError:
                    self.errors += 1
                    await asyncio.sleep(_AGAIN_S)
                    self.relist()
        finally:
            self._group.remove(self)

    def relist(self) -> None:
        """List again."""
        self._is_listing = True
        self._news.set()

    def see(self, place: Place, old: Tree | None, new: Tree | None) -> None:
        """Keep a change for the handler: what it means for those objects that are looked for."""
        if (place.root, place.plural) != (self._place.root, self._place.plural):
            return
        if self._place.namespace not in {"", place.namespace}:
            return
        if new is not None and self._test(new):
            self._changes.append(("MODIFIED" if old is not None and self._test(old) else "ADDED", new))
        elif old is not None and self._test(old):
            version = (new or old)["metadata"]["resourceVersion"]
            self._changes.append(("DELETED", {**old, "metadata": {**old["metadata"], "resourceVersion": version}}))
        self._news.set()

    def _hand_over(self) -> None:
        changes, self._changes = self._changes, []
        if self._is_listing:
            self.lists += 1
            found = self._listed()
            self._is_listing = False
            self.watches += 1
            self._handler.replace([decoded(item, self._kind) for item in found])
            self.synced.set()
        elif changes:
            self.events += len(changes)
            self._handler.change([(change, decoded(item, self._kind)) for change, item in changes])


def decoded(found: object, kind: type[T]) -> T:
    """A tree as a struct, by way of JSON as on the wire."""
    return msgspec.json.decode(msgspec.json.encode(found), type=kind)
