"""A real cell for benches: nats-server, dispatcher and scorers as processes, and a client for the cluster."""

import asyncio
import contextlib
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from bench.arrivals import Arrivals, fail
from bench.ends import nats_server
from bench.processes import ROOT, Process
from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_nodes, pack_switches
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import NodeProduct
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.runtime.clock import SystemClock
from berth.runtime.keys.key_folder import KeyFolder
from berth.schemas.columns import pack
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeDescription
from berth.schemas.placement import Placement
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName

PRODUCT = NODE_PRODUCTS["module910bx8"]


def described(
    name: str,
    product: NodeProduct = PRODUCT,
    *,
    leaf: str = "",
    position: int = 0,
    superpod: str = "",
    rack: str = "",
) -> NodeDescription:
    """An empty node of a product, with its place."""
    return NodeDescription(
        name=name,
        product=product.name,
        resource=product.resource,
        chips=(1 << product.chips) - 1,
        allocatable=product.chips,
        cpu_milli=192_000,
        memory_mib=1_500_000,
        labels=dict(product.labels),
        leaf=leaf,
        position=position,
        superpod=superpod,
        rack=rack,
    )


def many_nodes(count: int, *, below: int = 48) -> list[NodeDescription]:
    """Nodes of 8 chips, ``below`` of them below each leaf switch."""
    return [
        described(f"node-{index:06d}", leaf=f"leaf-{index // below:04d}", position=index % below)
        for index in range(count)
    ]


async def give_nodes(bus: NatsBus, nodes: Sequence[NodeDescription]) -> None:
    """Publish the facts of nodes and of the leaf switches above them."""
    by_name = {node.name: node for node in nodes}
    for domain, names in domains(nodes).items():
        fact = pack_nodes(domain, [by_name[name] for name in names])
        await bus.publish(bus.subjects.fact_node(domain), encode(fact))
    switches = pack_switches(nodes)
    await bus.publish(bus.subjects.fact_topology(switches.kind), encode(switches))


def pods_seen(namespace: str, name: str, uid: str, placement: Placement, phase: PodPhase) -> PodsSeen:
    """All pods of a placed job in one phase."""
    pods = placement.pods()
    return PodsSeen(
        namespace,
        name,
        uid,
        1,
        rank=pack(range(pods), 4),
        nodes=placement.nodes,
        node_index=placement.node_index,
        phase=bytes([phase]) * pods,
        chips=bytes(8 * pods),
    )


class Client:
    """Publishes requests, ends placed jobs, and follows statuses.

    Args:
        bus: The cell.
        keep_chips: Upper bound of the chips in use; above it the oldest jobs end.
    """

    def __init__(self, bus: NatsBus, *, keep_chips: int) -> None:
        self.bus = bus
        self.keep_chips = keep_chips
        self.placed: set[str] = set()
        self.lasting: set[str] = set()
        """Names of jobs that do not end."""
        self.used_chips = 0
        self.used_chips_most = 0
        self._running: deque[tuple[str, Placement]] = deque()
        self._arrivals = Arrivals(bus, StreamName.STATUS, take=self._on_status)
        bus.follow(StreamName.LEDGER, on_message=self._on_record, on_gap=fail)

    async def nodes(self, count: int, *, below: int = 48) -> None:
        """Publish the facts of ``count`` nodes of 8 chips, ``below`` of them below each leaf switch."""
        await give_nodes(self.bus, many_nodes(count, below=below))

    async def give(self, nodes: Sequence[NodeDescription]) -> None:
        """Publish the facts of nodes and of the leaf switches above them."""
        await give_nodes(self.bus, nodes)

    async def submit(
        self, name: str, *, chips: int, replicas: int = 1, labels: Mapping[str, str] | None = None
    ) -> None:
        """Publish a request without waiting for its acknowledgement."""
        request = JobRequest(
            namespace="bench",
            name=name,
            uid=name,
            resource=PRODUCT.resource,
            tasks=[Task("worker", replicas, chips)],
            node_selector=dict(PRODUCT.selector),
            labels=dict(labels or {}),
        )
        await self.ask(request)

    async def ask(self, request: JobRequest) -> None:
        """Publish a request without waiting for its acknowledgement."""
        subject = self.bus.subjects.intake_request(request.namespace, request.name)
        future = await self.bus.submit_wait(subject, encode(request))
        future.add_done_callback(_look)

    async def until_placed(self, count: int) -> None:
        """Wait until ``count`` jobs have a status with a placement."""
        await self._arrivals.until(lambda: len(self.placed) >= count)

    def _on_record(self, stored: Stored) -> None:
        try:
            record = decode(stored.data, Round)
        except ValueError:
            return
        for verdict in record.verdicts:
            if verdict.placement is not None and verdict.name not in self.lasting:
                chips = len(verdict.placement.chips)
                self.used_chips += chips
                self._running.append((verdict.name, verdict.placement))
        self.used_chips_most = max(self.used_chips_most, self.used_chips)
        while self.used_chips > self.keep_chips:
            name, placement = self._running.popleft()
            self.used_chips -= len(placement.chips)
            gone = pods_seen("bench", name, name, placement, PodPhase.SUCCEEDED)
            future = self.bus.submit(self.bus.subjects.fact_pod("bench", name), encode(gone))
            future.add_done_callback(_look)  # publishes in flight at the end of the bench do not matter

    def _on_status(self, stored: Stored) -> None:
        status = decode(stored.data, JobStatus)
        if status.placement is not None or status.phase == "succeeded":
            self.placed.add(status.name)


