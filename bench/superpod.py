"""``superpod``: a plan of 4,096 whole-node pods in logical SuperPoDs, in the core and through the bus."""

import time
from typing import Final, NamedTuple

import numpy as np
import uvloop

from bench.cell import Client, cell, described
from bench.limits.gang import round_trip_ms
from bench.limits.superpod import times_ms
from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import pack_nodes
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.placement.superpod_placement import BlockAnswer, BlockRound
from berth.core.requests.gangs import Gang, gang_of
from berth.core.state.cell import State
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.nodes import NodeDescription
from berth.schemas.subjects import Subjects

_PRODUCT: Final = NODE_PRODUCTS["superpod910a3x16"]
_SIZE: Final = 48
_REPLICAS: Final = 4_096
_BLOCK: Final = 8
_REPEATS: Final = 9
_BUS_REPEATS: Final = 5
_BUS_NODES: Final = 50_000
_BUSY: Final = 0.4
"""Share of the used nodes when a cluster is not empty."""
_BYTES_A_POD: Final = 26
"""Bytes of one pod in a placement: index, 16 chips, block and SuperPoD."""
_ANNOTATIONS: Final = {"huawei.com/schedule_policy": _PRODUCT.policy or "chip2-node16-sp", "sp-block": str(16 * _BLOCK)}


class _Case(NamedTuple):
    nodes: int
    is_busy: bool
    target_ms: float

    def __str__(self) -> str:
        return f"{self.nodes} nodes, {'busy' if self.is_busy else 'empty'}"


def run() -> Report:
    """Measure."""
    rows: list[Row] = []
    for nodes, target_ms in ((50_000, 10.0), (1_000_000, 100.0)):
        state = _state(nodes)
        for is_busy in (False, True):
            rows += _core(state, _Case(nodes, is_busy, target_ms))
    limits_ms = uvloop.run(round_trip_ms(_REPLICAS * _BYTES_A_POD, _BUS_REPEATS))
    found_ms = uvloop.run(_bus())
    rows.append(
        row(f"4 shards, {_BUS_NODES} nodes", "request to status", "ms", found_ms, limits=limits_ms, target=100.0)
    )
    return Report(bench="superpod", machine=machine(), rows=rows)


def _core(state: State, case: _Case) -> list[Row]:
    if case.is_busy:
        table = state.table
        taken = np.random.default_rng(7).random(len(table)) < _BUSY
        table.free[table.view()][taken] = 0
        table.idle[table.view()][taken] = 0
    scorer = Scorer(state.table, state.shares, state.fold.settings)
    gang = _gang(state)
    asks = candidate_counts([gang])
    shape = gang.request_class[0][0]
    plans_ms: list[float] = []
    decisions_ms: list[float] = []
    for index in range(_REPEATS + 1):
        begin = time.perf_counter()
        views = {shape: scorer.candidates(shape, asks[shape])}
        verdict = PlacementRound(scorer, views, asks, blocks=state.blocks).choose([gang]).verdicts[0]
        decided_ms = (time.perf_counter() - begin) * 1000
        fits = views[shape].fits
        if fits is None or verdict.placement is None or verdict.placement.pods() != _REPLICAS:
            raise RuntimeError(f"{case}: the gang was not placed: {verdict.refusal}")
        begin = time.perf_counter()
        found = BlockRound(scorer, state.blocks).plan(gang, fits, {})
        names = [state.table.names[at] for at in found.rows] if isinstance(found, BlockAnswer) else []
        planned_ms = (time.perf_counter() - begin) * 1000
        if names != verdict.placement.names():
            raise RuntimeError(f"{case}: the plan differs from the decision")
        if index:  # the first run sorts the nodes
            plans_ms.append(planned_ms)
            decisions_ms.append(decided_ms)
    limits_ms = times_ms(case.nodes // _SIZE, _SIZE, _REPLICAS, _REPEATS)
    return [
        row(str(case), "plan, rank to node", "ms", plans_ms, limits=limits_ms, target=case.target_ms),
        row(str(case), "score, plan, chips, placement", "ms", decisions_ms, limits=limits_ms),
    ]


async def _bus() -> list[float]:
    async with cell(shards=4) as bus:
        client = Client(bus, keep_chips=0)
        await client.give([_node(index) for index in range(_BUS_NODES)])
        out_ms = []
        for index in range(_BUS_REPEATS + 1):
            start = time.perf_counter()
            await client.ask(_request(f"gang-{index}"))
            await client.until_placed(1 + index)
            if index:
                out_ms.append((time.perf_counter() - start) * 1000)
        return out_ms


def _state(nodes: int) -> State:
    """A cluster of empty SuperPoDs."""
    state = State()
    said = Subjects("bench")
    for superpod in range(nodes // _SIZE):
        domain = f"superpod-{superpod}"
        members = [_node(superpod * _SIZE + index) for index in range(_SIZE)]
        state.apply_fact(said.fact_node(domain), superpod + 1, encode(pack_nodes(domain, members)))
    state.apply_record(1, encode(Epoch(1, 0, state.facts_seq, 0, "bench", Settings())))
    return state


def _node(index: int) -> NodeDescription:
    return described(f"node-{index:07d}", _PRODUCT, superpod=str(index // _SIZE), rack=str(index % _SIZE // 8))


def _request(name: str) -> JobRequest:
    return JobRequest(
        namespace="bench",
        name=name,
        uid=name,
        resource=_PRODUCT.resource,
        tasks=[Task("worker", _REPLICAS, _PRODUCT.chips)],
        node_selector=dict(_PRODUCT.selector),
        annotations=dict(_ANNOTATIONS),
    )


def _gang(state: State) -> Gang:
    request = _request("gang")
    job = JobSeen("bench", "gang", "gang", "accepted", intake_seq=1, accepted_seq=1, request=request)
    return gang_of(job, request, attempt=1, settings=state.fold.settings)
