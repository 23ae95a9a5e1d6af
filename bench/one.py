"""``one``: memory and latency of ``berth up`` and ``berth up --one``, with the cluster of the demo and 2,000 nodes.

Memory is the sum of the proportional set sizes (PSS) of all processes: the command, the services, NATS. It is read all
the time; the highest value counts.
"""

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.arrivals import Arrivals
from bench.cell import PRODUCT
from bench.ends import until_done
from bench.processes import Program
from bench.report import Report, Row, machine, row
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.envelope import decode, encode
from berth.schemas.intake import JobRequest, Task
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName

TARGET_MIB: Final = 220.0
"""Most memory of one process with 2,000 nodes, NATS included."""
_RUN_MS: Final = 20_000
_SETTLE_S: Final = 3.0
_START_S: Final = 60.0
_LOOK_S: Final = 0.5
_POLL_S: Final = 0.05
_URL: Final = re.compile(r'^\{.*"url": ?"([^"]+)".*\}$', re.MULTILINE)
"""The line of ``berth up --json`` that says where it runs."""
_KIB: Final = 1_024
MODES: Final = {"processes": (), "one process": ("--one",)}


class Up(NamedTuple):
    """What ``berth up --json`` prints."""

    url: str
    pid: int


class _Memory:
    """Memory of a process and all its children, read all the time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.highest_mib = 0.0

    async def watch(self) -> None:
        while True:
            self.highest_mib = max(self.highest_mib, tree_pss_mib(self._pid))
            await asyncio.sleep(_LOOK_S)


class Size(NamedTuple):
    """Size of a run: nodes of the large cluster, jobs at once, and jobs that are sent one after the other.

    Jobs of four pods with all chips of a node; the 600 are more than there is room for.
    """

    nodes: int = 2_000
    jobs: int = 600
    latencies: int = 100


FULL: Final = Size()
SMALL: Final = Size(nodes=10, jobs=2, latencies=2)


def run(size: Size = FULL) -> Report:
    """Measure."""
    nodes, jobs, latencies = size
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as root:
        topology = Path(root) / "cluster.yaml"
        topology.write_text(
            "apiVersion: berth/v1\nkind: Cluster\nnodes:\n"
            f'  - {{product: {PRODUCT.name}, count: {nodes}, name: "node-{{index:04}}", leaf: {{size: 40}}}}\n'
        )
        idle = {mode: until_done(_idle(words)) for mode, words in MODES.items()}
        busy = {
            mode: until_done(_busy((*words, "--topology", str(topology)), jobs, latencies))
            for mode, words in MODES.items()
        }
    limit, one = (idle[mode] for mode in MODES)
    rows.append(row("cluster of the demo, idle", "PSS", "MiB", [limit]))
    rows.append(row("cluster of the demo, idle, one process", "PSS", "MiB", [one], limits=[limit]))
    before, after = (busy[mode] for mode in MODES)
    case = f"{nodes:,} nodes, {jobs} jobs of 4 pods"
    for mode, found, limits in (("processes", before, None), ("one process", after, before)):
        target = TARGET_MIB if limits is not None else None
        what = f"{case}, {mode}"
        rows += [
            row(what, "PSS before the jobs", "MiB", [found.idle_mib], limits=[limits.idle_mib] if limits else ()),
            row(
                what, "PSS, highest", "MiB", [found.highest_mib],
                limits=[limits.highest_mib] if limits else (), target=target,
            ),
            row(what, "all jobs placed", "s", [found.placed_s], limits=[limits.placed_s] if limits else ()),
            row(
                what, "one job: request to status", "ms", found.latencies_ms,
                limits=limits.latencies_ms if limits else (),
            ),
        ]  # fmt: skip
    return Report(bench="one", machine=machine(), rows=rows)


class _Busy(NamedTuple):
    idle_mib: float
    highest_mib: float
    placed_s: float
    latencies_ms: list[float]


async def _idle(words: Sequence[str]) -> float:
    async with _up(words) as up:
        await asyncio.sleep(_SETTLE_S)
        return tree_pss_mib(up.pid)


async def _busy(words: Sequence[str], jobs: int, latencies: int) -> _Busy:
    async with (
        _up(words) as up,
        asyncio.TaskGroup() as group,
        await NatsBus.connect(up.url, "default", name="bench", inbox="_INBOX.person.bench") as bus,
    ):
        await asyncio.sleep(_SETTLE_S)
        idle_mib = tree_pss_mib(up.pid)
        memory = _Memory(up.pid)
        watching = group.create_task(memory.watch())
        placed: set[str] = set()

        def take(stored: Stored) -> None:
            status = decode(stored.data, JobStatus)
            if status.placement is not None or status.phase == "succeeded":
                placed.add(status.name)

        arrivals = Arrivals(bus, StreamName.STATUS, take=take)
        found: list[float] = []
        for number in range(latencies):
            began_s = time.perf_counter()
            await _send(bus, f"lone-{number}", replicas=1)
            await arrivals.until(lambda: f"lone-{number}" in placed)  # noqa: B023  # waited for here
            found.append((time.perf_counter() - began_s) * 1_000)
        began_s = time.perf_counter()
        for number in range(jobs):
            await _send(bus, f"job-{number}", replicas=4)
        await arrivals.until(lambda: len(placed) >= latencies + jobs)
        placed_s = time.perf_counter() - began_s
        await asyncio.sleep(_SETTLE_S)
        watching.cancel()
        return _Busy(idle_mib, memory.highest_mib, placed_s, found)


async def _send(bus: NatsBus, name: str, *, replicas: int) -> None:
    request = JobRequest(
        namespace="bench",
        name=name,
        uid=name,
        resource=PRODUCT.resource,
        tasks=[Task("worker", replicas, PRODUCT.chips)],
        node_selector=dict(PRODUCT.selector),
        run_ms=_RUN_MS,
    )
    await bus.publish(bus.subjects.intake_request(request.namespace, request.name), encode(request))


@contextlib.asynccontextmanager
async def _up(words: Sequence[str]) -> AsyncIterator[Up]:
    """``berth up``, which is stopped afterwards.

    Raises:
        TimeoutError: It did not say in time that it runs.
    """
    with tempfile.TemporaryDirectory(prefix="berth-up-") as folder:
        program = Program(Path(folder), "berth up", ["-m", "berth.cli", "up", "--json", "--port", "0", *words])
        program.start()
        try:
            async with asyncio.timeout(_START_S):
                while not (said := _URL.search(program.log_path.read_text("utf-8"))):  # noqa: ASYNC110  # a file has no event
                    await asyncio.sleep(_POLL_S)
            yield Up(said[1], program.pid)
        finally:
            program.ask_to_stop()
            await asyncio.to_thread(program.wait)


def tree_pss_mib(pid: int) -> float:
    """Proportional memory of a process and all its children, in MiB; those that end meanwhile are left out."""
    total = 0
    for one in (pid, *_children(pid)):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / _KIB


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for file in sorted(Path(f"/proc/{pid}/task").glob("*/children")):
        try:
            numbers = [int(word) for word in file.read_text(encoding="ascii").split()]
        except OSError:
            continue
        for number in numbers:
            found += [number, *_children(number)]
    return found
