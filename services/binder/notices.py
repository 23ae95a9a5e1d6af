"""What is to be said in the cluster about jobs made from pods, and when. Pure: messages and times in, acts out.

Each gang has one *word* at a time: it waits and why, it is held and why, it was turned away and why, or it is placed. A word is
written once, as an Event of the gang and, unless it is placed, as a condition of each of its pods. A new sentence of the same
kind waits for a while, since numbers in it change all the time; a few that differ in more than numbers do not.

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
"""Sentences that differ in more than numbers and are told at once, in the time that others wait."""
_STATUSES_MAX: Final = 10_000
"""Statuses that are kept for jobs whose pods are not known yet, the newest."""
_TELLING: Final[dict[Phase, Kind]] = {"waiting": "waiting", "rejected": "rejected", "failed": "failed"}
"""Phases whose sentence is told."""
_PLACED: Final = frozenset({"placed", "bound", "running"})


class Word(NamedTuple):
    """What is said of a gang."""

    kind: Kind
    sentence: str


class Told(NamedTuple):
    """An act: an Event of the gang where ``pod_uid`` is empty, else the condition of a pod."""

    job: JobName
    word: Word
    members: MembersSeen
    pod: str = ""
    pod_uid: str = ""


class _Standing(NamedTuple):
    """What is kept of a status: words by the uid of the request that they are about."""

    words: dict[str, Word]


@dataclass(slots=True)
class _Job:
    members: MembersSeen
    word: Word | None = None
    at_s: float = 0.0
    at_once: int = 0
    """Sentences of the same kind that were told at once, one after another."""
    event: bool = False
    pods: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)


class Notices:
    """Words of all gangs, and what of them is still to be written.

    Args:
        again_s: Pause before a new sentence of the same kind.
        begun_ms: When this process began; that jobs were placed before it has been said.
    """

    def __init__(self, *, again_s: float, begun_ms: int) -> None:
        self._again_s = again_s
        self._begun_ms = begun_ms
        self._jobs: dict[JobName, _Job] = {}
        self._statuses: dict[JobName, _Standing] = {}
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
            job.told.intersection_update(fact.pod_uids)
        self._judge(name, now_s)

    def take_status(self, status: JobStatus, now_s: float) -> None:
        """Take a status."""
        name = (status.namespace, status.name)
        self._statuses.pop(name, None)
        self._statuses[name] = _Standing(_words(status))
        if len(self._statuses) > _STATUSES_MAX:
            oldest = next(iter(self._statuses))
            del self._statuses[oldest]
        job = self._jobs.get(name)
        if job is not None and job.word is None and status.phase in _PLACED and status.at_ms < self._begun_ms:
            job.word, job.at_s = self._word(name, job), now_s
        self._judge(name, now_s)

    def hush(self, name: JobName) -> None:
        """A gang was placed: what is still to be written of its waiting would come too late."""
        job = self._jobs.get(name)
        if job is not None and job.word is not None and job.word.kind != "placed":
            job.event = False
            job.pods.clear()

    def _word(self, name: JobName, job: _Job) -> Word | None:
        if job.members.hold:
            return Word("held", job.members.hold)
        standing = self._statuses.get(name)
        return standing.words.get(job.members.uid) if standing is not None else None

    def _judge(self, name: JobName, now_s: float) -> None:
        """Compare what was said of a job with what is to be said."""
        job = self._jobs.get(name)
        if job is None:
            return
        word = self._word(name, job)
        if word is None:
            job.event = False
            job.pods.clear()
            self._later_s.pop(name, None)
            return
        if word != job.word and not self._is_early(name, job, word, now_s):
            job.word, job.at_s, job.event = word, now_s, True
            job.told.clear()
            self._later_s.pop(name, None)
        self._gather(name, job)

    def _is_early(self, name: JobName, job: _Job, word: Word, now_s: float) -> bool:
        """Whether a word has to wait because one like it was written just now."""
        if job.word is None or job.event or job.word.kind != word.kind or now_s >= job.at_s + self._again_s:
            job.at_once = 0
            return False
        if job.at_once < _AT_ONCE_MAX and _shape(job.word) != _shape(word):
            job.at_once += 1
            return False
        self._later_s[name] = job.at_s + self._again_s
        return True

    def _gather(self, name: JobName, job: _Job) -> None:
        """Note the pods that have not been told the word of their job."""
        job.pods.clear()
        if job.word is not None and job.word.kind != "placed":
            pods = zip(job.members.pod_uids, job.members.pods, strict=True)
            job.pods.update((uid, pod) for uid, pod in pods if uid not in job.told)
        if job.event or job.pods:
            self._due[name] = None

    def next(self, now_s: float) -> Told | None:
        """The next thing to write, as it is to be written now; it counts as written."""
        for name in [name for name, at_s in self._later_s.items() if at_s <= now_s]:
            del self._later_s[name]
            self._judge(name, now_s)
        while self._due:
            name = next(iter(self._due))
            job = self._jobs.get(name)
            if job is not None and job.word is not None:
                if job.event:
                    job.event = False
                    return Told(name, job.word, job.members)
                if job.pods:
                    uid = next(iter(job.pods))
                    job.told.add(uid)
                    return Told(name, job.word, job.members, job.pods.pop(uid), uid)
            del self._due[name]
        return None

    def wait_s(self, now_s: float) -> float | None:
        """How long until something has waited long enough; None when nothing waits for time."""
        return max(0.0, min(self._later_s.values()) - now_s) if self._later_s else None


def _shape(word: Word) -> str:
    """A sentence without its numbers."""
    return _NUMBER.sub("#", word.sentence)


def _words(status: JobStatus) -> dict[str, Word]:
    """What a status says of the request that has the name, and of one that was turned away."""
    found: dict[str, Word] = {}
    if status.rejection is not None:
        found[status.rejection.uid] = Word("rejected", sentence(status.rejection.refusal))
    kind = _TELLING.get(status.phase)
    if kind is not None and status.sentence:
        found[status.uid] = Word(kind, status.sentence)
    elif status.phase in _PLACED:
        nodes = len(unpack_names(status.placement.nodes)) if status.placement is not None else 0
        found[status.uid] = Word("placed", f"placed {status.pods} pods on {nodes} nodes")
    return found
