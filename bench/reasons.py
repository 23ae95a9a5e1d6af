"""``reasons``: what it costs to keep the reasons of 300 waiting jobs as of now in a busy cell, beside its rounds.

The cell has 2,000 nodes. Jobs end and others come, so that the same number waits, and every second a node breaks or is
healthy again. The same history is decided with the reasons of now and without, in turns, on the process's CPU time. How
old reasons get is measured in a whole cell on virtual time.
"""

import random
import statistics
import time
from typing import Final, NamedTuple

from bench.cell import PRODUCT, described
from bench.reason_ages import ages
from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.explain.current_reasons import CurrentReasons
from berth.core.explain.job_status import Reason, status_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, NodeHealth, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import Subjects

_DOMAIN_NODES: Final = 50
_LOOK_MS: Final = 1_750
_BEGIN_MS: Final = 1_700_000_000_000
_GANG_NODES: Final = 4
_SUBJECTS: Final = Subjects("bench")
_MOST_PERCENT: Final = 105.0
_OLDEST_S: Final = 2.0
_CLASSES: Final = 12


class Size(NamedTuple):
    """Size of a run.

    Attributes:
        nodes: Nodes of the cell.
        waiting: Jobs that wait.
        seconds: Length of the history.
        rounds: Jobs that end in a second, each with a round.
        pairs: Pairs of runs.
        breaks: How often a node breaks on virtual time.
    """

    nodes: int = 2_000
    waiting: int = 300
    seconds: int = 20
    rounds: int = 20
    pairs: int = 5
    breaks: int = 3


