"""Two instances of every service in one process: neither sees the metrics, readiness or log of the other."""

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from berth.lab.nodesim import app as nodesim
from berth.lab.nodesim.config import NodesimConfig
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.lab.servers.ports import free_ports
from berth.runtime import process
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.config import BusConfig, LogConfig, ProbeConfig, ServiceConfig
from berth.runtime.instruments import Instruments
from berth.runtime.logs import logger_of
from berth.schemas.envelope import encode
from berth.services.api import app as api
from berth.services.api.config import ApiConfig
from berth.services.api.metrics import ApiMetrics
from berth.services.binder import app as binder
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.dispatcher import app as dispatcher
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.gateway import app as gateway
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.health import app as health
from berth.services.health.config import HealthConfig
from berth.services.health.metrics import HealthMetrics
from berth.services.inventory import app as inventory
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.scorer import app as scorer
from berth.services.scorer.config import ScorerConfig
from berth.services.scorer.metrics import ScorerMetrics
from berth.services.summary import app as summary
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from tests.support.cells import a_job
from tests.support.fake_kube import FakeKube
from tests.support.probes import answer, samples
from tests.support.services import PACKAGES
from tests.support.waiting import until, until_true

SIMULATED = ("nodesim", "dispatcher", "scorer", "binder", "api", "gateway")
ON_KUBERNETES = ("inventory", "health", "summary")
CLUSTER = (
    "apiVersion: berth/v1\nkind: Cluster\nnodes:\n  - {{product: module910bx8, count: {count}, name: 'n-{{index}}'}}\n"
)
METRICS: dict[str, Callable[[Any], object]] = {
    "api": ApiMetrics,
    "binder": BinderMetrics,
    "dispatcher": DispatcherMetrics,
    "gateway": GatewayMetrics,
    "health": HealthMetrics,
    "inventory": InventoryMetrics,
    "nodesim": NodesimMetrics,
    "scorer": ScorerMetrics,
    "summary": SummaryMetrics,
}
SHARED = ("berth_process_", "berth_void_records_total", "berth_unsigned_records_total", "berth_watch_silence_seconds")
"""How names of metrics begin that several services have."""
OF_THE_CELL = tuple(
    f"berth_{name}"
    for name in ("chips", "leaf_", "superpod_", "nodes", "places", "waiting_", "jobs", "queue_", "counts_age_seconds")
)
"""How names of those begin that count the cell, and that ``api`` has."""


class Instance:
    """A service that runs as a task, with instruments of its own."""

    def __init__(self, name: str, config: ServiceConfig, serve: Any) -> None:  # noqa: ANN401  # one of nine types
        self.name = name
        self.printed = io.StringIO()
        self.stop = asyncio.Event()
        self.port = config.probes.port
        self.instruments = Instruments.make(METRICS[name], log=logger_of(name, LogConfig(form="json"), self.printed))
        self.work = process.run_service(name, config, self.instruments, serve, self.stop)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.printed.getvalue().splitlines()]


