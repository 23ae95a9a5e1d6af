"""``programs``: submissions over the JSON API with 32 connections, beside as many plain publishes to the same stream.

Each connection sends its next request when it has the answer to the last one. A repetition submits jobs over the
service, then publishes as many bare messages, on the same server and with the same connections.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.ends import nats_server, until_done
from bench.processes import Process
from bench.report import Report, Row, machine, row
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName

_CONNECTIONS: Final = 32
_CELL: Final = "bench"
_TARGET: Final = 1_000.0
_READY_S: Final = 20.0
_QUIET_S: Final = 1.0


class Size(NamedTuple):
    """Size of a run: jobs of a repetition, and repetitions."""

    jobs: int = 1_600
    repeats: int = 5


FULL: Final = Size()
SMALL: Final = Size(jobs=64, repeats=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for case, services in (("service alone", ("api",)), ("with a dispatcher", ("dispatcher", "api"))):
        rows += until_done(_measure(case, services, size))
    return Report(bench="programs", machine=machine(), rows=rows)


async def _measure(case: str, services: tuple[str, ...], size: Size) -> list[Row]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-programs-")))
        server = await stack.enter_async_context(nats_server(folder / "nats"))
        processes = stack.enter_context(ExitStack())
        running: list[Process] = []
        for name in services:
            settings: dict[str, object] = {"bus": {"url": server.url, "cell": _CELL}}
            process = Process(folder, name, settings | ({"shards": 0} if name == "dispatcher" else {}))
            process.start()
            running.append(process)
            processes.callback(process.kill)
        buses = [
            await stack.enter_async_context(
                await NatsBus.connect(server.url, _CELL, name=f"bench-{number}", inbox=f"_INBOX.person.bench-{number}")
            )
            for number in range(_CONNECTIONS)
        ]
        await _until_answered(buses[0])
        service = next(process for process in running if process.name == "api")
        rates: list[float] = []
        limits: list[float] = []
        took_ms: list[float] = []
        bare_ms: list[float] = []
        cpu_ms: list[float] = []
        for repeat in range(size.repeats):
            began_s = service.cpu_s()
            jobs = [f"{repeat}-{job}" for job in range(size.jobs)]
            rates.append(await _all(buses, jobs, _submit, took_ms))
            await _settled(buses[0])
            cpu_ms.append((service.cpu_s() - began_s) * 1000 / size.jobs)
            limits.append(await _all(buses, jobs, _publish, bare_ms))
    return [
        row(case, "submissions", "1/s", rates, limits=limits, target=_TARGET, better="more"),
        row(case, "submission, p50", "ms", took_ms, limits=bare_ms),
        row(case, "CPU of the service for one, with its events", "ms", cpu_ms),
    ]


async def _until_answered(bus: NatsBus) -> None:
    """Wait until the service offers all operations: it offers them one after the other."""
    async with asyncio.timeout(_READY_S):
        while not any(  # noqa: ASYNC110  # readiness can only be polled
            one.name == "berth-api" and one.is_ready for one in await bus.processes()
        ):
            await asyncio.sleep(0.05)


async def _all(
    buses: list[NatsBus], jobs: Sequence[str], one: Callable[[NatsBus, str], Awaitable[None]], took_ms: list[float]
) -> float:
    """Rate of a request for each job over all connections, each of which has one at a time."""

    async def some(bus: NatsBus, first: int) -> None:
        for job in jobs[first::_CONNECTIONS]:
            start = time.perf_counter()
            await one(bus, job)
            took_ms.append((time.perf_counter() - start) * 1000)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for first, bus in enumerate(buses):
            group.create_task(some(bus, first))
    return len(jobs) / (time.perf_counter() - start)


def _job(job: str) -> bytes:
    return msgspec.json.encode(
        {
            "job": {
                "apiVersion": "berth/v1",
                "kind": "Job",
                "metadata": {"name": f"job-{job}", "namespace": "bench", "uid": f"uid-{job}"},
                "spec": {"product": "module910bx8", "replicas": 2, "chips": 8},
            }
        }
    )


async def _submit(bus: NatsBus, job: str) -> None:
    reply = await bus.request(bus.subjects.api("submit"), _job(job), timeout_s=20)
    if not msgspec.json.decode(reply)["ok"]:
        raise RuntimeError(f"not submitted: {reply!r}")


async def _publish(bus: NatsBus, job: str) -> None:
    await bus.publish(bus.subjects.event_job("bare", f"job-{job}"), _job(job))


async def _settled(bus: NatsBus) -> None:
    """Wait until no more events of the jobs are stored, so that the service does not work beside what follows."""
    before = -1
    while (now := (await bus.state(StreamName.EVENTS)).last_seq) != before:
        before = now
        await asyncio.sleep(_QUIET_S)
