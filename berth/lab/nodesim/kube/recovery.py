"""Plays the recovery service of ClusterD on an API server: PodGroups and pods in, merge patches of its own keys out.

It sees only what nodesim has made: other PodGroups and pods are those of ClusterD itself.
"""

import asyncio
from functools import partial
from typing import Any, Final, Generic, TypeVar, assert_never

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.paths import api_path
from berth.lab.nodesim.agents.recovery_service import LabelGroup, MarkPod, RecoveryEffect, RecoveryService
from berth.lab.nodesim.controllers.gang_children import GROUP_VERSION, GROUPS
from berth.lab.nodesim.kube_writes import KubeWrites
from berth.lab.nodesim.ownership import is_made
from berth.runtime.clock import Clock
from berth.runtime.kube.port import Api, Change

T = TypeVar("T", Pod, PodGroup)
_TICK_S: Final = 0.2


class RecoveryPlayer:
    """The service on an API server.

    Args:
        api: The API server.
        clock: Source of time.
        service: The service.
        writes: Where its writes go.
    """

    def __init__(self, api: Api, clock: Clock, service: RecoveryService, writes: KubeWrites) -> None:
        self._api = api
        self._clock = clock
        self._service = service
        self._writes = writes
        self._pods = _Known[Pod]()
        self._groups = _Known[PodGroup]()

    async def run(self) -> None:
        """Run until cancelled."""
        pods = self._api.reflect("/api/v1/pods", Pod, self._pods)
        groups = self._api.reflect(f"/apis/{GROUP_VERSION}/{GROUPS}", PodGroup, self._groups)
        async with asyncio.TaskGroup() as group:
            group.create_task(pods.run())
            group.create_task(groups.run())
            await pods.synced.wait()
            await groups.synced.wait()
            while True:
                found = self._service.step(self._groups.items.values(), self._pods.items.values(), self._clock.now_ms())
                for effect in found:
                    self._do(effect)
                await asyncio.sleep(_TICK_S)

    def _do(self, effect: RecoveryEffect) -> None:
        match effect:
            case LabelGroup(group, key, value):
                meta = group.metadata
                path = api_path(GROUP_VERSION, "namespaces", meta.namespace, GROUPS, meta.name)
                self._patch(meta, path, {"metadata": {"uid": meta.uid, "labels": {key: value}}})
            case MarkPod(pod, annotations, labels):
                meta = pod.metadata
                path = api_path("v1", "namespaces", meta.namespace, "pods", meta.name)
                self._patch(meta, path, {"metadata": {"uid": meta.uid, "annotations": annotations, "labels": labels}})
            case _:
                assert_never(effect)

    def _patch(self, meta: Meta, path: str, body: dict[str, Any]) -> None:
        self._writes.put(f"recovery {meta.uid}", partial(self._write, path, body), is_newest=True)

    async def _write(self, path: str, body: dict[str, Any]) -> None:
        await self._api.patch(path, body)


class _Known(Generic[T]):
    """Objects of a reflection that nodesim has made, by namespace and name."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], T] = {}

    def replace(self, objects: list[T]) -> None:
        self.items.clear()
        self.change([("ADDED", item) for item in objects])

    def change(self, changes: list[tuple[Change, T]]) -> None:
        for what, item in changes:
            key = (item.metadata.namespace, item.metadata.name)
            if what == "DELETED" or not is_made(item.metadata):
                self.items.pop(key, None)
            else:
                self.items[key] = item
