"""Reflector of a collection: lists it, then watches it.

A list comes in pages, each decoded on arrival. A watch continues at the version of the list or of the watch before it;
if the server no longer has the version, the collection is listed again. An object that does not decode is skipped,
counted, and logged once; the handler keeps its last valid value.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, get_args

import msgspec

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Listed, StatusReply, Watched
from berth.runtime.backoff import Backoff
from berth.runtime.clock import Clock
from berth.runtime.errors import ShellError, TransientError
from berth.runtime.kube.http import BROKEN_JSON, KubeHttp, SilenceError
from berth.runtime.kube.listing import PAGE_SIZE
from berth.runtime.kube.port import Change, Handler, RefusedError
from berth.runtime.logs import Logger

T = TypeVar("T")

_WATCH_S: Final = 420.0
"""Duration of a watch before it is renewed; each is up to a third shorter or longer."""
_IDLE_S: Final = 90.0
"""A watch without events for this long is renewed at its last version."""
_PAUSE_FIRST_S: Final = 0.1
_PAUSE_MAX_S: Final = 10.0
"""Longest pause between attempts; the server may ask for a longer one."""
_SHORT_WATCH_S: Final = 1.0
_JITTER: Final = 0.5
_WATCH_SPREAD: Final = (2 / 3, 4 / 3)
_GONE: Final = 410
_TOO_LARGE: Final = "Too large resource version"
_EXPIRED_MAX: Final = 2
_NAMED_MAX: Final = 1000
_SHOWN_LENGTH_MAX: Final = 200
_MESSAGE_LENGTH_MAX: Final = 2_000
_CHANGES: Final = frozenset(get_args(Change))


class GoneError(TransientError):
    """The server does not have the version: it is too old, or not reached yet."""


class _Head(msgspec.Struct):
    """Part of every object."""

    metadata: Meta = Meta()


class _Objects(NamedTuple, Generic[T]):
    """All objects, or changes."""

    all: list[T] | None
    changes: list[tuple[Change, T]]


_raw_list: Final = msgspec.json.Decoder(Listed[msgspec.Raw])
_event_head: Final = msgspec.json.Decoder(Watched[_Head])
_event_status: Final = msgspec.json.Decoder(Watched[StatusReply])
_head: Final = msgspec.json.Decoder(_Head)


class Reflector(Generic[T]):
    """Reflection of one collection; implements the protocol ``Reflection``.

    Args:
        http: Session with the server.
        path: Collection.
        kind: Struct of one object, with a field ``metadata``.
        handler: Consumer of lists and changes.
        params: Selectors.
        is_optional: A refusal ends a run. It is an answer of the server, so that is not silent.
        clock: Source of the duration of watches.
        rng: Source of jitter for pauses and watches.

    Attributes:
        synced: Set when the handler has the first list.
        lists: Number of lists started.
        watches: Number of watches started.
        events: Number of delivered changes.
        errors: Number of errors, rejections and interruptions by the server.
        skipped: Number of objects that did not decode.
        heard_s: When the server last sent something about the collection, in monotonic seconds; at first the start.
    """

    def __init__(  # noqa: PLR0913  # one caller, which passes them by name
        self,
        http: KubeHttp,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        params: Mapping[str, str],
        is_optional: bool,
        clock: Clock,
        rng: random.Random,
        log: Logger,
    ) -> None:
        self._http = http
        self._path = path
        self._handler = handler
        self._params = dict(params)
        self._is_optional = is_optional
        self._clock = clock
        self._rng = rng
        listed: Any = Listed
        watched: Any = Watched
        self._kind = kind
        self._page: msgspec.json.Decoder[Listed[T]] = msgspec.json.Decoder(listed[kind])
        self._event: msgspec.json.Decoder[Watched[T]] = msgspec.json.Decoder(watched[kind])
        self._version = ""
        self._backoff = Backoff(first_s=_PAUSE_FIRST_S, max_s=_PAUSE_MAX_S, jitter=_JITTER)
        self._pause_s = _PAUSE_FIRST_S
        self._expired = 0
        self._named: set[str] = set()
        self._last_error = ""
        self._log = log.bind(path=path)
        self.synced = asyncio.Event()
        self.lists = 0
        self.watches = 0
        self.events = 0
        self.errors = 0
        self.skipped = 0
        self.heard_s = clock.monotonic_s()

    async def run(self) -> None:
        """List and watch until cancelled. Errors of the server are retried, those of the handler are raised.

        Raises:
            RefusedError: The server refuses to list or to watch an optional collection. It may be run again.
        """
        while True:
            async with aclosing(self._seen()) as seen:
                async for objects in seen:
                    if objects.all is not None:
                        self._handler.replace(objects.all)
                        self.synced.set()
                    else:
                        self.events += len(objects.changes)
                        self._handler.change(objects.changes)
                    del objects  # memory that the handler does not keep is freed now, not at the next change
            await asyncio.sleep(self._backoff.jittered_s(self._pause_s, self._rng))

    async def _seen(self) -> AsyncGenerator[_Objects[T]]:
        """List if necessary, then watch once, and set the next pause.

        Raises:
            RefusedError: The server refuses an optional collection.
        """
        least_s = 0.0
        watched_from_s: float | None = None
        try:
            if not self._version:
                yield _Objects(await self._list(), [])
            watched_from_s = self._clock.monotonic_s()
            async with aclosing(self._watch()) as batches:
                async for changes in batches:
                    yield _Objects(None, changes)
        except SilenceError:
            least_s = await self._check_not_older()
        except GoneError as error:
            self._version = ""
            least_s = self._failed(error)
        except RefusedError as error:
            if self._is_optional:
                self._version = ""
                self.heard_s = self._clock.monotonic_s()
                raise
            least_s = self._failed(error)
        except ShellError as error:
            least_s = self._failed(error)
        if watched_from_s is not None and self._clock.monotonic_s() - watched_from_s >= _SHORT_WATCH_S:
            self._pause_s = self._backoff.first_s
        else:  # limits requests to a server that fails or ends each watch at once
            self._pause_s = self._backoff.longer_s(self._pause_s)
        self._pause_s = max(self._pause_s, self._backoff.covering_s(least_s))

    def _failed(self, error: ShellError) -> float:
        """Count an error, log it unless it repeats, and return the least pause in seconds."""
        self.errors += 1
        text = str(error)
        if text != self._last_error:
            self._last_error = text
            self._log.warning("reflection failed", reason=text)
        return error.retry_after_s if isinstance(error, TransientError) else 0.0

    async def _list(self) -> list[T]:
        """Read all objects, and keep the version of the list.

        Raises:
            GoneError: The version expired while the pages were read.
            TransientError: No answer, or an incomplete one.
            RefusedError: The server rejects the request.
        """
        self.lists += 1
        params = dict(self._params)
        if self._expired < _EXPIRED_MAX:
            params["limit"] = str(PAGE_SIZE)
        found: list[T] = []
        while True:
            try:
                page = self._decoded_page(await self._http.request("GET", self._path, params=params, is_list=True))
            except RefusedError as error:
                if error.status != _GONE:
                    raise
                self._expired += 1
                raise GoneError(f"list of {self._path}: {error}", retry_after_s=0.0) from error
            self.heard_s = self._clock.monotonic_s()
            found += page.items or ()
            params["continue"] = page.metadata.continue_
            if not page.metadata.continue_:
                break
        self._expired = 0
        self._version = page.metadata.resource_version
        return found

    async def _watch(self) -> AsyncGenerator[list[tuple[Change, T]]]:
        """Read changes after the current version, and advance the version.

        Raises:
            GoneError: The server does not have the version; list again.
            TransientError: The watch was interrupted.
            RefusedError: The server rejects the request.
        """
        self.watches += 1
        lasting_s = _WATCH_S * self._rng.uniform(_WATCH_SPREAD[0], _WATCH_SPREAD[1])
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, round(lasting_s))),
        }
        try:
            async with aclosing(self._http.lines(self._path, params, idle_s=_IDLE_S)) as answer:
                async for lines in answer:
                    self._last_error = ""
                    self.heard_s = self._clock.monotonic_s()
                    changes, fault = self._read(lines)
                    if changes:
                        yield changes
                        del changes
                    if fault is not None:
                        raise fault
        except RefusedError as error:
            if error.status == _GONE:
                raise GoneError(f"watch of {self._path}: {error}", retry_after_s=0.0) from error
            raise
        except TransientError as error:
            if _TOO_LARGE in error.reason:
                raise GoneError(error.reason, retry_after_s=error.retry_after_s) from error
            raise

    def _read(self, lines: list[bytes]) -> tuple[list[tuple[Change, T]], ShellError | None]:
        """Changes of some lines, and the error of the line after them, if any."""
        changes: list[tuple[Change, T]] = []
        for line in lines:
            try:
                event = self._event.decode(line)
            except BROKEN_JSON as error:
                if fault := self._read_strange(line, changes, error):
                    return changes, fault
                continue
            if event.type == "ERROR":
                return changes, self._error_in(line)
            self._version = cast(_Head, event.object).metadata.resource_version
            if event.type in _CHANGES:
                changes.append((cast(Change, event.type), event.object))
        return changes, None

    def _read_strange(self, line: bytes, changes: list[tuple[Change, T]], error: Exception) -> ShellError | None:
        """Read a line that does not decode as the kind: an error of the server, or an invalid object.

        The deletion of such an object is reported with its metadata alone.

        Returns:
            Error that ends the watch, or None.
        """
        try:
            event = _event_head.decode(line)
        except msgspec.ValidationError as worse:
            return GoneError(f"watch of {self._path}: unexpected line: {worse}", retry_after_s=0.0)
        except BROKEN_JSON as worse:
            return GoneError(f"watch of {self._path}: broken line: {worse}", retry_after_s=0.0)
        if event.type == "ERROR":
            return self._error_in(line)
        self._version = event.object.metadata.resource_version
        if event.type == "DELETED":
            changes.append(
                ("DELETED", msgspec.convert({"metadata": msgspec.to_builtins(event.object.metadata)}, self._kind))
            )
        elif event.type in _CHANGES:
            self._skip(event.object.metadata, error)
        return None

    def _error_in(self, line: bytes) -> ShellError:
        """Error for an event of type ERROR."""
        try:
            reply = _event_status.decode(line).object
        except BROKEN_JSON:
            reply = StatusReply(message=line[:_SHOWN_LENGTH_MAX].decode(errors="replace"))
        words = (reply.message or reply.reason or str(reply.code))[:_MESSAGE_LENGTH_MAX]
        text = f"watch of {self._path}: {words}"
        if reply.code == _GONE or reply.reason in {"Expired", "Gone"} or _TOO_LARGE in reply.message:
            return GoneError(text, retry_after_s=0.0)
        return TransientError(text)

    def _decoded_page(self, content: bytes) -> Listed[T]:
        """A page, without the objects that do not decode.

        Raises:
            TransientError: It is not a list.
        """
        try:
            return self._page.decode(content)
        except BROKEN_JSON:
            return self._page_by_object(content)

    def _page_by_object(self, content: bytes) -> Listed[T]:
        try:
            raw = _raw_list.decode(content)
        except BROKEN_JSON as error:
            raise TransientError(f"list of {self._path}: not a list: {error}") from error
        found: list[T] = []
        for item in raw.items or ():
            try:
                found.append(msgspec.json.decode(item, type=self._kind))
            except BROKEN_JSON as error:
                try:
                    self._skip(_head.decode(item).metadata, error)
                except BROKEN_JSON:
                    self._skip(Meta(), error)
        return Listed(raw.metadata, found)

    def _skip(self, meta: Meta, error: Exception) -> None:
        self.skipped += 1
        name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        if name not in self._named and len(self._named) < _NAMED_MAX:
            self._named.add(name)
            self._log.warning("object does not decode, last valid value kept", object=name, reason=str(error))

    async def _check_not_older(self) -> float:
        """After a silence, check whether the server went back in its history, as after the restore of a backup.

        A watch of a version that is later than that of the server gets no events.

        Returns:
            Least pause in seconds.
        """
        try:
            now = _raw_list.decode(
                await self._http.request("GET", self._path, params={**self._params, "limit": "1"}, is_list=True)
            ).metadata.resource_version
        except BROKEN_JSON as error:
            return self._failed(TransientError(f"list of {self._path}: not a list: {error}"))
        except ShellError as error:
            return self._failed(error)
        if now.isdigit() and self._version.isdigit() and int(now) < int(self._version):
            text = f"{self._path}: the server is at version {now}, before the known version {self._version}"
            self._version = ""
            return self._failed(GoneError(text, retry_after_s=0.0))
        self.heard_s = self._clock.monotonic_s()
        return 0.0
