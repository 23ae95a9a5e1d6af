"""``restart``: how soon jobs are placed again after processes were killed, and the memory of all services.

Each row can be run alone (``--row NAME``), and with the services of another tree (``--code FOLDER``), such as an older
release. Wall time and CPU seconds stand side by side, because a machine is rarely idle.

- ``standby``: kill -9 of the leader to the next placement, with a standby, at 10,000 nodes.
- ``standby-waiting``: the same while 20,000 jobs wait for room.
- ``alone``, ``alone-large``: start of the process to the next placement, without a standby, at 10,000 nodes, and at
  100,000 nodes with 20,000 running jobs.
- ``kube``: all services killed, to the first new job that is bound on a real API server, at 1,000 nodes.
- ``memory``: proportional memory of all services there.
- ``stop``: SIGTERM to the end of the last service there.
"""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.arrivals import Arrivals
from bench.cell import Client, pods_seen
from bench.ends import nats_server, until_done
from bench.kube import restarts
from bench.processes import ROOT, Process, until_ready
from bench.report import Report, Row, machine, row
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import PodPhase
from berth.schemas.ledger import Epoch, Round
from berth.schemas.placement import Placement
from berth.schemas.subjects import StreamName

_LEFT: Final = 100
"""Nodes that are left free when jobs wait; each of those wants more."""
_FULL_JOBS: Final = 9
_REST_S: Final = 1.0
_WAITING_CLASSES: Final = 20
_DEADLINE_S: Final = 600.0
_POLL_S: Final = 0.02


class Size(NamedTuple):
    """Size of a run: nodes, jobs that wait or run in the rows with such jobs, and how often a process is killed."""

    nodes: int = 10_000
    waiting: int = 20_000
    large_nodes: int = 100_000
    running: int = 20_000
    kills: int = 9
    starts: int = 5
    kube: restarts.Size = restarts.FULL


FULL: Final = Size()
SMALL: Final = Size(nodes=400, waiting=40, large_nodes=500, running=20, kills=1, starts=1, kube=restarts.SMALL)


class Ledger:
    """What the ledger says, as it arrives."""

    def __init__(self, bus: NatsBus) -> None:
        self.holder = ""
        self.placed: dict[str, Placement] = {}
        self.refused: set[str] = set()
        self.records = 0
        self.until = Arrivals(bus, StreamName.LEDGER, take=self._take, deadline_s=_DEADLINE_S).until

    def _take(self, stored: Stored) -> None:
        envelope = open_envelope(stored.data)
        self.records += 1
        if envelope.kind == Epoch.KIND:
            self.holder = body_of(envelope, Epoch).holder
        elif envelope.kind == Round.KIND:
            for verdict in body_of(envelope, Round).verdicts:
                if verdict.placement is not None:
                    self.placed[verdict.name] = verdict.placement
                else:
                    self.refused.add(verdict.name)


class Restarted(NamedTuple):
    """From a kill to the next placement: wall seconds, and CPU seconds of the dispatcher that makes it."""

    took_s: float
    cpu_s: float


