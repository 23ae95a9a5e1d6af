"""``reports``: 10,000 health reports a second for a minute, whatever becomes of them. Are all taken, and how soon?

Each node reports once a second. Of 100 nodes another chip is unhealthy in each of their reports.
"""

import asyncio
import re
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import msgspec

from bench.cell import give_nodes, many_nodes
from bench.ends import nats_server, until_done
from bench.health import Facts, until_taken
from bench.processes import Process
from bench.report import Report, Row, machine, row
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.inboxes import inbox_of_agent

_SETTLED_S: Final = 10
_TICK_S: Final = 0.01
_ASK_S: Final = 60.0
_GROWTH: Final = 2.0
_TAKEN: Final = re.compile(r'^berth_health_reports_total\{source="agent"\} ([0-9.e+]+)$', re.MULTILINE)


class Size(NamedTuple):
    """Size of a run: nodes, each with a report a second, for so long, and nodes whose report always changes."""

    nodes: int = 10_000
    seconds: int = 60
    changed: int = 100


FULL: Final = Size()
SMALL: Final = Size(nodes=50, seconds=3, changed=5)


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(bench="reports", machine=machine(), rows=until_done(measure(size)))


async def measure(size: Size) -> list[Row]:
    """Rows."""
    nodes, seconds, changed = size
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-reports-")))
        server = await stack.enter_async_context(nats_server(folder / "nats"))
        described = many_nodes(nodes)
        inbox = inbox_of_agent(described[0].name)
        bus = await stack.enter_async_context(await NatsBus.connect(server.url, "bench", name="bench", inbox=inbox))
        await bus.ensure_streams()
        await give_nodes(bus, described)
        (port,) = free_ports(1)
        settings = {"source": "none", "flap_hold_s": 0, "bus": {"url": server.url, "cell": "bench"}}
        service = Process(folder, "health", {**settings, "probes": {"port": port}})
        service.start()
        stack.callback(service.kill)
        agents = _Agents(bus, [one.name for one in described], changed)
        await until_taken(bus, agents.names[0])
        taken, used_s = await _taken(port), service.cpu_s()
        early_mib, began_s = 0.0, time.perf_counter()
        for second in range(seconds):
            await agents.second(second, began_s + second)
            if second == min(_SETTLED_S, seconds // 2):
                early_mib = service.pss_mib()
        took_s = time.perf_counter() - began_s
        await bus.request(bus.subjects.report_health(agents.names[0]), agents.report(0, 0), timeout_s=_ASK_S)
        lag_s = time.perf_counter() - began_s - took_s
        await agents.until_facts()
        taken, used_s = await _taken(port) - taken - 1, service.cpu_s() - used_s
        late_mib = service.pss_mib()
        what = f"{nodes:,} nodes, {nodes:,} reports a second for {seconds} s"
        return [
            row(what, "reports sent", "1/s", [agents.sent / took_s], target=0.99 * nodes, better="more"),
            row(what, "reports not taken", "1", [agents.sent - taken], target=0.0, can_be_zero=True),
            row(what, "last report to its answer", "ms", [1000 * lag_s]),
            row(what, "report to fact, p50", "ms", agents.took_ms),
            row(what, "report to fact, most", "ms", [max(agents.took_ms)]),
            row(what, "CPU of the service", "% of a core", [100 * used_s / took_s]),
            row(what, "memory of the service, at last", "MiB", [late_mib]),
            row(
                what,
                "memory of the service, growth",
                "%",
                [100 * (late_mib / early_mib - 1)],
                target=_GROWTH,
                can_be_zero=True,
            ),
        ]


class _Agents:
    """What the agents of all nodes send."""

    def __init__(self, bus: NatsBus, names: list[str], changed: int) -> None:
        self.names = names
        self.sent = 0
        self.took_ms: list[float] = []
        """From a report that changes a chip to the fact that says so."""
        self._bus = bus
        self._changed = changed
        self._facts = Facts(bus)
        self._sent_s: dict[str, float] = {}

    def report(self, at: int, second: int) -> bytes:
        """Report of a node in a second."""
        unhealthy = [second % 2] if at < self._changed else []
        return msgspec.json.encode({"node": self.names[at], "unhealthy": unhealthy, "source": "bench"})

    async def second(self, second: int, began_s: float) -> None:
        """Let each node report once, evenly over the second that begins then."""
        self._note_facts()
        sent = 0
        while sent < len(self.names):
            due = min(len(self.names), int((time.perf_counter() - began_s) * len(self.names)) + 1)
            for at in range(sent, due):
                name = self.names[at]
                if at < self._changed:
                    self._sent_s.setdefault(name, time.perf_counter())
                await self._bus.send(self._bus.subjects.report_health(name), self.report(at, second))
            self.sent += max(due - sent, 0)
            sent = max(due, sent)
            await asyncio.sleep(_TICK_S)

    async def until_facts(self) -> None:
        """Wait until there is a fact for each report that changed a chip."""

        def is_done() -> bool:
            self._note_facts()
            return not self._sent_s

        await self._facts.until(is_done)

    def _note_facts(self) -> None:
        """Note how long facts took; what has not come is counted from its report on when it comes."""
        for name, sent_s in list(self._sent_s.items()):
            arrived_s = self._facts.arrived_s.get(name, 0.0)
            if arrived_s > sent_s:
                self.took_ms.append(1000 * (arrived_s - sent_s))
                del self._sent_s[name]


async def _taken(port: int) -> float:
    """Reports that the service has taken, by its metrics."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        found = _TAKEN.search(await answer.text())
        return float(found[1]) if found else 0.0
