"""Counters of retries as the Ascend operator reads them: a scheduler writes them into a ConfigMap."""

from typing import Final

from berth.formats.ascend.fault_counters import NAME, RETRIES_KEY, Retries, read_retries
from berth.formats.ascend.report_error import ReportError
from berth.formats.kubernetes.objects import ConfigMap
from berth.runtime.kube.port import Api, Change

_FOLDER: Final = "/api/v1/namespaces/volcano-system/configmaps"


class RetryCounters:
    """The newest counters.

    Args:
        api: The API server.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._counters: dict[str, Retries] = {}

    def times(self, key: str) -> int:
        """How often failed pods may still restart a job; 0 where the map is missing, unreadable, or without the key.

        Args:
            key: ``<namespace>/<name of the job>-<uid of the job>``.
        """
        return self._counters.get(key, Retries()).times

    async def run(self) -> None:
        """Run until cancelled."""
        await self._api.reflect(_FOLDER, ConfigMap, self, params={"fieldSelector": f"metadata.name={NAME}"}).run()

    def replace(self, objects: list[ConfigMap]) -> None:
        """Take the ConfigMap, if it exists."""
        self._take(next(iter(objects), None))

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Take a write or deletion of it."""
        what, item = changes[-1]
        self._take(None if what == "DELETED" else item)

    def _take(self, item: ConfigMap | None) -> None:
        text = ((item.data or {}) if item is not None else {}).get(RETRIES_KEY, "")
        try:
            self._counters = read_retries(text)
        except ReportError:
            self._counters = {}
