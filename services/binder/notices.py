"""Which Events and pod conditions to write for jobs made from pods, and when. Pure: messages and times in, notices out.

Each gang has one notice text at a time: it waits, it is held, it was rejected, each with the reason, or it is placed. A
text is written once, as an Event of the gang and, unless it is placed, as a condition of each of its pods. A new
sentence of the same kind is delayed, because the numbers in it change all the time; a few that differ in more than
numbers are not delayed.

Source: docs/reference/kubernetes.md, "Reasons for users".
"""

import re
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from berth.core.explain.refusal_text import sentence
from berth.schemas.columns import unpack_names
from berth.schemas.facts import MembersSeen
from berth.schemas.status import JobStatus, Phase

JobName: TypeAlias = tuple[str, str]
"""(namespace, name of the job request)"""
Kind = Literal["waiting", "held", "rejected", "failed", "placed"]

_NUMBER: Final = re.compile(r"\d+")
_AT_ONCE_MAX: Final = 3
"""Sentences that differ in more than numbers and are written without delay, one after another."""
_STATUSES_MAX: Final = 10_000
"""Most statuses kept for jobs without known pods; the newest are kept."""
_KIND_OF_PHASE: Final[dict[Phase, Kind]] = {"waiting": "waiting", "rejected": "rejected", "failed": "failed"}
"""Phases whose sentence is written."""
_PLACED: Final = frozenset({"placed", "bound", "running"})


class NoticeText(NamedTuple):
    """The text of a notice about a gang."""

    kind: Kind
    sentence: str


class Notice(NamedTuple):
    """Something to write: an Event of the gang where ``pod_uid`` is empty, else the condition of a pod."""

    job: JobName
    text: NoticeText
    members: MembersSeen
    pod: str = ""
    pod_uid: str = ""


class _JobTexts(NamedTuple):
    """What is kept of a status: texts by the uid of the request that they are about."""

    texts: dict[str, NoticeText]


@dataclass(slots=True)
class _Job:
    members: MembersSeen
    text: NoticeText | None = None
    at_s: float = 0.0
    at_once: int = 0
    """Sentences of the same kind that were written without delay, one after another."""
    event: bool = False
    pods: dict[str, str] = field(default_factory=dict)
    written_pods: set[str] = field(default_factory=set)


class Notices:
    """Texts of all gangs, and which of them are still to be written.

    Args:
        again_s: Pause before a new sentence of the same kind.
        begun_ms: When this process began; placements before that were reported by an earlier run.
    """

    def __init__(self, *, again_s: float, begun_ms: int) -> None:
        self._again_s = again_s
        self._begun_ms = begun_ms
        self._jobs: dict[JobName, _Job] = {}
        self._statuses: dict[JobName, _JobTexts] = {}
        self._due: dict[JobName, None] = {}
        self._later_s: dict[JobName, float] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def take_members(self, fact: MembersSeen, now_s: float) -> None:
        """Take a fact of members."""
        name = (fact.namespace, fact.job)
        if not fact.pods and not fact.hold:
            for kept in (self._jobs, self._statuses, self._due, self._later_s):
                kept.pop(name, None)
            return
        job = self._jobs.get(name)
        if job is None:
            self._jobs[name] = _Job(fact)
        else:
            job.members = fact
            job.written_pods.intersection_update(fact.pod_uids)
        self._judge(name, now_s)

    def take_status(self, status: JobStatus, now_s: float) -> None:
        """Take a status."""
        name = (status.namespace, status.name)
        self._statuses.pop(name, None)
        self._statuses[name] = _JobTexts(_texts(status))
        if len(self._statuses) > _STATUSES_MAX:
            oldest = next(iter(self._statuses))
            del self._statuses[oldest]
        job = self._jobs.get(name)
        if job is not None and job.text is None and status.phase in _PLACED and status.at_ms < self._begun_ms:
            job.text, job.at_s = self._text(name, job), now_s
        self._judge(name, now_s)

    def suppress(self, name: JobName) -> None:
        """A gang was placed: what is still to be written of its waiting would come too late."""
        job = self._jobs.get(name)
        if job is not None and job.text is not None and job.text.kind != "placed":
            job.event = False
            job.pods.clear()

    def _text(self, name: JobName, job: _Job) -> NoticeText | None:
        if job.members.hold:
            return NoticeText("held", job.members.hold)
        standing = self._statuses.get(name)
        return standing.texts.get(job.members.uid) if standing is not None else None

    def _judge(self, name: JobName, now_s: float) -> None:
        """Compare the text that was written for a job with the current one."""
        job = self._jobs.get(name)
        if job is None:
            return
        text = self._text(name, job)
        if text is None:
            job.event = False
            job.pods.clear()
            self._later_s.pop(name, None)
            return
        if text != job.text and not self._must_wait(name, job, text, now_s):
            job.text, job.at_s, job.event = text, now_s, True
            job.written_pods.clear()
            self._later_s.pop(name, None)
        self._collect_pods(name, job)

    def _must_wait(self, name: JobName, job: _Job, text: NoticeText, now_s: float) -> bool:
        """Whether a text is delayed because one of its kind was written a short time ago."""
        if job.text is None or job.event or job.text.kind != text.kind or now_s >= job.at_s + self._again_s:
            job.at_once = 0
            return False
        if job.at_once < _AT_ONCE_MAX and _shape(job.text) != _shape(text):
            job.at_once += 1
            return False
        self._later_s[name] = job.at_s + self._again_s
        return True

    def _collect_pods(self, name: JobName, job: _Job) -> None:
        """Note the pods that lack a condition with the text of their job."""
        job.pods.clear()
        if job.text is not None and job.text.kind != "placed":
            pods = zip(job.members.pod_uids, job.members.pods, strict=True)
            job.pods.update((uid, pod) for uid, pod in pods if uid not in job.written_pods)
        if job.event or job.pods:
            self._due[name] = None

    def next(self, now_s: float) -> Notice | None:
        """The next thing to write, as it is to be written now; it counts as written."""
        for name in [name for name, at_s in self._later_s.items() if at_s <= now_s]:
            del self._later_s[name]
            self._judge(name, now_s)
        while self._due:
            name = next(iter(self._due))
            job = self._jobs.get(name)
            if job is not None and job.text is not None:
                if job.event:
                    job.event = False
                    return Notice(name, job.text, job.members)
                if job.pods:
                    uid = next(iter(job.pods))
                    job.written_pods.add(uid)
                    return Notice(name, job.text, job.members, job.pods.pop(uid), uid)
            del self._due[name]
        return None

    def wait_s(self, now_s: float) -> float | None:
        """How long until something has waited long enough; None when nothing waits for time."""
        return max(0.0, min(self._later_s.values()) - now_s) if self._later_s else None


def _shape(text: NoticeText) -> str:
    """A sentence without its numbers."""
    return _NUMBER.sub("#", text.sentence)


def _texts(status: JobStatus) -> dict[str, NoticeText]:
    """Texts of a status: of the request that has the name, and of a rejected one."""
    found: dict[str, NoticeText] = {}
    if status.rejection is not None:
        found[status.rejection.uid] = NoticeText("rejected", sentence(status.rejection.refusal))
    kind = _KIND_OF_PHASE.get(status.phase)
    if kind is not None and status.sentence:
        found[status.uid] = NoticeText(kind, status.sentence)
    elif status.phase in _PLACED:
        nodes = len(unpack_names(status.placement.nodes)) if status.placement is not None else 0
        found[status.uid] = NoticeText("placed", f"placed {status.pods} pods on {nodes} nodes")
    return found
