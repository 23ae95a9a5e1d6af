"""``load``: a cell under a steady load for an hour. Does its memory grow, its streams, its latency?

All processes are real: nats-server with file storage, two dispatchers of which one stands by, a scorer, and the health
service. A client in this process does what users, binder and inventory would do. First it submits for a minute as many
jobs as are placed; then 0.8 of that rate for the time that is asked for.

What is kept for days by default is kept for minutes here, so that an hour sees its end: requests and facts five minutes
instead of seven days, the names of jobs that are over half a minute instead of ten, a snapshot for each minute instead
of each hour. Jobs come under a bounded set of names, because statuses and latest facts are kept one for each name.
"""

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.cell import PRODUCT, give_nodes, many_nodes
from bench.ends import nats_server, until_done
from bench.load.samples import Course, CourseFile, Sample, ask, sample_of
from bench.load.traffic import Traffic
from bench.load.verdict import CLIENT, rows_of
from bench.processes import Process, until_ready
from bench.report import Report, machine
from berth.core.cluster.node_packing import unpack_health
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.subjects import StreamName

_SHARE: Final = 0.8
_READY_S: Final = 60.0
_POLL_S: Final = 0.1
_END_S: Final = 120.0
_REPORTS_S: Final = 60.0
"""Period of the health reports of each node."""
_NS: Final = 1_000_000_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the load."""

    seconds: float = 3_600.0
    fast_s: float = 300.0
    """How long as many jobs are submitted as are placed, to measure the rate. In the second half of that time names of
    jobs come again, as they do later; a cell with new names only is faster."""
    nodes: int = 10_000
    names: int = 100_000
    outstanding: int = 2_000
    """Jobs that are submitted and not placed while the rate is measured."""
    used: float = 0.7
    """Share of the chips in use."""
    kept_s: float = 300.0
    """How long requests and facts are kept."""
    sample_s: float = 10.0
    """Time between two samples."""
    rate: float = 0.0
    """Jobs a second, instead of 0.8 of the measured rate; 0: measure."""


FULL: Final = Settings()
SMALL: Final = Settings(seconds=12, fast_s=4, nodes=20, outstanding=20, used=0.5, sample_s=0.5)


class _Cell(NamedTuple):
    bus: NatsBus
    pids: dict[str, int]


def run(settings: Settings = FULL, path: Path | None = None) -> Report:
    """Measure.

    Args:
        settings: Size of the load.
        path: File for the samples; None for a temporary one.
    """
    gc.set_threshold(50_000, 20, 50)
    return Report(bench="load", machine=machine(), rows=rows_of(until_done(load(settings, path))))


async def load(settings: Settings, path: Path | None) -> Course:
    """A load, with all its samples.

    Raises:
        RuntimeError: A process of the cell ended, or a message was not stored.
        TimeoutError: Jobs were not placed at the end.
    """
    async with _cell(settings) as cell:
        names = [one.name for one in many_nodes(settings.nodes)]
        await _report_first(cell.bus, names)
        traffic = Traffic(
            cell.bus, names=settings.names, keep_chips=int(settings.used * settings.nodes * PRODUCT.chips)
        )
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(traffic.send_facts()), group.create_task(_report_again(cell.bus, names))]
            measured = settings.rate / _SHARE
            if not measured:
                measured = await traffic.at_most(settings.fast_s, outstanding=settings.outstanding)
                await traffic.until_placed(_END_S)
            found = Course(machine(), msgspec.structs.asdict(settings), measured, _SHARE * measured)
            samples = await _steady(cell, traffic, found, None if path is None else CourseFile(path, found))
            for one in beside:
                one.cancel()
    return msgspec.structs.replace(found, samples=samples)


async def _steady(cell: _Cell, traffic: Traffic, course: Course, file: CourseFile | None) -> list[Sample]:
    """Submit at a steady rate, and sample.

    Raises:
        RuntimeError: A message was not stored.
    """
    stop, samples = asyncio.Event(), list[Sample]()
    traffic.take_latency()
    sample_s = course.settings["sample_s"]
    began_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(traffic.paced(course.rate, stop))
        while (at_s := time.perf_counter() - began_s) < course.settings["seconds"]:
            await asyncio.sleep(sample_s - at_s % sample_s)
            latency = traffic.take_latency()
            processes, streams, snapshots = await sample_of(cell.bus, cell.pids)
            samples.append(
                Sample(
                    at_s=round(time.perf_counter() - began_s, 3),
                    submitted=traffic.submitted,
                    placed=traffic.placed,
                    failed=traffic.failed,
                    refused=traffic.refused,
                    latency=latency,
                    processes=processes,
                    streams=streams,
                    snapshots=len(snapshots),
                    snapshot_seq=snapshots[-1] if snapshots else 0,
                )
            )
            if file is not None:
                file.add(samples[-1])
        stop.set()
    await traffic.until_placed(_END_S)
    if traffic.failed:
        raise RuntimeError(f"{traffic.failed} messages were not stored")
    return samples


async def _report_first(bus: NatsBus, names: list[str]) -> None:
    """Report that all nodes are healthy, which a node needs to get work, and wait until facts say so.

    Raises:
        TimeoutError: They do not.
    """
    for name in names:
        await _send_report(bus, name)
    async with asyncio.timeout(_READY_S):
        while True:
            facts = await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),))
            known = [one for stored in facts for one in unpack_health(decode(stored.data, HealthSeen))]
            if sum(one.level == NodeHealth.OK for one in known) == len(names):
                return
            await asyncio.sleep(_POLL_S)


async def _report_again(bus: NatsBus, names: list[str]) -> None:
    """What the agents of the nodes send while nothing changes."""
    while True:
        for name in names:
            await _send_report(bus, name)
            await asyncio.sleep(_REPORTS_S / len(names))


async def _send_report(bus: NatsBus, name: str) -> None:
    await bus.send(bus.subjects.report_health(name), msgspec.json.encode({"node": name, "source": "load"}))


@asynccontextmanager
async def _cell(settings: Settings) -> AsyncIterator[_Cell]:
    """A running cell with its nodes, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="berth-load-") as root:
        folder = Path(root)
        async with (
            nats_server(folder / "nats") as server,
            await NatsBus.connect(server.url, "load", name="load", inbox="_INBOX.person.load") as bus,
        ):
            await bus.ensure_streams()
            await give_nodes(bus, many_nodes(settings.nodes))
            processes, ports = _processes(folder, server.url)
            try:
                for one, port in zip(processes, ports, strict=True):
                    one.start()
                    await until_ready(port, deadline_s=_READY_S, poll_s=_POLL_S)
                await _shorten(bus, settings.kept_s)
                pids = {one.name: one.pid for one in processes}
                yield _Cell(bus, {"nats-server": server.pid or 0, **pids, CLIENT: os.getpid()})
            finally:
                for one in processes:
                    one.kill()


