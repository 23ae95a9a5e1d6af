"""``health``: reports of 10,000 agents at the health service, while nothing changes and while one in ten does.

Agents send as fast as they are read: of each batch the last report is a request, whose answer says that all before it
were taken. The service follows the reports in a process of its own.
"""

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.arrivals import Arrivals
from bench.cell import give_nodes, many_nodes
from bench.ends import nats_server, until_done
from bench.processes import Process
from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import unpack_health
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.errors import TransientError
from berth.runtime.inboxes import inbox_of_agent
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen
from berth.schemas.subjects import StreamName

_BATCH: Final = 1_000
_CHANGED: Final = 10
"""One report in so many changes a chip."""
_TARGET: Final = 10_000.0
"""Reports a second."""
_MEMORY_TARGET_MIB: Final = 64.0
_ASK_S: Final = 60.0


class Size(NamedTuple):
    """Size of a run: nodes, and reports of each node in a case."""

    nodes: int = 10_000
    rounds: int = 10


FULL: Final = Size()
SMALL: Final = Size(nodes=100, rounds=1)


class Facts:
    """Health facts as they arrive.

    Args:
        bus: The cell.
    """

    def __init__(self, bus: NatsBus) -> None:
        self.unhealthy: dict[str, int] = {}
        self.arrived_s: dict[str, float] = {}
        """When the chips of each node were last seen to change."""
        filters = (bus.subjects.facts("health"),)
        self.until = Arrivals(bus, StreamName.FACTS, take=self._take, filters=filters, deadline_s=_ASK_S).until

    def _take(self, stored: Stored) -> None:
        now_s = time.perf_counter()
        for one in unpack_health(decode(stored.data, HealthSeen)):
            if self.unhealthy.get(one.name, 0) != one.unhealthy:
                self.unhealthy[one.name] = one.unhealthy
                self.arrived_s[one.name] = now_s


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(bench="health", machine=machine(), rows=until_done(_measure(size)))


async def _measure(size: Size) -> list[Row]:
    names = [f"node-{number:06d}" for number in range(size.nodes)]
    with tempfile.TemporaryDirectory(prefix="berth-health-") as root:
        async with nats_server(Path(root) / "nats") as server:
            bus = await NatsBus.connect(server.url, "bench", name="bench", inbox=inbox_of_agent(names[0]))
            await bus.ensure_streams()
            await give_nodes(bus, many_nodes(size.nodes))
            settings = {"source": "none", "flap_hold_s": 0, "bus": {"url": server.url, "cell": "bench"}}
            service = Process(Path(root), "health", settings)
            service.start()
            try:
                facts = Facts(bus)
                await until_taken(bus, names[0])
                await _send(bus, names, {})
                before_mib = service.pss_mib()
                rows = await _case(bus, service, facts, names, "the same again", 0, size.rounds)
                rows += await _case(
                    bus, service, facts, names, f"a chip changes in 1 of {_CHANGED}", _CHANGED, size.rounds
                )
                grown_mib = service.pss_mib() - before_mib
            finally:
                service.kill()
                await bus.close()
    count = 2 * size.rounds * size.nodes
    case = f"{size.nodes} nodes, {count} reports"
    return [*rows, row(case, "memory grown", "MiB", [grown_mib], target=_MEMORY_TARGET_MIB, can_be_zero=True)]


async def _case(
    bus: NatsBus, service: Process, facts: Facts, names: list[str], what: str, changed: int, rounds: int
) -> list[Row]:
    rates: list[float] = []
    took_ms: list[float] = []
    cpu_s, sent = service.cpu_s(), 0
    for number in range(rounds):
        masks = {}
        if changed:
            mask = number % 2 == 0
            masks = {name: [3] if mask else [] for name in names[::changed]}
        began_s = time.perf_counter()
        sent_s = await _send(bus, names, masks)
        rates.append(len(names) / (time.perf_counter() - began_s))
        sent += len(names)
        wanted = 8 if changed and number % 2 == 0 else 0
        await _until_facts(facts, list(masks), wanted)
        took_ms += [1000 * (facts.arrived_s[name] - sent_s[name]) for name in masks]
    used_us = 1e6 * (service.cpu_s() - cpu_s) / sent
    case = f"{len(names)} nodes, {what}"
    rows = [
        row(case, "reports taken", "1/s", rates, target=_TARGET, better="more"),
        row(case, "processor of the service", "us/report", [used_us]),
    ]
    if took_ms:
        rows += [
            row(case, "report to fact, p50", "ms", took_ms),
            row(case, "report to fact, most", "ms", [max(took_ms)]),
        ]
    return rows


async def _send(bus: NatsBus, names: list[str], unhealthy: dict[str, list[int]]) -> dict[str, float]:
    """Send a report of each node; returns when each that names chips was sent, once all are taken."""
    sent_s: dict[str, float] = {}
    for at, name in enumerate(names, start=1):
        data = msgspec.json.encode({"node": name, "unhealthy": unhealthy.get(name, []), "source": "bench"})
        subject = bus.subjects.report_health(name)
        if name in unhealthy:
            sent_s[name] = time.perf_counter()
        await bus.send(subject, data)
        if at % _BATCH == 0 or at == len(names):  # the agent of the first node alone gets answers here
            first = msgspec.json.encode({"node": names[0], "unhealthy": unhealthy.get(names[0], []), "source": "bench"})
            await bus.request(bus.subjects.report_health(names[0]), first, timeout_s=_ASK_S)
    return sent_s


async def until_taken(bus: NatsBus, name: str) -> None:
    """Wait until the service takes reports of the nodes."""
    async with asyncio.timeout(_ASK_S):
        while True:
            with contextlib.suppress(TransientError):
                data = msgspec.json.encode({"node": name, "source": "bench"})
                answer = await bus.request(bus.subjects.report_health(name), data, timeout_s=1.0)
                if msgspec.json.decode(answer).get("ok"):
                    return
            await asyncio.sleep(0.1)


async def _until_facts(facts: Facts, names: list[str], wanted: int) -> None:
    """Wait until facts show the chips of some nodes."""
    await facts.until(lambda: all(facts.unhealthy.get(name, 0) == wanted for name in names))
