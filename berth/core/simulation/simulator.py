"""Discrete event simulation on the core of a real cell: jobs of a workload arrive, are placed, run and end.

A simulation writes the same history as a cell: facts with sequences are applied to the state, ledger records are
folded, and the scheduler of the dispatcher decides. So its entries form a recording that replays.

Time is in milliseconds on the clock of the workload; 0 is the start. All events of a moment are applied before its
first round; rounds repeat until nothing is left to decide. Events of one moment keep the order in which they became
known: cluster facts, arrivals, cancellations, then the consequences of decisions.

A job ends ``run_ms`` after its placement. Its pods are bound and start at once. Its name is free again after its end.
With failures or preemption (:mod:`berth.core.simulation.fault_play`) it ends once it has trained for ``run_ms``.
Longer than 400 lines because the events of a moment, and the order in which they apply, are all here.
"""

import functools
import heapq
from collections.abc import Callable
from typing import Final

import msgspec

from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.core.simulation.baselines import Baseline, BaselineScheduler
from berth.core.simulation.fault_plan import FaultPlan
from berth.core.simulation.fault_play import FaultPlay, Stage
from berth.core.simulation.planned_cluster import TimedFact
from berth.core.simulation.timeline import Timeline
from berth.core.simulation.timeline_recorder import TimelineRecorder
from berth.core.state.admission import Holder, Receipt, admit, cancel, holder_of, uid_from
from berth.core.state.cell import JobKey, State
from berth.core.state.ledger import Folded, Holding
from berth.schemas.columns import pack
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, PodPhase, PodsSeen, TimerSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.message import Message
from berth.schemas.recording import Entry
from berth.schemas.refusal import Refusal
from berth.schemas.rules import StatedRule
from berth.schemas.subjects import Subjects
from berth.schemas.workload import PlannedJob, Workload

HOLDER: Final = "simulation"
"""Leader of the epoch."""
_LARGER: Final = "larger-than-cluster"
_PASSING: Final = frozenset({"behind", "reserved", "rule"})
"""Refusals that do not depend on whether there is room."""


class SimulationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Input of a simulation."""

    workload: Workload
    facts: list[TimedFact]
    """Nodes, health and topology, by moment. Facts at 0 are the initial cluster."""
    settings: Settings
    more_rules: list[StatedRule] = []
    """Rules that are asked before those that the settings stand for."""
    title: str = ""
    """Empty: the queue policy, and the baseline if there is one."""
    words: dict[str, str] = {}
    """Settings in words, for the timeline."""
    cell: str = "simulation"
    baseline: Baseline | None = None
    seed: int = 0
    """Seed of the baseline ``random``; nothing else is random."""
    faults: FaultPlan | None = None
    """Failures; None: nothing breaks."""
    expect_every: int = 0
    """Of so many jobs that wait one is asked about its expected start; 0: nobody is."""


class RejectedJob(msgspec.Struct, frozen=True):
    """A job that can never be placed."""

    namespace: str
    name: str
    chips: int
    pods: int
    at_ms: int
    code: str
    field: str
    value: str
    expected: str
    """The expected value, with the numbers of the cluster."""


class Simulation:
    """One run.

    Args:
        plan: Input of the simulation.
        on_entry: Called with each fact and record, in the order of a recording.
    """

    def __init__(self, plan: SimulationPlan, *, on_entry: Callable[[Entry], None] | None) -> None:
        self.plan = plan
        self.now_ms = 0
        self.rejected: list[RejectedJob] = []
        self._subjects = Subjects(plan.cell)
        self._on_entry = on_entry
        state = self._state = State()
        self._scheduler = (
            BaselineScheduler(state, plan.baseline, plan.seed) if plan.baseline is not None else Scheduler(state)
        )
        self._recorder = TimelineRecorder(self._scheduler, begin_ms=0, expect_every=plan.expect_every)
        self._events: list[tuple[int, int, Callable[[], None], Callable[[], bool] | None]] = []
        """Heap of (moment, number, action, whether the event is still valid)."""
        self._pushed = self._intake_seq = 0
        self._planned: dict[str, PlannedJob] = {}
        """Jobs (uid) that have arrived and have not ended."""
        self._facts_left = len(plan.facts)
        self._arrivals_left = len(plan.workload.jobs)
        self._play: FaultPlay | None = None
        if plan.faults is not None or plan.settings.preempt:
            stage = Stage(state, self._subjects, self._fact, self._push, self._end)
            self._play = FaultPlay(plan.faults or FaultPlan(), stage)
        self._too_large: dict[str, Refusal] = {}
        for fact in plan.facts:
            self._push(fact.at_ms, functools.partial(self._cluster_fact, fact))
        for job in plan.workload.jobs:
            self._push(job.at_ms, functools.partial(self._arrive, job))
        self._apply_due(before_epoch=True)
        rules = [*plan.more_rules, *rules_of(plan.settings)]
        folded = self._record(Epoch(1, 0, state.facts_seq, 0, HOLDER, plan.settings, rules=rules))
        self._scheduler.begin(folded.changes)
        self._settle()

    @property
    def done(self) -> int:
        """Count of ended jobs."""
        return self._recorder.over

    def run(self, on_progress: Callable[[int], None] | None = None) -> Timeline:
        """Run to the end; ``on_progress`` is called at each moment with the count of ended jobs."""
        while self.step():
            if on_progress is not None:
                on_progress(self.done)
        return self.timeline()

    def step(self) -> bool:
        """Advance to the next moment; returns whether there was one."""
        at_ms = self._next_ms()
        if at_ms is None:
            if not self._reject_stuck():
                return False
            at_ms = self.now_ms
        self._recorder.until(at_ms)
        self.now_ms = at_ms
        self._settle()
        return True

    def timeline(self) -> Timeline:
        """Timeline of all jobs so far."""
        plan = self.plan
        title = plan.title or title_of(plan.settings, plan.baseline)
        timeline = self._recorder.finish(self.now_ms, title=title, settings=dict(plan.words))
        if self._play is None:
            return timeline
        return msgspec.structs.replace(timeline, faults=self._play.history(self.now_ms))

    def _next_ms(self) -> int | None:
        """The next moment with an event; None at the end."""
        while self._events and (can_happen := self._events[0][3]) is not None and not can_happen():
            heapq.heappop(self._events)
        moments = [self._events[0][0]] if self._events else []
        if self._breaks and self._play is not None and self._play.next_ms is not None:
            moments.append(self._play.next_ms)
        due_ms = self._scheduler.next_due_ms
        if due_ms > self.now_ms:
            moments.append(due_ms)
        retry_at_ms = self._scheduler.queue.retry_at_ms
        if retry_at_ms > self.now_ms:
            moments.append(retry_at_ms)
        elif retry_at_ms and moments:  # the retry failed; the timer of the dispatcher goes on
            moments.append(self.now_ms + self.plan.settings.shard_retry_ms)
        return min(moments, default=None)

    @property
    def _breaks(self) -> bool:
        """Whether parts break: not any more when nothing runs and no job follows, or the rest might never fit."""
        return bool(self._state.fold.holdings or self._arrivals_left)

    @property
    def _may_grow(self) -> bool:
        """Whether more nodes or chips may become available although no job ends."""
        return bool(self._facts_left or (self._play is not None and self._play.is_broken))

    def _settle(self) -> None:
        """Process all events and rounds of this moment."""
        self._tick()
        self._apply_due()
        while self._round():
            self._apply_due()
        if not self._state.fold.holdings and self._recorder.waiting and not self._may_grow:
            while self._reject_stuck():
                while self._round():
                    self._apply_due()
        self._recorder.settle(self.now_ms)

    def _tick(self) -> None:
        retry_at_ms = self._scheduler.queue.retry_at_ms
        if retry_at_ms and self.now_ms >= retry_at_ms:
            self._fact(self._subjects.fact_timer, TimerSeen(self.now_ms))

    def _push(self, at_ms: int, event: Callable[[], None], can_happen: Callable[[], bool] | None = None) -> None:
        self._pushed += 1
        heapq.heappush(self._events, (at_ms, self._pushed, event, can_happen))

    def _apply_due(self, *, before_epoch: bool = False) -> None:
        """Process the events up to this moment; before the epoch only facts of the cluster."""
        if self._play is not None and not before_epoch:
            self._play.until(self.now_ms, counts=self._breaks)
        while self._events and self._events[0][0] <= self.now_ms:
            if before_epoch and self._events[0][1] > len(self.plan.facts):
                return
            _, _, event, can_happen = heapq.heappop(self._events)
            if self._play is None or can_happen is None or can_happen():
                event()

    def _fact(self, subject: str, message: Message) -> None:
        self._apply_fact(subject, encode(message))

    def _apply_fact(self, subject: str, data: bytes) -> None:
        sequence = self._state.facts_seq + 1
        applied = self._state.apply_fact(subject, sequence, data)
        if applied.error:
            raise ValueError(f"fact on {subject}: {applied.error}")
        self._scheduler.note(applied.changes)
        if self._on_entry is not None:
            self._on_entry(Entry(sequence, data, subject))

    def _record(self, message: Epoch | Round) -> Folded:
        sequence = self._state.fold.head + 1
        data = self._state.fold.encoded(message)
        folded = self._state.apply_record(sequence, data)
        if self._on_entry is not None:
            self._on_entry(Entry(sequence, data))
        return folded

    def _cluster_fact(self, fact: TimedFact) -> None:
        self._facts_left -= 1
        self._apply_fact(fact.subject, fact.data)

    def _arrive(self, planned: PlannedJob) -> None:
        self._arrivals_left -= 1
        request = planned.request
        self._intake_seq += 1
        key = (request.namespace, request.name)
        uid = request.uid or uid_from(self._intake_seq)
        holder = self._holder(key)
        owner = self._state.name_of.get(uid)
        if owner is not None and owner != key:
            holder = msgspec.structs.replace(holder, namesake=owner)
        receipt = Receipt(self._intake_seq, self._intake_seq - 1, self.now_ms)
        verdict = admit(request, receipt, holder, self._state.fold.settings)
        self._job_fact(verdict)
        refusal = verdict.refusal if verdict.rejection is None else verdict.rejection.refusal
        if refusal is not None:
            self._note_rejected(request, refusal)
            if verdict.rejection is None:
                self._release_name(verdict)
            return
        self._planned[verdict.uid] = planned
        if planned.cancel_ms:
            self._push(
                max(planned.cancel_ms, self.now_ms),
                functools.partial(self._cancel, key, verdict.uid),
                functools.partial(self._is_here, verdict.uid),
            )

    def _holder(self, key: JobKey) -> Holder:
        job = self._state.jobs.get(key)
        return holder_of(job, self._state.fold.gangs.get(job.uid) if job is not None else None)

    def _cancel(self, key: JobKey, uid: str, reason: str = "") -> None:
        """Cancel a job; a waiting job ends with that."""
        if uid not in self._planned:
            return
        receipt = Receipt(self._intake_seq + 1, self._intake_seq, self.now_ms)
        verdict = cancel(JobCancel(key[0], key[1], uid, reason), receipt, self._holder(key))
        if verdict is None:
            return
        self._intake_seq += 1
        self._job_fact(verdict)
        gang = self._state.fold.gangs.get(uid)
        if gang is None or gang.phase == "waiting":
            self._release_name(verdict)

    def _job_fact(self, job: JobSeen) -> None:
        self._fact(self._subjects.fact_job(job.namespace, job.name), job)
        self._recorder.note_job((job.namespace, job.name))

    def _release_name(self, job: JobSeen) -> None:
        """Free the name of an ended job."""
        self._planned.pop(job.uid, None)
        if self._play is not None:
            self._play.forget(job.uid, self.now_ms)
        self._scheduler.sync()
        tombstone = msgspec.structs.replace(
            job, state="tombstone", request=None, refusal=None, rejection=None, at_ms=self.now_ms
        )
        self._fact(self._subjects.fact_job(job.namespace, job.name), tombstone)

    def _round(self) -> bool:
        """Run one round; returns whether there was anything to decide."""
        opening = self._scheduler.open(self.now_ms).opening
        if opening is None:
            return self._reject_larger()
        choice = self._scheduler.choose_alone(opening)
        if choice.is_empty:
            self._scheduler.leave(choice)
            return self._reject_larger()
        recorded = self._scheduler.record(choice)
        folded = self._record(recorded.round)
        self._scheduler.adopt(recorded, folded)
        self._recorder.note_record(folded)
        if self._play is not None:
            self._play.follow(folded, self._planned.get, self.now_ms)
        else:
            for holding in folded.taken:
                self._start(holding)
        for holding in folded.ending:
            if holding.ending != "fault":
                self._pods(holding, PodPhase.GONE)
        self._end_jobs(folded)
        return True

    def _end_jobs(self, folded: Folded) -> None:
        """End the jobs that a record ends, and note those that are larger than the cluster."""
        for gang in folded.gangs:
            if gang.is_over:
                job = self._state.jobs.get((gang.namespace, gang.name))
                if job is not None and job.uid == gang.uid:
                    if gang.refusal is not None and job.request is not None:
                        self._note_rejected(job.request, gang.refusal)
                    self._release_name(job)
            elif gang.refusal is not None and gang.refusal.code == _LARGER:
                self._too_large[gang.uid] = gang.refusal

    def _start(self, holding: Holding) -> None:
        if self._state.follows_pods:
            self._pods(holding, PodPhase.RUNNING)  # a job counts on its leaves only once it runs
        planned = self._planned.get(holding.uid)
        if planned is not None:
            self._push(
                self.now_ms + planned.run_ms,
                functools.partial(self._end, holding),
                functools.partial(self._holds, holding),
            )

    def _is_here(self, uid: str) -> bool:
        """Whether a job has arrived and has not ended."""
        return uid in self._planned

    def _holds(self, holding: Holding) -> bool:
        """Whether an attempt still holds its chips."""
        return self._state.fold.holdings.get(holding.key) is holding

    def _end(self, holding: Holding) -> None:
        if self._holds(holding):
            self._pods(holding, PodPhase.SUCCEEDED)

    def _pods(self, holding: Holding, phase: PodPhase) -> None:
        """Report one phase for all pods of an attempt."""
        placement = holding.placement
        pods = placement.pods()
        masks = [sum(1 << chip for chip in chips) for chips in placement.chips_by_rank()]
        fact = PodsSeen(
            namespace=holding.namespace,
            gang=holding.name,
            uid=holding.uid,
            attempt=holding.attempt,
            rank=pack(range(pods), 4),
            nodes=placement.nodes,
            node_index=placement.node_index,
            phase=bytes([phase]) * pods,
            chips=pack(masks, 8),
            resource=placement.resource,
            at_ms=self.now_ms,
            steps=pack([holding.step] * pods, 4) if holding.step else b"",
        )
        self._fact(self._subjects.fact_pod(holding.namespace, holding.name), fact)

    def _reject_larger(self) -> bool:
        """Reject jobs that are larger than the cluster, once no more facts follow; returns whether there were any.

        A class that waits for room by now is not: the cluster has grown, and not each of its gangs was tried then.
        """
        if self._may_grow:
            return False
        queue, too_large = self._scheduler.queue, self._too_large
        keys = {uid: key for uid in too_large if (key := queue.class_of(uid)) is not None}
        larger = [(uid, too_large[uid]) for uid, key in keys.items() if queue.sleep_of(key).never]
        too_large.clear()
        for uid, refusal in larger:
            self._reject(uid, refusal)
        return bool(larger)

    def _reject_stuck(self) -> bool:
        """Reject jobs that find no room although no job runs and no fact follows; returns whether there were any."""
        state = self._state
        if state.fold.holdings or self._may_grow:
            return False
        stuck = {
            uid: gang.refusal
            for uid in self._planned
            if (gang := state.fold.gangs.get(uid)) is not None
            and gang.phase == "waiting"
            and gang.refusal is not None
            and gang.refusal.code not in _PASSING
        }
        for uid, refusal in stuck.items():
            self._reject(uid, refusal)
        return bool(stuck)

    def _reject(self, uid: str, refusal: Refusal) -> None:
        request = self._planned[uid].request
        self._note_rejected(request, refusal)
        self._recorder.reject(uid, self.now_ms, refusal.code)
        self._cancel((request.namespace, request.name), uid, refusal.code)

    def _note_rejected(self, request: JobRequest, refusal: Refusal) -> None:
        self.rejected.append(
            RejectedJob(
                namespace=request.namespace,
                name=request.name,
                chips=sum(task.replicas * task.chips for task in request.tasks),
                pods=sum(task.replicas for task in request.tasks),
                at_ms=self.now_ms,
                code=refusal.code,
                field=refusal.field,
                value=refusal.value,
                expected=refusal.expected
                or f"{refusal.pods_need:,} nodes or room on them, for which an empty cluster has"
                f" {refusal.nodes_fit:,} of {refusal.nodes_total:,} nodes",
            )
        )


def title_of(settings: Settings, baseline: Baseline | None) -> str:
    """Title of a timeline: the queue policy, and the baseline if there is one."""
    return f"{settings.queue_policy}, {baseline} nodes" if baseline is not None else settings.queue_policy
