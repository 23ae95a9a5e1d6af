"""Reports of device plug-ins, read for the places of nodes in SuperPoDs, from the time when some node needs them.

Most clusters never need them, and a large cluster has many.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from berth.formats.ascend.device_info import NAME_PREFIX, NAMESPACE
from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.node_place import DeviceMap
from berth.runtime.backoff import Backoff
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.kube.port import Api, Change
from berth.runtime.logs import Logger
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.nodes.collection import Nodes

_REPORTS_WAIT_S: Final = 30.0
"""How long the API server may refuse the reports, when nodes need them, before nodes are published without."""
_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_LABEL: Final = {"labelSelector": "mx-consumer-cim=true"}


class _Answer(Lean, frozen=True):
    """Any answer; its content is not used."""


class DeviceReports:
    """Handler of the reports.

    Args:
        nodes: The nodes.
        config: Settings.
        on_change: Called when something changed.
        log: Logger of the service.
    """

    def __init__(self, nodes: Nodes, config: InventoryConfig, on_change: Callable[[], None], log: Logger) -> None:
        self._nodes = nodes
        self._config = config
        self._on_change = on_change
        self._log = log
        self._needed = asyncio.Event()

    def start_if_needed(self) -> None:
        """Let :meth:`reflect` start if, after a change of nodes, some node needs its report."""
        if self._nodes.needs_devices:
            self._needed.set()

    def replace(self, objects: list[DeviceMap]) -> None:
        """Take all reports. The content of a missing report stays in force."""
        self.change([("MODIFIED", one) for one in objects])

    def change(self, changes: list[tuple[Change, DeviceMap]]) -> None:
        """Take changes of reports."""
        for change, one in changes:
            name = one.metadata.name.removeprefix(NAME_PREFIX)
            if name != one.metadata.name:
                self._nodes.note_device_report(name, None if change == "DELETED" else one.text)
        if self._nodes.is_changed:
            self._on_change()

    async def reflect(self, api: Api, nodes_listed: asyncio.Event, known: asyncio.Event) -> None:
        """Reflect reports from the time when some node needs them; never returns.

        Args:
            api: The API server.
            nodes_listed: Set after all nodes are listed.
            known: Set by this method after all needed reports are listed, or after the server has refused them for
                long.
        """
        await nodes_listed.wait()
        if not self._needed.is_set():
            known.set()
            await self._needed.wait()
        await self._until_allowed(api, known)
        reflection = api.reflect(_PATH, DeviceMap, self, params=_LABEL)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflection.run(), name="reflect")
            await reflection.synced.wait()
            known.set()

    async def _until_allowed(self, api: Api, known: asyncio.Event) -> None:
        """Wait until the server permits reads of reports. Nodes that state their own places do not wait forever."""
        config = self._config
        backoff = Backoff(max_s=config.retry_wait_max_s)
        left_s = _REPORTS_WAIT_S
        tries = 0
        while True:
            tries += 1
            pause_s, least_s = backoff.pause_s(tries), 0.0
            try:
                await api.get(_PATH, _Answer, params={**_LABEL, "limit": "1"})
            except TransientError as error:
                least_s = error.retry_after_s
            except PoisonError as error:
                if left_s <= 0 and not known.is_set():
                    self._log.warning(
                        "reports refused: nodes without a SuperPoD of their own keep the published one",
                        reason=error.reason,
                    )
                    known.set()
                left_s -= pause_s
            else:
                return
            await asyncio.sleep(max(pause_s, least_s))
