"""Records the timeline of a cell while its state advances, for simulations and recordings.

The recorder is called for each fact of a job, for each record, and at the end of each moment. It reads the columns of
the nodes once for each moment, and only when they have changed.
"""

import heapq
from typing import Final, get_args

import msgspec
import numpy as np

from berth.core.gangs import Gang
from berth.core.requests.gangs import queue_order
from berth.core.scheduling.scheduler import Scheduler
from berth.core.simulation.node_usage import Spans, Use
from berth.core.simulation.start_forecasts import StartForecasts
from berth.core.simulation.statistics import OUT
from berth.core.simulation.timeline import Frame, JobTimeline, Moment, Timeline
from berth.core.state.cell import JobKey
from berth.core.state.ledger import Folded, Holding
from berth.core.topologies.planning import Index
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason, QueueCode

_LEAVES: Final = "switches"
_FRAMES_MAX: Final = 200
"""At this many frames every second one is dropped, and the distance between frames doubles."""
_FRAME_MS: Final = 1000
"""Distance between the first frames; a timeline of days still ends with at least a hundred frames."""
_PARTIAL: Final = (NodeReason.SHORTAGE, NodeReason.TOPOLOGY, NodeReason.TOPOLOGY_HELPED, NodeReason.QUOTA)
"""Reasons of nodes with too few idle chips for a pod, or with chips that do not match its topology."""


class _Life(msgspec.Struct, gc=False):
    """A job that has not ended."""

    job: JobSeen
    request: JobRequest
    chips: int
    pods: int
    asked_ms: int
    order: tuple[int, int, str]
    waits: bool = True
    placed_ms: int = -1
    ended_ms: int = -1
    refused: str = ""
    spans: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    gang: Gang | None = None
    """Set when the job is first in the queue."""
    in_queues: bool = False
    """Queues do something."""

    def timeline(self, *, left_ms: int = -1) -> JobTimeline:
        """The job on the timeline so far."""
        nodes, leaves, leaves_least, superpods, superpods_least = self.spans
        return JobTimeline(
            namespace=self.job.namespace,
            name=self.job.name,
            chips=self.chips,
            pods=self.pods,
            priority=self.request.priority,
            asked_ms=self.asked_ms,
            placed_ms=self.placed_ms,
            ended_ms=self.ended_ms,
            refused=self.refused if self.placed_ms < 0 else "",
            nodes=nodes,
            leaves=leaves,
            leaves_least=leaves_least,
            superpods=superpods,
            superpods_least=superpods_least,
            left_ms=left_ms,
            queue=self.request.queue if self.in_queues else "",
        )