def _processes(folder: Path, url: str) -> tuple[list[Process], list[int]]:
    """The services of the cell, and the ports of their probes."""
    decides = {"shards": 1, "snapshot_apart_s": 60, "decisions": {"tombstone_after_ms": 30_000}}
    wanted: list[tuple[str, str, dict[str, object]]] = [
        ("leader", "dispatcher", decides),
        ("standby", "dispatcher", decides),
        ("scorer", "scorer", {"shard": 0, "shards": 1}),
        ("health", "health", {"source": "none"}),
    ]
    ports = free_ports(len(wanted))
    processes = [
        Process(
            folder,
            service,
            {"bus": {"url": url, "cell": "load"}, "probes": {"port": port}, **more},
            name=name,
        )
        for port, (name, service, more) in zip(ports, wanted, strict=True)
    ]
    return processes, ports


async def _shorten(bus: NatsBus, kept_s: float) -> None:
    """Keep requests and facts for so long only; the services set the default when they start."""
    for name in (StreamName.INTAKE, StreamName.FACTS):
        stream = bus.subjects.stream(name)
        config = (await ask(bus, f"STREAM.INFO.{stream}"))["config"]
        age = int(kept_s * _NS)
        config |= {"max_age": age, "duplicate_window": min(config.get("duplicate_window", age), age)}
        await ask(bus, f"STREAM.UPDATE.{stream}", config)