class Pair:
    """All services once: those of a simulated cluster in one cell, those on a Kubernetes cluster in another.

    Args:
        number: How many jobs are asked for and how many nodes and PodGroups the Kubernetes cluster has; the simulated
            one has four times as many nodes.
    """

    def __init__(self, number: int, url: str, cell: str, folder: Path) -> None:
        self.number = number
        self.cell = f"{cell}-sim-{number}"
        self.kube = FakeKube(clock=SystemClock())
        for index in range(number):
            self.kube.put("/api/v1/nodes", {"metadata": {"name": f"n{index}"}, "status": {}})
            owner = {"kind": "Job", "name": f"job-{index}", "uid": f"u-{index}", "controller": True}
            group = {
                "metadata": {
                    "name": f"group-{index}",
                    "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", **owner}],
                },
                "spec": {"minMember": 1},
            }
            self.kube.put("/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups", group)
        topology = folder / f"cluster-{number}.yaml"
        topology.write_text(CLUSTER.format(count=4 * number))
        ports = iter(free_ports(len(METRICS) + 1))
        self.page_port = next(ports)

        def common(cell: str) -> dict[str, Any]:
            return {"bus": BusConfig(url=url, cell=cell), "probes": ProbeConfig(port=next(ports)), "grace_s": 5.0}

        async def count_nodes(
            bus: Bus, clock: Clock, config: InventoryConfig, own: Instruments[InventoryMetrics], stop: asyncio.Event
        ) -> None:
            await inventory.serve_on(bus, self.kube, clock, config, own, stop)

        async def write_summaries(
            bus: Bus, clock: Clock, config: SummaryConfig, own: Instruments[SummaryMetrics], stop: asyncio.Event
        ) -> None:
            await bus.ensure_streams()
            await summary.write_on(self.kube, bus, clock, config, own, stop)

        on_kube = f"{cell}-kube-{number}"
        self.instances = [
            Instance("nodesim", NodesimConfig(topology_file=topology, **common(self.cell)), nodesim.serve),
            Instance("dispatcher", DispatcherConfig(shards=1, tick_s=0.05, **common(self.cell)), dispatcher.serve),
            Instance("scorer", ScorerConfig(shards=1, **common(self.cell)), scorer.serve),
            Instance("binder", BinderConfig(**common(self.cell)), binder.serve),
            Instance("api", ApiConfig(**common(self.cell)), api.serve),
            Instance("gateway", GatewayConfig(port=self.page_port, access="open", **common(self.cell)), gateway.serve),
            Instance("inventory", InventoryConfig(settle_s=0.02, **common(on_kube)), count_nodes),
            Instance("health", HealthConfig(source="none", tick_s=0.05, **common(on_kube)), health.serve),
            Instance("summary", SummaryConfig(settle_s=0.02, **common(on_kube)), write_summaries),
        ]

    async def ask(self, url: str, session: aiohttp.ClientSession) -> None:
        """Ask for the jobs, and the gateway as often for what the caller may do."""
        for _ in range(self.number):
            async with session.get(f"http://127.0.0.1:{self.page_port}/api/v1/me") as response:
                assert response.status == 200
        async with await NatsBus.connect(url, self.cell, name="test", inbox="_INBOX.person.test") as bus:
            for index in range(self.number):
                job = a_job(f"job-{index}", chips=8)
                await bus.publish(bus.subjects.intake_request(job.namespace, job.name), encode(job))

    @property
    def expected(self) -> dict[str, float]:
        """Metrics of the services, which are those of this pair alone."""
        return {
            "berth_api_events_total": 4 * self.number,  # accepted, placed, bound, running
            "berth_binder_gangs_total.bound": self.number,
            "berth_dispatcher_requests_total": self.number,
            "berth_dispatcher_placed_gangs_total": self.number,
            "berth_gateway_requests_total./api/v1/me.200": self.number,
            "berth_health_nodes.ok": self.number,
            "berth_inventory_nodes": self.number,
            "berth_nodesim_nodes": 4 * self.number,
            "berth_scorer_nodes": 4 * self.number,
            "berth_summary_jobs": self.number,
        }

    async def shown(self, session: aiohttp.ClientSession) -> dict[str, float]:
        """What ``/metrics`` of the services shows of them."""
        found: dict[str, float] = {}
        for instance in self.instances:
            values = await samples(session, instance.port)
            own = {name: value for name, value in values.items() if name.startswith("berth_")}
            counted = OF_THE_CELL if instance.name == "api" else ()
            foreign = {name for name in own if not name.startswith((f"berth_{instance.name}_", *SHARED, *counted))}
            assert not foreign, f"{instance.name} shows metrics of another service"
            found.update((name, value) for name, value in own.items() if name in self.expected)
        return found


def test_every_service_is_among_them() -> None:
    assert set(METRICS) == PACKAGES.keys()
    assert set(METRICS) == {*SIMULATED, *ON_KUBERNETES}


@pytest.mark.timeout(90)
async def test_two_of_each_service_share_nothing_in_one_process(nats_server: str, cell: str, tmp_path: Path) -> None:
    pairs = [Pair(number, nats_server, cell, tmp_path) for number in (1, 2)]
    everybody = [instance for pair in pairs for instance in pair.instances]
    with capture_logs() as default_lines:
        async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
            first = [group.create_task(one.work, name=one.name) for one in pairs[0].instances]
            await until(
                lambda: not any(one.instruments.readiness.reason for one in pairs[0].instances),
                deadline_s=20,
                what="the first instances to be ready",
            )
            assert [one.instruments.readiness.reason for one in pairs[1].instances] == (
                ["the bus has not been connected yet"] * len(METRICS)
            )
            second = [group.create_task(one.work, name=one.name) for one in pairs[1].instances]
            await until(
                lambda: not any(one.instruments.readiness.reason for one in everybody),
                deadline_s=20,
                what="all instances to be ready",
            )
            for pair in pairs:
                await pair.ask(nats_server, session)
            for pair in pairs:

                async def is_shown(pair: Pair = pair) -> bool:
                    return await pair.shown(session) == pair.expected

                await until_true(is_shown, deadline_s=20, what=f"the metrics of pair {pair.number}")
            for one in pairs[0].instances:
                one.stop.set()
            await asyncio.wait(first)
            for one in pairs[0].instances:
                assert one.instruments.readiness.reason == "the process is stopping"
            for one in pairs[1].instances:
                assert await answer(session, one.port, "readyz") == (200, "ok"), one.name
                one.stop.set()
            await asyncio.wait(second)
    for one in everybody:
        assert one.lines, f"{one.name} says nothing"
        assert {line["service"] for line in one.lines} == {one.name}
        assert sum(line["event"] == "probe server started" for line in one.lines) == 1, "its own line, and no other's"
    assert default_lines == [], "a part of a service has no logger of its own"
