"""Writes the ConfigMaps about faults: on change only, own keys only, and again when others change or delete them.

A start is refused while another client writes them. See decision fault-objects.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from berth.formats.ascend import fault_counters, reschedule_reasons
from berth.formats.ascend.report_error import ReportError
from berth.formats.kubernetes.objects import ConfigMap
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.runtime.backoff import Backoff
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, ShellError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.config import FaultObjectsConfig
from berth.runtime.kube.port import Api, Change, Reflection, RefusedError
from berth.runtime.logs import Logger
from berth.runtime.waits import pause
from berth.services.summary.config import SummaryConfig
from berth.services.summary.faults.fault_records import FaultRecords
from berth.services.summary.faults.other_writer import MANAGER, other_writer, read_map
from berth.services.summary.faults.reset_writer import ResetWriter
from berth.services.summary.metrics import SummaryMetrics

_IDLE_S: Final = 3_600.0


class FaultObjects:
    """Reconciles the ConfigMaps.

    Args:
        api: The API server.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
    """

    def __init__(self, api: Api, clock: Clock, config: SummaryConfig, instruments: Instruments[SummaryMetrics]) -> None:
        self._api = api
        self._clock = clock
        self._config = config
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._dirty = asyncio.Event()
        self.records = FaultRecords(log_time, kept_s=config.kept_s, changed=self._dirty.set)
        self._maps = (
            OneMap(api, fault_counters.NAMESPACE, fault_counters.NAME, self._dirty),
            OneMap(api, reschedule_reasons.NAMESPACE, reschedule_reasons.NAME, self._dirty),
        )
        self._resets = ResetWriter(api, clock, instruments)
        self._backoff = Backoff(max_s=config.retry_wait_max_s)
        self._logged: dict[str, str] = {}
        """Last logged reason for each ConfigMap."""

    def reflections(self) -> list[Reflection]:
        """Reflections of the ConfigMaps."""
        return [one.reflection() for one in self._maps]

    async def run(self, *known: asyncio.Event) -> None:
        """Run until cancelled.

        Args:
            known: Set after pods, PodGroups, messages and the ConfigMaps are listed.
        """
        for event in known:
            await event.wait()
        self._restore()
        tries = 0
        while True:
            self._dirty.clear()
            is_done = await self._settle()
            if is_done:
                tries = 0
                await pause(self._dirty, self._wait_s())
                await asyncio.sleep(self._config.settle_s)
            else:
                tries += 1
                await asyncio.sleep(self._backoff.pause_s(tries))

    def _restore(self) -> None:
        counters, reasons = self._maps
        for one, key, restore in (
            (counters, fault_counters.RETRIES_KEY, self.records.restore_counters),
            (reasons, reschedule_reasons.KEY, self.records.restore_reasons),
        ):
            try:
                restore(one.data.get(key, ""))
            except ReportError as error:
                self._log.warning(
                    "ConfigMap about faults unreadable, starting an empty one", name=one.name, reason=str(error)
                )

    async def _settle(self) -> bool:
        """Bring all ConfigMaps in line; returns whether all of it succeeded."""
        wanted = self.records.settle(self._clock.now_ms() // 1000)
        counters, reasons = self._maps
        is_done = True
        for one, data, cut in ((counters, wanted.counters, wanted.cut), (reasons, wanted.reasons, "")):
            reason = cut
            try:
                if await one.write(data):
                    self._metrics.fault_writes.inc()
                    self._log.info("ConfigMap about faults written", namespace=one.namespace, name=one.name)
            except ShellError as error:
                is_done, reason = False, str(error)
                self._metrics.fault_failures.inc()
            self._note(one, reason)
        return await self._resets.settle(self.records.updates()) and is_done

    def _wait_s(self) -> float:
        due_s = self.records.next_due_s()
        return _IDLE_S if due_s is None else max(due_s - self._clock.now_ms() / 1000, 0.0)

    def _note(self, one: "OneMap", reason: str) -> None:
        """Log a failure once while it stays the same; the reason is empty without one."""
        if reason and self._logged.get(one.name) != reason:
            self._log.warning(
                "ConfigMap about faults not written", namespace=one.namespace, name=one.name, reason=reason
            )
        self._logged[one.name] = reason


class OneMap:
    """A ConfigMap of which Berth owns some keys.

    Args:
        api: The API server.
        namespace: Its namespace.
        name: Its name.
        changed: Set when it changes.
    """

    def __init__(self, api: Api, namespace: str, name: str, changed: asyncio.Event) -> None:
        self._api = api
        self.namespace = namespace
        self.name = name
        self._changed = changed
        self._folder = api_path("v1", "namespaces", namespace, "configmaps")
        self._is_there = False
        self.data: dict[str, str] = {}
        """Its present keys."""

    def reflection(self) -> Reflection:
        """Reflection of it."""
        return self._api.reflect(self._folder, ConfigMap, self, params={"fieldSelector": f"metadata.name={self.name}"})

    def replace(self, objects: list[ConfigMap]) -> None:
        """Take it, if it exists."""
        self._take(next(iter(objects), None))

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Take a write or deletion of it, by Berth or by others."""
        what, item = changes[-1]
        self._take(None if what == "DELETED" else item)

    def _take(self, item: ConfigMap | None) -> None:
        self._is_there = item is not None
        self.data = dict(item.data or {}) if item is not None else {}
        self._changed.set()

    async def write(self, wanted: Mapping[str, str]) -> bool:
        """Write the keys that differ; all others stay. Returns whether there were any.

        Raises:
            TransientError: The server did not answer.
            RefusedError: The server refuses it.
        """
        differing = {key: value for key, value in wanted.items() if self.data.get(key) != value}
        if self._is_there and not differing:
            return False
        try:
            await (self._patch(differing) if self._is_there else self._create(wanted))
        except RefusedError as error:
            if self._is_there and error.is_absent:
                await self._create(wanted)
            elif not self._is_there and error.cause == "AlreadyExists":
                await self._patch(wanted)
            else:
                raise
        self._is_there = True
        self.data.update(wanted)
        return True

    async def _patch(self, data: Mapping[str, str]) -> None:
        await self._api.patch(sub_path(self._folder, self.name), {"data": data}, field_manager=MANAGER)

    async def _create(self, data: Mapping[str, str]) -> None:
        metadata = {"namespace": self.namespace, "name": self.name}
        await self._api.create(
            self._folder, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )


