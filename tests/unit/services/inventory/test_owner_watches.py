"""Watches of owners: one for each kind of which an object was read, in the version in which it was."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from berth.formats.kubernetes.owners import OwnerKey, OwnerKind, OwnerObject, StatefulSet
from berth.runtime.kube.port import Handler
from berth.services.inventory.owner_watches import OwnerWatches
from tests.support.waiting import until


class Watched:
    """Reflections that were begun, and what was seen."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler[OwnerObject]] = {}
        self.seen: list[tuple[OwnerKind, str, bool]] = []
        self.watches = OwnerWatches(lambda kind, one, is_gone: self.seen.append((kind, one.metadata.name, is_gone)))

    async def start(self, path: str, kind: type[OwnerObject], handler: Handler[OwnerObject]) -> None:
        assert kind is not None
        assert path not in self.handlers
        self.handlers[path] = handler
        await asyncio.Event().wait()


@asynccontextmanager
async def watching() -> AsyncIterator[Watched]:
    found = Watched()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(found.watches.run(found.start), name="watches")
        yield found
        task.cancel()


def a_set(name: str) -> StatefulSet:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns"}, "spec": {}}, StatefulSet)


async def test_a_kind_is_watched_once_in_all_namespaces_and_replica_sets_never() -> None:
    apps, other = "/apis/apps/v1", "/apis/ray.io/v1alpha1"
    async with watching() as watched:
        for name in "ab":
            watched.watches.need(OwnerKey("StatefulSet", "ns", name), f"{apps}/namespaces/ns/statefulsets/{name}")
            watched.watches.need(OwnerKey("ReplicaSet", "ns", name), f"{apps}/namespaces/ns/replicasets/{name}")
        watched.watches.need(OwnerKey("RayCluster", "x", "r"), f"{other}/namespaces/x/rayclusters/r")
        paths = [f"{apps}/statefulsets", f"{other}/rayclusters"]
        await until(lambda: sorted(watched.handlers) == paths, deadline_s=5, what="two watches")


async def test_all_that_a_watch_shows_is_passed_on() -> None:
    async with watching() as watched:
        watched.watches.need(OwnerKey("StatefulSet", "ns", "a"), "/apis/apps/v1/namespaces/ns/statefulsets/a")
        await until(lambda: watched.handlers, deadline_s=5, what="a watch")
        (handler,) = watched.handlers.values()
        handler.replace([a_set("a")])
        handler.change([("MODIFIED", a_set("a")), ("DELETED", a_set("b"))])
    assert watched.seen == [("StatefulSet", "a", False), ("StatefulSet", "a", False), ("StatefulSet", "b", True)]
