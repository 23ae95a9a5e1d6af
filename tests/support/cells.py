"""A whole cell in memory: one dispatcher, any number of shards, a manual clock, rounds when the test says so."""

import asyncio
from collections.abc import Sequence

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.state.invariants import check
from berth.products.catalogue import NODE_PRODUCTS
from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.intake import JobCancel, JobRequest, Task
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.config import DecisionConfig, DispatcherConfig
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer

SETTLE_TURNS = 60


def a_node(name: str, product: str = "module910bx8", **changes: object) -> NodeDescription:
    known = NODE_PRODUCTS[product]
    fields: dict[str, object] = {
        "name": name,
        "product": product,
        "resource": known.resource,
        "chips": (1 << known.chips) - 1,
        "allocatable": known.chips,
        "cpu_milli": 192_000,
        "memory_mib": 1_500_000,
        "labels": dict(known.labels),
    } | changes
    return NodeDescription(**fields)  # type: ignore[arg-type]  # a builder for tests


def a_job(
    name: str, *, chips: int = 1, replicas: int = 1, product: str = "module910bx8", **changes: object
) -> JobRequest:
    known = NODE_PRODUCTS[product]
    fields: dict[str, object] = {
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
        "resource": known.resource,
        "tasks": [Task("worker", replicas, chips)],
        "node_selector": dict(known.selector),
        "labels": dict(known.job_labels),
        "annotations": {"huawei.com/schedule_policy": known.policy} if known.policy else {},
    } | changes
    return JobRequest(**fields)  # type: ignore[arg-type]  # a builder for tests


class Cell:
    """One cell on a fake server. Use :meth:`open` inside a running loop and :meth:`close` at the end."""

    def __init__(
        self,
        *,
        shards: int = 0,
        name: str = "cell",
        server: FakeServer | None = None,
        clock: ManualClock | None = None,
        **decisions: object,
    ) -> None:
        self.clock = clock if clock is not None else ManualClock()
        self.server = server if server is not None else FakeServer(self.clock)
        self.cell = name
        self.config = DispatcherConfig(
            shards=shards,
            decisions=DecisionConfig(**decisions),  # type: ignore[arg-type]  # fields of the settings
            gather_timeout_s=2.0,
        )
        self.user = FakeBus(self.server, name)
        self.shards: list[Shard] = []
        self.buses: list[FakeBus] = [self.user]
        self.dispatcher: Dispatcher
        self._domains: set[str] = set()

    async def open(self) -> "Cell":
        await self.user.ensure_streams()
        await self.start_dispatcher()
        for shard in range(self.config.shards):
            await self.start_shard(shard)
        return self

    async def start_dispatcher(self) -> None:
        bus = FakeBus(self.server, self.cell)
        self.buses.append(bus)
        self.instruments = Instruments.make(DispatcherMetrics)
        self.dispatcher = Dispatcher(bus, self.clock, self.config, holder="test", instruments=self.instruments)
        await self.dispatcher.start()

    async def start_shard(self, number: int) -> None:
        bus = FakeBus(self.server, self.cell)
        self.buses.append(bus)
        shard = Shard(
            bus, self.clock, shard=number, shards=self.config.shards, instruments=Instruments.make(ScorerMetrics)
        )
        await shard.start()
        await bus.serve(bus.subjects.score(number), shard.answer, queue=f"shard-{number}")
        await bus.serve(bus.subjects.advance, shard.advance)
        self.shards.append(shard)

    async def close(self) -> None:
        await self.dispatcher.stop()
        for bus in reversed(self.buses):
            await bus.close()

    async def settle(self) -> None:
        """Let everything that was sent arrive."""
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)

    async def turns(self, count: int = 1) -> None:
        """Rounds at fixed points: everything that was sent has arrived before each."""
        for _ in range(count):
            await self.settle()
            await self.dispatcher.turn()
            check(self.dispatcher.state)
        await self.settle()

    async def nodes(self, nodes: Sequence[NodeDescription]) -> None:
        by_name = {node.name: node for node in nodes}
        for domain, names in domains(nodes).items():
            fact = pack_nodes(domain, [by_name[name] for name in names], at_ms=self.clock.now_ms())
            await self.user.publish(self.user.subjects.fact_node(domain), encode(fact))

    async def health(self, domain: str, conditions: Sequence[NodeCondition]) -> None:
        fact = pack_health(domain, conditions, at_ms=self.clock.now_ms())
        await self.user.publish(self.user.subjects.fact_health(domain), encode(fact))

    async def submit(self, *jobs: JobRequest) -> None:
        for job in jobs:
            await self.user.publish(self.user.subjects.intake_request(job.namespace, job.name), encode(job))

    async def cancel(self, name: str, uid: str = "", *, reason: str = "") -> None:
        await self.user.publish(
            self.user.subjects.intake_cancel("default", name), encode(JobCancel("default", name, uid, reason))
        )

    async def pods(self, name: str, *phases: PodPhase, steps: Sequence[int] = ()) -> None:
        """Say in which phase the pods of a placed job are; one phase stands for all of them.

        Args:
            name: The job.
            phases: Phases of the ranks.
            steps: Steps of a recovery that the pods carry, of all ranks; none if no pod does.
        """
        state = self.dispatcher.state
        job = state.jobs["default", name]
        gang = state.fold.gangs[job.uid]
        placement = state.fold.holdings[job.uid, gang.attempt].placement
        nodes = placement.names()
        table = sorted(set(nodes))
        masks = [sum(1 << chip for chip in chips) for chips in placement.chips_by_rank()]
        fact = PodsSeen(
            namespace="default",
            gang=name,
            uid=job.uid,
            attempt=gang.attempt,
            rank=pack(range(len(nodes)), 4),
            nodes=pack_names(table),
            node_index=pack([table.index(node) for node in nodes], 4),
            phase=pack(phases if len(phases) > 1 else phases * len(nodes), 1),
            chips=pack(masks, 8),
            resource=placement.resource,
            at_ms=self.clock.now_ms(),
            steps=pack(steps, 4) if any(steps) else b"",
        )
        await self.user.publish(self.user.subjects.fact_pod("default", name), encode(fact))

    async def status(self, name: str) -> JobStatus | None:
        stored = await self.user.last(StreamName.STATUS, self.user.subjects.status("default", name))
        return decode(stored.data, JobStatus) if stored is not None else None

    async def ledger(self) -> list[bytes]:
        return [stored.data for stored in await self.user.read(StreamName.LEDGER)]

    async def dead(self) -> list[str]:
        return [stored.subject for stored in await self.user.read(StreamName.DEAD)]
