"""A cluster that nodesim plays on an API server, real or in memory, with a bus in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from berth.formats.clusters.topology_file import parse_cluster
from berth.lab.nodesim.config import AgentsConfig, NodesimConfig
from berth.lab.nodesim.fault_plan import FaultPlanConfig
from berth.lab.nodesim.kube.app import play
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import Api
from berth.schemas.envelope import decode, encode
from berth.schemas.simulation import BreakNode, NodeBroken, SimCounts
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.waiting import until

QUICK = AgentsConfig(report_s=0.1, admit_s=0.05, start_s=0.05)
"""Settings that let the agents hurry."""


class Played:
    """What tests ask of the cluster."""

    def __init__(self, bus: FakeBus) -> None:
        self._bus = bus

    async def counts(self) -> SimCounts:
        answer = await self._bus.request(self._bus.subjects.sim("counts"), b"", timeout_s=5)
        return decode(answer, SimCounts)

    async def break_node(self, wish: BreakNode) -> str:
        """Break or repair something; why not, or nothing."""
        answer = await self._bus.request(self._bus.subjects.sim("break"), encode(wish), timeout_s=5)
        return decode(answer, NodeBroken).reason


@asynccontextmanager
async def played(
    api: Api,
    topology: str,
    *,
    agents: AgentsConfig = QUICK,
    clock: Clock | None = None,
    run_default_s: float = 60.0,
    terminating_s: float = 0.05,
    fault_plan: FaultPlanConfig | None = None,
) -> AsyncIterator[Played]:
    """Play a cluster while the context lasts.

    Args:
        api: The API server.
        topology: Text of a topology file.
        agents: Settings of section ``agents``.
        clock: Source of time; None for the host's.
        run_default_s: As in the settings.
        terminating_s: As in the settings.
        fault_plan: Settings of section ``fault_plan``.
    """
    clock = clock or SystemClock()
    server = FakeServer()
    bus = FakeBus(server, "test")
    config = NodesimConfig(
        topology_file=Path("cluster.yaml"),
        kube=KubeConfig(),
        agents=agents,
        fault_plan=fault_plan or FaultPlanConfig(),
        run_default_s=run_default_s,
        terminating_s=terminating_s,
        tick_s=0.01,
        retry_wait_s=0.02,
        retry_wait_max_s=0.2,
    )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(
            play(api, bus, clock, config, parse_cluster(topology), Instruments.make(NodesimMetrics), stop)
        )
        try:
            await until(lambda: len(server.services) == 2 or task.done(), deadline_s=20, what="the cluster to stand")
            yield Played(bus)
        finally:
            stop.set()
            await asyncio.wait([task], timeout=10)
    await bus.close()
