"""``replay``: replay of a busy log of 1,000 nodes, from memory and from a file, and the memory for a long log."""

import heapq
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.cell import PRODUCT, described
from bench.limits.replay import decode_s, first_fit_s
from bench.report import Report, Row, machine, row
from berth.core.cluster.node_packing import pack_nodes
from berth.core.replay.replay import Replay, Replayed
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import Recorded
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.formats.recordings.recording import frames_of
from berth.runtime.recording import read_file
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.message import Message
from berth.schemas.recording import BEGINNING, Entry, RecordingHead
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import Subjects

_NODES: Final = 1_000
_DOMAIN_NODES: Final = 50
_ROUND_MS: Final = 200
_WAITING_MAX: Final = 100
"""Upper bound of the waiting jobs; jobs arrive while fewer wait."""
_ARRIVALS_MAX: Final = 7
"""Upper bound of the arrivals between two rounds; on average they need about all chips."""
_RUN_MS: Final = (20_000, 60_000)
_SIZES: Final = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (4, 4), (1, 8))
"""Chips of one pod and count of pods, of the jobs."""
_MIB: Final = 1 << 20
_STATUS: Final = Path("/proc/self/status")


class Size(NamedTuple):
    """Size of a run: facts of the log, replays of it, and facts of a long log, which is read from a file only."""

    events: int = 100_000
    repeats: int = 3
    long: int = 0
    """0: there is none."""


FULL: Final = Size()
SMALL: Final = Size(events=300, repeats=1, long=400)


