"""Notices to users about jobs made from pods, and when to write them. Pure: messages and times in, writes out.

Each gang has one current notice: it waits, is held or was rejected, with the reason, or it is placed, or it has a place
and a fault does not restart it yet, or new pods of it wait for places after a fault, or backup pods do. A notice is
written once, as an Event of the gang and, unless it has a place, as a condition of each of its pods that wait, and then
as an Event of these pods. It is written again when its cause changes, those first that are due for longest. Conditions
come before Events of pods, so that each pod soon says what is true. A sentence that differs in numbers alone is
delayed, because they change all the time, and is written when nothing else is.

Source: docs/reference/kubernetes.md, "Reasons for users".
"""

import math
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from berth.core.explain.recovery_text import OF_PODS, backup_words, unplaced_words
from berth.core.explain.refusal_text import sentence, within
from berth.core.text import cause_of, pluralize
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import MembersSeen
from berth.schemas.fault_facts import ReplacementsSeen
from berth.schemas.status import JobStatus, Phase

JobName: TypeAlias = tuple[str, str]
"""(namespace, name of the job request)"""
Kind = Literal["waiting", "held", "rejected", "failed", "placed", "restart-held", "unplaced"]

_CONDITIONS_MAX: Final = 7
"""Conditions that are written before an Event of a pod which is due."""
_MISSED_S: Final = 10.0
"""Pause before a write that failed is tried again."""
_STATUSES_MAX: Final = 10_000
"""Statuses that are kept for jobs whose pods are not known yet, the newest."""
_KIND_OF_PHASE: Final[dict[Phase, Kind]] = {"waiting": "waiting", "rejected": "rejected", "failed": "failed"}
"""Phases whose sentence is written."""
_RANK_BYTES: Final = 4
_PLACED: Final = frozenset({"placed", "bound", "running"})
_OF_PLACED: Final = frozenset({"placed", "restart-held"})
"""Notices about gangs with places: their pods get no condition."""


class Notice(NamedTuple):
    """Current message about a gang."""

    kind: Kind
    sentence: str


class NoticeWrite(NamedTuple):
    """A write: an Event of the gang where ``pod_uid`` is empty, otherwise the condition of a pod or its Event."""

    job: JobName
    notice: Notice
    members: MembersSeen
    pod: str = ""
    pod_uid: str = ""
    is_condition: bool = False

    @property
    def has_object(self) -> bool:
        """Whether there is something to write to: lone pods have no object that is about all of them."""
        return bool(self.pod_uid or self.members.podgroup or (self.members.owner.name and self.members.owner.uid))


class _StatusNotices(NamedTuple):
    """Notices of a status, by uid of the request."""

    notices: dict[str, Notice]
    unplaced: frozenset[int]
    """Ranks that recover and have no place."""
    backups: frozenset[str]
    """Backup pods (uid) that have no place."""


@dataclass(slots=True)
class _Job:
    members: MembersSeen
    notice: Notice | None = None
    at_s: float = 0.0
    event: bool = False
    has_missed: bool = False
    """Whether the Event could not be written, and is due again."""
    pods: dict[str, str] = field(default_factory=dict)
    """Pods without a condition that says it: names by uid."""
    silent: dict[str, str] = field(default_factory=dict)
    """Pods with the condition and without an Event that says it."""
    written: set[str] = field(default_factory=set)

    def drop(self) -> None:
        """Write nothing of what is due."""
        self.event = False
        self.pods.clear()
        self.silent.clear()


