"""``fault``: from a health report on the bus to the record of the recovery, in a cell with 1,000 running jobs.

The report is the fact that the health service publishes. The time that the service may collect changes before it
publishes is a row of its own: it is a setting, not measured. The limit of each case is the append of a record and one
publish on a bare bus, with the bytes of the record.
"""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.arrivals import Arrivals
from bench.cell import PRODUCT, Client, cell, described
from bench.ends import until_done
from bench.limits.gang import round_trip_ms
from bench.report import Report, Row, machine, row
from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_health
from berth.products.catalogue import NODE_PRODUCTS
from berth.products.model import NodeProduct
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.columns import pack
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.fault_facts import FAULT_SCHEDULING, POD_RESCHEDULING
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.placement import Placement
from berth.schemas.subjects import StreamName
from berth.services.health.loop import GAP_S

_BELOW: Final = 48
"""Nodes of a leaf switch, and of a SuperPoD."""
_FAULTS: Final = """
[decisions]
restarts_at_once = 1000
restart_share_percent = 100
"""
_STEERING: Final = {FAULT_SCHEDULING: "force", POD_RESCHEDULING: "on"}
_SUPERPOD: Final = NODE_PRODUCTS["superpod910a3x16"]


class _Case(NamedTuple):
    """Jobs of a cell.

    Attributes:
        name: What is measured.
        product: Of all nodes.
        pods: Pods of each job, one a node, largest first.
        labels: Of the largest jobs.
        annotations: Of the largest jobs.
        target_ms: With the dispatcher scoring; twice that with two scorers.
    """

    name: str
    product: NodeProduct
    pods: Sequence[int]
    labels: dict[str, str]
    annotations: dict[str, str]
    target_ms: float


class Size(NamedTuple):
    """Size of a run: nodes, jobs, how many of them are large and how large; faults of a node and of a leaf switch."""

    nodes: int = 10_000
    jobs: int = 1_000
    large: int = 4
    large_pods: int = 1_024
    repeats: int = 15
    leaf_repeats: int = 5


FULL: Final = Size()
SMALL: Final = Size(nodes=480, jobs=34, large=1, large_pods=16, repeats=1, leaf_repeats=1)


def _plain(size: Size) -> _Case:
    return _Case("plain job", PRODUCT, [8] * size.jobs, {}, {}, 20.0)


def _cases(size: Size) -> tuple[_Case, ...]:
    with_large = [size.large_pods] * size.large + [4] * (size.jobs - size.large)
    steered = {"huawei.com/schedule_policy": _SUPERPOD.policy or "chip2-node16-sp", "sp-block": str(16 * 8)}
    what = f"job of {size.large_pods:,} pods"
    return (
        _plain(size),
        _Case(f"{what} with switch affinity", PRODUCT, with_large, {"tor-affinity": "large-model-schema"}, {}, 40.0),
        _Case(f"{what} in SuperPoDs", _SUPERPOD, with_large, {}, steered, 40.0),
    )


_LEAF_JOBS: Final = (1,) * 12 + (2,) * 18
"""Pods of the jobs below the leaf switch that fails: 30 jobs on 48 nodes."""
_LEAF_TARGET_MS: Final = 300.0


class _Ledger:
    """Placements and recoveries, as they arrive."""

    def __init__(self, bus: NatsBus) -> None:
        self.placed: dict[str, Placement] = {}
        self.recovered: dict[str, int] = {}
        """Bytes of the record with the first recovery of each job."""
        self.until = Arrivals(bus, StreamName.LEDGER, take=self._take).until

    def _take(self, stored: Stored) -> None:
        envelope = open_envelope(stored.data)
        if envelope.kind != Round.KIND:
            return
        record = body_of(envelope, Round)
        for verdict in record.verdicts:
            if verdict.placement is not None:
                self.placed[verdict.name] = verdict.placement
        for recovery in record.recoveries:
            if recovery.placement is None and recovery.scope != "job":  # rank 0 failed: a new attempt gets its places
                raise RuntimeError(f"{recovery.name}: no place for ranks {recovery.ranks}")
            self.recovered.setdefault(recovery.name, len(stored.data))


class _Cell:
    """Nodes, running jobs, and reports about nodes."""

    def __init__(self, bus: NatsBus, product: NodeProduct, nodes: int) -> None:
        self.bus = bus
        self.ledger = _Ledger(bus)
        self._client = Client(bus, keep_chips=1 << 40)
        self._nodes = [_node(index, product) for index in range(nodes)]
        self._domains = domains(self._nodes)
        self.domain_of = {name: domain for domain, names in self._domains.items() for name in names}
        self._settled = 0
        self._broken: dict[str, int] = {}
        """Mask of the unhealthy chips of each broken node."""

    async def fill(self, case: _Case) -> None:
        """Publish the nodes, place all jobs of a case, and report their pods as running."""
        await self._client.give(self._nodes)
        for number, pods in enumerate(case.pods):
            await self._client.ask(_request(case, f"job-{number}", pods))
        await self.ledger.until(lambda: len(self.ledger.placed) == len(case.pods))
        for name, placement in self.ledger.placed.items():
            await self.bus.submit_wait(self.bus.subjects.fact_pod("bench", name), encode(_running(name, placement)))
        await self.settle(case)

    async def settle(self, case: _Case) -> None:
        """Wait until the dispatcher has done all that is due: until a job that is submitted now is placed."""
        name = f"behind-{self._settled}"
        self._settled += 1
        await self._client.ask(_request(case, name, 1))
        await self.ledger.until(lambda: name in self.ledger.placed)

    async def break_nodes(self, masks: dict[str, int]) -> None:
        """Report chips of nodes as unhealthy."""
        self._broken.update(masks)
        for domain in sorted({self.domain_of[name] for name in masks}):
            conditions = [NodeCondition(name, unhealthy=self._broken.get(name, 0)) for name in self._domains[domain]]
            await self.bus.publish(self.bus.subjects.fact_health(domain), encode(pack_health(domain, conditions)))


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows = [
        row(
            "setting of the health service",
            "changes are collected for",
            "ms",
            [1000 * GAP_S],
        )
    ]
    for shards in (0, 2):
        for case in _cases(size):
            rows += until_done(_case_rows(case, shards, size))
        rows += until_done(_leaf_rows(shards, size))
    return Report(bench="fault", machine=machine(), rows=rows)


