"""``gateway``: submissions over HTTP with 32 connections, beside the bare framework that answers the same request.

They are also compared with the same submissions over NATS, without the gateway.

Most: each connection sends its next request when it has the answer to the last one. At 500 requests/s: each is sent at
its time, and its latency counts from that time, also if it had to wait for a connection.
"""

import asyncio
import hashlib
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

import aiohttp
import msgspec

from bench.ends import nats_server, until_done
from bench.processes import Process, Program
from bench.report import Report, Row, machine, row
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName

_CONNECTIONS: Final = 32
_PACE: Final = 500.0
_CELL: Final = "bench"
_TOKEN: Final = "of-the-bench"  # noqa: S105  # of a gateway that lives as long as the bench
_RATE_TARGET: Final = 1_000.0
_P50_TARGET_MS: Final = 10.0
_READY_S: Final = 20.0
_QUIET_S: Final = 1.0
_STATUSES: Final = (b"200", b"201")


class Size(NamedTuple):
    """Size of a run: jobs of a repetition as fast as it goes and at a pace, and repetitions."""

    jobs: int = 1_600
    paced: int = 1_000
    repeats: int = 5


FULL: Final = Size()
SMALL: Final = Size(jobs=64, paced=100, repeats=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for case, services in (("api alone", ("api",)), ("with a dispatcher", ("dispatcher", "api"))):
        rows += until_done(_measure(case, services, size))
    return Report(bench="gateway", machine=machine(), rows=rows)


async def _measure(case: str, services: tuple[str, ...], size: Size) -> list[Row]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-gateway-")))
        server = await stack.enter_async_context(nats_server(folder / "nats"))
        port, bare_port = free_ports(2)
        processes = stack.enter_context(ExitStack())
        running = {name: _started(processes, folder, server.url, name, port=port) for name in (*services, "gateway")}
        bare_server = Program(folder, "bare application", ["-m", "bench.limits.gateway", str(bare_port)])
        bare_server.start()
        processes.callback(bare_server.kill)
        bus = await stack.enter_async_context(
            await NatsBus.connect(server.url, _CELL, name="bench", inbox="_INBOX.person.bench")
        )
        for each in (port, bare_port):
            await _until_answered(each)
        connections = await _connected(port)
        bare = await _connected(bare_port)
        direct = [
            _Direct(await stack.enter_async_context(await NatsBus.connect(server.url, _CELL, name=f"bench-{number}")))
            for number in range(_CONNECTIONS)
        ]
        over_nats: list[float] = []
        rates: list[float] = []
        limits: list[float] = []
        paced_ms: list[float] = []
        bare_ms: list[float] = []
        cpu_ms: list[float] = []
        for repeat in range(size.repeats):
            for own, found, latencies, kind in (
                (connections, rates, paced_ms, "gateway"),
                (bare, limits, bare_ms, "bare"),
            ):
                began_s = running["gateway"].cpu_s()
                found.append(await _most(own, [f"{kind}-{repeat}-{job}" for job in range(size.jobs)]))
                if kind == "gateway":
                    cpu_ms.append((running["gateway"].cpu_s() - began_s) * 1000 / size.jobs)
                    await _settled(bus)
                latencies.extend(await _paced(own, [f"{kind}-{repeat}-p-{job}" for job in range(size.paced)]))
                if kind == "gateway":
                    await _settled(bus)
            over_nats.append(await _most(direct, [f"direct-{repeat}-{job}" for job in range(size.jobs)]))
            await _settled(bus)
        for one in (*connections, *bare):
            one.close()
    return [
        row(case, "submissions", "1/s", rates, limits=limits, target=_RATE_TARGET, better="more"),
        row(case, "submissions, beside those over NATS", "1/s", rates, limits=over_nats, better="more"),
        row(case, "submission at 500/s, p50", "ms", paced_ms, limits=bare_ms, target=_P50_TARGET_MS),
        row(case, "submission at 500/s, p99", "ms", [_p99(paced_ms)], limits=[_p99(bare_ms)]),
        row(case, "CPU of the gateway for one", "ms", cpu_ms),
    ]


def _started(stack: ExitStack, folder: Path, url: str, name: str, *, port: int) -> Process:
    settings: dict[str, object] = {"bus": {"url": url, "cell": _CELL}}
    tokens = ""
    if name == "dispatcher":
        settings["shards"] = 0
    if name == "gateway":
        settings["port"] = port
        digest = hashlib.sha256(_TOKEN.encode()).hexdigest()
        tokens = f'[[tokens]]\nidentity = "bench"\nsha256 = "{digest}"\n'
    process = Process(folder, name, settings, more=tokens)
    process.start()
    stack.callback(process.kill)
    return process


async def _until_answered(port: int) -> None:
    """Wait until a submission is taken."""
    body = msgspec.json.encode(_job("first"))
    headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"}
    async with asyncio.timeout(_READY_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(f"http://127.0.0.1:{port}/api/v1/jobs", data=body, headers=headers) as answer:
                    if answer.status in {200, 201}:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.05)


class _Connection(asyncio.Protocol):
    """A connection with one request at a time, as cheap as it can be: the load shares the cores with the service."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop is no subclass

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        self._received += data
        head, found, body = bytes(self._received).partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._received.clear()
            self._answer.set_result(head[9:12])

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the connection was closed"))

    async def post(self, name: str) -> None:
        """Submit a job.

        Raises:
            RuntimeError: It was not taken.
        """
        body = msgspec.json.encode(_job(name))
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise RuntimeError("not connected")
        self._transport.write(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (_TOKEN.encode(), len(body), body)
        )
        status = await self._answer
        if status not in _STATUSES:
            raise RuntimeError(f"not submitted: {status!r}")

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()


class _Direct:
    """A connection to NATS, over which the service for programs is asked."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    async def post(self, name: str) -> None:
        """Submit a job.

        Raises:
            RuntimeError: It was not taken.
        """
        data = msgspec.json.encode({"job": _job(name)})
        reply = await self._bus.request(self._bus.subjects.api("submit"), data, timeout_s=20)
        if not msgspec.json.decode(reply)["ok"]:
            raise RuntimeError(f"not submitted: {reply!r}")


class _Submitter(Protocol):
    async def post(self, name: str) -> None:
        """Submit a job."""


async def _connected(port: int) -> list[_Connection]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(_Connection, "127.0.0.1", port))[1] for _ in range(_CONNECTIONS)]