class Notices:
    """Notices of all gangs, and their pending writes.

    Args:
        again_s: Delay of a new sentence of the same cause.
        begun_ms: Start of this process; placements before it were announced by an earlier run.
        name_others: Jobs of other namespaces have their names.
    """

    def __init__(self, *, again_s: float, begun_ms: int, name_others: bool = False) -> None:
        self._again_s = again_s
        self._name_others = name_others
        self._begun_ms = begun_ms
        self._jobs: dict[JobName, _Job] = {}
        self._statuses: dict[JobName, _StatusNotices] = {}
        self._unknown: dict[JobName, None] = {}
        """Jobs with a status whose pods are not known, in the order of the last status."""
        self._replaced: dict[JobName, ReplacementsSeen] = {}
        """Ranks with a new pod that waits."""
        self._due = _Due()
        """Jobs with something to write."""
        self._refreshed = _Due()
        """Jobs of which only numbers are to be written."""
        self._silent = _Due()
        """Jobs with pods whose Event is to be written."""
        self._conditions = 0
        """Conditions since the last Event of a pod."""
        self._later_s: dict[JobName, float] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def take_members(self, fact: MembersSeen, now_s: float) -> None:
        """Take a fact of members."""
        name = (fact.namespace, fact.job)
        if not fact.pods and not fact.hold:
            for kept in (self._jobs, self._statuses, self._unknown, self._replaced, self._later_s):
                kept.pop(name, None)
            for due in (self._due, self._refreshed, self._silent):
                due.discard(name)
            return
        job = self._jobs.get(name)
        if job is None:
            self._jobs[name] = _Job(fact)
            self._unknown.pop(name, None)
        else:
            job.members = fact
            job.written.intersection_update([*fact.pod_uids, *(one.uid for one in fact.backups)])
            job.silent = {uid: pod for uid, pod in job.silent.items() if uid in job.written}
        self._judge(name, now_s)

    def take_replacements(self, fact: ReplacementsSeen, now_s: float) -> None:
        """Take which ranks of a job have new pods that wait.

        Raises:
            ValueError: The column is damaged.
        """
        name = (fact.namespace, fact.job)
        unpack(fact.ranks, _RANK_BYTES)
        if fact.ranks:
            self._replaced[name] = fact
        else:
            self._replaced.pop(name, None)
        self._judge(name, now_s)

    def take_status(self, status: JobStatus, now_s: float) -> None:
        """Take a status."""
        name = (status.namespace, status.name)
        unplaced = status.recovery.unplaced if status.recovery is not None else ()
        backups = frozenset(one.uid for one in status.backups)
        self._statuses[name] = _StatusNotices(
            _notices_of(status, names_others=self._name_others), frozenset(unplaced), backups
        )
        job = self._jobs.get(name)
        if job is None:
            self._unknown.pop(name, None)
            self._unknown[name] = None
        if len(self._unknown) > _STATUSES_MAX:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest], self._statuses[oldest]
        if job is not None and job.notice is None and status.phase in _PLACED and status.at_ms < self._begun_ms:
            job.notice, job.at_s = self._notice(name, job), now_s
        self._judge(name, now_s)

    def suppress(self, name: JobName) -> None:
        """Drop the pending writes of a gang that was placed: they would come too late."""
        job = self._jobs.get(name)
        if job is not None and job.notice is not None and job.notice.kind not in _OF_PLACED:
            job.drop()

    def _notice(self, name: JobName, job: _Job) -> Notice | None:
        if job.members.hold:
            return Notice("held", job.members.hold)
        of_status = self._statuses.get(name)
        found = of_status.notices.get(job.members.uid) if of_status is not None else None
        if found is not None and found.kind == "unplaced" and not self._waiting_pods(name, job):
            return job.notice  # its controller makes the pods first
        return found

    def _waiting_pods(self, name: JobName, job: _Job) -> list[tuple[str, str]]:
        """Pods of a placed gang (uid, name) that wait for places: of ranks that recover, and backup pods."""
        ranks, members = self._waiting_ranks(name, job), job.members
        rows = zip(unpack(members.rank, _RANK_BYTES), members.pod_uids, members.pods, strict=True) if ranks else ()
        of_status = self._statuses.get(name)
        backups = of_status.backups if of_status is not None else frozenset()
        waiting = [(uid, pod) for rank, uid, pod in rows if rank in ranks]
        return waiting + [(one.uid, one.pod) for one in members.backups if one.uid in backups]

    def _waiting_ranks(self, name: JobName, job: _Job) -> set[int]:
        """Ranks of a gang that recovers whose new pods wait for places."""
        of_status, replaced = self._statuses.get(name), self._replaced.get(name)
        if of_status is None or replaced is None or replaced.uid != job.members.uid:
            return set()
        return set(of_status.unplaced.intersection(unpack(replaced.ranks, _RANK_BYTES)))

    def _judge(self, name: JobName, now_s: float) -> None:
        """Compare the current notice of a job with the written one."""
        job = self._jobs.get(name)
        if job is None:
            return
        notice = self._notice(name, job)
        if notice is None:
            job.drop()
            self._later_s.pop(name, None)
            return
        if notice != job.notice and not self._is_early(name, job, notice, now_s):
            is_known = job.notice is not None and (job.notice.kind, notice.kind) == ("restart-held", "placed")
            is_news = job.event or not _same_cause(job.notice, notice)
            job.notice, job.at_s, job.event = notice, now_s, not is_known
            job.has_missed = False
            if job.written and is_news:
                self._due.discard(name)  # others have waited for longer by now
            job.written.clear()
            job.silent.clear()
            self._later_s.pop(name, None)
            self._gather(name, job, self._due if is_news else self._refreshed)
            return
        if job.has_missed:
            job.event, job.has_missed = True, False
        self._gather(name, job, self._due)

    def _is_early(self, name: JobName, job: _Job, notice: Notice, now_s: float) -> bool:
        """Whether a notice must wait because one of the same cause was just written."""
        if job.event or not _same_cause(job.notice, notice) or now_s >= job.at_s + self._again_s:
            return False
        self._later_s[name] = job.at_s + self._again_s
        return True

    def _gather(self, name: JobName, job: _Job, due: "_Due") -> None:
        """Note the pods that do not have the notice of their job yet."""
        job.pods.clear()
        if job.notice is not None and job.notice.kind not in _OF_PLACED:
            pods = list(zip(job.members.pod_uids, job.members.pods, strict=True))
            if job.notice.kind == "unplaced":
                pods = self._waiting_pods(name, job)
            job.pods.update((uid, pod) for uid, pod in pods if uid not in job.written)
        if (job.event or job.pods) and name not in self._due:
            due.add(name)
        if name in self._due:
            self._refreshed.discard(name)

    def next(self, now_s: float) -> NoticeWrite | None:
        """Next write, in its current form; it counts as written."""
        for name in [name for name, at_s in self._later_s.items() if at_s <= now_s]:
            del self._later_s[name]
            self._judge(name, now_s)
        found = self._next_event() if self._conditions >= _CONDITIONS_MAX else None
        found = found or self._next_of(self._due) or self._next_event() or self._next_of(self._refreshed)
        if found is not None and found.pod_uid:
            self._conditions = self._conditions + 1 if found.is_condition else 0
        return found

    def _next_event(self) -> NoticeWrite | None:
        """Event of a pod that has its condition."""
        while (name := self._silent.first()) is not None:
            job = self._jobs.get(name)
            if job is not None and job.notice is not None and job.silent:
                self._silent.pass_turn(name)
                uid = next(iter(job.silent))
                return NoticeWrite(name, self._newest(name, job, job.notice), job.members, job.silent.pop(uid), uid)
            self._silent.discard(name)
        return None

    def _next_of(self, due: "_Due") -> NoticeWrite | None:
        while (name := due.first()) is not None:
            job = self._jobs.get(name)
            if job is not None and job.notice is not None:
                notice = self._newest(name, job, job.notice)
                if job.event or job.pods:
                    due.pass_turn(name)
                if job.event:
                    job.event = False
                    return NoticeWrite(name, notice, job.members)
                if job.pods:
                    uid = next(iter(job.pods))
                    job.written.add(uid)
                    return NoticeWrite(name, notice, job.members, job.pods.pop(uid), uid, is_condition=True)
            due.discard(name)
        return None

    def _newest(self, name: JobName, job: _Job, written: Notice) -> Notice:
        """The notice of a job with the numbers of now, which are not written for their own sake yet."""
        notice = self._notice(name, job)
        return notice if notice is not None and _same_cause(written, notice) else written

    def told(self, write: NoticeWrite) -> None:
        """Note that the condition of a pod was written: its Event is due, unless the job says something else by now."""
        job = self._jobs.get(write.job)
        if job is not None and write.pod_uid in job.written and _same_cause(job.notice, write.notice):
            job.silent[write.pod_uid] = write.pod
            self._silent.add(write.job)

    def missed(self, write: NoticeWrite, now_s: float) -> None:
        """Note that a write failed although another try may not: it is due again after a pause."""
        job = self._jobs.get(write.job)
        if job is None or not _same_cause(job.notice, write.notice):
            return
        if write.pod_uid:
            job.written.discard(write.pod_uid)
        else:
            job.has_missed = True
        self._later_s[write.job] = min(now_s + _MISSED_S, self._later_s.get(write.job, math.inf))

    def wait_s(self, now_s: float) -> float | None:
        """Time until the next delayed notice; None without one."""
        return max(0.0, min(self._later_s.values()) - now_s) if self._later_s else None


