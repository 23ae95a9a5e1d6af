"""``switch``: a plan of 1,024 whole-node pods by leaf switch, in the core and through the bus."""

import time
from typing import Final, NamedTuple

import uvloop

from bench.cell import PRODUCT, Client, cell, described
from bench.limits.gang import round_trip_ms
from bench.limits.switch import times_ms
from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import SWITCHES, pack_nodes
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.placement.switch_placement import LeafRound
from berth.core.requests.gangs import Gang, gang_of
from berth.core.state.cell import State
from berth.core.switches.planner import Plan
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, Leaf, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.subjects import Subjects

_PLACES: Final = 16
_REPLICAS: Final = 1_024
_REPEATS: Final = 15
_BUS_LEAVES: Final = 640
_BUS_REPEATS: Final = 5
_CHIPS: Final = tuple(range(8))
_LABEL: Final = "large-model-schema"
_BYTES_A_POD: Final = 15
"""Bytes of one pod in a placement: index, chips, leaf and state."""


class _Case(NamedTuple):
    leaves: int
    filled: str
    """empty; half: two of four leaves are full; spread: half of the places of every leaf are taken."""
    policy: str
    target_ms: float

    def __str__(self) -> str:
        return f"{self.leaves * _PLACES} nodes, {self.filled}, {self.policy}"


def run() -> Report:
    """Measure."""
    rows: list[Row] = []
    for leaves, target_ms in ((640, 10.0), (6_250, 60.0)):
        for policy in ("1.0", "2.0"):
            for filled in ("empty", "half", "spread"):
                rows += _core(_Case(leaves, filled, policy, target_ms))
    for policy in ("1.0", "2.0"):
        for filled in ("empty", "half"):
            case = _Case(_BUS_LEAVES, filled, policy, 60.0)
            limits_ms = uvloop.run(round_trip_ms(_REPLICAS * _BYTES_A_POD, _BUS_REPEATS))
            found_ms = uvloop.run(_bus(case))
            rows.append(
                row(f"4 shards, {case}", "request to status", "ms", found_ms, limits=limits_ms, target=case.target_ms)
            )
    return Report(bench="switch", machine=machine(), rows=rows)


def _core(case: _Case) -> list[Row]:
    state = _state(case)
    scorer = Scorer(state.table, state.shares, state.fold.settings)
    gang = _gang(state)
    asks = candidate_counts([gang])
    shape = gang.request_class[0][0]
    plans_ms: list[float] = []
    decisions_ms: list[float] = []
    for index in range(_REPEATS + 1):
        begin = time.perf_counter()
        views = {shape: scorer.candidates(shape, asks[shape], leaves=state.leaves)}
        verdict = (
            PlacementRound(scorer, views, asks, leaves=(state.leaves, state.leaf_occupancy)).choose([gang]).verdicts[0]
        )
        decided_ms = (time.perf_counter() - begin) * 1000
        usable = views[shape].usable
        if usable is None or verdict.placement is None or verdict.placement.pods() != _REPLICAS:
            raise RuntimeError(f"{case}: the gang was not placed: {verdict.refusal}")
        begin = time.perf_counter()
        leaf_round = LeafRound(scorer, state.leaves, state.leaf_occupancy)
        found = leaf_round.plan(gang, usable)
        names = [state.table.names[at] for at in leaf_round.rows_of(found.cells)] if isinstance(found, Plan) else []
        planned_ms = (time.perf_counter() - begin) * 1000
        if names != verdict.placement.names():
            raise RuntimeError(f"{case}: the plan differs from the decision")
        if index:  # the first run fills caches
            plans_ms.append(planned_ms)
            decisions_ms.append(decided_ms)
    limits_ms = times_ms(case.leaves, _PLACES, _REPLICAS, _REPEATS)
    return [
        row(str(case), "plan, rank to node", "ms", plans_ms, limits=limits_ms, target=case.target_ms),
        row(str(case), "score, plan, chips, placement", "ms", decisions_ms, limits=limits_ms),
    ]


