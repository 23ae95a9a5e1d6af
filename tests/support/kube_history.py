"""What became of objects, version by version, as a watch sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Generic, TypeVar

from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.runtime.clock import SystemClock
from berth.runtime.kube.client import KubeApi as Client
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Change
from tests.support.kube_api import KubeApi

T = TypeVar("T", Pod, PodGroup)


class Versions(Generic[T]):
    """Versions of each object of a kind in one namespace, by name, oldest first; and the names of deleted ones."""

    def __init__(self, namespace: str) -> None:
        self.of: dict[str, list[T]] = {}
        self.gone: list[str] = []
        self.order: list[tuple[str, T]] = []
        self._namespace = namespace

    def replace(self, objects: list[T]) -> None:
        """All objects that there are."""
        for item in objects:
            self._take("ADDED", item)

    def change(self, changes: list[tuple[Change, T]]) -> None:
        """Changes, oldest first."""
        for what, item in changes:
            self._take(what, item)

    def _take(self, what: Change, item: T) -> None:
        if item.metadata.namespace != self._namespace:
            return
        if what == "DELETED":
            self.gone.append(item.metadata.name)
        else:
            self.of.setdefault(item.metadata.name, []).append(item)
            self.order.append((item.metadata.name, item))


class History:
    """Pods and PodGroups of a namespace."""

    def __init__(self, namespace: str) -> None:
        self.pods: Versions[Pod] = Versions(namespace)
        self.groups: Versions[PodGroup] = Versions(namespace)


@asynccontextmanager
async def recording(api: KubeApi, folder: Path, namespace: str) -> AsyncIterator[History]:
    """History of a namespace from now on, until the block ends."""
    history = History(namespace)
    config = KubeConfig(kubeconfig=api.server.write_kubeconfig(folder / "history"))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await Client.connect(config, clock=SystemClock()))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        pods = client.reflect("/api/v1/pods", Pod, history.pods)
        groups = client.reflect("/apis/scheduling.volcano.sh/v1beta1/podgroups", PodGroup, history.groups)
        tasks = [group.create_task(pods.run()), group.create_task(groups.run())]
        await pods.synced.wait()
        await groups.synced.wait()
        try:
            yield history
        finally:
            for task in tasks:
                task.cancel()