async def _case_rows(case: _Case, shards: int, size: Size) -> list[Row]:
    """A chip of the last node of a job fails, of another job each time."""
    took_ms: list[float] = []
    async with cell(shards=shards, decisions=_FAULTS) as running:
        one = _Cell(running.bus, case.product, size.nodes)
        await one.fill(case)
        most = max(case.pods)
        names = [f"job-{number}" for number, pods in enumerate(case.pods) if pods == most]
        for repeat in range(min(len(names), size.repeats)):
            name = names[repeat]
            node = one.ledger.placed[name].names()[-1]
            began_s = time.perf_counter()
            await one.break_nodes({node: 1})
            await one.ledger.until(lambda name=name: name in one.ledger.recovered)  # type: ignore[misc]  # of this turn
            took_ms.append((time.perf_counter() - began_s) * 1000)
            await one.settle(case)
        most_bytes = max(one.ledger.recovered.values())
    limits_ms = await round_trip_ms(most_bytes, size.repeats)
    target_ms = case.target_ms * (2 if shards else 1)
    return [
        row(
            f"{_shards(shards)}, {case.name}",
            "report to record, p50",
            "ms",
            took_ms,
            limits=limits_ms,
            target=target_ms,
        ),
        row(f"{_shards(shards)}, {case.name}", "report to record, most", "ms", [max(took_ms)]),
    ]


async def _leaf_rows(shards: int, size: Size) -> list[Row]:
    """All nodes below a leaf switch fail, with 30 jobs."""
    took_ms: list[float] = []
    below = _LEAF_JOBS * size.leaf_repeats
    case = _plain(size)._replace(pods=[*below, *[8] * (size.jobs - len(below))])
    async with cell(shards=shards, decisions=_FAULTS) as running:
        one = _Cell(running.bus, case.product, size.nodes)
        await one.fill(case)
        for repeat in range(size.leaf_repeats):
            first = repeat * len(_LEAF_JOBS)
            names = [f"job-{first + number}" for number in range(len(_LEAF_JOBS))]
            nodes = [node for name in names for node in one.ledger.placed[name].names()]
            began_s = time.perf_counter()
            await one.break_nodes(dict.fromkeys(nodes, 0xFF))
            await one.ledger.until(lambda names=names: all(name in one.ledger.recovered for name in names))  # type: ignore[misc]  # of this turn
            took_ms.append((time.perf_counter() - began_s) * 1000)
            await one.settle(case)
    target_ms = _LEAF_TARGET_MS * (2 if shards else 1)
    case_name = f"{_shards(shards)}, {_BELOW} nodes with {len(_LEAF_JOBS)} jobs"
    return [row(case_name, "report to the last record", "ms", took_ms, target=target_ms)]


def _request(case: _Case, name: str, pods: int) -> JobRequest:
    is_large = pods == max(case.pods)
    chips = case.product.chips
    annotations = dict(case.annotations)
    if annotations and not is_large:
        annotations["sp-block"] = str(pods * chips)
    return JobRequest(
        namespace="bench",
        name=name,
        uid=name,
        resource=case.product.resource,
        tasks=[Task("worker", pods, chips)],
        node_selector=dict(case.product.selector),
        labels=dict(case.labels) if is_large else {},
        annotations=annotations,
    )


def _shards(shards: int) -> str:
    return f"{shards} scorers" if shards else "no scorer"


def _node(index: int, product: NodeProduct) -> NodeDescription:
    group, place = divmod(index, _BELOW)
    name = f"node-{index:06d}"
    if product is _SUPERPOD:
        return described(name, product, superpod=str(group), rack=str(place // 8))
    return described(name, product, leaf=f"leaf-{group:04d}", position=place)


def _running(name: str, placement: Placement) -> PodsSeen:
    pods = placement.pods()
    masks = [sum(1 << chip for chip in chips) for chips in placement.chips_by_rank()]
    return PodsSeen(
        "bench",
        name,
        name,
        1,
        rank=pack(range(pods), 4),
        nodes=placement.nodes,
        node_index=placement.node_index,
        phase=bytes([PodPhase.RUNNING]) * pods,
        chips=pack(masks, 8),
        resource=placement.resource,
        steering=dict(_STEERING),
    )
