"""A cell in memory with the service for programs, as a program sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from berth.runtime.beside import BesideWork
from berth.runtime.bus.port import Bus, Endpoint
from berth.runtime.instruments import Instruments
from berth.runtime.tracing.spans import NoSpans, Spans
from berth.schemas.facts import PodPhase
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName
from berth.services.api.access import Access
from berth.services.api.app import serve_beside
from berth.services.api.config import ApiConfig
from berth.services.api.event_pages import EventPages
from berth.services.api.explanations import Explanations
from berth.services.api.loop import Loop
from berth.services.api.metrics import ApiMetrics
from berth.services.api.operations import Operations
from berth.services.api.rates import Rates
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.waiting import SLACK, until


def job_file(name: str = "train", *, namespace: str = "team", uid: str = "u-1", **spec: object) -> dict[str, Any]:
    """A job file as a program writes it."""
    metadata = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
    return {
        "apiVersion": "berth/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": spec or {"product": "module910bx8"} | {"chips": 8},
    }


async def ask(bus: Bus, verb: str, request: object, *, identity: str = "") -> dict[str, Any]:
    """Reply to a request; bytes are sent as they are."""
    subject = bus.subjects.api_as(verb, identity) if identity else bus.subjects.api(verb)
    data = request if isinstance(request, bytes) else msgspec.json.encode(request)
    reply: dict[str, Any] = msgspec.json.decode(await bus.request(subject, data, timeout_s=10))
    return reply


def ids_of(name: str) -> list[str]:
    """Ids of the events of a job that has lived."""
    phases = ("0/0/accepted", "1/0/placed", "1/0/running", "1/0/succeeded")
    return [f"uid-{name}/{phase}" for phase in phases]


async def events_in(bus: Bus, namespace: str = "*", name: str = "*") -> list[JobEvent]:
    """Stored events of jobs, in their order."""
    stored = await bus.read(StreamName.EVENTS, filters=[f"{bus.subjects.root}event.job.{namespace}.{name}"])
    return [msgspec.json.decode(one.data, type=JobEvent) for one in stored]


@asynccontextmanager
async def answering_events(bus: Bus, config: ApiConfig | None = None) -> AsyncIterator[EventPages]:
    """The operation ``events`` alone, of a service that stores none itself."""
    config, instruments, clock = config or ApiConfig(), Instruments.make(ApiMetrics), ManualClock()
    loop, pages = Loop(bus, clock, config, instruments, NoSpans()), EventPages(bus, config, instruments.log)
    rates = Rates(clock, per_s=config.requests_per_s, burst=config.requests_burst)
    operations = Operations(bus, clock, loop, Access(config), rates, Explanations(clock), pages, instruments)
    (handler,) = [handle for one, handle in operations.handlers() if one.verb == "events"]
    async with AsyncExitStack() as stack:
        for subject in (bus.subjects.api("events"), bus.subjects.api_as_any("events")):
            served = await bus.offer(Endpoint("events", subject, "api", "", "", pages.at_once), handler)
            stack.push_async_callback(served.stop)
        stack.push_async_callback(pages.close)
        yield pages


@asynccontextmanager
async def on_the_loop(bus: Bus, work: BesideWork) -> AsyncIterator[None]:
    """Run work beside a block, with the same loop and connection."""
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(work(bus, stop), name="beside")  # ended below; errors as they are
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait([task])
        task.result()


class Programs:
    """A cell in memory, the service, and a client.

    Args:
        cell: The cell.
    """

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.bus = FakeBus(cell.server, cell.cell)
        self._running: list[tuple[FakeBus, asyncio.Event, asyncio.Task[None]]] = []

    async def start(
        self, config: ApiConfig | None = None, bus: FakeBus | None = None, spans: Spans | None = None
    ) -> Instruments[ApiMetrics]:
        """Start an instance, and wait until it is ready."""
        bus = bus or FakeBus(self.cell.server, self.cell.cell)
        stop, instruments = asyncio.Event(), Instruments.make(ApiMetrics)
        beside = partial(on_the_loop, bus)
        serving = serve_beside(
            beside, bus, self.cell.clock, config or ApiConfig(), instruments, stop, spans=spans or NoSpans()
        )
        task = asyncio.get_running_loop().create_task(serving, name="api")  # ended by stop()
        self._running.append((bus, stop, task))
        await until(lambda: not instruments.readiness._service or task.done(), deadline_s=5, what="ready")
        if task.done():
            task.result()
        return instruments

    async def stop(self) -> None:
        """Stop all instances."""
        while self._running:
            bus, stop, task = self._running.pop()
            stop.set()
            try:
                await task
            finally:
                await bus.close()

    async def ended(self) -> None:
        """Wait for the instance that was started last to end by itself."""
        bus, _, task = self._running.pop()
        try:
            async with asyncio.timeout(10 * SLACK):
                await task
        finally:
            await bus.close()

    async def kill(self) -> None:
        """End all instances in the middle of what they do."""
        for bus, _, task in self._running:
            task.cancel()
            await asyncio.wait([task])
            await bus.close()
        self._running.clear()

    async def ask(self, verb: str, request: object, *, identity: str = "") -> dict[str, Any]:
        return await ask(self.bus, verb, request, identity=identity)

    async def submit(self, name: str = "train", **fields: object) -> dict[str, Any]:
        return await self.ask("submit", {"job": job_file(name, **fields)})  # type: ignore[arg-type]  # fields of the file

    async def turns(self, count: int = 1) -> None:
        await self.cell.turns(count)
        await self.cell.settle()
        await self.cell.settle()

    async def lived(self, name: str = "one") -> None:
        """A job of which all happens: it is placed, runs and ends."""
        await self.cell.submit(a_job(name, chips=8))
        await self.turns(2)
        for phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED):
            await self.cell.pods(name, phase)
            await self.turns(2)

    async def ids(self, name: str = "*") -> list[str]:
        return [event.id for event in await events_in(self.bus, name=name)]


@asynccontextmanager
async def programs(*, nodes: int = 2, is_started: bool = True, **decisions: object) -> AsyncIterator[Programs]:
    """A cell with some nodes of eight chips, and the service."""
    async with AsyncExitStack() as stack:
        cell = await Cell(**decisions).open()  # type: ignore[arg-type]  # fields of the settings
        stack.push_async_callback(cell.close)
        found = Programs(cell)
        stack.push_async_callback(found.bus.close)
        stack.push_async_callback(found.stop)
        await cell.nodes([a_node(f"n{number}") for number in range(nodes)])
        await cell.turns()
        if is_started:
            await found.start()
        yield found
