"""``preempt``: the search for gangs that end for another one, beside its placement on a free cluster; in the core.

Times are those of the processor. What gangs hold is known from round to round, as in a dispatcher.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import SWITCHES, pack_nodes
from berth.core.preemption.footprints import Footprints
from berth.core.preemption.model import NoVictims, Preemptor, RunningGang, Terms, VictimSet
from berth.core.preemption.search import Ground, Search
from berth.core.queues.charges import Holding, charge_of_placement
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import Choice, Opening
from berth.core.state.cell import State
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, Leaf, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.message import Message
from berth.schemas.nodes import NodeDescription
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, DEFAULT, Queue
from berth.schemas.subjects import Subjects

_SUBJECTS: Final = Subjects("bench")
_TERMS: Final = Terms()
_LEAF: Final = 32
"""Nodes below a leaf."""
_SUPERPOD: Final = 48
"""Nodes of a SuperPoD."""
_BLOCK: Final = 8
"""Nodes of a block."""
_NOW_MS: Final = 100_000_000
_ROUND: Final = 8
"""Preemptors of a round."""
_LIMIT_S: Final = 10.0


class Size(NamedTuple):
    """Size of a run.

    Attributes:
        nodes: Nodes of the large cell.
        gangs: Gangs that run in it, of 14 pods.
        pods: Pods of the gang that waits.
        small: Nodes and gangs of the cell for preemptors of one pod.
        taken: Nodes of the cell whose chips are all taken by jobs of one chip.
        repeats: How often each is measured.
    """

    nodes: int = 10_000
    gangs: int = 700
    pods: int = 1_000
    small: int = 1_000
    taken: int = 500
    repeats: int = 7


FULL: Final = Size()
SMALL: Final = Size(nodes=384, gangs=25, pods=64, small=40, taken=5, repeats=1)


class Kind(NamedTuple):
    """How the gang is placed.

    Attributes:
        product: Product of the nodes.
        labels: Labels of its job.
        annotations: Annotations of its job.
    """

    product: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


_KINDS: Final = {
    "plain": Kind("module910bx8"),
    "by leaf": Kind("module910bx8", labels={"tor-affinity": "large-model-schema"}),
    "by block": Kind("superpod910a3x16", annotations={"sp-block": f"{16 * _BLOCK}"}),
}


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for name, kind in _KINDS.items():
        rows += _large(name, kind, size)
    rows += [*_one_pod(size), _all_taken(size)]
    return Report(bench="preempt", machine=machine(), rows=rows)


class _Cell:
    """A state and its scheduler.

    Args:
        nodes: The nodes.
        product: Their product.
        settings: Settings.
    """

    def __init__(self, nodes: int, product: str, settings: Settings) -> None:
        self.state = State()
        self.scheduler = Scheduler(self.state)
        self.footprints = Footprints()
        self._product = NODE_PRODUCTS[product]
        self._name = product
        self._fact(_SUBJECTS.fact_node("all"), pack_nodes("all", [self._node(number) for number in range(nodes)]))
        leaves = [self._leaf(first, nodes) for first in range(0, nodes, _LEAF)]
        topology = TopologySeen(SWITCHES, leaves, level="double_layer", places=_LEAF)
        self._fact(_SUBJECTS.fact_topology(SWITCHES), topology)
        fold = self.state.fold
        epoch = Epoch(1, 0, self.state.facts_seq, _NOW_MS, "bench", settings, rules=rules_of(settings))
        self.scheduler.begin(self.state.apply_record(1, fold.encoded(epoch)).changes)
        self._jobs = 0

    def _node(self, number: int) -> NodeDescription:
        product = self._product
        return NodeDescription(
            f"n{number:05}",
            product=self._name,
            resource=product.resource,
            labels=dict(product.labels),
            chips=(1 << product.chips) - 1,
            allocatable=product.chips,
            cpu_milli=192_000,
            memory_mib=1_500_000,
            leaf=f"leaf-{number // _LEAF:04}",
            superpod=str(number // _SUPERPOD),
            rack=str(number % _SUPERPOD // _BLOCK),
            position=number % _SUPERPOD,
        )

    def _leaf(self, first: int, nodes: int) -> Leaf:
        names = [f"n{number:05}" for number in range(first, min(first + _LEAF, nodes))]
        number = first // _LEAF
        address = f"10.0.{number >> 8}.{number & 255}"
        return Leaf(f"leaf-{number:04}", address, names, list(range(len(names))))

    def _fact(self, subject: str, fact: Message) -> None:
        applied = self.state.apply_fact(subject, self.state.facts_seq + 1, encode(fact))
        if applied.error:
            raise RuntimeError(applied.error)
        self.scheduler.note(applied.changes)

    def queue(self, queue: Queue) -> None:
        """Declare a queue."""
        self._fact(_SUBJECTS.fact_queue(queue.name), QueueSeen(queue))

    def request(self, name: str, pods: int, chips: int, kind: Kind | None = None, queue: str = "") -> JobRequest:
        """A job."""
        product = self._product
        policy = {"huawei.com/schedule_policy": product.policy} if product.policy else {}
        return JobRequest(
            "bench",
            name,
            f"uid-{name}",
            product.resource,
            [Task("worker", pods, chips, 1_000, 1_024)],
            labels=dict(product.job_labels) | dict(kind.labels if kind is not None else {}),
            annotations=policy | dict(kind.annotations if kind is not None else {}),
            node_selector=dict(product.selector),
            queue=queue,
            priority=10 if kind is not None else 0,
        )

    def ask(self, request: JobRequest) -> JobSeen:
        """Submit a job."""
        self._jobs += 1
        count = self._jobs
        seen = JobSeen("bench", request.name, request.uid, "accepted", count, count, 1, request, after_seq=count - 1)
        self._fact(_SUBJECTS.fact_job("bench", request.name), seen)
        return seen

    def fill(self, gangs: int, pods: int, chips: int, *, annotations: Mapping[str, str], queue: str = "") -> None:
        """Let gangs run.

        Raises:
            RuntimeError: They find no room.
        """
        for number in range(gangs):
            request = self.request(f"g{number:04}", pods, chips, queue=queue)
            self.ask(msgspec.structs.replace(request, annotations=request.annotations | dict(annotations)))
        while len(self.state.fold.holdings) < gangs:
            before = len(self.state.fold.holdings)
            self.turn()
            if len(self.state.fold.holdings) == before:
                raise RuntimeError(f"{before} of {gangs} gangs found room")

    def opened(self) -> Opening:
        """A turn, which has something to decide.

        Raises:
            RuntimeError: It has not.
        """
        opening = self.scheduler.open(_NOW_MS).opening
        if opening is None:
            raise RuntimeError("nothing to decide")
        return opening

    def turn(self) -> None:
        """Decide a round, and fold its record."""
        recorded = self.scheduler.decide(self.opened())
        fold = self.state.fold
        folded = self.state.apply_record(fold.head + 1, fold.encoded(recorded.round))
        self.scheduler.adopt(recorded, folded)

    def chosen(self) -> Choice:
        """Decide a round, and take it back."""
        choice = self.scheduler.choose_alone(self.opened())
        self.scheduler.take_back(choice)
        return choice

    def preemptor(self, request: JobRequest) -> Preemptor:
        """A job as it waits."""
        seen = JobSeen("bench", request.name, request.uid, "accepted", 1, 1, 1, request)
        return Preemptor(self.scheduler.gang(seen, request, 1))

    def running(self) -> list[RunningGang]:
        """All gangs; each has run for another time."""
        found = []
        for number, (key, holding) in enumerate(sorted(self.state.fold.holdings.items())):
            charge = charge_of_placement(holding.placement)
            counted = Holding(key[0], holding.queue or DEFAULT, charge, namespace="bench", start=holding.ledger_seq)
            found.append(RunningGang(counted, key[1], len(holding.placement.chips), _NOW_MS - 1_000 * (number % 977)))
        return found

    def search(self, running: list[RunningGang]) -> Search:
        """A search of a round."""
        state = self.state
        shares = state.queues.shares()
        usage = state.queues.usage(shares.tree) if shares is not None else None
        ground = Ground(state, self.scheduler.scorer, running, _NOW_MS, shares=shares, usage=usage)
        return Search(ground, _TERMS, self.footprints)


def _times_ms(repeats: int, step: Callable[[], object]) -> list[float]:
    """Times of a step, after one that is not measured."""
    step()
    found: list[float] = []
    for _ in range(repeats):
        start = time.process_time()
        step()
        found.append((time.process_time() - start) * 1_000)
    return found


def _large(name: str, kind: Kind, size: Size) -> list[Row]:
    """A gang of many pods on a cell that is full of gangs, beside the same gang on free nodes."""
    settings = Settings(nslb_version="2.0", shared_tor_num=2, round_gangs_max=64)
    chips = NODE_PRODUCTS[kind.product].chips
    turns: list[float] = []
    for _ in range(size.repeats):
        free = _Cell(size.nodes, kind.product, settings)
        free.ask(free.request("p", size.pods, chips, kind))
        start = time.process_time()
        free.turn()
        turns.append((time.process_time() - start) * 1_000)
    free = _Cell(size.nodes, kind.product, settings)
    free.ask(free.request("p", size.pods, chips, kind))
    plans = _times_ms(size.repeats, free.chosen)
    cell = _Cell(size.nodes, kind.product, settings)
    cell.fill(size.gangs, 14, chips, annotations={"sp-block": f"{chips}"} if kind.annotations else {})
    running = cell.running()
    preemptor = cell.preemptor(cell.request("p", size.pods, chips, kind))
    few = [
        gang if number < len(running) // 20 else msgspec.structs.replace(gang, counted=_kept(gang.counted))
        for number, gang in enumerate(running)
    ]
    found = _times_ms(size.repeats, lambda: _expect(cell.search(running).find(preemptor), has_victims=True))
    none = _times_ms(size.repeats, lambda: _expect(cell.search(few).find(preemptor), has_victims=False))
    return [
        _beside(f"{name}, {size.pods:,} pods", "search, beside the turn on free nodes", found, turns, most=3.0),
        _beside(f"{name}, {size.pods:,} pods", "search, beside the plan on free nodes", found, plans),
        _beside(f"{name}, hopeless", "search, beside the turn on free nodes", none, turns, most=0.2),
        _beside(f"{name}, hopeless", "search, beside the plan on free nodes", none, plans),
    ]


def _kept(counted: Holding) -> Holding:
    return msgspec.structs.replace(counted, is_preemptable=False)


def _expect(found: VictimSet | NoVictims, *, has_victims: bool) -> None:
    """See that a search found victims, or none.

    Raises:
        RuntimeError: It is not so.
    """
    if isinstance(found, VictimSet) != has_victims:
        raise RuntimeError(f"unexpected: {found}")


def _beside(case: str, metric: str, values: list[float], limits: list[float], *, most: float | None = None) -> Row:
    """A row whose target is a multiple of its limit."""
    limit = sorted(limits)[len(limits) // 2]
    return row(case, metric, "ms", values, limits=limits, target=None if most is None else round(most * limit, 4))


def _one_pod(size: Size) -> list[Row]:
    """Preemptors of one pod, some of them in each round, beside a turn that places one on a free node."""
    product, settings = _KINDS["plain"].product, Settings()
    cell = _Cell(size.small, product, settings)
    cell.fill(size.small, 1, 8, annotations={})
    running = cell.running()
    attempts: list[float] = []
    rounds: list[float] = []
    for number in range(size.repeats * 3):
        preemptors = [cell.preemptor(cell.request(f"p{number}-{one}", 1, 8, _KINDS["plain"])) for one in range(_ROUND)]
        start = time.process_time()
        search = cell.search(running)
        times = [start]
        for preemptor in preemptors:
            found = search.find(preemptor)
            _expect(found, has_victims=True)
            if isinstance(found, VictimSet):
                search.accept(preemptor, found)
            times.append(time.process_time())
        attempts += [(after - before) * 1_000 for before, after in itertools.pairwise(times)]
        rounds.append((times[-1] - start) * 1_000 / _ROUND)
    free = _Cell(size.small, product, settings)
    limits: list[float] = []
    for number in range(size.repeats * 3):
        free.ask(free.request(f"f{number}", 1, 8, _KINDS["plain"]))
        start = time.process_time()
        free.turn()
        limits.append((time.process_time() - start) * 1_000)
    case = f"one pod, {size.small:,} nodes, {size.small:,} gangs"
    return [
        _beside(case, "search of a preemptor, beside a turn on free nodes", attempts, limits, most=2.0),
        _beside(case, f"a part of what {_ROUND} preemptors of a round cost", rounds, limits),
    ]


def _all_taken(size: Size) -> Row:
    """One queue has all chips in jobs of one chip, and another one asks for as many."""
    product = _KINDS["plain"].product
    cell = _Cell(size.taken, product, Settings(queues=2, round_gangs_max=1_000))
    chips, resource = size.taken * 8, NODE_PRODUCTS[product].resource
    for name in ("first", "second"):
        cell.queue(Queue(name, deserved={resource: chips // 2 * CHIP}))
    cell.fill(chips, 1, 1, annotations={}, queue="first")
    running = cell.running()
    times: list[float] = []
    evicted = 0
    for _ in range(min(size.repeats, 3)):
        start = time.process_time()
        search = cell.search(running)
        evicted = 0
        for number in range(chips):
            preemptor = cell.preemptor(cell.request(f"p{number}", 1, 1, _KINDS["plain"], queue="second"))
            found = search.find(preemptor)
            if isinstance(found, VictimSet):
                evicted += len(found.victims)
                search.accept(preemptor, found)
        times.append(time.process_time() - start)
    case = f"{size.taken:,} nodes, {chips:,} jobs run and {chips:,} wait"
    return row(case, f"search for all in one round, {evicted:,} evicted", "s", times, target=_LIMIT_S)
