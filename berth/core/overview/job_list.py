"""Jobs of the page: those that are not over, the newest that are, and other owners of chips."""

from bisect import bisect_left, insort
from typing import Final, NamedTuple

import msgspec

from berth.core.changes import JobKey
from berth.core.explain.refusal_text import within
from berth.core.overview.numbers import JobId, Numbers
from berth.core.overview.owners import Owners
from berth.core.overview.queue_order import QueueKey, queue_key
from berth.core.state.cell import State
from berth.core.state.ledger import Folded, Holding, chips_in
from berth.schemas.page.view import Job
from berth.schemas.status import JobStatus

OVER_MAX: Final = 500
"""Most jobs that are over and shown."""
_KEPT_MAX: Final = 2 * OVER_MAX
"""Most jobs that are over and remembered."""
_OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
_FOREIGN: Final = "placed by another scheduler"
_FORMER: Final = "its name belongs to another job, and its pods are not gone yet"


class _Known(NamedTuple):
    """A job as its newest status has it, without number and position."""

    job: Job
    order: QueueKey

    @property
    def id(self) -> JobId:
        return (self.job.namespace, self.job.name, self.job.uid)

    @property
    def is_over(self) -> bool:
        return self.job.phase in _OVER

    @property
    def waits(self) -> bool:
        return self.job.phase == "waiting"

    @property
    def ended(self) -> tuple[int, JobId]:
        return (self.job.since_ms, self.id)


class ListChanges(NamedTuple):
    """What changed in the list since the last time."""

    jobs: list[Job]
    gone: list[int]
    queue: list[int] | None


