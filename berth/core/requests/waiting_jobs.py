"""How many jobs and pods wait in each namespace, and of each program that submits jobs."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.core.changes import JobKey
from berth.core.requests.gangs import is_fragile
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Code, Refusal

TOO_MANY: Final[Code] = "too-many"
_Group = tuple[str, str]
"""``namespace`` or ``identity``, and its name."""
_NONE: Final = (0, 0)
"""Jobs and pods of a group without any."""


class _Waiting(NamedTuple):
    """A job that waits."""

    verdict_seq: int
    """Sequence of the request that its verdict covers: another verdict may be on another request."""
    groups: "tuple[_Group, ...]"
    pods: int


class WaitingJobs:
    """Jobs that wait, kept up to date job by job: a look at one costs nothing by their number."""

    def __init__(self) -> None:
        self._jobs: dict[JobKey, _Waiting] = {}
        self._counts: dict[_Group, tuple[int, int]] = {}
        """Jobs and pods of each group."""

    def replace(self, jobs: Iterable[tuple[JobKey, JobSeen, str]]) -> None:
        """Take all jobs, each as :meth:`note` does."""
        self._jobs.clear()
        self._counts.clear()
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
        waiting = job if job is not None and job.state == "accepted" and phase in {"", "waiting"} else None
        if before is not None:
            if waiting is not None and before.verdict_seq == waiting.intake_seq:
                return
            del self._jobs[key]
            self._add(before, -1)
        if waiting is not None and waiting.request is not None:
            found = self._jobs[key] = _Waiting(waiting.intake_seq, _groups(waiting.request), _pods(waiting.request))
            self._add(found, 1)

    def refusal_of(self, request: JobRequest, settings: Settings) -> Refusal | None:
        """Refusal of a request for which too many others wait; None if there is room.

        A request in place of one that waits is counted once. Ranks that a running gang has lost have room: there are
        no more of them than run.
        """
        if is_fragile(request):
            return None
        pods = _pods(request)
        groups = _groups(request)
        for group in groups:
            jobs, others = self._counts.get(group, _NONE)
            if jobs >= settings.waiting_jobs_max or others + pods > settings.waiting_pods_max:
                return self._refusal_without_own(request, groups, pods, settings)
        return None

    def _refusal_without_own(
        self, request: JobRequest, groups: Iterable[_Group], pods: int, settings: Settings
    ) -> Refusal | None:
        """As :meth:`refusal_of`, where some group has no room for one more: the request may replace one that waits."""
        before = self._jobs.get((request.namespace, request.name))
        own = (1, before.pods) if before is not None else _NONE
        most = (settings.waiting_jobs_max, settings.waiting_pods_max)
        for group in groups:
            counts = self._counts.get(group, _NONE)
            is_own = before is not None and group in before.groups
            for what, count, less, more, limit in zip(("jobs", "pods"), counts, own, (1, pods), most, strict=True):
                waiting = count - less if is_own else count
                if waiting + more > limit:
                    return _refusal(group, what, waiting, limit)
        return None

    def _add(self, one: _Waiting, sign: int) -> None:
        for group in one.groups:
            jobs, pods = self._counts.get(group, _NONE)
            self._counts[group] = (jobs + sign, pods + sign * one.pods)
            if jobs + sign == 0:
                del self._counts[group]


def _groups(request: JobRequest) -> tuple[_Group, ...]:
    own = ("namespace", request.namespace)
    return (own, ("identity", request.submitted_by)) if request.submitted_by else (own,)


def _pods(request: JobRequest) -> int:
    pods = 0
    for task in request.tasks:
        pods += task.replicas
    return pods


def _refusal(group: _Group, what: str, waiting: int, limit: int) -> Refusal:
    return Refusal(
        code=TOO_MANY,
        field=group[0],
        value=f"one with {waiting} waiting {what}",
        expected=f"at most {limit} with this one (setting waiting_{what}_max); submit it again when some of them run",
    )