class _Due:
    """Jobs with something to write: namespaces take turns, and in each those come first that have it for longest."""

    def __init__(self) -> None:
        self._of: dict[str, dict[JobName, None]] = {}

    def __contains__(self, name: JobName) -> bool:
        return name in self._of.get(name[0], ())

    def add(self, name: JobName) -> None:
        """Add a job behind those of its namespace, unless it is there."""
        self._of.setdefault(name[0], {}).setdefault(name)

    def discard(self, name: JobName) -> None:
        """Take a job out, if it is there."""
        jobs = self._of.get(name[0])
        if jobs is not None:
            jobs.pop(name, None)
            if not jobs:
                del self._of[name[0]]

    def first(self) -> JobName | None:
        """The job whose turn it is; None without any."""
        return next((next(iter(jobs)) for jobs in self._of.values()), None)

    def pass_turn(self, name: JobName) -> None:
        """Let the other namespaces write before that of a job writes again."""
        self._of[name[0]] = self._of.pop(name[0])


def _same_cause(one: Notice | None, other: Notice) -> bool:
    """Whether two notices are of one kind and differ in numbers at most."""
    if one is None or one.kind != other.kind:
        return False
    return one.sentence == other.sentence or cause_of(one.sentence) == cause_of(other.sentence)


def _words_of(status: JobStatus, *, names_others: bool) -> str:
    """Sentence of a status, with the job for which it ended; one of another namespace has its name only if it is to."""
    refusal, recovery = status.refusal, status.recovery
    words = status.sentence if names_others else within(status.sentence, refusal, status.namespace)
    other = recovery.for_job if recovery is not None and recovery.cause in words else ""
    is_named = other and (names_others or other.partition("/")[0] == status.namespace)
    return f"{words}; that job is {other}" if is_named else words


