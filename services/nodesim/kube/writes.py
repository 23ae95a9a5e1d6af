"""Writes to the API server: several at once, one at a time for each object, each retried until it is answered."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from berth.formats.kubernetes.paths import sub_path
from berth.runtime.backoff import Backoff
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Api, RefusedError
from berth.runtime.logs import Logger

Write: TypeAlias = Callable[[], Awaitable[None]]
"""A write that may be repeated."""

_STALE: Final = frozenset({404, 409})
"""Status codes for an object that is gone or was replaced."""
_FORBIDDEN: Final = 403
_FORBIDDEN_MAX_S: Final = 30.0
"""A write forbidden for this long counts as refused. A server that has just started may not know the roles yet."""


class KubeWrites:
    """Queue of writes.

    Args:
        at_once: Maximum number of concurrent writes.
        backoff: Pauses while the server does not answer.
        log: Logger of the service.
        forbidden_max_s: How long a write may be forbidden before it counts as refused.
    """

    def __init__(
        self,
        *,
        at_once: int,
        backoff: Backoff,
        log: Logger,
        forbidden_max_s: float = _FORBIDDEN_MAX_S,
    ) -> None:
        self._at_once = at_once
        self._backoff = backoff
        self._forbidden_max_s = forbidden_max_s
        self._waiting: dict[str, deque[Write]] = {}
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._log = log
        self.done = 0
        self.refused = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, key: str, write: Write, *, is_newest: bool = False) -> None:
        """Add a write of an object.

        Args:
            key: The object.
            write: The write.
            is_newest: It replaces the object's writes that have not started.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = deque([write])
            self._ready.put_nowait(key)
            return
        while is_newest and len(waiting) > 1:
            waiting.pop()
        waiting.append(write)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            waiting = self._waiting[key]
            try:
                await retry_until_answered(
                    waiting[0],
                    backoff=self._backoff,
                    log=self._log,
                    forbidden_max_s=self._forbidden_max_s,
                )
                self.done += 1
            except RefusedError as error:
                self.refused += 1
                if error.status not in _STALE:
                    self._log.error("write refused", object=key, status=error.status, reason=str(error))
            waiting.popleft()
            if waiting:
                self._ready.put_nowait(key)
            else:
                del self._waiting[key]


async def retry_until_answered(
    write: Write, *, backoff: Backoff, log: Logger, forbidden_max_s: float = _FORBIDDEN_MAX_S
) -> None:
    """Repeat a write until the server answers it.

    Raises:
        RefusedError: The server refuses.
    """
    clock_s = asyncio.get_running_loop().time
    give_up_s: float | None = None
    tries = 0
    while True:
        tries += 1
        wait_s = backoff.pause_s(tries)
        try:
            return await write()
        except TransientError as error:
            log.warning("server did not answer", reason=error.reason, wait_s=wait_s)
        except RefusedError as error:
            give_up_s = clock_s() + forbidden_max_s if give_up_s is None else give_up_s
            if error.status != _FORBIDDEN or clock_s() >= give_up_s:
                raise
            log.warning("write forbidden, retrying", reason=str(error), wait_s=wait_s)
        await asyncio.sleep(wait_s)


async def put_object(api: Api, collection: str, body: dict[str, Any]) -> None:
    """Update an object, or create it.

    Raises:
        RefusedError: The server refuses both.
        TransientError: The server did not answer.
    """
    path = sub_path(collection, body["metadata"]["name"])
    try:
        await api.update(path, body)
    except RefusedError as error:
        if not error.is_absent:
            raise
        try:
            await api.create(collection, body)
        except RefusedError as other:
            if other.cause != "AlreadyExists":
                raise
            await api.update(path, body)


async def make_object(api: Api, collection: str, body: dict[str, Any]) -> bool:
    """Create an object unless one of the name exists; returns whether it was created.

    Raises:
        RefusedError: The server refuses.
        TransientError: The server did not answer.
    """
    try:
        await api.create(collection, body)
    except RefusedError as error:
        if not error.is_conflict:
            raise
        return False
    return True
