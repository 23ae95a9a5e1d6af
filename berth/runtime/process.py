"""Life of a process: signals, a bounded end, and one exit code for each way to end.

0: asked to stop, and everything in hand was done. 1: could not go on (a fault, a lost bus, a service that ended
unasked, work that outlived the grace). 2: a wrong setting. The reason is printed before the process ends.
"""

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import uvloop

from berth.runtime import logs, probes
from berth.runtime.bus.access import access_of
from berth.runtime.bus.client import NatsBus
from berth.runtime.bus.discovery import Identity
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.config import BusConfig, ConfigError, LogConfig, ServiceConfig, load
from berth.runtime.errors import FatalError, ShellError
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
"""What a process does until the event is set."""

Serve: TypeAlias = Callable[[Bus, Clock, C, Instruments[M], asyncio.Event], Coroutine[Any, Any, None]]
"""A service: works until the event is set, then finishes what it has in hand and returns."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
OK: Final = 0
FAILED: Final = 1
MISCONFIGURED: Final = 2
_CANCEL_AGAIN_S: Final = 0.1
GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Services hold large tables of plain values and make few cycles; Python's own (700, 10, 10) walks the tables all the time."""
DRAIN_S: Final = 4.0
"""How long the bus may take to finish at the end; with ``grace_s`` it stays below the patience of whoever stops."""


def main(name: str, config_type: type[C], metrics: Callable[[MetricsRegistry], M], serve: Serve[C, M]) -> NoReturn:
    """Be the service ``name``: read ``--config``, connect the bus, serve until asked to stop, drain, exit.

    Args:
        name: Name of the service, of its logs and of its connection.
        config_type: Struct of its settings.
        metrics: Makes what it counts on a registry: the class in its ``metrics.py``.
        serve: Gets the bus, a clock, the settings, the instruments and the event that asks it to finish and return.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    parser = argparse.ArgumentParser(prog=f"python -m berth.services.{name}", allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; without it defaults hold")
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
    """Answer probes and discovery, connect, serve until asked to stop, drain.

    One process may run several services, or one several times: nothing is shared but the event loop.

    Args:
        name: Name of the service and of its connection.
        config: Its settings.
        instruments: Its own.
        serve: As for :func:`main`.
        stop: Asks for the end.

    Raises:
        TransientError: The bus was not reached in time.
        FatalError: The probes cannot be answered, the bus is lost or does not let us in, the service ended unasked or did
            not end in time.
        ExceptionGroup: Holds what the service raised.
    """
    async with probes.serving(config.probes, instruments.readiness, instruments.registry, instruments.log):
        clock = SystemClock()
        bus = await _connect(name, config.bus, stop, instruments.log)
        if bus is None:
            return
        instruments.readiness.attach(bus)
        try:
            await bus.announce(_identity(name, config.bus.cell, clock))
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


def run(work: Work, log: Logger) -> int:
    """Exit code of ``work``, run to its end in an event loop of its own.

    SIGTERM and SIGINT set the event; how long ``work`` may take then is its own affair (see :func:`supervise`).
    Errors are printed here. The signals stay blocked afterwards, so that one which comes late does not change the
    exit code: the process is to end at once.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_guarded(work, log))


async def supervise(
    serve: Work, *, stop: asyncio.Event, grace_s: float, guards: Iterable[Coroutine[Any, Any, None]] = ()
) -> None:
    """Run ``serve`` until ``stop`` is set and it has done what it had in hand.

    Args:
        serve: Serves until the event that it gets is set, then finishes and returns.
        stop: Set to ask for the end.
        grace_s: Seconds that the work in hand may take once ``stop`` is set.
        guards: Run beside it; each ends the service by raising, as when a connection is lost for good.

    Raises:
        FatalError: ``serve`` ended unasked, or did not end within the grace.
    """
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(serve(stop), name="serve")
        helpers = [group.create_task(guard, name="guard") for guard in guards]
        helpers.append(asked := group.create_task(_wait(stop), name="wait for stop"))
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        late: set[asyncio.Task[None]] = set()
        if not serving.done():
            _, late = await asyncio.wait({serving}, timeout=grace_s)
        for helper in helpers:
            helper.cancel()
        if late:
            raise FatalError(f"work in hand did not end within {grace_s:g} s")
        if not stop.is_set() and (serving.cancelled() or serving.exception() is None):
            raise FatalError("the service ended without being asked to")


async def _connect(name: str, config: BusConfig, stop: asyncio.Event, log: Logger) -> NatsBus | None:
    """The bus, or None when the process was asked to stop before it was reached."""
    servers = config.url.split(",")
    access = access_of(config)
    async with asyncio.TaskGroup() as group:
        connecting = group.create_task(
            NatsBus.connect(
                servers, config.cell, name=name, timeout_s=config.connect_timeout_s, access=access, log=log
            ),
            name="connect",
        )
        asked = group.create_task(_wait(stop), name="wait for stop")
        await asyncio.wait({connecting, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        while not connecting.done():  # the client may take a cancellation for a failed try, and go on trying
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=_CANCEL_AGAIN_S)
    return None if connecting.cancelled() else connecting.result()


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
    except Exception as error:  # noqa: BLE001  # every error is printed and becomes an exit code
        code = report(error, log)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    return code


def report(error: Exception, log: Logger) -> int:
    """Exit code for ``error``, which is logged: the reason of a foreseen one, everything about another."""
    code = FAILED
    for leaf in _leaves(error):
        if isinstance(leaf, ShellError):
            log.error("cannot go on", reason=str(leaf))
            code = max(code, MISCONFIGURED if isinstance(leaf, ConfigError) else FAILED)
        else:
            log.error("unforeseen error", reason=repr(leaf), exc_info=leaf)
    return code


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
