"""A simulated process: a service with its connections, clock and instruments, which may die at any moment."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, cast

from berth.runtime.beside import BesideWork
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, ShellError, TransientError
from berth.runtime.fault_points import FaultPoints
from berth.runtime.instruments import Instruments
from berth.runtime.logs import Logger
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.process import supervise
from tests.sim.bus import SimBus
from tests.sim.errors import Killed, SimulationError
from tests.sim.kube import SimApi, SimKube
from tests.sim.log import SimLog
from tests.sim.loop import Lane, SimLoop, SimTask
from tests.sim.server import SimServer

GRACE_S: Final = 20.0
Main: TypeAlias = Callable[["Process", asyncio.Event], Coroutine[Any, Any, None]]
"""What a process does until the event is set."""


class Ground(NamedTuple):
    """What all processes stand on; ``rare`` is that of :class:`SimFaultPoints`."""

    loop: SimLoop
    server: SimServer
    kube: SimKube
    cell: str
    seed: int
    rare: set[str]


class SimFaultPoints(FaultPoints):
    """Counts the points that are passed, and dies at one if it is told to.

    Attributes:
        passed: How often each point was passed, by all processes.
        fatal: Point and how many more times it may be passed; empty for none.
        rare: Points at each of which the first process that passes it dies.
    """

    def __init__(self, process: "Process", passed: Counter[str], rare: set[str]) -> None:
        super().__init__()
        self._process = process
        self.passed = passed
        self.rare = rare
        self.fatal: tuple[str, int] | None = None

    def hit(self, point: str) -> None:
        """Pass a point.

        Raises:
            Killed: The process is dead, from here on.
        """
        self.passed[point] += 1
        if self._process.is_dead:
            return
        if point in self.rare:
            self.rare.discard(point)
            self._die(point)
        if self.fatal is None or self.fatal[0] != point:
            return
        count = self.fatal[1] - 1
        self.fatal = (point, count)
        if count <= 0:
            self.fatal = None
            self._die(point)

    def _die(self, point: str) -> NoReturn:
        self._process.died_at = point
        self._process.die(f"at {point}")
        raise Killed


class Process:
    """A process from its start to its end.

    Args:
        ground: What it stands on.
        name: Name of the service, and its number if there are several.
        life: How often it was started before.
        clock: Of its machine.
        main: What it does.
        metrics: Creates its metrics.
        passed: Counts fault points.
        on_end: Called when it has ended: with the error, or None after it was asked to end or was killed.

    Attributes:
        death: Why it is dead; empty while it lives.
        died_at: Fault point at which it died; empty if it did not die at one.
    """

    def __init__(
        self,
        ground: Ground,
        name: str,
        life: int,
        *,
        clock: Clock,
        main: Main,
        metrics: Callable[[MetricsRegistry], Any],
        passed: Counter[str],
        on_end: Callable[["Process", Exception | None], object],
    ) -> None:
        self.ground = ground
        self.name = name
        self.identity = f"{name}-{life}"
        self.clock = clock
        self.is_dead = False
        self.death = ""
        self.died_at = ""
        self.log = SimLog(ground.loop.time, self.identity)
        self.faults = SimFaultPoints(self, passed, ground.rare)
        log = cast("Logger", self.log)  # as much of it as services use
        self.instruments: Instruments[Any] = Instruments.make(metrics, log=log, faults=self.faults)
        self.buses: list[SimBus] = []
        self.apis: list[SimApi] = []
        self.stop = asyncio.Event()
        self._main = main
        self._on_end = on_end
        self.lane = self._new_lane("")
        self._lanes = [self.lane]
        self.task: SimTask | None = None

    def start(self) -> None:
        """Begin."""
        self.task = cast("SimTask", self.ground.loop.create_task(self._run(), context=self.lane.context))

    def die(self, why: str) -> None:
        """End at once: nothing that it still does reaches anybody."""
        if self.is_dead:
            return
        self.is_dead = True
        self.death = why
        for connection in self.connections:
            connection.sever()
        self.ground.loop.kill(*self._lanes)
        self.ground.loop.trace(f"{self.identity} dies {why}")
        self._end(None)

    def pause(self) -> None:
        """Stand still, as after SIGSTOP."""
        for lane in self._lanes:
            self.ground.loop.pause(lane)

    def resume(self) -> None:
        """Go on."""
        for lane in self._lanes:
            self.ground.loop.resume(lane)

    @property
    def connections(self) -> list[SimBus | SimApi]:
        """All its connections."""
        return [*self.buses, *self.apis]

    def connect(self, lane: Lane | None = None) -> SimBus:
        """A connection to the bus."""
        rng = self._random(f"bus {len(self.buses)}")
        bus = SimBus(self.ground.server, self.ground.cell, lane or self.lane, rng)
        self.buses.append(bus)
        return bus

    def connect_api(self) -> SimApi:
        """A connection to the API server."""
        api = SimApi(self.ground.kube, self.lane, self._random(f"api {len(self.apis)}"))
        self.apis.append(api)
        return api

    @asynccontextmanager
    async def beside(self, work: BesideWork) -> AsyncIterator[None]:
        """Run work in a lane of its own while the block runs; as :func:`berth.runtime.beside.beside`."""
        lane = self._new_lane(" beside")
        self._lanes.append(lane)
        stop = asyncio.Event()
        bus = self.connect(lane)
        task = self.ground.loop.create_task(work(bus, stop), context=lane.context)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(_fail_when_ended(task))
                losing = group.create_task(_fail_when_lost(bus))
                yield
                watching.cancel()
                losing.cancel()
        finally:
            stop.set()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
            await bus.close()

    def _new_lane(self, suffix: str) -> Lane:
        lane = Lane(self.identity + suffix)
        lane.on_death = lambda: self.die("at some await")
        return lane

    def _random(self, what: str) -> Random:
        return Random(f"{self.ground.seed} {self.identity} {what}")  # noqa: S311  # a simulation

    async def _run(self) -> None:
        error: Exception | None = None
        try:
            bus = self.connect()
            self.instruments.readiness.attach(bus)
            await self._ensure(bus)
            try:
                await supervise(
                    lambda asked: self._main(self, asked),
                    stop=self.stop,
                    grace_s=GRACE_S,
                    guards=[_fail_when_lost(bus)],
                )
            finally:
                await bus.drain(timeout_s=4.0)
        except SimulationError:
            raise
        except Exception as caught:  # noqa: BLE001  # whoever watches looks at it
            error = caught
        if not self.is_dead:
            self.is_dead = True
            self.death = f"ended: {error!r}" if error is not None else "ended"
            for connection in self.connections:
                connection.sever()
            self.ground.loop.trace(f"{self.identity} {self.death[:60]}")
            self.ground.loop.call_soon(self.ground.loop.kill, *self._lanes, context=self.ground.server.lane.context)
            self._end(error)

    async def _ensure(self, bus: SimBus) -> None:
        while not self.stop.is_set():
            try:
                await bus.ensure_streams()
                return
            except TransientError:
                await asyncio.sleep(0.5)

    def _end(self, error: Exception | None) -> None:
        self._on_end(self, error)


def leaves(error: BaseException) -> list[BaseException]:
    """Errors in a group, or the error."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def is_expected(error: BaseException) -> bool:
    """Whether a service may end with an error: one that it names itself."""
    return all(isinstance(leaf, ShellError | Killed | asyncio.CancelledError) for leaf in leaves(error))


async def _fail_when_ended(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
    raise FatalError("the work beside ended unexpectedly")


async def _fail_when_lost(bus: SimBus) -> None:
    raise await asyncio.shield(bus.lost)