class Cell:
    """A bus, a client, and dispatchers."""

    def __init__(self, folder: Path, url: str, bus: NatsBus, code: Path, dispatchers: int) -> None:
        self.client = Client(bus, keep_chips=1 << 40)
        self.ledger = Ledger(bus)
        self.bus = bus
        self.ports = free_ports(dispatchers)
        self.all = [
            Process(
                folder,
                "dispatcher",
                {"bus": {"url": url, "cell": "bench"}, "probes": {"port": port}, "snapshot_apart_s": 0},
                code=code,
                name=f"dispatcher-{port}",
            )
            for port in self.ports
        ]
        self._count = 0

    async def ready(self) -> None:
        """Wait until all dispatchers are ready."""
        for port in self.ports:
            await until_ready(port, deadline_s=_DEADLINE_S, poll_s=_POLL_S)

    async def lone(self) -> float:
        """Submit one job of a chip; returns the seconds until it is placed."""
        began_s = time.perf_counter()
        name = f"lone-{self._count}"
        self._count += 1
        await self.client.submit(name, chips=1)
        await self.ledger.until(lambda: name in self.ledger.placed)
        return time.perf_counter() - began_s

    def leader(self) -> Process:
        """The dispatcher that leads."""
        return next(one for one in self.all if f"-{one.pid}-" in self.ledger.holder)

    async def next_after_kill(self, rest_s: float) -> Restarted:
        """Kill the leader so long after a placement, start it if it is alone, and place a job."""
        await self.ready()
        await self.lone()
        await asyncio.sleep(rest_s)
        leader = self.leader()
        heir = next((one for one in self.all if one is not leader), leader)
        used_s = 0.0 if heir is leader else heir.cpu_s()
        leader.kill()
        if heir is leader:
            leader.start()
        took_s = await self.lone()
        return Restarted(took_s, heir.cpu_s() - used_s)

    def start_again(self) -> None:
        """Start those that were killed."""
        for one in self.all:
            if one.end_text() is not None:
                one.start()

    async def fill(self, nodes: int, waiting: int) -> None:
        """Use all nodes but a hundred, and submit jobs that find no room."""
        for number in range(_FULL_JOBS):
            await self.client.submit(f"full-{number}", chips=8, replicas=(nodes - _LEFT) // _FULL_JOBS)
        await self.ledger.until(lambda: len(self.ledger.placed) >= _FULL_JOBS)
        for number in range(waiting):
            await self.client.submit(f"wait-{number}", chips=8, replicas=2 * _LEFT + number % _WAITING_CLASSES)
        await self.ledger.until(lambda: len(self.ledger.refused) >= waiting)

    async def run_jobs(self, count: int) -> None:
        """Place jobs of a node each, and report their pods as running."""
        for number in range(count):
            await self.client.submit(f"run-{number}", chips=8)
        await self.ledger.until(lambda: len(self.ledger.placed) >= count)
        for name, placement in self.ledger.placed.items():
            seen = pods_seen("bench", name, name, placement, PodPhase.RUNNING)
            await self.bus.submit_wait(self.bus.subjects.fact_pod("bench", name), encode(seen))


@contextlib.asynccontextmanager
async def started(code: Path, nodes: int, dispatchers: int) -> AsyncIterator[Cell]:
    """A running cell with a job; its first dispatcher leads.

    Args:
        code: Tree from which the dispatchers run.
        nodes: Nodes of the cell.
        dispatchers: Count of dispatchers.
    """
    with tempfile.TemporaryDirectory(prefix="berth-restart-") as root:
        folder = Path(root)
        async with (
            nats_server(folder / "nats") as server,
            await NatsBus.connect(server.url, "bench", name="bench", inbox="_INBOX.person.bench") as bus,
        ):
            await bus.ensure_streams()
            cell = Cell(folder, server.url, bus, code, dispatchers)
            with contextlib.ExitStack() as stack:
                await cell.client.nodes(nodes)
                for one in cell.all:
                    stack.callback(one.kill)
                    one.start()
                    await cell.lone()
                yield cell


async def _with_standby(code: Path, size: Size, waiting: int) -> list[Row]:
    found: list[Restarted] = []
    records: list[float] = []
    async with started(code, size.nodes, 2) as cell:
        if waiting:
            await cell.fill(size.nodes, waiting)
        for number in range(size.kills):
            moment_s = 0.037 * number  # another one between two heartbeats each time
            found.append(await cell.next_after_kill(_REST_S + moment_s))
            before = cell.ledger.records
            await asyncio.sleep(1)
            records.append(cell.ledger.records - before)
            cell.start_again()
    took_s = [one.took_s for one in found]
    case = f"{size.nodes:,} nodes, a standby" + (f", {waiting:,} jobs wait" if waiting else "")
    return [
        row(case, "kill -9 of the leader to the next placement, p50", "s", took_s, target=0.7),
        row(
            case,
            "kill -9 of the leader to the next placement, p95",
            "s",
            [_p95(took_s)],
            target=1.5,
        ),
        row(case, "CPU of the standby until then", "s of a core", [one.cpu_s for one in found]),
        row(case, "records in the second after that", "1", records, can_be_zero=True),
    ]


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


async def _alone(code: Path, nodes: int, running: int, starts: int, target_s: float) -> list[Row]:
    async with started(code, nodes, 1) as cell:
        if running:
            await cell.run_jobs(running)
        found = [await cell.next_after_kill(_REST_S) for _ in range(starts)]
    case = f"{nodes:,} nodes" + (f", {running:,} jobs run" if running else "") + ", alone"
    return [
        row(
            case, "start of the process to the next placement, p50", "s", [one.took_s for one in found], target=target_s
        ),
        row(case, "CPU of the dispatcher until then", "s of a core", [one.cpu_s for one in found]),
    ]


_ROWS: Final[dict[str, Callable[[Path, Size], Coroutine[Any, Any, list[Row]]]]] = {
    "standby": lambda code, size: _with_standby(code, size, 0),
    "standby-waiting": lambda code, size: _with_standby(code, size, size.waiting),
    "alone": lambda code, size: _alone(code, size.nodes, 0, size.starts, 2.0),
    "alone-large": lambda code, size: _alone(code, size.large_nodes, size.running, size.starts, 4.0),
    "kube": lambda code, size: restarts.kube_rows(code, size.kube),
}
NAMES: Final = tuple(_ROWS)
"""Names of the rows."""


def run(size: Size = FULL, names: Sequence[str] = (), code: Path = ROOT) -> Report:
    """Measure.

    Args:
        size: Size of the run.
        names: Rows; none means all.
        code: Tree from which the services run.
    """
    rows = [one for name in names or NAMES for one in until_done(_ROWS[name](code, size))]
    return Report(bench="restart", machine=machine(), rows=rows)
