"""Agents in the containers of a job are asked to save a checkpoint before its pods are deleted.

They read ``GracefulExit`` of the ConfigMap ``reset-config-<job>``, which the device plug-in and ClusterD change too. So
it is read, changed and written with the version that was read, and nothing is deleted before the answer.

See decision recovery-execution.
"""

from typing import Final

from berth.formats.ascend.report_error import ReportError
from berth.formats.ascend.reset_config import CHECK_CODE_KEY, KEY, LABEL, SAVES, name_of, with_graceful_exit
from berth.formats.kubernetes.objects import ConfigMap
from berth.formats.kubernetes.paths import api_path
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.kube.config import FaultObjectsConfig
from berth.runtime.kube.port import Api, RefusedError
from berth.runtime.logs import Logger

_FORBIDDEN: Final = 403


class GracefulExit:
    """Asks agents to save a checkpoint.

    Args:
        api: The API server.
        clock: Source of time.
        config: Says whether Berth writes the objects about faults.
        log: Receives what cannot be written.
    """

    def __init__(self, api: Api, clock: Clock, config: FaultObjectsConfig, log: Logger) -> None:
        self._is_on = config.written_by == "berth"
        self._api = api
        self._clock = clock
        self._log = log

    async def ask(self, namespace: str, job: str, mark: str) -> None:
        """Ask the agents of a job to save, unless this was done.

        A job without the ConfigMap has no such agents. A value that cannot be read, and a server that refuses, hold no
        deletion up.

        Args:
            namespace: Namespace of the job.
            job: Name of the controller of its pods.
            mark: The recovery.

        Raises:
            TransientError: The server did not answer, or another client wrote in between.
        """
        if not self._is_on:
            return
        path = api_path("v1", "namespaces", namespace, "configmaps", name_of(job))
        try:
            await self._write(path, mark)
        except ReportError as error:
            self._log.warning(
                "reset-config is left as it is", namespace=namespace, name=name_of(job), reason=str(error)
            )
        except RefusedError as error:
            if error.is_conflict:
                raise TransientError(f"{name_of(job)} was changed in between") from error
            if not error.is_absent:
                hint = "; bind the role berth-summary-resets in this namespace" if error.status == _FORBIDDEN else ""
                self._log.warning(
                    "agents are not asked to save", namespace=namespace, name=name_of(job), reason=f"{error}{hint}"
                )

    async def _write(self, path: str, mark: str) -> None:
        found = await self._api.get(path, ConfigMap)
        now_s, present = self._clock.now_ms() // 1000, found.data or {}
        data = with_graceful_exit(present.get(KEY, ""), now_s=now_s, leaves=True, code=present.get(CHECK_CODE_KEY, ""))
        if not data and found.metadata.annotation(SAVES) == mark:
            return
        metadata = {
            "resourceVersion": found.metadata.resource_version,
            "labels": dict([LABEL]),
            "annotations": {SAVES: mark},
        }
        await self._api.patch(path, {"metadata": metadata, **({"data": data} if data else {})})
