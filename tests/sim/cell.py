"""All services of a cell and the cluster below, in one simulation: started, killed, paused and started again."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, NamedTuple

import msgspec

from berth.formats.clusters.topology_file import Cluster
from berth.lab.nodesim.config import AgentsConfig, NodesimConfig
from berth.lab.nodesim.kube import app as nodesim
from berth.lab.nodesim.metrics import NodesimMetrics
from berth.runtime.config import BusConfig
from berth.runtime.kube.config import KubeConfig
from berth.services.binder import app as binder
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.dispatcher import app as dispatcher
from berth.services.dispatcher.config import DecisionConfig, DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.health import app as health
from berth.services.health.config import HealthConfig
from berth.services.health.metrics import HealthMetrics
from berth.services.inventory import app as inventory
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.gangs.settings import GangSettings
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.scorer import app as scorer
from berth.services.scorer.config import ScorerConfig
from berth.services.scorer.metrics import ScorerMetrics
from berth.services.summary import app as summary
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from tests.sim.clock import SimClock
from tests.sim.durability import SYNC_S
from tests.sim.errors import Failure, kind_of
from tests.sim.kube import SimKube
from tests.sim.loop import SimLoop
from tests.sim.process import Ground, Main, Process, is_expected
from tests.sim.server import SimServer

NAME: Final = "sim"
CLUSTER: Final = "cluster"
EXPIRE_S: Final = (20, 60, 0)
"""After so long what is over is forgotten, by seed; 0: never."""
_AGAIN_S: Final = 1.0
"""Pause before a supervisor starts a process again that has ended by itself."""


class UncollectedGarbage:
    """Garbage of one dispatcher of many in this process: nothing is collected at its word."""

    def short_collections(self) -> AbstractContextManager[None]:
        """Change nothing."""
        return nullcontext()

    def collect(self) -> None:
        """Collect nothing."""


_AGENTS: Final[dict[str, Any]] = {
    "report_s": 1.0,
    "admit_s": 0.1,
    "start_s": 0.3,
    "controllers": ["volcano", "ascend", "podgroup"],
    "writes_at_once": 4,
}


class CellSettings(msgspec.Struct, frozen=True):
    """Settings of the services that a seed chooses.

    Attributes:
        shards: Scorers; 0: the dispatcher scores.
        dispatchers: How many, one of which leads.
        decisions: Settings of decisions that differ from the defaults.
        faults: Settings of faults that differ from the defaults.
        snapshot_records: Records between two snapshots.
        agents: Settings of the cluster below that differ from those of :meth:`SimCell._play`.
        binder: Settings of the binder that differ from those of :meth:`SimCell._bind`.
        gangs: Settings of gangs that differ from the defaults.
        replicas: Of each stream, as the dispatcher has it.
        sync: Whether the bus's server has each write on its disk before it acknowledges it: ``always``, or ``default``.
        shape_s: How long it takes to score a shape of a heavy gang.
        queues: Whether the inventory applies Queues of Volcano.
    """

    shards: int = 0
    dispatchers: int = 2
    decisions: dict[str, Any] = {}
    faults: dict[str, Any] = {}
    snapshot_records: int = 20
    agents: dict[str, Any] = {}
    binder: dict[str, Any] = {}
    gangs: dict[str, Any] = {}
    replicas: Literal[1, 3] = 1
    sync: str = "always"
    shape_s: float = 0.0
    queues: bool = False


class Kind(NamedTuple):
    """A service: what it does, and its metrics."""

    main: Main
    metrics: Callable[[Any], Any]


class SimCell:
    """The cell.

    Args:
        loop: The simulation.
        seed: Of all choices.
        cluster: The nodes below.
        settings: Of the services.

    Attributes:
        processes: Those that live, by name.
        kills: How often a process was killed.
        ends: How often a process ended by itself, by the reason.
        passed: How often each fault point was passed.
        deaths: How often a process died at each fault point.
        rare: Fault points at each of which the first process that passes it dies.
        held: Processes that the operator does not let start.
    """

    def __init__(self, loop: SimLoop, seed: int, cluster: Cluster, settings: CellSettings) -> None:
        self.loop = loop
        self.seed = seed
        self.cluster = cluster
        self.settings = settings
        self.clocks = {name: SimClock(loop) for name in ("bus", "kube", CLUSTER)}
        self.server = SimServer(loop, self.clocks["bus"], self.chance("server"))
        self.kube = SimKube(loop, self.clocks["kube"], self.chance("kube"))
        self.rare: set[str] = set()
        self.ground = Ground(loop, self.server, self.kube, NAME, seed, self.rare)
        self.processes: dict[str, Process] = {}
        self.kills = 0
        self.ends: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        self.held: set[str] = set()
        self.logs: list[Process] = []
        self.failures: list[Failure] = []
        self._lives: Counter[str] = Counter()
        self._wanted: set[str] = set()
        self._holder = f"holder {seed}" if seed % 3 == 0 else ""

    def chance(self, what: str) -> Random:
        """A source of chance of its own for everything, so that one changes no other."""
        return Random(f"{self.seed} {what}")  # noqa: S311  # a simulation

    @property
    def names(self) -> list[str]:
        """Services that run by the settings."""
        settings = self.settings
        return [
            CLUSTER,
            *(f"dispatcher-{number}" for number in range(settings.dispatchers)),
            *(f"scorer-{number}" for number in range(settings.shards)),
            "inventory",
            "health",
            "binder",
            "summary",
        ]

    def start(self, name: str) -> None:
        """Start a process; one that lives is left alone."""
        self._wanted.add(name)
        if name in self.processes or name in self.held:
            return
        kind = self._kind(name)
        clock = self.clocks.setdefault(name, SimClock(self.loop))
        process = Process(
            self.ground,
            name,
            self._lives[name],
            clock=clock,
            main=kind.main,
            metrics=kind.metrics,
            passed=self.passed,
            on_end=self._ended,
        )
        self._lives[name] += 1
        self.processes[name] = process
        self.logs.append(process)
        del self.logs[:-60]
        process.start()

    def kill(self, name: str, why: str = "killed") -> None:
        """Kill a process, as a power cut would."""
        self._wanted.discard(name)
        if name in self.processes:
            self.processes[name].die(why)

    def stop(self, name: str) -> None:
        """Ask a process to end."""
        self._wanted.discard(name)
        if name in self.processes:
            self.processes[name].stop.set()

    def _ended(self, process: Process, error: Exception | None) -> None:
        if self.processes.get(process.name) is process:
            del self.processes[process.name]
        if error is None:
            self.kills += process.death != "ended"
            if process.died_at:
                self.deaths[process.died_at] += 1
        else:
            self.ends[f"{process.name.rstrip('-0123456789')}: {kind_of(error)}"] += 1
            if not is_expected(error):
                self.failures.append(
                    Failure(f"{process.name.rstrip('-0123456789')} ended: {kind_of(error)}", repr(error))
                )
                self.failures[-1].__cause__ = error
        if process.name in self._wanted:
            context = self.server.lane.context
            self.loop.call_later(_AGAIN_S, self._again, process.name, context=context)

    def _again(self, name: str) -> None:
        if name in self._wanted:
            self.start(name)

    def _kind(self, name: str) -> Kind:
        base = name.rstrip("0123456789").rstrip("-")
        kinds = {
            CLUSTER: Kind(self._play, NodesimMetrics),
            "dispatcher": Kind(self._dispatch, DispatcherMetrics),
            "scorer": Kind(self._score, ScorerMetrics),
            "inventory": Kind(self._count, InventoryMetrics),
            "health": Kind(self._judge, HealthMetrics),
            "binder": Kind(self._bind, BinderMetrics),
            "summary": Kind(self._summarize, SummaryMetrics),
        }
        return kinds[base]

    async def _play(self, process: Process, stop: asyncio.Event) -> None:
        config = NodesimConfig(
            topology_file=Path("cluster.yaml"),
            kube=KubeConfig(),
            agents=AgentsConfig(seed=self.seed, **(_AGENTS | self.settings.agents)),
            run_default_s=20.0,
            terminating_s=0.5,
            tick_s=0.5,
        )  # fmt: skip
        await nodesim.play(
            process.connect_api(), process.buses[0], process.clock, config, self.cluster, process.instruments, stop
        )

    async def _dispatch(self, process: Process, stop: asyncio.Event) -> None:
        settings = self.settings
        config = DispatcherConfig(
            bus=BusConfig(replicas=settings.replicas),
            shards=settings.shards,
            decisions=DecisionConfig(**{"needs_health": True, **settings.decisions, **settings.faults}),
            holder=f"{self._holder} {process.name}" if self._holder else "",
            snapshot_records=settings.snapshot_records,
            snapshot_apart_s=0,
            snapshot_synced_s=round(SYNC_S) + 1,
            expire_after_s=EXPIRE_S[self.seed % len(EXPIRE_S)],
            expire_every_s=3,
        )
        await dispatcher.serve_beside(
            process.beside,
            process.buses[0],
            process.clock,
            config,
            process.instruments,
            stop,
            process=process.identity,
            garbage=UncollectedGarbage(),
        )

    async def _score(self, process: Process, stop: asyncio.Event) -> None:
        number = int(process.name.rpartition("-")[2])
        config = ScorerConfig(shard=number, shards=self.settings.shards)
        await scorer.serve(process.buses[0], process.clock, config, process.instruments, stop)

    async def _count(self, process: Process, stop: asyncio.Event) -> None:
        config = InventoryConfig(gangs=GangSettings(**self.settings.gangs), queues=self.settings.queues)
        await inventory.serve_on(
            process.buses[0], process.connect_api(), process.clock, config, process.instruments, stop
        )

    async def _judge(self, process: Process, stop: asyncio.Event) -> None:
        await health.serve_on(
            process.connect_api(), process.buses[0], process.clock, HealthConfig(), process.instruments, stop
        )

    async def _bind(self, process: Process, stop: asyncio.Event) -> None:
        usual: dict[str, Any] = {
            "members_wait_s": 10.0,
            "gangs_at_once": 4,
            "binds_at_once": 8,
            "volumes_timeout_s": 8.0,
        }
        config = BinderConfig(kube=KubeConfig(), **usual | self.settings.binder)
        await binder.bind_in_kubernetes(
            process.connect_api(), process.buses[0], process.clock, config, process.instruments, stop
        )

    async def _summarize(self, process: Process, stop: asyncio.Event) -> None:
        config = SummaryConfig(kept_s=5, expected_starts_s=0)  # they are computed on a thread
        await summary.write_on(
            process.connect_api(), process.buses[0], process.clock, config, process.instruments, stop
        )
