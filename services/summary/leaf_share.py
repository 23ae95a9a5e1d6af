"""The ConfigMap ``tor-share-cm``: written when its content changes, and again when others change or delete it.

It follows the ledger and the facts of switches on its own: after a gap in their history they are read again, while job
summaries continue.
"""

import asyncio
from typing import Final

import msgspec

from berth.core.errors import CoreError
from berth.core.state.cell import State
from berth.core.topologies.registry import summary_of
from berth.formats.kubernetes.objects import ConfigMap
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import ShellError
from berth.runtime.feeds import Feeds
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, Change, Reflection, RefusedError
from berth.runtime.waits import pause
from berth.schemas.envelope import DecodeError
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from berth.services.summary.node_jobs import NodeJobs

NAME: Final = "tor-share-cm"
MANAGED: Final = ("app.kubernetes.io/managed-by", "berth")
"""Label of the ConfigMap written by Berth; any other is overwritten, but never deleted."""
_PAUSE_S: Final = 1.0
"""Least time between two writes of the ConfigMap."""
_BYTES_MAX: Final = 1_000_000
"""Limit below the maximum size of a ConfigMap, which is 1 MiB with its metadata."""


class LeafShare:
    """Reconciles the ConfigMap.

    Args:
        api: The API server.
        bus: The cell.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
    """

    def __init__(
        self, api: Api, bus: Bus, clock: Clock, config: SummaryConfig, instruments: Instruments[SummaryMetrics]
    ) -> None:
        self._api = api
        self._bus = bus
        self._clock = clock
        self._config = config
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._backoff = Backoff(max_s=config.retry_wait_max_s)
        self._folder = api_path("v1", "namespaces", config.tor_share_namespace, "configmaps")
        self._existing: ConfigMap | None = None
        self._heard = 0
        """Changes of the ConfigMap that the watch has shown."""
        self._dirty = asyncio.Event()
        self._logged = ""
        """Last logged reason of a failure; empty without one."""
        self.jobs = NodeJobs(self._wake)

    def reflection(self) -> Reflection:
        """Reflection of the ConfigMap."""
        return self._api.reflect(self._folder, ConfigMap, self, params={"fieldSelector": f"metadata.name={NAME}"})

    def replace(self, objects: list[ConfigMap]) -> None:
        """Take the ConfigMap, if it exists."""
        self._existing = next(iter(objects), None)
        self._heard += 1
        self._wake()

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Take a write or deletion of the ConfigMap, by Berth or by others."""
        what, item = changes[-1]
        self._existing = None if what == "DELETED" else item
        self._heard += 1
        self._wake()

    def _wake(self) -> None:
        self._dirty.set()

    async def run(self, *known: asyncio.Event) -> None:
        """Run until cancelled.

        Args:
            known: Set after pods and the ConfigMap are listed.
        """
        for event in known:
            await event.wait()
        while True:
            feeds = Feeds(self._bus, self._clock, State(owns=_no_domain), self._log, void=self._metrics.void)
            self._dirty = feeds.arrived
            try:
                await feeds.start(filters=[self._bus.subjects.facts("topology")])
                await self._follow(feeds)
            except (ShellError, CoreError, DecodeError) as error:
                self._log.warning("leaf switch facts are read again", reason=str(error))
            finally:
                await feeds.stop()
            await asyncio.sleep(self._config.retry_wait_max_s)

    async def _follow(self, feeds: Feeds) -> None:
        """Reconcile the ConfigMap with ledger, facts and pods.

        Raises:
            FatalError: The history has a gap.
            CoreError: A record cannot be folded.
            DecodeError: A record does not decode.
        """
        tries = 0
        while True:
            self._dirty.clear()
            feeds.apply_facts()
            feeds.apply_records()
            feeds.dead.clear()  # the dispatcher publishes dead letters
            data, reason = self._data(feeds.state), ""
            size = sum(map(len, (data or {}).values()))
            if size > _BYTES_MAX:
                data, reason = {}, f"{size} bytes are more than a ConfigMap holds: {_BYTES_MAX} at most"
            try:
                is_written = data is not None and await self._settle(data)
            except ShellError as error:
                self._note(str(error))
                tries += 1
                await pause(self._dirty, self._backoff.pause_s(tries))
                continue
            self._note(reason)
            tries = 0
            self._metrics.writes.inc(is_written)
            await asyncio.sleep(_PAUSE_S if is_written else self._config.settle_s)
            await self._dirty.wait()

    def _data(self, state: State) -> dict[str, str] | None:
        """Content of the ConfigMap; empty when it should not exist, None before the first epoch."""
        if not state.fold.epoch:
            return None
        return summary_of(state.indexes, state.topologies, state.fold.settings, self.jobs.on)

    async def _settle(self, data: dict[str, str]) -> bool:
        """Reconcile the ConfigMap; returns whether it was written or deleted.

        Args:
            data: Its content; empty when it should not exist.

        Raises:
            TransientError: The server did not answer.
            RefusedError: The server refuses it.
        """
        existing = self._existing
        if not data:
            return await self._remove(existing)
        if existing is not None and _is_ours(existing) and existing.data == data:
            return False
        await self._write(data, existing)
        return True

    async def _remove(self, existing: ConfigMap | None) -> bool:
        if existing is None or not _is_ours(existing):
            return False
        heard = self._heard
        await self._api.delete(sub_path(self._folder, NAME), uid=existing.metadata.uid)
        self._answered(heard, None)
        self._log.info("leaf switch facts withdrawn", name=NAME)
        return True

    async def _write(self, data: dict[str, str], existing: ConfigMap | None) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "namespace": self._config.tor_share_namespace,
                "name": NAME,
                "labels": {MANAGED[0]: MANAGED[1]},
            },
            "data": data,
        }
        path, heard = sub_path(self._folder, NAME), self._heard
        try:
            answer = await (self._api.create(self._folder, body) if existing is None else self._api.update(path, body))
        except RefusedError as error:
            if existing is None and error.cause == "AlreadyExists":
                answer = await self._api.update(path, body)
            elif existing is not None and error.is_absent:
                answer = await self._api.create(self._folder, body)
            else:
                raise
        self._answered(heard, msgspec.json.decode(answer, type=ConfigMap))
        self._log.info("leaf switch facts written", name=NAME, bytes=sum(map(len, data.values())))

    def _answered(self, heard: int, found: ConfigMap | None) -> None:
        """Take what a write has made, unless the watch has shown a change since: others may have written after it."""
        if heard == self._heard:
            self._existing = found

    def _note(self, reason: str) -> None:
        """Log a failure once while it stays the same; the reason is empty without one."""
        if reason and reason != self._logged:
            namespace = self._config.tor_share_namespace
            self._log.warning("leaf switch facts not written", name=NAME, namespace=namespace, reason=reason)
        self._logged = reason


def _is_ours(found: ConfigMap) -> bool:
    return (found.metadata.labels or {}).get(MANAGED[0]) == MANAGED[1]


def _no_domain(_: str) -> bool:
    return False