class TimelineRecorder:
    """Timeline of one state.

    Args:
        scheduler: Scheduler of the state; its scorer gives the reasons why nodes do not fit the first gang in the
            queue.
        begin_ms: Begin of the timeline; older jobs count from here.
        expect_every: Of so many jobs that wait one is asked about its expected start; 0: nobody is.
    """

    def __init__(self, scheduler: Scheduler, *, begin_ms: int, expect_every: int = 0) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._table = scheduler.state.table
        self._begin_ms = begin_ms
        self._lives: dict[str, _Life] = {}
        self._over: list[JobTimeline] = []
        self._line: list[tuple[tuple[int, int, str], str]] = []
        """Heap of (order, uid) of waiting jobs; outdated entries are skipped."""
        self._waiting = 0
        self._waiting_chips = 0
        self._moments: list[Moment] = []
        self._frames: list[tuple[int, bytes]] = []
        self._frame_ms = _FRAME_MS
        self._use = Use(self._table)
        self._leaves = self._state.indexes.get(_LEAVES, Index())
        self._spans = Spans(self._leaves, self._table)
        self._why: tuple[object, ...] = ()
        self._blocked: dict[str, int] = {}
        self._starts = StartForecasts(self._state, expect_every) if expect_every else None

    @property
    def waiting(self) -> int:
        """Count of waiting jobs."""
        return self._waiting

    @property
    def over(self) -> int:
        """Count of ended jobs."""
        return len(self._over)

    def note_job(self, key: JobKey) -> None:
        """Record the change of a job by a fact."""
        job = self._state.jobs.get(key)
        if job is None or job.request is None:
            return
        life = self._lives.get(job.uid)
        match job.state:
            case "accepted" if life is None:
                self._begin(job, job.request)
            case "accepted" if life is not None and life.waits and life.request != job.request:
                self._wait(life, is_new=False)  # a request that replaced a waiting one
                life.job, life.request, life.gang = job, job.request, None
                life.chips, life.pods = _size(job.request)
                life.order = queue_order(job, job.request)
                self._wait(life, is_new=True)
            case "cancelled" if life is not None and life.waits:
                self._leave(life, job.at_ms)
            case "rejected" if life is None and job.refusal is not None:
                refused = self._life(job, job.request)
                refused.refused = job.refusal.code
                self._over.append(refused.timeline(left_ms=self._at(job.at_ms)))

    def reject(self, uid: str, at_ms: int, code: str) -> None:
        """Record the rejection of a waiting job."""
        life = self._lives.get(uid)
        if life is not None and life.waits:
            life.refused = code
            self._leave(life, at_ms, is_refused=True)

    def note_record(self, folded: Folded) -> None:
        """Record a ledger record."""
        at_ms = self._at(self._state.fold.at_ms)
        for holding in folded.given_back:
            life = self._lives.get(holding.uid)
            if life is not None and not holding.foreign:
                life.ended_ms = at_ms
        for holding in folded.taken:
            life = self._lives.get(holding.uid)
            if life is not None and not holding.foreign:
                self._place(life, holding, at_ms)
        for gang in folded.gangs:
            life = self._lives.get(gang.uid)
            if life is None:
                continue
            life.refused = gang.refusal.code if gang.refusal is not None else ""
            if gang.is_over and life.waits:
                self._leave(life, at_ms, is_refused=True)
            elif gang.is_over:
                self._over.append(self._lives.pop(gang.uid).timeline())
            elif gang.phase == "waiting" and not life.waits:
                life.placed_ms = life.ended_ms = -1
                life.waits = True
                self._wait(life, is_new=True)

    def note_start(self) -> None:
        """Record the running and the waiting jobs of a loaded state."""
        state = self._state
        for key in sorted(state.jobs):
            self.note_job(key)
        for holding_key in sorted(state.fold.holdings):
            holding = state.fold.holdings[holding_key]
            life = self._lives.get(holding.uid)
            if life is not None and not holding.foreign:
                self._place(life, holding, self._begin_ms)
        for uid, gang in state.fold.gangs.items():
            life = self._lives.get(uid)
            if life is not None and gang.is_over:
                self._drop(life)  # ended before the timeline begins

    def until(self, at_ms: int) -> None:
        """Record the frames before a moment; nothing has changed since the last one."""
        if self._begin_ms + len(self._frames) * self._frame_ms >= at_ms:
            return
        used = self._use.by_row()
        while (next_ms := self._begin_ms + len(self._frames) * self._frame_ms) < at_ms:
            self._frames.append((next_ms, used))
            if len(self._frames) == _FRAMES_MAX:
                self._frames = self._frames[::2]
                self._frame_ms *= 2

    def settle(self, at_ms: int) -> None:
        """Record the use of the cluster from a moment on."""
        chips, used = self._use.totals()
        moment = Moment(at_ms, chips, used, self._waiting, self._waiting_chips, self._causes())
        last = self._moments[-1] if self._moments else None
        if last is not None and last.at_ms == at_ms:
            self._moments.pop()
            last = self._moments[-1] if self._moments else None
        if last is None or msgspec.structs.replace(last, at_ms=at_ms) != moment:
            self._moments.append(moment)
        if self._starts is not None:
            self._starts.settle(at_ms)

    def finish(self, end_ms: int, *, title: str, settings: dict[str, str]) -> Timeline:
        """The timeline up to its end."""
        self.until(end_ms)
        table = self._table
        leaf_of = self._leaves.group_of
        names = [table.names[row] for row in range(len(table)) if table.capacity[row]]
        nodes = sorted(names, key=lambda name: (leaf_of(name) < 0, leaf_of(name), name))
        rows = [table.row_of[name] for name in nodes]
        known = self._leaves.group_names()
        leaves = [known[leaf_of(name)] if leaf_of(name) >= 0 else "" for name in nodes] if known else []
        blank = bytes([OUT]) * len(table)
        frames = []
        for at_ms, used in self._frames:
            whole = used + blank[len(used) :]
            frames.append(Frame(at_ms, bytes(whole[row] for row in rows)))
        jobs = [*self._over, *(life.timeline() for life in self._lives.values())]
        return Timeline(
            title=title,
            settings=settings,
            begin_ms=self._begin_ms,
            end_ms=end_ms,
            jobs=sorted(jobs, key=lambda job: (job.asked_ms, job.namespace, job.name)),
            moments=self._moments,
            nodes=nodes,
            node_chips=[int(table.capacity[row]) for row in rows],
            leaves=leaves,
            frames=frames,
            starts=self._starts.figures() if self._starts is not None else None,
        )

    def _at(self, at_ms: int) -> int:
        return max(at_ms, self._begin_ms)

    def _begin(self, job: JobSeen, request: JobRequest) -> None:
        life = self._lives[job.uid] = self._life(job, request)
        self._wait(life, is_new=True)
        if self._starts is not None:
            self._starts.arrive(job.uid, life.chips)

    def _life(self, job: JobSeen, request: JobRequest) -> _Life:
        chips, pods = _size(request)
        life = _Life(job, request, chips, pods, self._at(job.at_ms), queue_order(job, request))
        life.in_queues = self._scheduler.state.fold.settings.queues > 0
        return life

    def _wait(self, life: _Life, *, is_new: bool) -> None:
        """Add or remove a waiting job."""
        self._waiting += 1 if is_new else -1
        self._waiting_chips += life.chips if is_new else -life.chips
        if is_new:
            heapq.heappush(self._line, (life.order, life.job.uid))

    def _place(self, life: _Life, holding: Holding, at_ms: int) -> None:
        if life.waits:
            self._wait(life, is_new=False)
        if self._starts is not None:
            self._starts.place(life.job.uid, life.chips, asked_ms=life.asked_ms, at_ms=at_ms)
        life.waits, life.placed_ms, life.ended_ms = False, at_ms, -1
        life.spans = self._spans.of(holding.placement)

    def _leave(self, life: _Life, at_ms: int, *, is_refused: bool = False) -> None:
        """Record the end of a job that was never placed."""
        self._drop(life)
        if not is_refused:
            life.refused = ""
        self._over.append(life.timeline(left_ms=self._at(at_ms)))

    def _drop(self, life: _Life) -> None:
        if life.waits:
            self._wait(life, is_new=False)
        if self._starts is not None:
            self._starts.leave(life.job.uid)
        del self._lives[life.job.uid]

    def _first(self) -> _Life | None:
        """The first waiting job of the queue."""
        line = self._line
        while line:
            order, uid = line[0]
            life = self._lives.get(uid)
            if life is not None and life.waits and life.order == order:
                return life
            heapq.heappop(line)
        return None

    def _causes(self) -> dict[str, int]:
        """Idle chips by the cause why the first gang in the queue cannot use them; empty without a waiting gang."""
        first = self._first()
        if first is None:
            return {}
        gang = first.gang
        if gang is None:
            gang = first.gang = self._scheduler.gang(first.job, first.request, 1)
        why = (first.job.uid, first.refused, self._table.revision, self._state.fold.epoch)
        if why != self._why:
            self._why = why
            self._blocked = self._causes_of(gang, first.refused)
        return self._blocked

    def _causes_of(self, gang: Gang, code: str) -> dict[str, int]:
        shapes = [(shape, pods) for shape, pods in gang.request_class if shape.chips]
        if not shapes:
            return {}
        shape = max(shapes, key=lambda part: part[0].chips)[0]
        reasons, _ = self._scheduler.scorer.evaluate(shape)
        table = self._table
        idle = np.where(table.present[table.view()], np.maximum(table.idle[table.view()], 0), 0)
        by_reason = np.bincount(reasons, weights=idle, minlength=len(NodeReason)).astype(np.int64).tolist()
        partial = sum(by_reason[reason] for reason in _PARTIAL)
        fitting = by_reason[NodeReason.FITS]
        found = {
            "partial": partial,
            _cause(shape, code, nodes=int((reasons == NodeReason.FITS).sum()), pods=sum(n for _, n in shapes)): fitting,
            "constraint": sum(by_reason) - partial - fitting,
        }
        return {cause: chips for cause, chips in found.items() if chips}


def _cause(shape: Shape, code: str, *, nodes: int, pods: int) -> str:
    """Why a gang cannot use the nodes that fit its pods."""
    if code in {"reserved", "behind", "rule"}:
        return code
    if code in get_args(QueueCode):
        return "queue"
    return "topology" if shape.is_planned and nodes >= pods else "scattered"


def _size(request: JobRequest) -> tuple[int, int]:
    """Chips and pods of a job."""
    return sum(task.replicas * task.chips for task in request.tasks), sum(task.replicas for task in request.tasks)