async def _bus(case: _Case) -> list[float]:
    settings = f'[decisions]\nnslb_version = "{case.policy}"\n'
    async with cell(shards=4, decisions=settings) as bus:
        client = Client(bus, keep_chips=0)
        await client.nodes(case.leaves * _PLACES, below=_PLACES)
        placed = 0
        if case.filled == "half":
            client.lasting.add("lasting")
            await client.submit(
                "lasting", chips=8, replicas=case.leaves * _PLACES // 2, labels={"tor-affinity": _LABEL}
            )
            placed = 1
            await client.until_placed(placed)
        out_ms = []
        for index in range(_BUS_REPEATS + 1):
            start = time.perf_counter()
            await client.submit(f"gang-{index}", chips=8, replicas=_REPLICAS, labels={"tor-affinity": _LABEL})
            placed += 1
            await client.until_placed(placed)
            if index:
                out_ms.append((time.perf_counter() - start) * 1000)
        return out_ms


def _state(case: _Case) -> State:
    """A cluster of A2 nodes below leaf switches; half: two of four leaves are full, with jobs of 24 and of 8 nodes."""
    state = State()
    said = Subjects("bench")
    leaves = [
        Leaf(f"leaf-{leaf:04d}", "", [_node(leaf, place) for place in range(_PLACES)]) for leaf in range(case.leaves)
    ]
    for sequence, leaf in enumerate(leaves, start=1):
        domain = f"leaf-{leaf.name}"
        nodes = [described(name, leaf=leaf.name, position=place) for place, name in enumerate(leaf.nodes)]
        state.apply_fact(said.fact_node(domain), sequence, encode(pack_nodes(domain, nodes)))
    fact = TopologySeen(SWITCHES, leaves, places=_PLACES)
    state.apply_fact(said.fact_topology(SWITCHES), case.leaves + 1, encode(fact))
    settings = Settings(nslb_version=case.policy)
    state.apply_record(1, encode(Epoch(1, 0, state.facts_seq, 0, "bench", settings)))
    if case.filled != "empty":
        verdicts = _half(case.leaves) if case.filled == "half" else _spread(case.leaves)
        state.apply_record(2, encode(Round(1, 1, state.facts_seq, 0, 1, verdicts=verdicts)))
    return state


def _half(leaves: int) -> list[Verdict]:
    verdicts = []
    for first in range(0, leaves - 3, 4):
        both = [_node(leaf, place) for leaf in (first, first + 1) for place in range(_PLACES)]
        verdicts += [_placed(f"cross-{first}", both[:24]), _placed(f"single-{first}", both[24:])]
    return verdicts


def _spread(leaves: int) -> list[Verdict]:
    return [
        _placed(f"single-{leaf}", [_node(leaf, place) for place in range(_PLACES) if (leaf + place) % 2])
        for leaf in range(leaves)
    ]


def _placed(name: str, nodes: list[str]) -> Verdict:
    placement = placement_of(nodes, [_CHIPS] * len(nodes), [Run(len(nodes), len(_CHIPS))], resource=PRODUCT.resource)
    return Verdict("bench", name, name, 1, placement)


def _node(leaf: int, place: int) -> str:
    return f"node-{leaf * _PLACES + place:06d}"


def _gang(state: State) -> Gang:
    request = JobRequest(
        namespace="bench",
        name="gang",
        uid="gang",
        resource=PRODUCT.resource,
        tasks=[Task("worker", _REPLICAS, 8)],
        node_selector=dict(PRODUCT.selector),
        labels={"tor-affinity": _LABEL},
    )
    job = JobSeen("bench", "gang", "gang", "accepted", intake_seq=1, accepted_seq=1, request=request)
    return gang_of(job, request, attempt=1, settings=state.fold.settings)
