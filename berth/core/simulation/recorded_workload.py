"""Workload of a recording: the jobs of a cell and the facts of its nodes, for another run of the same period.

A job arrives when it was accepted, and runs as long as it held its chips the last time. Facts of nodes, health, leaf
switches, queues and pods of other schedulers keep their times. Times begin at the begin of the recording; older jobs
and facts are at 0.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.replay.log_clock import LogClock
from berth.core.scheduling.rules.registry import more_than
from berth.core.simulation.planned_cluster import TimedFact
from berth.core.state.cell import JobKey, State
from berth.core.state.ledger import Folded, Holding, dump_of
from berth.schemas.envelope import decode, open_envelope
from berth.schemas.facts import HealthSeen, JobSeen, NodesSeen, PodsSeen, TopologySeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.recording import Entry, RecordingHead
from berth.schemas.rules import StatedRule
from berth.schemas.workload import PlannedJob, Workload

_CLUSTER: Final = frozenset({NodesSeen.KIND, HealthSeen.KIND, TopologySeen.KIND, QueueSeen.KIND})


class LoggedWorkload(msgspec.Struct, frozen=True):
    """Workload and cluster facts of a recording."""

    workload: Workload
    facts: list[TimedFact]
    """Facts of nodes, health, topology, queues and pods of other schedulers, by moment."""
    settings: Settings
    """Settings of its last epoch."""
    more_rules: list[StatedRule]
    """Rules of that epoch that its settings do not stand for."""
    cell: str
    begin_ms: int
    """Moment of the recording at time 0."""
    end_ms: int
    """Length of the recording."""


class _Seen(msgspec.Struct, gc=False):
    """A job of the recording."""

    request: JobRequest
    at_ms: int
    cancel_ms: int = 0
    placed_ms: int = -1
    run_ms: int = -1
    """-1 until it has released its chips."""
    failed: bool = False


class WorkloadReader:
    """Reads a recording to its end.

    Args:
        head: Its head.
    """

    def __init__(self, head: RecordingHead) -> None:
        self._head = head
        self._state = State()
        self._clock = LogClock()
        self._jobs: dict[str, _Seen] = {}
        self._facts: list[TimedFact] = []
        self._epochs: list[Settings] = []
        self._started = False

    def read(self, entries: Iterable[Entry]) -> LoggedWorkload:
        """The workload of all entries.

        Raises:
            HistoryError: Records are missing.
            DecodeError: A record does not decode.
        """
        self._load()
        for entry in entries:
            at_ms = self._clock.moment_of(entry)
            if entry.subject:
                self._fact(entry, at_ms)
            else:
                self._record(entry)
        return self._found()

    def _load(self) -> None:
        start = self._head.start
        if not start.ledger:
            return
        state = self._state
        dump = dump_of(start.ledger)
        self._clock.begin(dump.at_ms)
        self._epochs.append(dump.settings)
        state.load(start)
        for fact in sorted(start.facts, key=lambda kept: kept.sequence):
            self._keep(Entry(fact.sequence, fact.data, fact.subject), dump.at_ms)
        for key in sorted(state.jobs):
            gang = state.fold.gangs.get(state.jobs[key].uid)
            if gang is None or not gang.is_over:
                self._job(key)
        for holding in state.fold.holdings.values():
            self._placed(holding, dump.at_ms)

    def _fact(self, entry: Entry, at_ms: int) -> None:
        applied = self._state.apply_fact(entry.subject, entry.sequence, entry.data)
        if applied.error:
            return  # it does not decode
        for key in applied.changes.jobs_changed:
            self._job(key)
        self._keep(entry, at_ms)

    def _keep(self, entry: Entry, at_ms: int) -> None:
        """Keep facts that do not follow from decisions."""
        kind = open_envelope(entry.data).kind
        if kind in _CLUSTER or (kind == PodsSeen.KIND and self._is_foreign(entry.data)):
            self._facts.append(TimedFact(at_ms, entry.subject, entry.data))

    @staticmethod
    def _is_foreign(data: bytes) -> bool:
        return decode(data, PodsSeen).foreign

    def _job(self, key: JobKey) -> None:
        job = self._state.jobs.get(key)
        if job is None or job.request is None:
            return
        seen = self._jobs.get(job.uid)
        if job.state == "accepted":
            self._accepted(job, job.request, seen)
        elif job.state == "rejected" and seen is None:
            self._jobs[job.uid] = _Seen(job.request, job.at_ms, run_ms=0)  # the simulation rejects it again
        elif job.state == "cancelled" and seen is not None and seen.run_ms < 0:
            seen.cancel_ms = seen.cancel_ms or max(1, job.at_ms)

    def _accepted(self, job: JobSeen, request: JobRequest, seen: _Seen | None) -> None:
        if seen is None:
            self._jobs[job.uid] = _Seen(request, job.at_ms)
        elif seen.placed_ms < 0:
            seen.request = request

    def _record(self, entry: Entry) -> None:
        folded = self._state.apply_record(entry.sequence, entry.data)
        fold = self._state.fold
        self._clock.begin(fold.at_ms)
        if folded.epoch:
            self._epochs.append(fold.settings)
        for holding in folded.given_back:
            self._ended(holding, fold.at_ms, folded)
        for holding in folded.taken:
            self._placed(holding, fold.at_ms)

    def _placed(self, holding: Holding, at_ms: int) -> None:
        seen = self._jobs.get(holding.uid)
        if seen is not None and not holding.foreign:
            seen.placed_ms, seen.run_ms = at_ms, -1

    def _ended(self, holding: Holding, at_ms: int, folded: Folded) -> None:
        seen = self._jobs.get(holding.uid)
        if seen is None or holding.foreign:
            return
        seen.run_ms = at_ms - seen.placed_ms
        phases = [gang.phase for gang in folded.gangs if gang.uid == holding.uid]
        seen.failed = phases[-1:] not in (["succeeded"], ["cancelled"])

    def _found(self) -> LoggedWorkload:
        begin_ms = self._clock.begin_ms
        end_ms = self._clock.now_ms
        known = sorted(seen.run_ms for seen in self._jobs.values() if seen.run_ms >= 0)
        middle_ms = known[len(known) // 2] if known else self._settings().unknown_run_ms
        taken: dict[JobKey, int] = {}
        jobs = []
        notes = _Notes(middle_ms)
        for uid, seen in sorted(self._jobs.items(), key=lambda item: (item[1].at_ms, item[0])):
            at_ms = max(0, seen.at_ms - begin_ms)
            cancel_ms = max(at_ms + 1, seen.cancel_ms - begin_ms) if seen.cancel_ms else 0
            run_ms = notes.run_ms(seen, end_ms)
            request = notes.named(msgspec.structs.replace(seen.request, uid=uid), taken)
            jobs.append(PlannedJob(request=request, at_ms=at_ms, run_ms=run_ms, cancel_ms=cancel_ms))
        facts = [fact._replace(at_ms=max(0, fact.at_ms - begin_ms)) for fact in self._facts]
        if any(settings != self._settings() for settings in self._epochs):
            notes.extra.append("settings changed during the recording; those of its end hold all the time")
        return LoggedWorkload(
            workload=Workload(name="recording", jobs=jobs, notes=[*notes.sentences(), *notes.extra]),
            facts=facts,
            settings=self._settings(),
            more_rules=more_than(self._settings(), self._state.fold.rules),
            cell=self._head.cell,
            begin_ms=begin_ms,
            end_ms=max(0, end_ms - begin_ms),
        )

    def _settings(self) -> Settings:
        return self._epochs[-1] if self._epochs else self._head.settings


class _Notes:
    """Run times and names of jobs, and notes on what was assumed."""

    def __init__(self, middle_ms: int) -> None:
        self._middle_ms = middle_ms
        self._running = self._guessed = self._declared = self._failed = self._renamed = 0
        self.extra: list[str] = []

    def run_ms(self, seen: _Seen, end_ms: int) -> int:
        """Run time of a job in the simulation."""
        if seen.run_ms >= 0 and not seen.cancel_ms:
            self._failed += seen.failed
            return seen.run_ms
        if seen.placed_ms >= 0:
            self._running += not seen.cancel_ms
            return max(seen.request.run_ms, end_ms - seen.placed_ms)
        if seen.request.run_ms:
            self._declared += 1
            return seen.request.run_ms
        self._guessed += 1
        return self._middle_ms

    def named(self, request: JobRequest, taken: dict[JobKey, int]) -> JobRequest:
        """A request with a unique name: in another run two jobs with one name may exist at once."""
        key = (request.namespace, request.name)
        taken[key] = taken.get(key, 0) + 1
        if taken[key] == 1:
            return request
        self._renamed += 1
        return self.named(msgspec.structs.replace(request, name=f"{request.name}-{taken[key]}"), taken)

    def sentences(self) -> list[str]:
        """One sentence for each kind of assumption."""
        counts = [
            (self._running, "jobs that still ran at the end, and run at least as long as they had"),
            (self._failed, "jobs that failed or vanished, and run as long as they had"),
            (self._declared, "jobs that never ended in the recording, and run as long as they declared"),
            (
                self._guessed,
                f"jobs that never ran to an end and declared nothing, and run {self._middle_ms} ms, the middle run time of all",
            ),
            (self._renamed, "jobs with the name of an earlier one, that got a number behind it"),
        ]
        return [f"{words}: {count}" for count, words in counts if count]
