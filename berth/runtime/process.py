"""Life cycle of a process: signals, a bounded shutdown, and exit codes.

0: stopped on request, and all work finished. 1: fatal error (a fault, a lost bus, a service that ended unexpectedly,
    work
that did not finish within the grace period). 2: an invalid setting, or what only another release reads. The
reason is logged before the process ends.
"""

import argparse
import asyncio
import faulthandler
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import uvloop

from berth.core.errors import LedgerBrokenError
from berth.runtime import logs, probes
from berth.runtime.bus.port import Bus
from berth.runtime.bus.process_stats import Identity, OwnReport
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.config import ConfigError, LogConfig, ServiceConfig, load
from berth.runtime.connection import connect
from berth.runtime.errors import DeniedError, FatalError, ShellError, other_version
from berth.runtime.fault_points import FaultPoints
from berth.runtime.identity import process_identity
from berth.runtime.instruments import Instruments
from berth.runtime.logs import Logger
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.probes import Readiness
from berth.runtime.release import release
from berth.schemas.subjects import token

C = TypeVar("C", bound=ServiceConfig)
M = TypeVar("M")
Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""Work of a process until the event is set."""

Serve: TypeAlias = Callable[[Bus, Clock, C, Instruments[M], asyncio.Event], Coroutine[Any, Any, None]]
"""A service: runs until the event is set, then finishes its outstanding work and returns."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
OK: Final = 0
FAILED: Final = 1
MISCONFIGURED: Final = 2
GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Services hold large tables of plain values and create few cycles; the defaults of Python (700, 10, 10) scan the
tables too often."""
DRAIN_S: Final = 4.0
"""Longest time for the bus to drain at the end; with ``grace_s`` it stays below the timeout of the supervisor."""


def main(name: str, config_type: type[C], metrics: Callable[[MetricsRegistry], M], serve: Serve[C, M]) -> NoReturn:
    """Run the service ``name``: read ``--config``, connect the bus, serve until stopped, drain, exit.

    Args:
        name: Name of the service, in its logs and of its connection.
        config_type: Struct of its settings, in a module of the package that is started.
        metrics: Creates its metrics on a registry: the class in its ``metrics.py``.
        serve: The service; takes the bus, a clock, the settings, the instruments and the event that stops it.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    faulthandler.enable()  # an error inside a library says where it was called
    parser = argparse.ArgumentParser(prog=f"python -m {config_type.__module__.rpartition('.')[0]}", allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; defaults without it")
    arguments = parser.parse_args()
    log = logs.logger_of(name, LogConfig())
    try:
        config = load(config_type, arguments.config)
        log = logs.logger_of(name, config.log)
        logs.route_libraries(name, config.log)
        instruments = Instruments.make(metrics, log=log, faults=FaultPoints.of(config))
    except ConfigError as error:
        sys.exit(report(error, log))
    sys.exit(run(lambda stop: run_service(name, config, instruments, serve, stop), log))


async def run_service(
    name: str, config: C, instruments: Instruments[M], serve: Serve[C, M], stop: asyncio.Event
) -> None:
    """Run a service with its probe server and discovery: connect, serve until stopped, drain.

    One process may run several services or instances: they share only the event loop.

    Args:
        name: Name of the service and of its connection.
        config: Settings of the service.
        instruments: Instruments of the service.
        serve: See :func:`main`.
        stop: Event that stops the service.

    Raises:
        TransientError: The bus was not connected in time.
        FatalError: The probe server cannot listen, the bus is lost or rejects the credentials, the service ended
            unexpectedly or did not end in time.
        ExceptionGroup: Contains the errors of the service.
    """
    pages = probes.ServicePages(instruments.readiness, instruments.registry)
    async with probes.serving(config.probes, pages, instruments.log):
        clock = SystemClock()
        bus = await connect(name, config.bus, stop, instruments.log)
        if bus is None:
            return
        instruments.readiness.attach(bus)
        try:
            report = partial(_report, instruments)
            await bus.announce(_identity(name, config.bus.cell, clock), report)
            await supervise(
                lambda asked: serve(bus, clock, config, instruments, asked),
                stop=stop,
                grace_s=config.grace_s,
                guards=[_fail_when_lost(bus), _not_ready_after(stop, instruments.readiness)],
            )
        finally:
            await bus.drain(timeout_s=DRAIN_S)


def _identity(name: str, cell: str, clock: Clock) -> Identity:
    version = ".".join(release().split(".")[:3])
    return Identity(
        name=f"berth-{name}",
        id=token(process_identity()),
        version=version,
        metadata={"cell": cell},
        started_ms=clock.now_ms(),
    )


def _report(instruments: Instruments[M]) -> OwnReport:
    """What a process says of itself on the bus."""
    return OwnReport(instruments.readiness.reason, instruments.registry.gauges())


def run(work: Work, log: Logger) -> int:
    """Run ``work`` in a new event loop; returns the exit code.

    SIGTERM and SIGINT set the event. ``work`` bounds its own shutdown, see :func:`supervise`. Errors are logged here.
    The signals stay blocked afterwards, so that a late signal does not change the exit code: the process ends at once.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_guarded(work, log))


async def supervise(
    serve: Work, *, stop: asyncio.Event, grace_s: float, guards: Iterable[Coroutine[Any, Any, None]] = ()
) -> None:
    """Run ``serve`` until ``stop`` is set and it has finished its outstanding work.

    Args:
        serve: Runs until its event is set, then finishes and returns.
        stop: Event that stops the service.
        grace_s: Longest time for outstanding work after ``stop`` is set, in seconds.
        guards: Run concurrently; each can end the service with an error, such as a lost connection.

    Raises:
        FatalError: ``serve`` ended unexpectedly, or did not end within ``grace_s``.
    """
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(serve(stop), name="serve")
        side_tasks = [group.create_task(guard, name="guard") for guard in guards]
        side_tasks.append(asked := group.create_task(_wait(stop), name="wait for stop"))
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        late: set[asyncio.Task[None]] = set()
        if not serving.done():
            _, late = await asyncio.wait({serving}, timeout=grace_s)
        for side_task in side_tasks:
            side_task.cancel()
        if late:
            raise FatalError(f"outstanding work did not finish within {grace_s:g} s")
        if not stop.is_set() and (serving.cancelled() or serving.exception() is None):
            raise FatalError("the service ended unexpectedly")


async def _fail_when_lost(bus: Bus) -> None:
    raise await asyncio.shield(bus.lost)


async def _not_ready_after(stop: asyncio.Event, readiness: Readiness) -> None:
    await stop.wait()
    readiness.stop()


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _guarded(work: Work, log: Logger) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        await work(stop)
        code = OK
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  # every error is logged and becomes an exit code
        code = report(error, log)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    return code


def report(error: Exception, log: Logger) -> int:
    """Log an error and return its exit code: the reason of a known error, the traceback of any other."""
    code = FAILED
    for leaf in _leaves(error):
        other = other_version(leaf)
        if other is not None:
            log.error("fatal error", reason=str(other), release=other.release)
            code = MISCONFIGURED
        elif isinstance(leaf, ShellError | LedgerBrokenError):
            log.error("fatal error", reason=str(leaf))
            code = max(code, MISCONFIGURED if isinstance(leaf, ConfigError | DeniedError) else FAILED)
        else:
            log.error("unexpected error", reason=repr(leaf), exc_info=leaf)
    return code


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
