"""``waiting``: 50,000 gangs wait in a full cell. What they cost, and how soon one of them gets chips that become free.

All nodes are in use by jobs of a node each. Gangs of one to four nodes wait, in four classes (``alike``) or each with
another CPU request, so that no two are alike (``different``). Then one job ends, again and again; and last the
dispatcher is killed and starts with the backlog.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.cell import PRODUCT, give_nodes, many_nodes, pods_seen
from bench.ends import nats_server, until_done
from bench.processes import Process, until_ready
from bench.report import Report, Row, machine, row
from bench.restart import Ledger
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.facts import PodPhase
from berth.schemas.intake import JobRequest, Task

_LOOK_S: Final = 0.5
_IDLE_SHARE: Final = 0.15
"""CPU below which a dispatcher has nothing to do but send heartbeats and check timers."""
_SIZES: Final = 4
_DEADLINE_S: Final = 600.0
_POLL_S: Final = 0.02
_NAMESPACE: Final = "bench"


class Size(NamedTuple):
    """Size of a run.

    Attributes:
        nodes: Nodes of the cell.
        waiting: Gangs that wait.
        ends: Jobs that end while the dispatcher runs.
        starts: Starts of the dispatcher.
        idle_s: How long nothing happens.
    """

    nodes: int = 10_000
    waiting: int = 50_000
    ends: int = 10
    starts: int = 3
    idle_s: float = 10.0


FULL: Final = Size()
SMALL: Final = Size(nodes=4, waiting=20, ends=2, starts=1, idle_s=0.1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows = [
        one
        for case, cpu_milli in (("alike", lambda _: 1_000), ("different", lambda number: 1_000 + number))
        for one in until_done(measure(case, cpu_milli, size))
    ]
    return Report(bench="waiting", machine=machine(), rows=rows)


async def measure(case: str, cpu_milli: Callable[[int], int], size: Size) -> list[Row]:
    """Rows of a case.

    Args:
        case: Its name.
        cpu_milli: CPU request of the pods of each waiting gang, by its number.
        size: Size of the run.
    """
    nodes, waiting, ends, starts, idle_s = size
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-waiting-")))
        server = await stack.enter_async_context(nats_server(folder / "nats"))
        bus = await stack.enter_async_context(
            await NatsBus.connect(server.url, "bench", name="bench", inbox="_INBOX.person.bench")
        )
        await bus.ensure_streams()
        await give_nodes(bus, many_nodes(nodes))
        full = _Full(bus)
        (port,) = free_ports(1)
        settings = {
            "bus": {"url": server.url, "cell": "bench"},
            "probes": {"port": port},
            "snapshot_apart_s": 0,
            "decisions": {"waiting_jobs_max": max(2 * waiting, 1)},
        }
        dispatcher = Process(folder, "dispatcher", settings)
        dispatcher.start()
        stack.callback(dispatcher.kill)
        await until_ready(port, deadline_s=_DEADLINE_S, poll_s=_POLL_S)
        await full.fill(nodes)
        before_mib = dispatcher.pss_mib()
        began_s, used_s = time.perf_counter(), dispatcher.cpu_s()
        for number in range(waiting):
            await full.ask(f"wait-{number}", 1 + number % _SIZES, cpu_milli(number))
        await full.ledger.until(lambda: len(full.ledger.refused) >= waiting)
        took_s, used_s = time.perf_counter() - began_s, dispatcher.cpu_s() - used_s
        await _until_idle(dispatcher)
        idle_from_s = dispatcher.cpu_s()
        await asyncio.sleep(idle_s)
        idle = (dispatcher.cpu_s() - idle_from_s) / idle_s
        kept_mib = dispatcher.pss_mib()
        cpu_ms, placed_ms, records = await _ends(full, dispatcher, ends)
        start_s, start_cpu_s = await _starts(full, dispatcher, port, starts)
        what = f"{waiting:,} gangs wait, {case}, {nodes:,} nodes"
        return [
            row(what, "taken in, all refused", "s", [took_s]),
            row(what, "CPU for that", "s of a core", [used_s]),
            row(what, "memory of the dispatcher before", "MiB", [before_mib]),
            row(what, "memory of the dispatcher with them", "MiB", [kept_mib]),
            row(what, "memory for a waiting gang", "KiB", [1024 * (kept_mib - before_mib) / waiting], can_be_zero=True),
            row(what, "CPU while nothing happens", "% of a core", [100 * idle], can_be_zero=True),
            row(what, "a job ends: to the placement of a gang, p50", "ms", placed_ms),
            row(what, "a job ends: to the placement of a gang, most", "ms", [max(placed_ms)]),
            row(what, "a job ends: CPU, p50", "ms", cpu_ms),
            row(what, "a job ends: records, mean", "1", [statistics.mean(records)]),
            row(what, "kill -9 and start: to the next placement, p50", "s", start_s),
            row(what, "kill -9 and start: CPU until then, p50", "s of a core", start_cpu_s),
            row(what, "memory of the dispatcher after a start", "MiB", [dispatcher.pss_mib()]),
        ]


class _Full:
    """A cell whose nodes are all in use."""

    def __init__(self, bus: NatsBus) -> None:
        self.ledger = Ledger(bus)
        self._bus = bus
        self._ended = 0

    async def fill(self, nodes: int) -> None:
        """Place a job on each node."""
        for number in range(nodes):
            await self.ask(f"full-{number}", 1, 1_000)
        await self.ledger.until(lambda: len(self.ledger.placed) >= nodes)

    async def ask(self, name: str, pods: int, cpu_milli: int) -> None:
        """Submit a job of whole nodes."""
        request = JobRequest(
            namespace=_NAMESPACE,
            name=name,
            uid=name,
            resource=PRODUCT.resource,
            tasks=[Task("worker", pods, PRODUCT.chips, cpu_milli=cpu_milli)],
            node_selector=dict(PRODUCT.selector),
        )
        await self._bus.submit_wait(self._bus.subjects.intake_request(_NAMESPACE, name), encode(request))

    async def end(self) -> None:
        """End a job of one node."""
        name = f"full-{self._ended}"
        self._ended += 1
        seen = pods_seen(_NAMESPACE, name, name, self.ledger.placed[name], PodPhase.SUCCEEDED)
        await self._bus.publish(self._bus.subjects.fact_pod(_NAMESPACE, name), encode(seen))


async def _ends(full: _Full, dispatcher: Process, count: int) -> tuple[list[float], list[float], list[float]]:
    """CPU and time until a gang has the place of a job that ended, in ms, and records for it, for each."""
    cpu_ms, placed_ms, records = [], [], []
    for _ in range(count):
        placed, stored, used_s = len(full.ledger.placed), full.ledger.records, dispatcher.cpu_s()
        began_s = time.perf_counter()
        await full.end()
        await full.ledger.until(lambda placed=placed: len(full.ledger.placed) > placed)  # type: ignore[misc]  # a default
        placed_ms.append(1000 * (time.perf_counter() - began_s))
        await _until_idle(dispatcher)  # what it does after the placement counts too
        cpu_ms.append(1000 * (dispatcher.cpu_s() - used_s))
        records.append(float(full.ledger.records - stored))
    return cpu_ms, placed_ms, records


async def _until_idle(dispatcher: Process) -> None:
    """Wait until the dispatcher has done what it had to do."""
    used_s = -1.0
    async with asyncio.timeout(_DEADLINE_S):
        while dispatcher.cpu_s() - used_s > _IDLE_SHARE * _LOOK_S:
            used_s = dispatcher.cpu_s()
            await asyncio.sleep(_LOOK_S)


async def _starts(full: _Full, dispatcher: Process, port: int, count: int) -> tuple[list[float], list[float]]:
    """Time from the start of the process to the next placement and its CPU, in s, for each start."""
    took_s, used_s = [], []
    for _ in range(count):
        await _until_idle(dispatcher)
        placed = len(full.ledger.placed)
        dispatcher.kill()
        await full.end()
        began_s = time.perf_counter()
        dispatcher.start()
        await full.ledger.until(lambda placed=placed: len(full.ledger.placed) > placed)  # type: ignore[misc]  # a default
        took_s.append(time.perf_counter() - began_s)
        used_s.append(dispatcher.cpu_s())
        await until_ready(port, deadline_s=_DEADLINE_S, poll_s=_POLL_S)
    return took_s, used_s
