"""Errors of objects in the cluster: logged once and counted, and written as Events, at a bounded rate."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from berth.formats.kubernetes.events import Involved, event_name, events_path, new_event, repeated
from berth.formats.kubernetes.paths import sub_path
from berth.runtime.clock import Clock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, RefusedError
from berth.runtime.logs import LogLimit
from berth.schemas.units import UnixMs
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.api_tasks import TRIES_MAX, ApiTask, ApiTasks

_MS: Final = 1000
_LINES_MAX: Final = 100
"""Most lines about objects in a minute: whoever may write objects could change one again and again."""


class _Counted(msgspec.Struct):
    """Field of an Event that is needed to repeat it."""

    count: int = 0


class EventReporter:
    """Reports messages about one kind of objects.

    Args:
        api: The API server, where Events are written.
        clock: Source of time.
        config: Settings.
        api_tasks: Runs the calls.
        instruments: Of the process.
        reason: Reason of the events, one word in camel case.
        is_fault: The messages are errors, so that they are logged and counted too; false: the objects only wait.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        config: InventoryConfig,
        api_tasks: ApiTasks,
        instruments: Instruments[InventoryMetrics],
        *,
        reason: str,
        is_fault: bool = True,
    ) -> None:
        self._api = api
        self._clock = clock
        self._apart_ms = round(config.event_apart_s * _MS)
        self._api_tasks = api_tasks
        self._reason = reason
        self._is_fault = is_fault
        self._known: dict[str, str] = {}
        self._pending: dict[str, Involved] = {}
        """Objects with a new message, until their last Event is old enough."""
        self._written_ms: dict[str, UnixMs] = {}
        self._log = instruments.log
        self._lines = LogLimit(clock, lines_max=_LINES_MAX)
        self._metrics = instruments.metrics

    def report(self, sentences: Mapping[str, str], involved: Callable[[str], Involved | None]) -> None:
        """Compare with the messages before; new ones are logged, counted and written as an Event.

        Args:
            sentences: Current messages, by key of the object.
            involved: Object of a key; None when it is gone.
        """
        now_ms = self._clock.now_ms()
        if sentences != self._known:
            self._compare(sentences, involved)
            self._known = dict(sentences)
        for key in [key for key in self._pending if self._may_write(key, now_ms)]:
            self._written_ms[key] = now_ms
            about = self._pending.pop(key)
            write = partial(self._write_event, about, sentences[key], now_ms)
            self._api_tasks.put(
                ApiTask(
                    ("event", self._reason, key),
                    f"event about {key}",
                    about.namespace,
                    write,
                    tries_max=TRIES_MAX,
                )
            )
        for key in [key for key in self._written_ms if key not in sentences and self._may_write(key, now_ms)]:
            del self._written_ms[key]

    def next_due_ms(self) -> UnixMs | None:
        """Time at which :meth:`look` must be called even if nothing changed; None for never."""
        return min((self._written_ms[key] + self._apart_ms for key in self._pending), default=None)

    def _compare(self, sentences: Mapping[str, str], involved: Callable[[str], Involved | None]) -> None:
        for key in [key for key in self._pending if key not in sentences]:
            del self._pending[key]
        for key in sorted(sentences):
            sentence = sentences[key]
            if self._known.get(key) == sentence:
                continue
            found = involved(key)
            if self._is_fault:
                self._metrics.problems.labels(found.kind if found is not None else "").inc()
                if count := self._lines.take():
                    self._log.warning("object invalid", about=key, reason=sentence, count=count)
            if found is not None:
                self._pending[key] = found

    def _may_write(self, key: str, now_ms: UnixMs) -> bool:
        before_ms = self._written_ms.get(key)
        return before_ms is None or before_ms + self._apart_ms <= now_ms

    async def _write_event(self, involved: Involved, sentence: str, now_ms: UnixMs) -> None:
        """Write an Event; the count of an existing one is incremented.

        Raises:
            RefusedError: The server refuses it.
        """
        path = events_path(involved)
        body = new_event(involved, reason=self._reason, message=sentence, first_ms=now_ms, last_ms=now_ms)
        try:
            await self._api.create(path, body)
        except RefusedError as error:
            if not error.is_conflict:
                raise
            own = sub_path(path, event_name(involved, reason=self._reason, message=sentence))
            before = await self._api.get(own, _Counted)
            await self._api.patch(own, repeated(before.count + 1, now_ms))