def _look(future: "asyncio.Future[int]") -> None:
    """Retrieve the result of a publish and ignore it."""
    if not future.cancelled():
        future.exception()


class Running(NamedTuple):
    """A cell that runs: a connection to its bus, and its services."""

    bus: NatsBus
    services: list[Process]

    def cpu_s(self) -> float:
        """CPU seconds of all services since their start."""
        return sum(one.cpu_s() for one in self.services)


def _keys(folder: Path) -> dict[str, str]:
    """Settings of the bus with the key of a dispatcher, which all services know."""
    keys = KeyFolder.make(folder, "bench", lambda: SystemClock().now_ms() // 1000)
    return {"signers_file": str(keys.signers_file), "creds_file": str(keys.credentials_file("dispatcher"))}


@contextlib.asynccontextmanager
async def cell(
    *,
    shards: int,
    sync: Literal["interval", "always"] = "interval",
    decisions: str = "",
    has_metrics: bool = True,
    api: str | None = None,
    is_signed: bool = False,
    code: Path = ROOT,
) -> AsyncIterator[Running]:
    """A running cell, which is removed afterwards.

    Args:
        shards: Count of scorers; 0: the dispatcher scores.
        sync: Sync mode of the NATS storage.
        decisions: Section ``[decisions]`` of the dispatcher configuration.
        has_metrics: Whether the metrics of the services count.
        api: Further sections of the configuration of ``api``; None: without this service.
        is_signed: Whether records are signed, and every service checks them.
        code: Tree from which the services run.
    """
    under = "" if has_metrics else "bench.limits.without_metrics"
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as root:
        folder = Path(root)
        async with (
            nats_server(folder / "nats", sync=sync) as server,
            await NatsBus.connect(server.url, "bench", name="bench", inbox="_INBOX.person.bench") as bus,
        ):
            await bus.ensure_streams()
            keys = _keys(folder / "keys") if is_signed else {}
            where = {"bus": {"url": server.url, "cell": "bench", **keys}}
            deciding = {"shards": shards, **where}
            services = [Process(folder, "dispatcher", deciding, more=decisions, code=code, under=under)]
            services += [
                Process(folder, "scorer", {"shard": shard, **deciding}, name=f"scorer-{shard}", code=code, under=under)
                for shard in range(shards)
            ]
            if api is not None:
                services.append(Process(folder, "api", where, more=api, code=code, under=under))
            with contextlib.ExitStack() as stack:
                for one in services:
                    one.start()
                    stack.callback(one.kill)
                yield Running(bus, services)
