"""``nodes``: a cell of 1,000,000 nodes on 8 scorers. Memory of each process, time of a start, time of a placement.

Nodes of 8 chips, 48 of them below each leaf switch. The fact that lists the leaf switches is not published: with the
names of a million nodes it is larger than a message may be. So jobs with switch affinity are not measured.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.cell import PRODUCT, described
from bench.ends import nats_server, until_done
from bench.load.samples import ask, process_sample
from bench.processes import Process, until_ready
from bench.report import Report, Row, machine, row
from bench.restart import Ledger
from berth.core.cluster.node_packing import pack_nodes
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.intake import JobRequest, Task
from berth.schemas.nodes import NodeDescription
from berth.schemas.subjects import StreamName

_BELOW: Final = 48
_DEADLINE_S: Final = 1_800.0
_POLL_S: Final = 0.1
_NAMESPACE: Final = "bench"
_MIB: Final = 1 << 20


class Size(NamedTuple):
    """Size of a run.

    Attributes:
        nodes: Nodes of the cell.
        shards: Its scorers.
        lone: Jobs that are submitted one after the other.
        gang: Pods of a gang with a node for each.
        many: Jobs that are submitted at once.
    """

    nodes: int = 1_000_000
    shards: int = 8
    lone: int = 30
    gang: int = 1_000
    many: int = 5_000


FULL: Final = Size()
SMALL: Final = Size(nodes=200, shards=2, lone=2, gang=90, many=3)


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(bench="nodes", machine=machine(), rows=until_done(measure(size)))


async def measure(size: Size) -> list[Row]:
    """Rows of a cell."""
    nodes, shards, lone, gang, many = size
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-nodes-")))
        server = await stack.enter_async_context(nats_server(folder / "nats"))
        bus = await stack.enter_async_context(
            await NatsBus.connect(server.url, "bench", name="bench", inbox="_INBOX.person.bench")
        )
        await bus.ensure_streams()
        began_s = time.perf_counter()
        for domain, rows in _domains(nodes):
            await bus.submit_wait(bus.subjects.fact_node(domain), encode(pack_nodes(domain, rows)))
        await bus.wait_mirror(
            StreamName.LATEST, at_least=(await bus.state(StreamName.FACTS)).last_seq, timeout_s=_DEADLINE_S
        )
        given_s = time.perf_counter() - began_s
        processes, ports = _processes(folder, server.url, shards)
        jobs = _Jobs(bus)
        began_s = time.perf_counter()
        for one in processes:
            one.start()
            stack.callback(one.kill)
        for port in ports:
            await until_ready(port, deadline_s=_DEADLINE_S, poll_s=_POLL_S)
        ready_s = time.perf_counter() - began_s
        await jobs.place(1, 1, 1)
        first_s = time.perf_counter() - began_s
        used_s = {one.name: one.cpu_s() for one in processes}
        lone_ms = [1000 * await jobs.place(1, 1, 1) for _ in range(lone)]
        gang_s = await jobs.place(1, gang, PRODUCT.chips)
        many_s = await jobs.place(many, 1, 1)
        state = (await ask(bus, f"STREAM.INFO.{bus.subjects.stream(StreamName.LATEST)}"))["state"]
        memory = {"nats-server": process_sample(server.pid or 0).pss_mib}
        memory |= {one.name: one.pss_mib() for one in processes}
        what = f"{nodes:,} nodes, {shards} scorers"
        scorers = [mib for name, mib in memory.items() if name.startswith("scorer")]
        return [
            row(what, "facts of the nodes published", "s", [given_s]),
            row(what, "facts of the nodes", "MiB", [state["bytes"] / _MIB]),
            row(what, "start of all to ready", "s", [ready_s]),
            row(what, "start of all to the first placement", "s", [first_s]),
            row(what, "CPU of the dispatcher until then", "s of a core", [used_s["dispatcher"]]),
            row(what, "CPU of a scorer until then", "s of a core", [v for k, v in used_s.items() if k != "dispatcher"]),
            row(what, "one lone job to its placement, p50", "ms", lone_ms),
            row(what, f"one gang of {gang:,} nodes to its placement", "ms", [1000 * gang_s]),
            row(what, "jobs at once", "1/s", [many / many_s]),
            row(what, "memory of nats-server", "MiB", [memory["nats-server"]]),
            row(what, "memory of the dispatcher", "MiB", [memory["dispatcher"]]),
            row(what, "memory of a scorer, median", "MiB", scorers),
            row(what, "memory of a scorer, most", "MiB", [max(scorers)]),
            row(what, "memory of all", "MiB", [sum(memory.values())]),
            row(what, "memory of all, for a node", "KiB", [1024 * sum(memory.values()) / nodes]),
        ]


def _domains(nodes: int) -> Iterator[tuple[str, list[NodeDescription]]]:
    """The nodes of each leaf switch, a switch at a time: all at once would need more memory than the cell."""
    for first in range(0, nodes, _BELOW):
        leaf = f"leaf-{first // _BELOW:05d}"
        yield (
            f"leaf-{leaf}",
            [
                described(f"node-{at:07d}", leaf=leaf, position=at - first)
                for at in range(first, min(first + _BELOW, nodes))
            ],
        )


def _processes(folder: Path, url: str, shards: int) -> tuple[list[Process], list[int]]:
    """Dispatcher and scorers, and the ports of their probes."""
    ports = free_ports(1 + shards)
    common = [{"bus": {"url": url, "cell": "bench"}, "probes": {"port": port}, "shards": shards} for port in ports]
    return [
        Process(folder, "dispatcher", common[0]),
        *(
            Process(folder, "scorer", {**settings, "shard": shard}, name=f"scorer-{shard}")
            for shard, settings in enumerate(common[1:])
        ),
    ], ports


class _Jobs:
    """Jobs that stay."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self._ledger = Ledger(bus)
        self._count = 0

    async def place(self, count: int, pods: int, chips: int) -> float:
        """Submit equal jobs; returns the seconds until all are placed."""
        began_s = time.perf_counter()
        for _ in range(count):
            name = f"job-{self._count}"
            self._count += 1
            request = JobRequest(
                namespace=_NAMESPACE,
                name=name,
                uid=name,
                resource=PRODUCT.resource,
                tasks=[Task("worker", pods, chips)],
                node_selector=dict(PRODUCT.selector),
            )
            await self._bus.submit_wait(self._bus.subjects.intake_request(_NAMESPACE, name), encode(request))
        await self._ledger.until(lambda: len(self._ledger.placed) >= self._count)
        return time.perf_counter() - began_s