async def check_no_other_writer(
    api: Api, clock: Clock, config: SummaryConfig, log: Logger, stop: asyncio.Event
) -> None:
    """Check that no other client writes the ConfigMaps now; while the API server does not answer, it is asked again.

    Raises:
        FatalError: One has written one of them lately, or the server does not show them.
    """
    while not stop.is_set():
        try:
            reason = await _other(api, clock, config.fault_objects)
        except TransientError as error:
            log.warning("other writers of ConfigMaps about faults are not known yet", reason=error.reason)
            await pause(stop, config.retry_wait_max_s)
        except RefusedError as error:
            raise FatalError(
                f"whether another scheduler writes ConfigMaps about faults is not known: {error}"
            ) from error
        else:
            if reason:
                raise FatalError(reason)
            return


async def _other(api: Api, clock: Clock, config: FaultObjectsConfig) -> str:
    """Sentence about another writer; empty without one.

    Raises:
        TransientError: The server did not answer.
        RefusedError: The server does not show the ConfigMaps.
    """
    for namespace, name, keys in (
        (fault_counters.NAMESPACE, fault_counters.NAME, (fault_counters.NODES_KEY, fault_counters.RETRIES_KEY)),
        (reschedule_reasons.NAMESPACE, reschedule_reasons.NAME, (reschedule_reasons.KEY,)),
    ):
        found = await read_map(api, api_path("v1", "namespaces", namespace, "configmaps", name))
        other = other_writer(found, keys) if found is not None else None
        age_s = (clock.now_ms() - other.at_ms) // 1000 if other is not None else 0
        if other is not None and age_s < config.other_writer_s:
            return (
                f"{other.manager} wrote {other.key} of ConfigMap {namespace}/{name} {max(age_s, 0)} s ago, and"
                f" fault_objects.written_by is 'berth': stop the other writer and wait until its last write is"
                f" {config.other_writer_s} s old, or set fault_objects.written_by to 'other'"
            )
    return ""


def log_time(at_s: int) -> str:
    """Time of a log line: ``I1120 12:00:01``, UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("I%m%d %H:%M:%S")