async def _most(connections: Sequence[_Submitter], jobs: Sequence[str]) -> float:
    """Rate of a request for each job over all connections, each of which has one at a time."""

    async def some(connection: _Submitter, first: int) -> None:
        for job in jobs[first::_CONNECTIONS]:
            await connection.post(job)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for first, connection in enumerate(connections):
            group.create_task(some(connection, first))
    return len(jobs) / (time.perf_counter() - start)


async def _paced(connections: list[_Connection], jobs: Sequence[str]) -> list[float]:
    """Milliseconds from the time at which each request is due until its answer."""
    start = time.perf_counter() + 0.1
    took_ms: list[float] = []

    async def some(connection: _Connection, first: int) -> None:
        for number in range(first, len(jobs), _CONNECTIONS):
            due = start + number / _PACE
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            await connection.post(jobs[number])
            took_ms.append((time.perf_counter() - due) * 1000)

    async with asyncio.TaskGroup() as group:
        for first, connection in enumerate(connections):
            group.create_task(some(connection, first))
    return took_ms


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def _job(name: str) -> dict[str, object]:
    return {
        "apiVersion": "berth/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{name}", "namespace": "bench", "uid": f"uid-{name}"},
        "spec": {"product": "module910bx8", "replicas": 2, "chips": 8},
    }


async def _settled(bus: NatsBus) -> None:
    """Wait until no more events of the jobs are stored, so that the service does not work beside what follows."""
    before = -1
    while (now := (await bus.state(StreamName.EVENTS)).last_seq) != before:
        before = now
        await asyncio.sleep(_QUIET_S)
