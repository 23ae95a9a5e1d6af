"""Writes ``reset-config-<job>``: reads it, changes own keys, and writes it if nobody else was faster."""

from typing import Final

from berth.formats.ascend.report_error import ReportError
from berth.formats.ascend.reset_config import CHECK_CODE_KEY, KEY, LABEL, SAVES
from berth.formats.kubernetes.objects import ConfigMap
from berth.formats.kubernetes.paths import api_path
from berth.runtime.clock import Clock
from berth.runtime.errors import ShellError
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, RefusedError
from berth.services.summary.faults.other_writer import MANAGER
from berth.services.summary.faults.resets import ResetUpdate
from berth.services.summary.metrics import SummaryMetrics

MARK: Final = "berth/restart"
"""Annotation: the last restart that the ConfigMap is about."""
_TRIES: Final = 3
"""Times that a ConfigMap is read and written while others change it in between."""
_FORBIDDEN: Final = 403


class ResetWriter:
    """Writes updates, each once.

    Args:
        api: The API server.
        clock: Source of time.
        instruments: Of the process.
    """

    def __init__(self, api: Api, clock: Clock, instruments: Instruments[SummaryMetrics]) -> None:
        self._api = api
        self._clock = clock
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._done: dict[ResetUpdate, None] = {}

    async def settle(self, updates: list[ResetUpdate]) -> bool:
        """Write the updates that are not written yet; returns whether none is left.

        Args:
            updates: All present updates.
        """
        self._done = {update: None for update in updates if update in self._done}
        for update in updates:
            if update not in self._done and await self._is_done(update):
                self._done[update] = None
        return len(self._done) == len(updates)

    async def _is_done(self, update: ResetUpdate) -> bool:
        """Write one; whether it need not be tried again."""
        about = {"namespace": update.namespace, "name": update.name}
        try:
            is_written = await self._write(update)
        except ReportError as error:
            self._log.warning("reset-config is left as it is", **about, reason=str(error))
        except RefusedError as error:
            if error.is_conflict:
                return False
            if error.is_absent:
                return True  # the job has none
            self._metrics.fault_failures.inc()
            hint = "; bind the role berth-summary-resets in this namespace" if error.status == _FORBIDDEN else ""
            self._log.warning("reset-config not written", **about, reason=f"{error}{hint}")
        except ShellError as error:
            self._metrics.fault_failures.inc()
            self._log.warning("reset-config not written, will retry", **about, reason=str(error))
            return False
        else:
            if is_written:
                self._metrics.fault_writes.inc()
                self._log.info("reset-config written", **about)
        return True

    async def _write(self, update: ResetUpdate) -> bool:
        """Read and write the ConfigMap; returns whether it was written.

        Raises:
            ReportError: Its value cannot be read.
            RefusedError: It does not exist, the server refuses it, or others change it all the time.
            TransientError: The server did not answer.
        """
        for _ in range(_TRIES - 1):
            try:
                return await self._try(update)
            except RefusedError as error:
                if not error.is_conflict:
                    raise
        return await self._try(update)

    async def _try(self, update: ResetUpdate) -> bool:
        path = api_path("v1", "namespaces", update.namespace, "configmaps", update.name)
        found = await self._api.get(path, ConfigMap)
        if found.metadata.annotation(MARK) == update.mark:
            return False
        saves = found.metadata.annotation(SAVES)
        now_s, present = self._clock.now_ms() // 1000, found.data or {}
        data = update.applied(present.get(KEY, ""), now_s, saves=saves, code=present.get(CHECK_CODE_KEY, ""))
        metadata = {
            "resourceVersion": found.metadata.resource_version,
            "labels": dict([LABEL]),
            "annotations": {MARK: update.mark},
        }
        await self._api.patch(path, {"metadata": metadata, "data": data}, field_manager=MANAGER)
        return True
