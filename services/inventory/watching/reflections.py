"""Reflections of kinds that the server may not have, or may not show."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from berth.formats.kubernetes.objects import PODGROUP_VERSION, PodGroup
from berth.formats.kubernetes.paths import api_path
from berth.runtime.backoff import RETRY_FIRST_S, Backoff
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.kube.port import Api, Change, Handler, RefusedError
from berth.runtime.logs import Logger
from berth.runtime.waits import pause
from berth.services.inventory.config import InventoryConfig

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taking(Generic[T]):
    """Handler of a reflection made of two functions."""

    replaced: Callable[[list[T]], None]
    changed: Callable[[list[tuple[Change, T]]], None]

    def replace(self, objects: list[T]) -> None:
        """Take all objects."""
        self.replaced(objects)

    def change(self, changes: list[tuple[Change, T]]) -> None:
        """Take changes."""
        self.changed(changes)


async def serves(api: Api, config: InventoryConfig, kind: tuple[str, str], stop: asyncio.Event, log: Logger) -> bool:
    """Whether the server has a kind; asks until it says so, or until ``stop`` is set."""
    while True:
        try:
            return await api.serves(*kind)
        except TransientError as error:
            wait_s = max(RETRY_FIRST_S, error.retry_after_s)
        except PoisonError as error:
            log.warning("cannot ask for a kind, will ask again", kind="/".join(kind), reason=error.reason)
            wait_s = config.kinds_retry_s
        if await pause(stop, wait_s):
            return False


async def reflect_groups(
    api: Api, config: InventoryConfig, handler: Handler[PodGroup], known: asyncio.Event, log: Logger
) -> None:
    """Reflect PodGroups as soon as the server has them; ``known`` is set once they are listed, or there are none."""
    while True:
        wait_s = RETRY_FIRST_S
        try:
            if await api.serves(PODGROUP_VERSION, "podgroups"):
                break
            known.set()
            wait_s = config.kinds_retry_s
        except TransientError as error:
            wait_s = max(wait_s, error.retry_after_s)
        except PoisonError as error:
            log.warning("cannot ask for PodGroups", reason=error.reason)
            known.set()
            wait_s = config.kinds_retry_s
        await asyncio.sleep(wait_s)
    reflection = api.reflect(api_path(PODGROUP_VERSION, "podgroups"), PodGroup, handler)
    async with asyncio.TaskGroup() as group:
        group.create_task(reflection.run(), name="reflect")
        await reflection.synced.wait()
        known.set()


async def reflect_if_allowed(
    api: Api,
    config: InventoryConfig,
    log: Logger,
    path: str,
    kind: type[T],
    handler: Handler[T],
    known: asyncio.Event | None = None,
) -> None:
    """Reflect a kind that the server may not have, or may refuse; ``known`` is set once it is listed or refused."""
    known = known or asyncio.Event()
    backoff = Backoff(max_s=config.kinds_retry_s)
    reflection = api.reflect(path, kind, handler, is_optional=True)
    tries = 0
    while True:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(reflection.run(), name="reflect")
                await reflection.synced.wait()
                known.set()
        except* RefusedError as refused:
            if not tries:
                log.warning("kind cannot be read, continuing without it", path=path, reason=str(refused.exceptions[0]))
            known.set()
        tries += 1
        await asyncio.sleep(backoff.pause_s(tries))
