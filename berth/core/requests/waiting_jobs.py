"""How many jobs wait in each namespace, and of each program that submits jobs, with how many pods and bytes.

A job that is over counts with a share of the bytes that it has beyond those of a usual one, until its name is free: it
is in memory until then, and who cancels large jobs, or submits wrong ones, could have as many as it likes otherwise.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from berth.core.changes import JobKey
from berth.core.requests.gangs import is_fragile
from berth.schemas.facts import JobSeen
from berth.schemas.intake import BYTES, JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Code, Refusal

TOO_MANY: Final[Code] = "too-many"
BYTES_A_JOB: Final = 1_000
"""Most bytes of the jobs that wait, for each job that may: as stored, of which a process takes up to 24 in memory each.

A gang of pods has some 300, and one with a thousand kinds of pods 20,000.
"""
_OVER_SHARE: Final = 4
"""A job that is over counts with a quarter of its bytes: many may end in the minutes in which they are kept."""
_PLACED: Final = frozenset({"placed", "ending"})
_Group = tuple[str, str]
"""``namespace`` or ``identity``, and its name."""


class _Amounts(NamedTuple):
    """What waits of a group, or of one job."""

    jobs: int
    pods: int
    bytes: int

    def plus(self, other: "_Amounts", times: int = 1) -> "_Amounts":
        """The sum with some times of others."""
        return _Amounts(
            self.jobs + times * other.jobs, self.pods + times * other.pods, self.bytes + times * other.bytes
        )

    def is_within(self, most: "_Amounts") -> bool:
        """Whether no amount is more than that of others."""
        return self.jobs <= most.jobs and self.pods <= most.pods and self.bytes <= most.bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_NONE: Final = _Amounts(0, 0, 0)


class _Counted(NamedTuple):
    """A job that waits, or is large and over."""

    verdict_seq: int
    """Sequence of the request that its verdict covers: another verdict may be on another request."""
    is_waiting: bool
    groups: "tuple[_Group, ...]"
    amounts: _Amounts


class WaitingJobs:
    """Jobs that wait, kept up to date job by job: a look at one costs nothing by their number."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, _Counted] = {}
        self._amounts: dict[_Group, _Amounts] = {}

    def replace(self, jobs: Iterable[tuple[JobKey, JobSeen, str]]) -> None:
        """Take all jobs, each as :meth:`note` does."""
        self._jobs.clear()
        self._amounts.clear()
        for key, job, phase in jobs:
            self.note(key, job, phase)

    def note(self, key: JobKey, job: JobSeen | None, phase: str) -> None:
        """Take the state of the job that has a name.

        Args:
            key: Namespace and name.
            job: The verdict; None if no job has the name.
            phase: Phase of the job in the ledger; empty if it is not there.
        """
        before = self._jobs.get(key)
        is_placed = job is not None and job.state != "rejected" and phase in _PLACED  # as many as there are chips
        known = job if job is not None and job.request is not None and not is_placed else None
        is_waiting = known is not None and known.state == "accepted" and phase in {"", "waiting"}
        if before is not None:
            if known is not None and (before.verdict_seq, before.is_waiting) == (known.intake_seq, is_waiting):
                return
            del self._jobs[key]
            self._add(before, -1)
        if known is None or known.request is None:
            return
        amounts = _amounts_of(known.request)
        if not is_waiting:
            amounts = _Amounts(0, 0, max(0, amounts.bytes - BYTES_A_JOB) // _OVER_SHARE)
        if amounts != _NONE:
            found = self._jobs[key] = _Counted(known.intake_seq, is_waiting, _groups(known.request), amounts)
            self._add(found, 1)

    def refusal_of(self, request: JobRequest, settings: Settings) -> Refusal | None:
        """Refusal of a request for which too many others wait; None if there is room.

        A request in place of one that waits is counted once. Ranks that a running gang has lost have room: there are
        no more of them than run.
        """
        if is_fragile(request):
            return None
        wanted = _amounts_of(request)
        before = self._jobs.get((request.namespace, request.name))
        most = _most(settings)
        for group in _groups(request):
            others = self._amounts.get(group, _NONE)
            if others.plus(wanted).is_within(most):  # the request that it replaces included: most often there is room
                continue
            own = before.amounts if before is not None and group in before.groups else _NONE
            for what, waiting, less, more, limit in zip(_WORDS, others, own, wanted, most, strict=True):
                if waiting - less + more > limit:
                    return _refusal(group, what, waiting - less, limit)
        return None

    def _add(self, one: _Counted, sign: int) -> None:
        for group in one.groups:
            before = self._amounts.get(group, _NONE)
            found = self._amounts[group] = before.plus(one.amounts, sign)
            if found == _NONE:
                del self._amounts[group]


def _groups(request: JobRequest) -> tuple[_Group, ...]:
    own = ("namespace", request.namespace)
    return (own, ("identity", request.submitted_by)) if request.submitted_by else (own,)


def _amounts_of(request: JobRequest) -> _Amounts:
    pods = 0
    for task in request.tasks:
        pods += task.replicas
    return _Amounts(1, pods, len(_ENCODER.encode(request)))


_WORDS: Final = (
    ("waiting jobs", "setting waiting_jobs_max"),
    ("waiting pods", "setting waiting_pods_max"),
    ("bytes of jobs that wait or are kept", f"{BYTES_A_JOB} for each of waiting_jobs_max"),
)
"""Each amount in words, and what bounds it."""


def _most(settings: Settings) -> _Amounts:
    """Most of each amount. One job alone may have as many bytes as any job."""
    jobs = settings.waiting_jobs_max
    return _Amounts(jobs, settings.waiting_pods_max, max(BYTES.most, BYTES_A_JOB * jobs))


def _refusal(group: _Group, what: tuple[str, str], waiting: int, most: int) -> Refusal:
    name, bound = what
    return Refusal(
        code=TOO_MANY,
        field=group[0],
        value=f"one with {waiting} {name}",
        expected=f"at most {most} with this one ({bound}); submit it again when some of them run, or are over for long",
    )
