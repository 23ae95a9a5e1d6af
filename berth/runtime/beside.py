"""Work beside the event loop of a service: on a thread of its own, with an event loop and a connection of its own.

For work that must not wait while the service computes, such as heartbeats. The interpreter switches between threads
every millisecond, so the work goes on while the service runs Python; it waits while the service is inside one long
call of a library that does not release the lock of the interpreter.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import uvloop

from berth.runtime.bus.port import Bus
from berth.runtime.config import BusConfig
from berth.runtime.connection import connect
from berth.runtime.errors import FatalError
from berth.runtime.logs import Logger

_SWITCH_S: Final = 0.001
"""How soon a thread that computes gives way to another one; with the 5 ms of Python a busy machine delays the work."""
BesideWork = Callable[[Bus, asyncio.Event], Coroutine[Any, Any, None]]
"""Work until the event is set; both belong to the event loop of the thread."""


@asynccontextmanager
async def beside(name: str, config: BusConfig, work: BesideWork, log: Logger) -> AsyncIterator[None]:
    """Run ``work`` on a thread while the block runs, and let it finish at the end.

    Args:
        name: Name of the connection, which its rights belong to.
        config: The bus.
        work: The work.
        log: Logger of the service.

    Raises:
        FatalError: The connection of the work was lost.
        ExceptionGroup: Contains an error of the work, or of the block.
    """
    thread = _Thread(name, config, work, log)
    thread.start()
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(thread.fail_when_ended(), name=f"watch {name} beside")
            yield
            watching.cancel()
    finally:
        await thread.stop()


@asynccontextmanager
async def on_same_loop(name: str, bus: Bus, work: BesideWork) -> AsyncIterator[None]:
    """Run ``work`` on the event loop and the connection of the service while the block runs, and let it finish.

    For a process in which nothing needs to go on while a service computes.

    Args:
        name: Name of the service.
        bus: Its connection.
        work: The work.

    Raises:
        ExceptionGroup: Contains an error of the work, or of the block.
    """
    stop = asyncio.Event()

    async def until_asked() -> None:
        await work(bus, stop)
        if not stop.is_set():
            raise FatalError(f"the work beside {name} ended unexpectedly")

    async with asyncio.TaskGroup() as group:
        group.create_task(until_asked(), name=f"{name} beside")
        yield
        stop.set()


class _Thread:
    def __init__(self, name: str, config: BusConfig, work: BesideWork, log: Logger) -> None:
        self._name = name
        self._config = config
        self._work = work
        self._log = log
        self._outer = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._outer.create_future()
        self._lock = threading.Lock()
        self._inner: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=f"{name} beside", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def fail_when_ended(self) -> None:
        await asyncio.shield(self._ended)
        raise FatalError(f"the work beside {self._name} ended unexpectedly")

    async def stop(self) -> None:
        """Ask the work to end, and wait until it has."""
        with self._lock:
            self._is_stopping = True
            if self._inner is not None and not self._ended.done():
                loop, stop = self._inner
                loop.call_soon_threadsafe(stop.set)
        await asyncio.wait([self._ended])
        self._ended.exception()  # raised by the watcher, if it came before the end

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                try:
                    runner.run(self._serve())
                finally:
                    with self._lock:
                        self._inner = None
        except BaseException as caught:  # noqa: BLE001  # whatever it is, the loop of the service raises it
            error = caught
        self._outer.call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        sys.setswitchinterval(_SWITCH_S)
        with self._lock:
            if self._is_stopping:
                return
            self._inner = (asyncio.get_running_loop(), stop)
        bus = await connect(self._name, self._config, stop, self._log)
        if bus is None:
            return
        try:
            async with asyncio.TaskGroup() as group:
                losing = group.create_task(_fail_when_lost(bus), name="fail when lost")
                await self._work(bus, stop)
                losing.cancel()
        finally:
            await bus.close()


async def _fail_when_lost(bus: Bus) -> None:
    raise await asyncio.shield(bus.lost)
