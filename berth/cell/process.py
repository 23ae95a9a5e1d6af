"""The process of a cell: its services as tasks of one event loop, with one probe server."""

import argparse
import asyncio
import faulthandler
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from berth.cell.config import CellConfig, CellSettings, load_cell
from berth.cell.metrics import CellMetrics, merged_exposition
from berth.cell.part import CELL, STOPPED_TOGETHER
from berth.cell.supervision import Supervised
from berth.runtime import logs, probes
from berth.runtime.clock import SystemClock
from berth.runtime.config import ConfigError, LogConfig
from berth.runtime.logs import Logger
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.process import GC_THRESHOLDS, report, run


def main() -> NoReturn:
    """Run a cell: read ``--config``, run its services until stopped, exit."""
    gc.set_threshold(*GC_THRESHOLDS)
    faulthandler.enable()
    parser = argparse.ArgumentParser(prog="python -m berth.cell", allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; defaults without it")
    arguments = parser.parse_args()
    log = logs.logger_of(CELL, LogConfig())
    try:
        settings = load_cell(arguments.config)
        log = logs.logger_of(CELL, settings.cell.log)
        logs.route_libraries(CELL, settings.cell.log)
        cell = Cell(settings, log)
    except ConfigError as error:
        sys.exit(report(error, log))
    sys.exit(run(cell.run, log))


class Cell:
    """Services of a cell, as tasks.

    Args:
        settings: Which services run, and their settings.
        log: Of the process.

    Attributes:
        services: The services.

    Raises:
        ConfigError: A setting of a service is invalid.
    """

    def __init__(self, settings: CellSettings, log: Logger) -> None:
        self._config: CellConfig = settings.cell
        self._log = log
        self._registry = MetricsRegistry()
        metrics, clock = CellMetrics(self._registry), SystemClock()
        self.services = [Supervised(running, metrics, clock, log) for running in settings.services]

    @property
    def reason(self) -> str:
        """Why the first service that is not ready is not, with its name; empty if all are."""
        return next((f"{one.name}: {reason}" for one in self.services if (reason := one.reason)), "")

    def exposition(self) -> bytes:
        """Metrics of all services, and of the process."""
        self._registry.ready.set(not self.reason)
        self._registry.connected.set(all(one.is_connected for one in self.services))
        return merged_exposition({one.name: one.registry() for one in self.services} | {CELL: self._registry})

    async def run(self, stop: asyncio.Event) -> None:
        """Run all services until ``stop`` is set, then stop them in order.

        Raises:
            FatalError: The probe server cannot listen.
            ExceptionGroup: Contains the error of a service that ends the process.
        """
        async with probes.serving(self._config.probes, self, self._log), asyncio.TaskGroup() as group:
            stops = {one.name: asyncio.Event() for one in self.services}
            for one in self.services:
                group.create_task(one.run(stops[one.name]), name=one.name)
            self._log.info("started", services=[one.name for one in self.services])
            await stop.wait()
            await self._stop(stops)

    async def _stop(self, stops: dict[str, asyncio.Event]) -> None:
        """Ask the services to stop, one group after the other, all within half of the grace period."""
        left_s = self._config.grace_s / 2
        loop = asyncio.get_running_loop()
        end_s = loop.time() + left_s
        for names in STOPPED_TOGETHER:
            group = [one for one in self.services if one.name in names]
            for one in group:
                stops[one.name].set()
            await _ended(group, end_s - loop.time())


async def _ended(services: Sequence[Supervised], seconds: float) -> None:
    """Wait until they have ended, for at most so long; not at all if that time is over."""
    try:
        async with asyncio.timeout(seconds):
            for one in services:
                await one.ended.wait()
    except TimeoutError:
        return
