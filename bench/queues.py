"""``queues``: many gangs that wait in one queue and in 1,000 queues, beside the same without queues; in the core.

And as many PodGroups that wait for their admission by 1,000 queues.
"""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import pack_nodes
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.message import Message
from berth.schemas.nodes import NodeDescription
from berth.schemas.queues.facts import QueueSeen, WaitingGroup
from berth.schemas.queues.queue import CHIP, Queue
from berth.schemas.subjects import Subjects

_PRODUCT: Final = NODE_PRODUCTS["module910bx8"]
_SUBJECTS: Final = Subjects("bench")
_FAN: Final = 10
"""Queues below each queue of a tree of four levels."""


class Size(NamedTuple):
    """Size of a run: gangs that wait, nodes of 8 chips, rounds that are measured, and repeats."""

    gangs: int = 20_000
    nodes: int = 2_500
    rounds: int = 40
    repeats: int = 3


FULL: Final = Size()
SMALL: Final = Size(gangs=600, nodes=100, rounds=1, repeats=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rates: dict[str, list[float]] = {"none": [], "one queue": [], "1,000 queues": []}
    wakes_ms: list[float] = []
    decided_s: list[float] = []
    again_ms: list[float] = []
    for _ in range(size.repeats):
        rates["none"].append(_rate(size, Settings(), []))
        rates["one queue"].append(_rate(size, Settings(queues=2), [Queue("q", weight=2, capability=_chips(1 << 30))]))
        rates["1,000 queues"].append(_rate(size, Settings(queues=2), list(tree())))
        wakes_ms.append(_wake_ms(size))
        first_s, one_ms = _admission(size)
        decided_s.append(first_s)
        again_ms.append(one_ms)
    rows: list[Row] = [
        row(name, "gangs placed", "gangs/s", found, limits=rates["none"]) for name, found in rates.items()
    ]
    rows.append(row("1,000 queues", "a limit is raised, to the record of who starts", "ms", wakes_ms, target=50.0))
    rows.append(row("1,000 queues", "all PodGroups are decided on, in order", "s", decided_s, target=5.0))
    rows.append(row("1,000 queues", "a job ends, to the record of who is admitted", "ms", again_ms))
    return Report(bench="queues", machine=machine(), rows=rows)


def tree() -> Iterator[Queue]:
    """1,000 leaf queues in four levels: the root, 10, 100, and these."""
    for top in range(_FAN):
        yield Queue(f"t{top}", weight=1 + top, capability=_chips(1 << 20))
        for middle in range(_FAN):
            yield Queue(f"m{top}{middle}", parent=f"t{top}", weight=1 + middle)
            for leaf in range(_FAN):
                yield Queue(f"q{top}{middle}{leaf}", parent=f"m{top}{middle}", weight=1 + leaf)


def _chips(count: int) -> dict[str, int]:
    return {_PRODUCT.resource: count * CHIP}


class Cell:
    """A state and its scheduler.

    Args:
        size: Nodes and gangs.
        settings: Settings.
        queues: Queues that are declared, the leaf queues of which have the gangs in turn.
    """

    def __init__(self, size: Size, settings: Settings, queues: list[Queue]) -> None:
        self.state = State()
        self.scheduler = Scheduler(self.state)
        self._at_ms = 1
        nodes = [
            NodeDescription(
                f"n{number:05}",
                product="module910bx8",
                resource=_PRODUCT.resource,
                labels=dict(_PRODUCT.labels),
                chips=0xFF,
                allocatable=8,
                cpu_milli=192_000,
                memory_mib=1_500_000,
            )
            for number in range(size.nodes)
        ]
        self.fact(_SUBJECTS.fact_node("all"), pack_nodes("all", nodes))
        for queue in queues:
            self.queue(queue)
        fold = self.state.fold
        epoch = Epoch(1, 0, self.state.facts_seq, 1, "bench", settings, rules=rules_of(settings))
        self.scheduler.begin(self.state.apply_record(1, fold.encoded(epoch)).changes)
        leaves = [one.name for one in queues if one.name.startswith("q")] or ["default"]
        for number in range(size.gangs):
            self._job(number, leaves[number % len(leaves)])

    def fact(self, subject: str, fact: Message) -> None:
        """Apply a fact.

        Raises:
            RuntimeError: It is not applied.
        """
        applied = self.state.apply_fact(subject, self.state.facts_seq + 1, encode(fact))
        if applied.error:
            raise RuntimeError(applied.error)
        self.scheduler.note(applied.changes)

    def queue(self, queue: Queue) -> None:
        """Declare a queue."""
        self.fact(_SUBJECTS.fact_queue(queue.name), QueueSeen(queue))

    def _job(self, number: int, queue: str) -> None:
        request = JobRequest(
            "bench",
            f"j{number}",
            f"u{number}",
            _PRODUCT.resource,
            [Task("worker", 1, 1, 1_000, 1_024)],
            labels=dict(_PRODUCT.job_labels),
            node_selector=dict(_PRODUCT.selector),
            queue=queue,
        )
        count = number + 1
        seen = JobSeen("bench", request.name, request.uid, "accepted", count, count, 1, request, after_seq=number)
        self.fact(_SUBJECTS.fact_job("bench", request.name), seen)

    def group(self, number: int, queue: str) -> None:
        """A PodGroup waits for its admission."""
        chips = _chips(8)
        waiting = WaitingGroup(queue, chips, is_declared=True, pods=1, priority=number % 3, created_ms=number)
        name = f"g{number}"
        self.fact(_SUBJECTS.fact_group("bench", name), GroupSeen("bench", name, f"ug{number}", waiting=waiting))

    def ended(self) -> None:
        """A job ends, and its end is recorded."""
        (uid, attempt), holding = next(iter(self.state.fold.holdings.items()))
        rank, nothing = pack([0], 4), pack([0], 8)
        pods = PodsSeen(
            holding.namespace,
            holding.name,
            uid,
            attempt,
            rank,
            pack_names(holding.placement.names()),
            rank,
            pack([PodPhase.SUCCEEDED], 1),
            nothing,
        )
        self.fact(_SUBJECTS.fact_pod(holding.namespace, holding.name), pods)
        self.round()

    def round(self) -> int:
        """Decide a round; returns how many gangs were placed."""
        self._at_ms += 1
        opening = self.scheduler.open(self._at_ms).opening
        if opening is None:
            return 0
        recorded = self.scheduler.decide(opening)
        fold = self.state.fold
        folded = self.state.apply_record(fold.head + 1, fold.encoded(recorded.round))
        self.scheduler.adopt(recorded, folded)
        return sum(one.placement is not None for one in recorded.round.verdicts)


def _rate(size: Size, settings: Settings, queues: list[Queue]) -> float:
    cell = Cell(size, settings, queues)
    cell.round()  # sorts the nodes and makes the tree
    begin = time.perf_counter()
    placed = sum(cell.round() for _ in range(size.rounds))
    return placed / (time.perf_counter() - begin)


def _wake_ms(size: Size) -> float:
    """Time from a raised limit of one queue to the record that starts its gangs, while all others wait for theirs.

    Raises:
        RuntimeError: They do not start.
    """
    queues = [Queue(one.name, one.parent, capability=_chips(0)) if one.name.startswith("q") else one for one in tree()]
    cell = Cell(size, Settings(queues=2), queues)
    cell.round()
    while cell.scheduler.has_work:
        cell.round()
    begin = time.perf_counter()
    cell.queue(Queue("q000", "m00", capability=_chips(8)))
    if not cell.round():
        raise RuntimeError("nobody starts in a queue whose limit was raised")
    return (time.perf_counter() - begin) * 1000


def _admission(size: Size) -> tuple[float, float]:
    """Time (s) in which PodGroups are decided on of which half have room, and that (ms) after a job has ended.

    Raises:
        RuntimeError: None is admitted in its place.
    """
    each = max(size.gangs // 2_000, 1)
    queues = [
        Queue(one.name, one.parent, weight=one.weight, capability=_chips(8 * each) if one.name.startswith("q") else {})
        for one in tree()
    ]
    cell = Cell(size._replace(gangs=min(size.nodes, 1_000)), Settings(queues=2), queues)
    while cell.scheduler.has_work:
        cell.round()
    leaves = [queue.name for queue in queues if queue.name.startswith("q")]
    for number in range(size.gangs):
        cell.group(number, leaves[number % len(leaves)])
    begin = time.perf_counter()
    while cell.scheduler.has_work:
        cell.round()
    decided_s = time.perf_counter() - begin
    before = sum(one.refusal is None for one in cell.state.fold.admissions.values())
    cell.ended()
    begin = time.perf_counter()
    cell.round()
    took_ms = (time.perf_counter() - begin) * 1000
    if sum(one.refusal is None for one in cell.state.fold.admissions.values()) == before:
        raise RuntimeError("nobody is admitted in place of a job that has ended")
    return decided_s, took_ms
