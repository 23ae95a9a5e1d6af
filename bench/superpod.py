"""``superpod``: a plan of 4,096 whole-node pods in logical SuperPoDs, in the core and through the bus."""

import itertools
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from bench.cell import Client, cell, described
from bench.ends import until_done
from bench.limits.gang import round_trip_ms
from bench.limits.superpod import times_ms
from bench.report import Report, Row, machine, row
from bench.switch import Decision, planned_names
from berth.core.cluster.node_packing import pack_nodes
from berth.core.gangs import Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import gang_of
from berth.core.state.cell import State
from berth.products.catalogue import NODE_PRODUCTS
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.nodes import NodeDescription
from berth.schemas.subjects import Subjects

_PRODUCT: Final = NODE_PRODUCTS["superpod910a3x16"]
_SIZE: Final = 48
_BLOCK: Final = 8
_BUSY: Final = 0.4
"""Share of the used nodes when a cluster is not empty."""
_BYTES_A_POD: Final = 26
"""Bytes of one pod in a placement: index, 16 chips, block and SuperPoD."""
_ANNOTATIONS: Final = {"huawei.com/schedule_policy": _PRODUCT.policy or "chip2-node16-sp", "sp-block": str(16 * _BLOCK)}


class Size(NamedTuple):
    """Size of a run: pods of the gang, decisions in the core and through the bus, nodes of each core case and targets.

    The first number of nodes is that of the cell on the bus.
    """

    replicas: int = 4_096
    repeats: int = 9
    bus_repeats: int = 5
    nodes: tuple[tuple[int, float], ...] = ((50_000, 10.0), (1_000_000, 100.0))


FULL: Final = Size()
SMALL: Final = Size(replicas=64, repeats=1, bus_repeats=1, nodes=((480, 10.0), (960, 100.0)))


class Case(NamedTuple):
    """A cluster, and the gang that comes."""

    nodes: int
    is_busy: bool
    replicas: int
    target_ms: float

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {'busy' if self.is_busy else 'empty'}"


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for nodes, target_ms in size.nodes:
        state = state_of(nodes)
        for is_busy in (False, True):
            rows += _core(state, Case(nodes, is_busy, size.replicas, target_ms), size.repeats)
    limits_ms = until_done(round_trip_ms(size.replicas * _BYTES_A_POD, size.bus_repeats))
    nodes = size.nodes[0][0]
    found_ms = until_done(_bus(nodes, size.replicas, size.bus_repeats))
    rows.append(row(f"4 shards, {nodes} nodes", "request to status", "ms", found_ms, limits=limits_ms, target=100.0))
    return Report(bench="superpod", machine=machine(), rows=rows)


def _core(state: State, case: Case, repeats: int) -> list[Row]:
    found = list(itertools.islice(decisions(state, case), repeats))
    limits_ms = times_ms(case.nodes // _SIZE, _SIZE, case.replicas, repeats)
    planned_ms = [one.planned_ms for one in found]
    decided_ms = [one.decided_ms for one in found]
    return [
        row(str(case), "plan, rank to node", "ms", planned_ms, limits=limits_ms, target=case.target_ms),
        row(str(case), "score, plan, chips, placement", "ms", decided_ms, limits=limits_ms),
    ]


def decisions(state: State, case: Case) -> Iterator[Decision]:
    """Decide on the gang of a case again and again, from the second time on: the first one sorts the nodes.

    Args:
        state: Its cluster, from :func:`state_of`; some of its nodes are taken if the case is busy.
        case: The cluster and the gang.

    Raises:
        RuntimeError: It is not placed, or the plan is another one than the decision.
    """
    if case.is_busy:
        table = state.table
        taken = np.random.default_rng(7).random(len(table)) < _BUSY
        table.free[table.view()][taken] = 0
        table.idle[table.view()][taken] = 0
    scorer = Scorer(state.table, state.shares, state.fold.settings)
    gang = _gang(state, case.replicas)
    asks = candidate_counts([gang])
    shape = gang.request_class[0][0]
    for index in itertools.count():
        begin = time.perf_counter()
        views = {shape: scorer.candidates(shape, asks[shape])}
        verdict = PlacementRound(scorer, views, asks, indexes=state.indexes).choose([gang]).verdicts[0]
        decided_ms = (time.perf_counter() - begin) * 1000
        fits = views[shape].fits
        if fits is None or verdict.placement is None or verdict.placement.pods() != case.replicas:
            raise RuntimeError(f"{case}: the gang was not placed: {verdict.refusal}")
        begin = time.perf_counter()
        names = planned_names(state, gang, fits)
        planned_ms = (time.perf_counter() - begin) * 1000
        if names != verdict.placement.names():
            raise RuntimeError(f"{case}: the plan differs from the decision")
        if index:
            yield Decision(decided_ms, planned_ms)


async def _bus(nodes: int, replicas: int, repeats: int) -> list[float]:
    async with cell(shards=4) as running:
        load = Load(running.bus, nodes, replicas)
        await load.fill()
        return [1000 * await load.gang() for _ in range(repeats)]


class Load:
    """Gangs in logical SuperPoDs that come one after the other; each has gone when the next one comes.

    Args:
        bus: The cell.
        nodes: Its nodes.
        replicas: Pods of a gang.
    """

    def __init__(self, bus: NatsBus, nodes: int, replicas: int) -> None:
        self._client = Client(bus, keep_chips=0)
        self._nodes = nodes
        self._replicas = replicas
        self._placed = 0

    async def fill(self) -> None:
        """Give the nodes, and place a first gang."""
        await self._client.give([_node(index) for index in range(self._nodes)])
        await self.gang()

    async def gang(self) -> float:
        """Seconds from a request to its status."""
        start = time.perf_counter()
        await self._client.ask(_request(f"gang-{self._placed}", self._replicas))
        self._placed += 1
        await self._client.until_placed(self._placed)
        return time.perf_counter() - start


def state_of(nodes: int) -> State:
    """A cluster of empty SuperPoDs."""
    state = State()
    said = Subjects("bench")
    for superpod in range(nodes // _SIZE):
        domain = f"superpod-{superpod}"
        members = [_node(superpod * _SIZE + index) for index in range(_SIZE)]
        state.apply_fact(said.fact_node(domain), superpod + 1, encode(pack_nodes(domain, members)))
    state.apply_record(1, state.fold.encoded(Epoch(1, 0, state.facts_seq, 0, "bench", Settings())))
    return state


def _node(index: int) -> NodeDescription:
    return described(f"node-{index:07d}", _PRODUCT, superpod=str(index // _SIZE), rack=str(index % _SIZE // 8))


def _request(name: str, replicas: int) -> JobRequest:
    return JobRequest(
        namespace="bench",
        name=name,
        uid=name,
        resource=_PRODUCT.resource,
        tasks=[Task("worker", replicas, _PRODUCT.chips)],
        node_selector=dict(_PRODUCT.selector),
        annotations=dict(_ANNOTATIONS),
    )


def _gang(state: State, replicas: int) -> Gang:
    request = _request("gang", replicas)
    job = JobSeen("bench", "gang", "gang", "accepted", intake_seq=1, accepted_seq=1, request=request)
    return gang_of(job, request, attempt=1, settings=state.fold.settings)
