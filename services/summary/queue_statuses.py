"""``status.allocated`` of the Queues of Volcano: what the ledger says that a queue and those below have.

Only where Queues are the queues of the cell, and not while Volcano's scheduler holds its lease. The ledger is followed
once such a Queue exists, and read again after a gap in its history.

Source: docs/queues.md, "Status of Queues".
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from berth.core.errors import CoreError
from berth.core.queues.tree import is_tree
from berth.core.state.cell import State
from berth.core.state.queues.queue_index import QueueIndex
from berth.formats.kubernetes.objects import PODGROUP_VERSION
from berth.formats.kubernetes.paths import api_path, sub_path
from berth.formats.kubernetes.policies import Queue
from berth.formats.queues.allocated import allocated, allocated_patch
from berth.formats.queues.queue_objects import queue_of_object
from berth.runtime.backoff import RETRY_FIRST_S
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import PoisonError, ShellError, TransientError
from berth.runtime.feeds import Feeds
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, Change, RefusedError
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.subjects import StreamName
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from berth.services.summary.queue_state import QueueGroups
from berth.services.summary.scheduler_lease import is_held

_PASS_S: Final = 1.0
"""Least time between two writes of one Queue."""
_PASS_MAX: Final = 50
"""Queues that are written in that time."""


class QueueStatuses:
    """Reconciles the status of Queues.

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
        self.groups = QueueGroups(self._wake)
        self._api = api
        self._bus = bus
        self._clock = clock
        self._config = config
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._path = api_path(PODGROUP_VERSION, "queues")
        self._queues: dict[str, Queue] = {}
        self._written: dict[str, int] = {}
        """Pass in which each Queue was written last."""
        self._pass = 0
        self._told: dict[str, str] = {}
        """Newest reason that was logged, by what could not be done."""
        self._dirty = asyncio.Event()
        self._has_queues = asyncio.Event()
        """Set once Queues say more than that there are some."""

    def replace(self, objects: list[Queue]) -> None:
        """Take all Queues."""
        self._queues = {one.metadata.name: one for one in objects}
        self._queues_changed()

    def change(self, changes: list[tuple[Change, Queue]]) -> None:
        """Take changes of Queues."""
        for what, one in changes:
            if what == "DELETED":
                self._queues.pop(one.metadata.name, None)
            else:
                self._queues[one.metadata.name] = one
        self._queues_changed()

    def _queues_changed(self) -> None:
        found = (queue_of_object(one) for one in self._queues.values())
        if not self._has_queues.is_set() and is_tree([one for one in found if one is not None]):
            self._has_queues.set()
        self._wake()

    def _wake(self) -> None:
        self._dirty.set()

    async def run(self, *known: asyncio.Event) -> None:
        """Run until cancelled.

        Args:
            known: Set after PodGroups are listed.
        """
        for event in known:
            await event.wait()
        await self._served()
        reflection = self._api.reflect(self._path, Queue, self)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflection.run(), name="reflect Queues")
            await self._has_queues.wait()
            while True:
                try:
                    await self._follow()
                except (ShellError, CoreError, DecodeError) as error:
                    self._log.warning("queues of the cell are read again", reason=str(error))
                await asyncio.sleep(self._config.retry_wait_max_s)

    async def _served(self) -> None:
        """Wait until the server has Queues."""
        while True:
            try:
                if await self._api.serves(PODGROUP_VERSION, "queues"):
                    return
                wait_s = self._config.kinds_retry_s
            except TransientError as error:
                wait_s = max(error.retry_after_s, RETRY_FIRST_S)
            except PoisonError as error:
                self._tell("cannot ask for Queues, will ask again", error)
                wait_s = self._config.kinds_retry_s
            await asyncio.sleep(wait_s)

    async def _follow(self) -> None:
        """Follow ledger and queues, and write what they say.

        Raises:
            ShellError: The history has a gap, or the bus did not answer.
            CoreError: A record cannot be folded.
            DecodeError: A record does not decode.
        """
        filters = (self._bus.subjects.facts("queue"),)
        feeds = Feeds(self._bus, self._clock, State(owns=_no_domain), self._log, void=self._metrics.void)
        self._dirty = feeds.arrived
        try:
            await feeds.start(filters=filters)
            index = QueueIndex(feeds.state.fold, feeds.state.table)
            seen: dict[str, int] = {}
            for stored in await self._bus.read(StreamName.LATEST, filters=filters):
                self._note(index, seen, stored)
            await feeds.caught_up()
            while True:
                self._dirty.clear()
                for stored in feeds.facts.take():
                    self._note(index, seen, stored)
                for _, folded in feeds.apply_records():
                    index.follow(folded)
                feeds.dead.clear()  # the dispatcher publishes dead letters
                wait_s = await self._settle(self._wanted(index))
                await asyncio.sleep(max(wait_s, _PASS_S))
                if not wait_s:
                    await self._dirty.wait()
        finally:
            await feeds.stop()

    def _note(self, index: QueueIndex, seen: dict[str, int], stored: Stored) -> None:
        """Take a fact about a queue, unless a newer one was taken."""
        if stored.sequence <= seen.get(stored.subject, 0):
            return
        seen[stored.subject] = stored.sequence
        try:
            index.apply(decode(stored.data, QueueSeen))
        except DecodeError as error:
            self._log.warning("fact about a queue unreadable", subject=stored.subject, reason=error.reason)

    def _wanted(self, index: QueueIndex) -> Mapping[str, Mapping[str, str]]:
        """What each Queue has; empty where queues do nothing, or persons declare them."""
        tree = index.tree()
        if tree is None or any(fact.source != "kubernetes" for fact in index.declared.values()):
            return {}
        usage = index.usage(tree)
        return {name: allocated(*usage.allocated(name)) for name in self._queues if name in tree.queues}

    async def _settle(self, wanted: Mapping[str, Mapping[str, str]]) -> float:
        """Write statuses that differ, those first that were not written for the longest time.

        Returns:
            How long to wait until this is tried again, whatever happens; 0 once all are written.
        """
        self._pass += 1
        patches = {name: patch for name in wanted if (patch := self._patch(name, wanted[name]))}
        due = sorted(patches, key=lambda name: (self._written.get(name, 0), name))[:_PASS_MAX]
        if not due:
            return 0.0
        try:
            if await is_held(self._api, self._config.queues.lease_namespace, self._clock.now_ms()):
                return self._config.retry_wait_max_s
            for name in due:
                await self._write(name, patches[name])
            self._told.clear()
        except ShellError as error:
            self._metrics.queue_failures.inc()
            self._tell("status of queues not written, will try again", error)
            return self._config.retry_wait_max_s
        return _PASS_S  # what was not written is written then

    def _patch(self, name: str, wanted: Mapping[str, str]) -> dict[str, object]:
        """Patch of the status of a Queue; empty if it is as it should be. One of the state has ``allocated``, too."""
        status = self._queues[name].status
        found = status if isinstance(status, dict) else {}
        patch = allocated_patch(found.get("allocated"), wanted)
        before = found.get("state") if isinstance(found.get("state"), str) else ""
        after = self.groups.state_after(name, before or "") if self._config.queues.write_state else before
        if patch is None and after == before:
            return {}
        own: dict[str, object] = {"allocated": dict(wanted) if patch is None else patch}
        return own if after == before else own | {"state": after}

    async def _write(self, name: str, patch: dict[str, object]) -> None:
        """Write a status, unless the Queue is gone or changes at the same time: it is looked at again.

        Raises:
            TransientError: The server did not answer.
            RefusedError: The server refuses it.
        """
        known = self._queues.get(name)
        self._written[name] = self._pass
        try:
            answer = await self._api.patch(sub_path(self._path, name, "status"), {"status": patch})
        except RefusedError as error:
            if not (error.is_absent or error.is_conflict):
                raise
            return
        self._metrics.queue_writes.inc()
        if known is not None and self._queues.get(name) is known:  # else the watch has shown what came later
            self._queues[name] = msgspec.json.decode(answer, type=Queue)

    def _tell(self, what: str, error: ShellError) -> None:
        """Log a failure once while its reason stays the same."""
        if self._told.get(what) != str(error):
            self._told[what] = str(error)
            self._log.warning(what, reason=str(error))


def _no_domain(_: str) -> bool:
    return False