def _notices_of(status: JobStatus, *, names_others: bool) -> dict[str, Notice]:
    """Notices of a status: for the request that has the name, and for a rejected one."""
    found: dict[str, Notice] = {}
    if status.rejection is not None:
        found[status.rejection.uid] = Notice("rejected", sentence(status.rejection.refusal))
    kind = _KIND_OF_PHASE.get(status.phase)
    if status.sentence in OF_PODS:
        kind = None  # they end in every scale-down and rollout, and their controller says more
    if kind is not None and status.sentence:
        found[status.uid] = Notice(kind, _words_of(status, names_others=names_others))
    elif status.phase in _PLACED and status.restart_held:
        found[status.uid] = Notice("restart-held", status.restart_held)
    elif status.phase in _PLACED and (words := _unplaced_words(status)):
        found[status.uid] = Notice("unplaced", words)
    elif status.phase in _PLACED:
        nodes = len(unpack_names(status.placement.nodes)) if status.placement is not None else 0
        found[status.uid] = Notice("placed", f"placed {pluralize(status.pods, 'pod')} on {pluralize(nodes, 'node')}")
    return found


def _unplaced_words(status: JobStatus) -> str:
    """That new pods and backup pods of a placed job wait for places; empty if none does."""
    recovery = status.recovery
    of_ranks = unplaced_words(recovery) if recovery is not None and recovery.unplaced else ""
    return "; ".join(filter(None, (of_ranks, backup_words(status.backups))))