class JobList:
    """Jobs as they are shown, and the queue.

    Args:
        state: The cell.
        owners: Owners of chips.
        numbers: Gives jobs their numbers.
    """

    def __init__(self, state: State, owners: Owners, numbers: Numbers) -> None:
        self._state = state
        self._owners = owners
        self._numbers = numbers
        self._known: dict[JobKey, _Known] = {}
        self._queue: list[tuple[QueueKey, JobId]] = []
        self._over: list[tuple[int, JobId]] = []
        """Jobs that are over, the one that ended last at the end."""
        self._window: frozenset[JobId] = frozenset()
        self._has_ended = False
        self._touched: dict[JobId, None] = {}
        self._shown: dict[JobId, Job] = {}
        self._numbers_sent: list[int] = []

    def note_status(self, status: JobStatus) -> None:
        """Note the newest status of a job."""
        key = (status.namespace, status.name)
        known, before = _known_by(status), self._known.get(key)
        if known == before:
            return
        if before is not None:
            self._leave(before)
        self._known[key] = known
        self._touched[known.id] = None
        if known.waits:
            insort(self._queue, (known.order, known.id))
        elif known.is_over:
            insort(self._over, known.ended)
            self._has_ended = True
            if len(self._over) > _KEPT_MAX:
                _, (namespace, name, _) = self._over.pop(0)
                del self._known[namespace, name]

    def note_unnamed(self, key: JobKey) -> None:
        """Note that no job has a name: a job of that name that was not over has ended, nobody knows how."""
        known = self._known.get(key)
        if known is not None and not known.is_over:
            self._leave(known)
            del self._known[key]

    def note(self, folded: Folded) -> None:
        """Note what a record changed of gangs that have no status, or a former one."""
        for gang in folded.gangs:
            self._touched[gang.namespace, gang.name, gang.uid] = None

    def touch(self, jobs: dict[JobId, None]) -> None:
        """Note jobs whose places changed."""
        self._touched.update(jobs)

    def refresh(self) -> ListChanges:
        """Bring the list in line; returns what changed."""
        self._update_window()
        changed: list[JobId] = []
        gone: list[int] = []
        for one in self._touched:
            before, now = self._shown.get(one), self._job(one)
            if now is None:
                if before is not None:
                    del self._shown[one]
                    gone.append(before.n)
                    self._numbers.forget(one)
            elif now != before:
                self._shown[one] = now
                changed.append(one)
        self._touched.clear()
        queue = [self._shown[one].n for _, one in self._queue]
        is_moved = queue != self._numbers_sent
        self._numbers_sent = queue
        jobs = [self._placed(self._shown[one]) for one in changed]
        return ListChanges(sorted(jobs, key=_number), sorted(gone), queue if is_moved else None)

    @property
    def queue(self) -> list[int]:
        """Numbers of the jobs that wait."""
        return list(self._numbers_sent)

    def jobs(self) -> list[Job]:
        """All jobs, by number."""
        return sorted((self._placed(job) for job in self._shown.values()), key=_number)

    def namespace_of(self) -> dict[int, str]:
        """Namespace of each number."""
        return {job.n: job.namespace for job in self._shown.values()}

    def number(self, job: JobId) -> int:
        """Number of a job that is shown; 0 for another."""
        found = self._shown.get(job)
        return found.n if found is not None else 0

    def _leave(self, before: _Known) -> None:
        self._touched[before.id] = None
        if before.waits:
            del self._queue[bisect_left(self._queue, (before.order, before.id))]
        elif before.is_over:
            del self._over[bisect_left(self._over, before.ended)]
            self._has_ended = True

    def _update_window(self) -> None:
        """Touch jobs that are over and came among the newest, or are no longer among them."""
        if not self._has_ended:
            return
        self._has_ended = False
        window = frozenset(one for _, one in self._over[-OVER_MAX:])
        self._touched.update(dict.fromkeys(sorted(window ^ self._window)))
        self._window = window

    def _job(self, one: JobId) -> Job | None:
        """A job as it is to be shown, without position; None if it is not."""
        known = self._known.get(one[:2])
        if known is not None and known.id == one:
            if known.is_over and one not in self._window and not self._owners.is_owner(one):
                return None
            return msgspec.structs.replace(known.job, n=self._numbers.of(one))
        held = self._owners.newest(one)
        if held is None:
            return None
        gang = self._state.fold.gangs.get(one[2])
        is_foreign = isinstance(held, Holding) and held.foreign
        is_ending = not is_foreign or (gang is not None and gang.phase == "ending")
        return Job(
            n=self._numbers.of(one),
            namespace=one[0],
            name=one[1],
            uid=one[2],
            phase="ending" if is_ending else "running",
            sentence=_FOREIGN if is_foreign else _FORMER,
            pods=held.placement.pods(),
            chips=chips_in(held.placement.runs),
            since_ms=held.at_ms if isinstance(held, Holding) else 0,
            attempt=held.attempt,
            is_foreign=is_foreign,
        )

    def _placed(self, job: Job) -> Job:
        """A job with its position."""
        if job.phase != "waiting":
            return job
        known = self._known.get((job.namespace, job.name))
        if known is None or known.job.uid != job.uid:
            return job
        index = bisect_left(self._queue, (known.order, known.id))
        first = bisect_left(self._queue, ((0, True),), key=_plain) if job.is_plain else 0
        return msgspec.structs.replace(job, position=index - first + 1)


def _plain(entry: tuple[QueueKey, JobId]) -> tuple[tuple[int, bool]]:
    return (entry[0][:2],)


def _number(job: Job) -> int:
    return job.n


def _known_by(status: JobStatus) -> _Known:
    refusal, recovery = status.refusal, status.recovery
    is_own = recovery is not None and recovery.attempt == status.attempt
    job = Job(
        n=0,
        namespace=status.namespace,
        name=status.name,
        uid=status.uid,
        phase=status.phase,
        code=refusal.code if refusal is not None else "",
        sentence=within(status.sentence, refusal, status.namespace),
        warning=status.warning,
        queue=status.queue,
        priority=status.priority,
        pods=status.pods,
        chips=status.chips,
        submitted_ms=status.submitted_ms,
        since_ms=status.since_ms,
        attempt=status.attempt,
        step=recovery.step if recovery is not None and is_own else 0,
        is_plain=status.is_plain,
    )
    return _Known(job, queue_key(status))