FULL: Final = Size()
SMALL: Final = Size(nodes=100, waiting=20, seconds=2, rounds=2, pairs=1, breaks=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for classes, name in ((_CLASSES, f"{_CLASSES} classes"), (size.waiting, "all different")):
        with_them: list[float] = []
        without: list[float] = []
        looks: list[float] = []
        for pair in range(size.pairs):
            for has_reasons in (True, False) if pair % 2 else (False, True):
                took_ms, look_ms = _Cell(size, classes).run(has_reasons=has_reasons)
                (with_them if has_reasons else without).append(took_ms)
                looks += look_ms
        shares = [100 * one / other for one, other in zip(with_them, without, strict=True)]
        rows += [
            row(name, "CPU of a round without", "ms", without),
            row(name, "CPU of a round with reasons", "ms", with_them),
            row(name, "with reasons, of a pair", "%", [statistics.median(shares)], target=_MOST_PERCENT),
            row(name, "a look at all of them", "ms", looks),
        ]
    found = ages(size.nodes, size.waiting, _CLASSES, size.breaks)
    rows += [
        row("a node breaks", "until all statuses say so", "s", [max(found.statuses)], target=_OLDEST_S),
        row("a node breaks", "until all pods say so", "s", [max(found.texts)]),
    ]
    return Report(bench="reasons", machine=machine(), rows=rows)


class _Cell:
    """A full cell with jobs that wait.

    Args:
        size: Of the run.
        classes: Classes of the jobs that wait.
    """

    def __init__(self, size: Size, classes: int) -> None:
        self._size = size
        self._classes = classes
        self._random = random.Random(5)  # noqa: S311  # a history that is the same each time
        self._state = State()
        self._scheduler = Scheduler(self._state)
        self._at_ms = _BEGIN_MS
        self._jobs = 0
        self._ill = ""
        for start in range(0, size.nodes, _DOMAIN_NODES):
            nodes = [described(f"node-{number:05}") for number in range(start, min(start + _DOMAIN_NODES, size.nodes))]
            domain = f"domain-{start:05}"
            self._fact(_SUBJECTS.fact_node(domain), pack_nodes(domain, nodes, at_ms=self._at_ms))
        fold = self._state.fold
        epoch = Epoch(1, fold.head, self._state.facts_seq, self._at_ms, "bench", Settings())
        self._scheduler.begin(self._state.apply_record(fold.head + 1, self._state.fold.encoded(epoch)).changes)
        for _ in range(size.nodes):
            self._job(1, cpu_milli=1000)
        while self._round(None):
            pass
        for number in range(size.waiting):
            self._job(1 + number % _GANG_NODES, cpu_milli=1000 + number % classes)
        while self._round(None):
            pass

    def run(self, *, has_reasons: bool) -> tuple[float, list[float]]:
        """CPU of a round, and of each look, in ms."""
        reasons = CurrentReasons(self._scheduler) if has_reasons else None
        looks: list[float] = []
        rounds = 0
        began_s = time.process_time()
        step_ms = 1000 // self._size.rounds
        for tick in range(self._size.seconds * self._size.rounds):
            self._at_ms += step_ms
            if not tick % self._size.rounds:
                self._break_another()
            self._end_one()
            rounds += self._round(reasons)
            if reasons is not None and not tick % (_LOOK_MS // step_ms):
                looks.append(self._look(reasons))
        return 1000 * (time.process_time() - began_s) / max(rounds, 1), looks

    def _look(self, reasons: CurrentReasons) -> float:
        """Look at all jobs that wait, and make the statuses that are new; returns what it took in ms."""
        began_s = time.process_time()
        reasons.begin(self._at_ms)
        reasons.advance(self._size.waiting)
        for key in reasons.take(self._size.waiting):
            self._status(key, reasons)
        return 1000 * (time.process_time() - began_s)

    def _status(self, key: tuple[str, str], reasons: CurrentReasons | None) -> None:
        job = self._state.jobs[key]
        gang = self._state.fold.gangs.get(job.uid)
        reason: Reason | None = None
        if reasons is not None and gang is not None and gang.phase == "waiting" and gang.refusal is not None:
            reason = reasons.of(job.uid, gang.refusal, self._at_ms)
        status = status_of(self._state, key, at_ms=self._at_ms, reason=reason)
        if status is not None:
            encode(status)

    def _round(self, reasons: CurrentReasons | None) -> bool:
        """Decide a round, with its statuses; returns whether there was one."""
        opening = self._scheduler.open(self._at_ms).opening
        if opening is None:
            return False
        recorded = self._scheduler.decide(opening)
        folded = self._state.apply_record(self._state.fold.head + 1, self._state.fold.encoded(recorded.round))
        self._scheduler.adopt(recorded, folded)
        if reasons is not None:
            reasons.adopt(recorded.round)
        for gang in folded.gangs:
            self._status((gang.namespace, gang.name), reasons)
        return True

    def _end_one(self) -> None:
        """End a job that runs, and bring another."""
        holdings = list(self._state.fold.holdings.values())
        holding = self._random.choice(holdings)
        names = holding.placement.names()
        table = sorted(set(names))
        seen = PodsSeen(
            namespace=holding.namespace,
            gang=holding.name,
            uid=holding.uid,
            attempt=holding.attempt,
            rank=pack(range(len(names)), 4),
            nodes=pack_names(table),
            node_index=pack([table.index(name) for name in names], 4),
            phase=pack([PodPhase.SUCCEEDED] * len(names), 1),
            chips=pack([0] * len(names), 8),
            resource=holding.placement.resource,
            at_ms=self._at_ms,
        )
        self._fact(_SUBJECTS.fact_pod(holding.namespace, holding.name), seen)
        if len(self._scheduler.queue) < self._size.waiting:
            self._job(1 + self._jobs % _GANG_NODES, cpu_milli=1000 + self._jobs % self._classes)

    def _break_another(self) -> None:
        """Let a node be ill, or healthy again."""
        start = self._random.randrange(0, self._size.nodes, _DOMAIN_NODES)
        domain = self._ill or f"domain-{start:05}"
        ill = [] if self._ill else [NodeCondition(f"node-{start:05}", level=NodeHealth.NO_NEW_WORK)]
        self._ill = "" if self._ill else domain
        self._fact(_SUBJECTS.fact_health(domain), pack_health(domain, ill, at_ms=self._at_ms))

    def _job(self, pods: int, *, cpu_milli: int) -> None:
        before, self._jobs = self._jobs, self._jobs + 1
        request = JobRequest(
            namespace="bench",
            name=f"job-{self._jobs:06}",
            uid=f"uid-{self._jobs:06}",
            resource=PRODUCT.resource,
            tasks=[Task("worker", pods, PRODUCT.chips, cpu_milli)],
            node_selector=dict(PRODUCT.selector),
            created_at_ms=self._at_ms,
        )
        job = JobSeen(
            "bench",
            request.name,
            request.uid,
            "accepted",
            self._jobs,
            self._jobs,
            self._at_ms,
            request,
            after_seq=before,
        )
        self._fact(_SUBJECTS.fact_job("bench", request.name), job)

    def _fact(self, subject: str, fact: Message) -> None:
        applied = self._state.apply_fact(subject, self._state.facts_seq + 1, encode(fact))
        self._scheduler.note(applied.changes)