class BusyCell:
    """A cell in which jobs arrive, run, end and are removed; yields its entries."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # a log that is the same each time
        self._state = State()
        self._scheduler = Scheduler(self._state)
        self._subjects = Subjects("bench")
        self._at_ms = 1_700_000_000_000
        self._jobs = 0
        self._ends: list[tuple[int, str]] = []
        """Heap of (end, uid) of running jobs."""
        self._over: list[JobSeen] = []
        self._started: list[Holding] = []

    def entries(self, facts: int) -> Iterator[Entry]:
        """A history of about that many facts."""
        nodes = [described(f"node-{number:04}") for number in range(_NODES)]
        for start in range(0, _NODES, _DOMAIN_NODES):
            domain = f"domain-{start // _DOMAIN_NODES:02}"
            fact = pack_nodes(domain, nodes[start : start + _DOMAIN_NODES], at_ms=self._at_ms)
            yield self._fact(self._subjects.fact_node(domain), fact)
        fold = self._state.fold
        yield self._record(
            Epoch(1, fold.head, self._state.facts_seq, self._at_ms, "bench", Settings(skims_classes=True)), None
        )
        while self._state.facts_seq < facts:
            self._at_ms += _ROUND_MS
            yield from self._news()
            opening = self._scheduler.open(self._at_ms).opening
            if opening is not None:
                recorded = self._scheduler.decide(opening)
                yield self._record(recorded.round, recorded)

    def _news(self) -> Iterator[Entry]:
        """Events since the last round: freed names, started and ended pods, new jobs."""
        over, self._over = self._over, []
        for job in over:
            tombstone = JobSeen(job.namespace, job.name, job.uid, "tombstone", job.intake_seq, at_ms=self._at_ms)
            yield self._fact(self._subjects.fact_job(job.namespace, job.name), tombstone)
        started, self._started = self._started, []
        for holding in started:
            heapq.heappush(self._ends, (self._at_ms + self._random.randint(*_RUN_MS), holding.uid))
            yield self._pods(holding, PodPhase.RUNNING)
        while self._ends and self._ends[0][0] <= self._at_ms:
            _, uid = heapq.heappop(self._ends)
            yield self._pods(self._state.fold.holdings[uid, 1], PodPhase.SUCCEEDED)
        for _ in range(self._random.randint(0, min(_ARRIVALS_MAX, max(0, _WAITING_MAX - len(self._scheduler.queue))))):
            yield self._job()

    def _job(self) -> Entry:
        chips, pods = self._random.choice(_SIZES)
        before, self._jobs = self._jobs, self._jobs + 1
        request = JobRequest(
            namespace="bench",
            name=f"job-{self._jobs:08}",
            uid=f"uid-{self._jobs:08}",
            resource=PRODUCT.resource,
            tasks=[Task("worker", pods, chips)],
            node_selector=dict(PRODUCT.selector),
            labels=dict(PRODUCT.job_labels),
            annotations={"huawei.com/schedule_policy": PRODUCT.policy} if PRODUCT.policy else {},
        )
        fact = JobSeen(
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
        return self._fact(self._subjects.fact_job("bench", request.name), fact)

    def _pods(self, holding: Holding, phase: PodPhase) -> Entry:
        placement = holding.placement
        masks = [sum(1 << chip for chip in chips) for chips in placement.chips_by_rank()]
        names = placement.names()
        table = sorted(set(names))
        fact = PodsSeen(
            namespace="bench",
            gang=holding.name,
            uid=holding.uid,
            attempt=1,
            rank=pack(range(len(names)), 4),
            nodes=pack_names(table),
            node_index=pack([table.index(name) for name in names], 4),
            phase=pack([phase] * len(names), 1),
            chips=pack(masks, 8),
            resource=placement.resource,
            at_ms=self._at_ms,
        )
        return self._fact(self._subjects.fact_pod("bench", holding.name), fact)

    def _fact(self, subject: str, fact: Message) -> Entry:
        entry = Entry(self._state.facts_seq + 1, encode(fact), subject)
        applied = self._state.apply_fact(subject, entry.sequence, entry.data)
        if applied.error:
            raise ValueError(applied.error)
        self._scheduler.note(applied.changes)
        return entry

    def _record(self, record: Epoch | Round, turn: Recorded | None) -> Entry:
        entry = Entry(self._state.fold.head + 1, self._state.fold.encoded(record))
        folded = self._state.apply_record(entry.sequence, entry.data)
        if turn is None:
            self._scheduler.begin(folded.changes)
        else:
            self._scheduler.adopt(turn, folded)
        self._started += folded.taken
        self._over += [self._state.jobs[holding.namespace, holding.name] for holding in folded.given_back]
        return entry


def run(size: Size = FULL) -> Report:
    """Measure."""
    entries = list(BusyCell(1).entries(size.events))
    rows = _rows("from memory", [_beside_limits(timed(entries), entries) for _ in range(size.repeats)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "busy.berthlog"
        _write(path, entries)
        rows += _rows("from a file", [_beside_limits(_file_timed(path), entries) for _ in range(size.repeats)])
        rows.append(row("from a file", "size of the file", "MiB", [path.stat().st_size / _MIB]))
        rows.append(row("from a file", "peak RSS of its process", "MiB", [_peak_mib(path)], target=1024))
        if size.long:
            path = Path(folder) / "long.berthlog"
            _write(path, BusyCell(2).entries(size.long))
            case = f"{size.long:,} events, from a file"
            rows.append(row(case, "size of the file", "MiB", [path.stat().st_size / _MIB]))
            rows.append(row(case, "peak RSS of its process", "MiB", [_peak_mib(path)], target=1024))
    return Report(bench="replay", machine=machine(), rows=rows)


class _Measured(NamedTuple):
    """One replay, and the limits that bare programs reach right after it."""

    result: Replayed
    took_s: float
    decode_s: float
    first_fit_s: float


def _rows(case: str, found: list[_Measured]) -> list[Row]:
    result = found[0].result
    what = f"{_NODES:,} nodes, {result.events:,} events, {result.decisions:,} decisions, {case}"
    events = [one.result.events / one.took_s for one in found]
    decoded = [one.result.events / one.decode_s for one in found]
    decisions = [one.result.decisions / one.took_s for one in found]
    fitted = [one.result.decisions / one.first_fit_s for one in found]
    return [
        row(what, "events", "1/s", events, limits=decoded, target=20_000, better="more"),
        row(what, "decisions", "1/s", decisions, limits=fitted, target=5_000, better="more"),
        row(what, "rounds", "1/s", [one.result.rounds / one.took_s for one in found]),
        row(what, "gangs refused", "verdicts", [result.refused], can_be_zero=True),
    ]


def _beside_limits(found: tuple[Replayed, float], entries: list[Entry]) -> _Measured:
    result, took_s = found
    decoded_s = decode_s([entry.data for entry in entries])
    return _Measured(result, took_s, decoded_s, first_fit_s(_NODES, PRODUCT.chips, result.decisions))


def timed(entries: Iterable[Entry], start: SnapshotBody = BEGINNING) -> tuple[Replayed, float]:
    """Result of a replay, and its duration in seconds.

    Raises:
        ValueError: A decision is another one.
    """
    began_s = time.perf_counter()
    replay = Replay(start)
    for entry in entries:
        replay.feed(entry)
    took_s = time.perf_counter() - began_s
    result = replay.result
    if not result.is_identical:
        raise ValueError(f"{result.differences} rounds differ")
    return result, took_s


def _file_timed(path: Path) -> tuple[Replayed, float]:
    began_s = time.perf_counter()
    with read_file(path) as reading:
        result, _ = timed(reading, reading.head.start)
    return result, time.perf_counter() - began_s


def _write(path: Path, entries: Iterable[Entry]) -> None:
    head = RecordingHead(release="bench", cell="bench", made_at_ms=0, settings=Settings(), start=BEGINNING)
    with path.open("wb") as file:
        for piece in frames_of(head, entries):
            file.write(piece)


def _peak_mib(path: Path) -> float:
    """Peak memory of a separate process that replays a file."""
    code = f"from bench.replay import print_peak_memory; print_peak_memory({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603  # ourselves
    return float(done.stdout)


def print_peak_memory(path: str) -> None:
    """Replay a file and print the peak memory of this process, in MiB."""
    _file_timed(Path(path))
    peak_kib = next(line.split()[1] for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak_kib) / 1024)  # not ru_maxrss: it includes the memory of the parent
