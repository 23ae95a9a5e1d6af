"""Jobs of the cell by namespace and name, with their places in the queue, as their statuses say."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.changes import JobKey
from berth.core.explain.refusal_text import within
from berth.core.overview.queue_order import QueueKey, queue_key
from berth.schemas.programs.lists import JobsRequest, ListedJob, NamespaceUse
from berth.schemas.status import JobStatus
from berth.services.api.config import EVERY

OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
_OVER_MAX: Final = 10_000
"""Most jobs that are over and listed: those that ended last."""
_NOTHING: Final = (0, 0, 0, 0)


class _Known(NamedTuple):
    """A job, and where it is in the queue."""

    job: ListedJob
    order: QueueKey

    @property
    def ended(self) -> tuple[int, str, str]:
        """Place among jobs that are over."""
        return (self.job.since_ms, self.job.namespace, self.job.name)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Jobs with a place and their chips, jobs that wait and the chips that they wait for."""
        if self.job.phase == "waiting":
            return (0, 0, 1, self.job.chips)
        return (1, self.job.chips, 0, 0) if self.job.phase not in OVER else _NOTHING


class JobList:
    """All jobs that are not over, and the newest that are.

    Attributes:
        revision: Rises with every change.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._known: dict[JobKey, _Known] = {}
        self._names: dict[str, list[str]] = {}
        """Names of each namespace, sorted."""
        self._namespaces: list[str] = []
        self._queue: list[QueueKey] = []
        self._over: list[tuple[int, str, str]] = []
        """Jobs that are over, the one that ended last at the end."""
        self._counts: dict[str, tuple[int, int, int, int]] = {}
        """By namespace; as of :attr:`_Known.counts`."""
        self._stages: Counter[tuple[str, str]] = Counter()
        """Jobs that are not over, by phase and code of the reason."""

    def note(self, status: JobStatus) -> None:
        """Note the newest status of a job."""
        key = (status.namespace, status.name)
        known, before = _known_by(status), self._known.get(key)
        if known == before:
            return
        self.revision += 1
        if before is not None:
            self._leave(before)
        else:
            self._add_name(key)
        self._known[key] = known
        self._count(known, 1)
        if known.job.phase == "waiting":
            insort(self._queue, known.order)
        elif known.job.phase in OVER:
            insort(self._over, known.ended)
            if len(self._over) > _OVER_MAX:
                _, *oldest = self._over.pop(0)
                self._drop((oldest[0], oldest[1]))

    @property
    def waiting(self) -> int:
        """Jobs with chips that wait."""
        return self._first_plain()

    def waiting_jobs(self) -> Iterator[tuple[JobKey, int]]:
        """Jobs with chips that wait, in the order of the queue, and their chips."""
        for *_, namespace, name in self._queue[: self._first_plain()]:
            yield (namespace, name), self._known[namespace, name].job.chips

    def entries(self, asked: JobsRequest, namespaces: Sequence[str]) -> Iterator[tuple[str, ListedJob | None]]:
        """Jobs in their order, each with the cursor after it; None for one that is not asked for.

        Args:
            asked: Which jobs.
            namespaces: Which namespaces the reader may read; ``*`` for all.
        """
        begin, _, last = asked.after.partition("/")
        for namespace in self._chosen(asked.namespace, namespaces):
            if namespace < begin:
                continue
            names = self._names.get(namespace, [])
            first = bisect_right(names, last) if namespace == begin else 0
            for name in names[first:]:
                job = self._known[namespace, name].job
                yield f"{namespace}/{name}", self._placed(job) if _is_asked(job, asked) else None

    def totals(self) -> tuple[int, int, int, int]:
        """Jobs with a place and their chips, jobs that wait and the chips that they wait for."""
        found = [sum(part) for part in zip(*self._counts.values(), strict=True)] or _NOTHING
        return (found[0], found[1], found[2], found[3])

    def phases(self) -> Counter[str]:
        """Jobs that are not over, by phase."""
        found: Counter[str] = Counter()
        for (phase, _), jobs in self._stages.items():
            found[phase] += jobs
        return found

    def reasons(self) -> Counter[str]:
        """Jobs that wait, by the code of the reason; empty for those that have none yet."""
        return +Counter({code: jobs for (phase, code), jobs in self._stages.items() if phase == "waiting"})

    def uses(self, namespaces: Sequence[str], most: int) -> list[NamespaceUse]:
        """What namespaces have and wait for, by name; of too many those with the most chips.

        Args:
            namespaces: Which ones the reader may read; ``*`` for all.
            most: At most so many.
        """
        found = [
            NamespaceUse(name=name, jobs=jobs, used=used, jobs_waiting=jobs_waiting, waiting=waiting)
            for name in self._chosen(EVERY, namespaces)
            for jobs, used, jobs_waiting, waiting in (self._counts.get(name, _NOTHING),)
            if jobs or jobs_waiting
        ]
        if len(found) > most:
            found = sorted(found, key=lambda one: (-one.used - one.waiting, one.name))[:most]
        return sorted(found, key=lambda one: one.name)

    def _chosen(self, namespace: str, readable: Sequence[str]) -> Sequence[str]:
        """Namespaces in their order."""
        if namespace != EVERY:
            return (namespace,)
        return self._namespaces if EVERY in readable else sorted(readable)

    def _first_plain(self) -> int:
        """Index in the queue of the first job without chips."""
        return bisect_left(self._queue, (0, True), key=lambda order: order[:2])

    def _placed(self, job: ListedJob) -> ListedJob:
        """A job with its position."""
        if job.phase != "waiting":
            return job
        order = self._known[job.namespace, job.name].order
        first = self._first_plain() if order[1] else 0
        return msgspec.structs.replace(job, position=bisect_left(self._queue, order) - first + 1)

    def _leave(self, before: _Known) -> None:
        self._count(before, -1)
        if before.job.phase == "waiting":
            del self._queue[bisect_left(self._queue, before.order)]
        elif before.job.phase in OVER:
            del self._over[bisect_left(self._over, before.ended)]

    def _count(self, known: _Known, sign: int) -> None:
        namespace = known.job.namespace
        if known.job.phase not in OVER:
            self._stages[known.job.phase, known.job.code] += sign
        have, more = self._counts.get(namespace, _NOTHING), known.counts
        self._counts[namespace] = (
            have[0] + sign * more[0], have[1] + sign * more[1], have[2] + sign * more[2], have[3] + sign * more[3],
        )  # fmt: skip

    def _add_name(self, key: JobKey) -> None:
        namespace, name = key
        if namespace not in self._names:
            self._names[namespace] = []
            insort(self._namespaces, namespace)
        insort(self._names[namespace], name)

    def _drop(self, key: JobKey) -> None:
        namespace, name = key
        del self._known[key]
        names = self._names[namespace]
        del names[bisect_left(names, name)]
        if not names:
            del self._names[namespace], self._counts[namespace]
            del self._namespaces[bisect_left(self._namespaces, namespace)]


def _is_asked(job: ListedJob, asked: JobsRequest) -> bool:
    if asked.queue not in {"", job.queue}:
        return False
    return asked.phase in {"", job.phase} or (asked.phase == "live" and job.phase not in OVER)


def _known_by(status: JobStatus) -> _Known:
    refusal = status.refusal
    job = ListedJob(
        namespace=status.namespace,
        name=status.name,
        uid=status.uid,
        phase=status.phase,
        since_ms=status.since_ms,
        submitted_ms=status.submitted_ms,
        attempt=status.attempt,
        pods=status.pods,
        chips=status.chips,
        queue=status.queue,
        priority=status.priority,
        held=status.is_held,
        code=refusal.code if refusal is not None else "",
        sentence=within(status.sentence, refusal, status.namespace),
        warning=status.warning,
    )
    return _Known(job, queue_key(status))
