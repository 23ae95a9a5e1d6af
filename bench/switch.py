"""``switch``: a plan of 1,024 whole-node pods by leaf switch, in the core and through the bus."""

import itertools
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.cell import PRODUCT, Client, cell, described
from bench.ends import until_done
from bench.limits.gang import round_trip_ms
from bench.limits.switch import times_ms
from bench.report import Report, Row, machine, row
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_packing import SWITCHES, pack_nodes
from berth.core.gangs import Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import gang_of
from berth.core.state.cell import State
from berth.core.topologies.planning import Ground, Planned
from berth.core.topologies.registry import begun
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, Leaf, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.subjects import Subjects

_PLACES: Final = 16
_CHIPS: Final = tuple(range(8))
_LABEL: Final = "large-model-schema"
_BYTES_A_POD: Final = 15
"""Bytes of one pod in a placement: index, chips, leaf and state."""


class Size(NamedTuple):
    """Size of a run: pods of the gang, decisions in the core and through the bus, leaves of each core case and targets.

    The first number of leaves is that of the cell on the bus.
    """

    replicas: int = 1_024
    repeats: int = 15
    bus_repeats: int = 5
    leaves: tuple[tuple[int, float], ...] = ((640, 10.0), (6_250, 60.0))


FULL: Final = Size()
SMALL: Final = Size(replicas=64, repeats=1, bus_repeats=1, leaves=((16, 10.0), (32, 60.0)))


class Case(NamedTuple):
    """A cluster, and the gang that comes."""

    leaves: int
    filled: str
    """empty; half: two of four leaves are full; spread: half of the places of every leaf are taken."""
    policy: str
    replicas: int
    target_ms: float

    def __str__(self) -> str:
        return f"{self.leaves * _PLACES} nodes, {self.filled}, {self.policy}"


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for leaves, target_ms in size.leaves:
        for policy in ("1.0", "2.0"):
            for filled in ("empty", "half", "spread"):
                rows += _core(Case(leaves, filled, policy, size.replicas, target_ms), size.repeats)
    for policy in ("1.0", "2.0"):
        for filled in ("empty", "half"):
            case = Case(size.leaves[0][0], filled, policy, size.replicas, 60.0)
            limits_ms = until_done(round_trip_ms(size.replicas * _BYTES_A_POD, size.bus_repeats))
            found_ms = until_done(_bus(case, size.bus_repeats))
            rows.append(
                row(f"4 shards, {case}", "request to status", "ms", found_ms, limits=limits_ms, target=case.target_ms)
            )
    return Report(bench="switch", machine=machine(), rows=rows)


def _core(case: Case, repeats: int) -> list[Row]:
    found = list(itertools.islice(decisions(case), repeats))
    limits_ms = times_ms(case.leaves, _PLACES, case.replicas, repeats)
    planned_ms = [one.planned_ms for one in found]
    decided_ms = [one.decided_ms for one in found]
    return [
        row(str(case), "plan, rank to node", "ms", planned_ms, limits=limits_ms, target=case.target_ms),
        row(str(case), "score, plan, chips, placement", "ms", decided_ms, limits=limits_ms),
    ]


class Decision(NamedTuple):
    """How long a decision took, and its plan alone."""

    decided_ms: float
    planned_ms: float


def decisions(case: Case) -> Iterator[Decision]:
    """Decide on the gang of a case again and again, from the second time on: the first one fills caches.

    Raises:
        RuntimeError: It is not placed, or the plan is another one than the decision.
    """
    state = _state(case)
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


def planned_names(state: State, gang: Gang, fits: Fits) -> list[str]:
    """Node of each pod of a gang by its plan alone, on rows that fit, shape (rows,); empty without a plan."""
    if gang.demand is None:
        return []
    ground = Ground(state.table, lambda: state.table, state.fold.settings, state.colocation, ())
    found = begun(gang.demand, ground, state.indexes).plan(gang, fits)
    return [state.table.names[at] for at in found.rows] if isinstance(found, Planned) else []


async def _bus(case: Case, repeats: int) -> list[float]:
    async with cell(shards=4, decisions=settings_of(case)) as running:
        load = Load(running.bus, case)
        await load.fill()
        return [1000 * await load.gang() for _ in range(repeats)]


def settings_of(case: Case) -> str:
    """Settings of the dispatcher for a case, as TOML."""
    return f'[decisions]\nnslb_version = "{case.policy}"\n'


class Load:
    """Gangs with switch affinity that come one after the other; each has gone when the next one comes.

    Args:
        bus: The cell.
        case: Its nodes, what fills them, and the gang.
    """

    def __init__(self, bus: NatsBus, case: Case) -> None:
        self._client = Client(bus, keep_chips=0)
        self._case = case
        self._placed = 0

    async def fill(self) -> None:
        """Give the nodes, fill them, and place a first gang."""
        nodes = self._case.leaves * _PLACES
        await self._client.nodes(nodes, below=_PLACES)
        if self._case.filled == "half":
            self._client.lasting.add("lasting")
            await self._place("lasting", nodes // 2)
        await self.gang()

    async def gang(self) -> float:
        """Seconds from a request to its status."""
        start = time.perf_counter()
        await self._place(f"gang-{self._placed}", self._case.replicas)
        return time.perf_counter() - start

    async def _place(self, name: str, replicas: int) -> None:
        await self._client.submit(name, chips=8, replicas=replicas, labels={"tor-affinity": _LABEL})
        self._placed += 1
        await self._client.until_placed(self._placed)


def _state(case: Case) -> State:
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
    state.apply_record(1, state.fold.encoded(Epoch(1, 0, state.facts_seq, 0, "bench", settings)))
    if case.filled != "empty":
        verdicts = _half(case.leaves) if case.filled == "half" else _spread(case.leaves)
        state.apply_record(2, state.fold.encoded(Round(1, 1, state.facts_seq, 0, 1, verdicts=verdicts)))
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


def _gang(state: State, replicas: int) -> Gang:
    request = JobRequest(
        namespace="bench",
        name="gang",
        uid="gang",
        resource=PRODUCT.resource,
        tasks=[Task("worker", replicas, 8)],
        node_selector=dict(PRODUCT.selector),
        labels={"tor-affinity": _LABEL},
    )
    job = JobSeen("bench", "gang", "gang", "accepted", intake_seq=1, accepted_seq=1, request=request)
    return gang_of(job, request, attempt=1, settings=state.fold.settings)
