"""Supervision of the services in one process: each ends and starts again alone, as a process of its own would."""

import asyncio
from typing import Final

from berth.cell.config import Running
from berth.cell.metrics import CellMetrics
from berth.runtime.backoff import Backoff
from berth.runtime.clock import Clock
from berth.runtime.config import ConfigError, LogConfig
from berth.runtime.errors import FatalError
from berth.runtime.fault_points import FaultPoints
from berth.runtime.instruments import Instruments
from berth.runtime.logs import Logger, logger_of
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.probes import ServicePages
from berth.runtime.process import MISCONFIGURED, report, run_service
from berth.runtime.waits import pause

_BACKOFF: Final = Backoff(first_s=0.25, max_s=8.0)
_LASTED_S: Final = 30.0
"""A service that ran for so long was no failed start: the next pause is the shortest again."""


class Supervised:
    """A service that is started again when it ends with an error.

    Its state, metrics and connection are made anew. Invalid settings and messages of a newer release end the whole
    process: a restart does not help.

    Args:
        running: The service.
        metrics: Of the cell.
        clock: Of the process.
        log: Of the cell.
    """

    def __init__(self, running: Running, metrics: CellMetrics, clock: Clock, log: Logger) -> None:
        self.name = running.name
        self.ended = asyncio.Event()
        """Set when it has ended and is not started again."""
        self._running = running
        self._restarts = metrics.restarts.labels(running.name)
        self._clock = clock
        self._log = log
        self._failed = ""
        """Why the service is not running; empty while it is."""
        self._instruments = self._new_instruments()

    @property
    def reason(self) -> str:
        """Reason why the service is not ready; empty if it is."""
        return self._failed or self._instruments.readiness.reason

    @property
    def is_connected(self) -> bool:
        """Whether it is connected to the bus."""
        return not self._failed and self._instruments.readiness.is_connected

    def registry(self) -> MetricsRegistry:
        """Metrics of the service, with those that are known when they are asked for."""
        ServicePages(self._instruments.readiness, self._instruments.registry).show()
        return self._instruments.registry

    async def run(self, stop: asyncio.Event) -> None:
        """Run the service until asked to stop.

        Raises:
            ConfigError: Its settings are invalid, or only a newer release reads a message; its log says which.
            FatalError: It was asked to stop, and did not end in order; its log says why.
        """
        try:
            await self._run(stop)
        finally:
            self.ended.set()

    async def _run(self, stop: asyncio.Event) -> None:
        failures = 0
        while True:
            began_s = self._clock.monotonic_s()
            code = await self._run_once(stop)
            if code == MISCONFIGURED:
                raise ConfigError(field="", expected=f"{self.name} cannot run with its settings")
            if stop.is_set():
                if code:
                    raise FatalError(f"{self.name} did not end in order")
                return
            failures = 1 if self._clock.monotonic_s() - began_s > _LASTED_S else failures + 1
            wait_s = _BACKOFF.pause_s(failures)
            self._failed = (
                f"it ended {failures} times in a row, and starts again" if failures > 1 else "it starts again"
            )
            self._restarts.inc()
            self._log.warning("service ended and is started again", ended=self.name, in_row=failures, wait_s=wait_s)
            if await pause(stop, wait_s):
                return
            self._instruments = self._new_instruments()
            self._failed = ""

    async def _run_once(self, stop: asyncio.Event) -> int:
        """Run the service once; returns the exit code that its own process would have."""
        running = self._running
        try:
            await run_service(running.name, running.config, self._instruments, running.part.serve, stop)
        except Exception as error:  # noqa: BLE001  # every error is logged and becomes an exit code
            return report(error, self._instruments.log)
        return 0

    def _new_instruments(self) -> Instruments[object]:
        config = self._running.config
        log = logger_of(self.name, LogConfig(level=config.log.level, form=config.log.form))
        return Instruments.make(self._running.part.metrics, log=log, faults=FaultPoints.of(config))
