"""Writes to the API server: several at once, one at a time for each object, each retried until it is answered."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from berth.formats.kubernetes.paths import sub_path
from berth.lab.nodesim.ownership import MADE_BY, Owned, is_made, marked
from berth.runtime.backoff import Backoff
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Api, PatchKind, RefusedError
from berth.runtime.logs import Logger

Write: TypeAlias = Callable[[], Awaitable[None]]
"""A write that may be repeated."""

_STALE: Final = frozenset({404, 409})
"""Status codes for an object that is gone or was replaced."""
_FORBIDDEN: Final = 403
_INVALID: Final = 422
"""Also of a patch that names another uid than the object has."""
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
        self._later: set[str] = set()
        """Objects whose newest write waits for its time."""
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

    def put_later(self, key: str, write: Write, after_s: float) -> None:
        """Add the newest write of an object after some time; one that waits for its time already is enough."""
        if key in self._later:
            return
        if after_s <= 0:
            self.put(key, write, is_newest=True)
            return
        self._later.add(key)
        asyncio.get_running_loop().call_later(after_s, self._put_now, key, write)

    def _put_now(self, key: str, write: Write) -> None:
        self._later.discard(key)
        self.put(key, write, is_newest=True)

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


class OwnObjects:
    """Objects of nodesim that are written again and again; one that another has made is left as it is.

    Args:
        api: The API server.
        log: Logger of the service.
    """

    def __init__(self, api: Api, log: Logger) -> None:
        self._api = api
        self._log = log
        self._uids: dict[str, str] = {}
        """By path; a write names the uid, so that it does not reach an object that has taken the path."""
        self._left: set[str] = set()

    def is_left(self, path: str) -> bool:
        """Whether another has made the object, as far as it was tried to write it."""
        return path in self._left and path not in self._uids

    async def make(self, collection: str, body: dict[str, Any]) -> bool:
        """Create an object unless one of the name exists; returns whether it was created.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        path = sub_path(collection, body["metadata"]["name"])
        try:
            answer = await self._api.create(collection, marked(body))
        except RefusedError as error:
            if not error.is_conflict:
                raise
            await self._find(path)
            return False
        self._uids[path] = msgspec.json.decode(answer, type=Owned).metadata.uid
        return True

    async def put(self, collection: str, body: dict[str, Any], *, is_patch: bool = False) -> None:
        """Create an object, or change it.

        Args:
            collection: Path of its collection.
            body: The object.
            is_patch: The body is merged into the object; otherwise it replaces it.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        path = sub_path(collection, body["metadata"]["name"])
        how: PatchKind | None = "merge" if is_patch else None
        if path in self._uids and await self._change(path, body, how):
            return
        if not await self.make(collection, body) and path in self._uids:
            await self._change(path, body, how)

    async def patch(self, path: str, body: Mapping[str, Any], *, part: str = "", how: PatchKind = "merge") -> None:
        """Patch an object, unless it does not exist or another has made it.

        Args:
            path: Its path.
            body: The patch.
            part: Subresource, such as ``status``.
            how: Kind of the patch.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        if path in self._uids and await self._change(path, body, how, part):
            return
        await self._find(path)
        if path in self._uids:
            await self._change(path, body, how, part)

    async def delete(self, collection: str, name: str) -> None:
        """Delete an object, unless another has made it.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        path = sub_path(collection, name)
        if path not in self._uids:
            await self._find(path)
        while path in self._uids:
            try:
                await self._api.delete(path, uid=self._uids.pop(path))
            except RefusedError as error:
                if not error.is_conflict:
                    raise
                await self._find(path)

    async def _find(self, path: str) -> None:
        """Note the uid of an object that an earlier run has made, or that an unanswered call of this one has.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        try:
            found = await self._api.get(path, Owned)
        except RefusedError as error:
            if not error.is_absent:
                raise
            return
        if is_made(found.metadata):
            self._uids[path] = found.metadata.uid
        elif path not in self._left:
            self._left.add(path)
            self._log.error("object left alone, nodesim has not made it", object=path, expected=f"annotation {MADE_BY}")

    async def _change(self, path: str, body: Mapping[str, Any], how: PatchKind | None, part: str = "") -> bool:
        """Change an object of nodesim; returns whether it is still there.

        Raises:
            RefusedError: The server refuses.
            TransientError: The server did not answer.
        """
        whole = marked(body, uid=self._uids[path])
        target = sub_path(path, part) if part else path
        try:
            await (self._api.update(target, whole) if how is None else self._api.patch(target, whole, how=how))
        except RefusedError as error:
            if not (error.is_absent or error.is_conflict or (how is not None and error.status == _INVALID)):
                raise
            del self._uids[path]
            return False
        return True


async def make_object(api: Api, collection: str, body: dict[str, Any]) -> None:
    """Create an object unless one of the name exists.

    Raises:
        RefusedError: The server refuses.
        TransientError: The server did not answer.
    """
    try:
        await api.create(collection, marked(body))
    except RefusedError as error:
        if not error.is_conflict:
            raise
