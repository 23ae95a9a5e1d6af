"""``page``: the picture of a full cell of 10,000 nodes, and the change that a few placements make in it.

The rows of :mod:`bench.browser`, the page itself, come first.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from bench import browser
from bench.cell import PRODUCT, described
from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.overview.derived_statuses import DerivedStatuses
from berth.core.overview.overview import Overview
from berth.core.state.cell import State
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.message import Message
from berth.schemas.nodes import NodeCondition
from berth.schemas.page.view import Change, View
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import Subjects

_DOMAIN_NODES: Final = 64
_AT_ONCE: Final = 4
"""Jobs that end, and jobs that are placed, in one change."""
_TARGET_MS: Final = 20.0
_REFUSED: Final = Refusal(code="no-room", task="worker", chips=PRODUCT.chips)


class Size(NamedTuple):
    """Size of a run: nodes, jobs that hold one each, jobs that wait, changes, nodes that come; and of the page."""

    nodes: int = 10_000
    placed: int = 9_000
    waiting: int = 2_000
    steps: int = 200
    comings: int = 20
    chromium: browser.Size = browser.FULL


FULL: Final = Size()
SMALL: Final = Size(nodes=64, placed=48, waiting=8, steps=1, comings=1, chromium=browser.SMALL)


class _Cell:
    """A cell that is followed by a picture of it."""

    def __init__(self, size: Size) -> None:
        self.state = State()
        self.overview = Overview(self.state)
        self._statuses = DerivedStatuses(self.state)
        self._subjects = Subjects("bench")
        self._jobs = self._rounds = 0
        self._names = [f"node-{number:05}" for number in range(size.nodes)]
        for start in range(0, size.nodes, _DOMAIN_NODES):
            domain = f"domain-{start // _DOMAIN_NODES:03}"
            nodes = [described(name) for name in self._names[start : start + _DOMAIN_NODES]]
            self._fact(self._subjects.fact_node(domain), pack_nodes(domain, nodes))
        self._record(Epoch(1, 0, self.state.facts_seq, 1, "bench", Settings()))
        placed, waiting = self._accepted(size.placed), self._accepted(size.waiting)
        self.round(
            [self._placed(uid, node) for uid, node in zip(placed, self._names, strict=False)]
            + [_verdict(uid, refusal=_REFUSED) for uid in waiting]
        )
        self.running = list(zip(placed, self._names, strict=False))
        self.waiting = waiting

    def round(self, verdicts: list[Verdict], releases: Iterable[str] = ()) -> None:
        """Fold a round."""
        self._rounds += 1
        fold, facts_seq = self.state.fold, self.state.facts_seq
        found = [Release(uid, 1, "succeeded") for uid in releases]
        self._record(Round(1, fold.head, facts_seq, 1, self._rounds, verdicts, releases=found))

    def turn(self) -> None:
        """Some jobs end, and those that waited longest get their places."""
        over, self.running = self.running[:_AT_ONCE], self.running[_AT_ONCE:]
        heads, self.waiting = self.waiting[:_AT_ONCE], self.waiting[_AT_ONCE:]
        self.round([], [uid for uid, _ in over])
        self.round([self._placed(uid, node) for uid, (_, node) in zip(heads, over, strict=True)])
        self.running += [(uid, node) for uid, (_, node) in zip(heads, over, strict=True)]

    def fault(self, number: int) -> None:
        """A chip of one node of the first domain breaks, another one is repaired."""
        conditions = [NodeCondition(name=name, unhealthy=1 << index % 8) for index, name in enumerate(self._names[:16])]
        conditions[number % 16] = NodeCondition(name=conditions[number % 16].name)
        self._fact(self._subjects.fact_health("domain-000"), pack_health("domain-000", conditions))

    def node_comes(self, number: int) -> None:
        """One more node."""
        name = f"node-{len(self._names) + number:05}"
        domain = f"more-{number}"
        self._fact(self._subjects.fact_node(domain), pack_nodes(domain, [described(name)]))

    def change(self) -> Change | View | None:
        """The change, as the follower of a cell makes it."""
        self._statuses.tell(self.overview, 1)
        return self.overview.change(1)

    def _accepted(self, count: int) -> list[str]:
        found = []
        for _ in range(count):
            before, self._jobs = self._jobs, self._jobs + 1
            name, uid = f"job-{self._jobs:05}", f"uid-{self._jobs:05}"
            task = Task("worker", 1, PRODUCT.chips)
            request = JobRequest(namespace="bench", name=name, uid=uid, resource=PRODUCT.resource, tasks=[task])
            job = JobSeen("bench", name, uid, "accepted", self._jobs, self._jobs, 1, request, after_seq=before)
            self._fact(self._subjects.fact_job("bench", name), job)
            found.append(uid)
        return found

    def _placed(self, uid: str, node: str) -> Verdict:
        chips = tuple(range(PRODUCT.chips))
        return _verdict(uid, placement_of([node], [chips], [Run(1, PRODUCT.chips)], resource=PRODUCT.resource))

    def _fact(self, subject: str, message: Message) -> None:
        data = encode(message)
        applied = self.state.apply_fact(subject, self.state.facts_seq + 1, data)
        if applied.error:
            raise ValueError(applied.error)
        self.overview.note_fact(data)
        self._statuses.note(applied.changes)

    def _record(self, message: Epoch | Round) -> None:
        folded = self.state.apply_record(self.state.fold.head + 1, self.state.fold.encoded(message))
        if folded.void:
            raise ValueError(folded.void)
        self.overview.note_record(folded)
        self._statuses.note_record(folded)


def _verdict(uid: str, placement: Placement | None = None, refusal: Refusal | None = None) -> Verdict:
    return Verdict("bench", uid.replace("uid", "job"), uid, 1, placement, refusal)


def run(size: Size = FULL) -> Report:
    """Measure."""
    cell = _Cell(size)
    start_s = time.perf_counter()
    first = cell.change()
    first_ms = (time.perf_counter() - start_s) * 1000
    encoded_ms, first_bytes = _timed(lambda: len(msgspec.json.encode(first)))
    places, sizes = [], []
    for _ in range(size.steps):
        cell.turn()
        took_ms, written = _timed(lambda: len(msgspec.json.encode(cell.change())))
        places.append(took_ms)
        sizes.append(float(written))
    faults = []
    for number in range(size.steps):
        cell.fault(number)
        faults.append(_timed(lambda: len(msgspec.json.encode(cell.change())))[0])
    comings = []
    for number in range(size.comings):
        cell.node_comes(number)
        comings.append(_timed(lambda: len(msgspec.json.encode(cell.change())))[0])
    case = f"{size.nodes:,} nodes, {size.placed:,} jobs placed, {size.waiting:,} waiting"
    changes = f"{_AT_ONCE} jobs end, {_AT_ONCE} are placed"
    rows: list[Row] = [
        row(case, "first picture", "ms", [first_ms]),
        row(case, "first picture, encoded", "ms", [encoded_ms]),
        row(case, "first picture, encoded", "KiB", [first_bytes / 1024]),
        row(case, f"{changes}: change, encoded", "ms", places, target=_TARGET_MS),
        row(case, f"{changes}: change, encoded", "KiB", [one / 1024 for one in sizes]),
        row(case, "a chip breaks: change, encoded", "ms", faults, target=_TARGET_MS),
        row(case, "a node comes: picture, encoded", "ms", comings),
    ]
    return Report(bench="page", machine=machine(), rows=[*browser.rows(size.chromium), *rows])


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    start_s = time.perf_counter()
    found = work()
    return (time.perf_counter() - start_s) * 1000, found
