"""Statuses of jobs, and the tombstones of finished jobs.

A status is a view: it is written when its content changes, and again after a loss. A dispatcher that becomes leader
reviews the statuses of all jobs, a few at a time, and writes those that differ from what is stored.
"""

import asyncio
import functools
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from berth.core.explain.job_status import Reason, digest, status_of
from berth.core.faults.examination import Unplaced
from berth.core.state.cell import JobKey, State
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import DEFAULT_RETRY_AFTER_S, ShellError, TransientError
from berth.runtime.feeds import Feed
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import DecodeError, encode
from berth.schemas.ledger import Round
from berth.schemas.status import JobStatus, stored_status
from berth.schemas.subjects import StreamName, name_parts
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.other_statuses import OtherStatuses
from berth.services.dispatcher.place_refusals import PlaceRefusals
from berth.services.dispatcher.waiting_reasons import WaitingReasons

_BATCH_MAX: Final = 2_000
"""Maximum number of statuses per cycle."""
_BATCH_BYTES_MAX: Final = 500_000
"""Bytes of statuses that share an acknowledgement, unless one alone is larger."""
_REVIEW_MAX: Final = 500
"""Maximum number of statuses that are reviewed per cycle."""
_WRITTEN_MIN: Final = 1_000
_OVER: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})


class Views:
    """Statuses that the dispatcher publishes for users.

    Args:
        bus: The cell.
        clock: Of the process.
        state: Of the dispatcher.
        instruments: Of the process.
        reasons: Why jobs wait, as of now; None for the reasons in the ledger.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        state: State,
        instruments: Instruments[DispatcherMetrics],
        reasons: WaitingReasons | None = None,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._state = state
        self._faults = instruments.faults
        self._log = instruments.log
        self._foreign = instruments.metrics.foreign_statuses
        self._touched: dict[JobKey, None] = {}
        self._lost_s = -math.inf
        """When statuses were lost the last time."""
        self._written: dict[JobKey, tuple[object, ...]] = {}
        self._written_max = _WRITTEN_MIN
        """Number of statuses after which a follower forgets those of jobs that are gone."""
        self._over: list[tuple[int, JobKey, str]] = []
        """Heap of (end time, name, uid) of finished jobs."""
        self._held: dict[JobKey, str] = {}
        """Why jobs do not restart although they are faulty."""
        self._refusals = PlaceRefusals()
        self._reasons = reasons
        self._others = OtherStatuses(bus, clock)
        self.published = 0
        self._stored = Feed(asyncio.Event())
        """Statuses of other leaders, until all of them are read."""
        self.is_reading = False
        """Whether stored statuses are received."""
        self._is_learning = False
        self._head: int | None = None
        """Last sequence of STATUS when this dispatcher became leader; None before."""
        self._review: deque[JobKey] = deque()
        """Jobs whose status may differ from the stored one."""

    @property
    def has_work(self) -> bool:
        """Whether a status is due; right after a loss, those that are written with the next turn do not ask for one."""
        return (bool(self._touched) and not self.is_paused) or (bool(self._review) and not self._is_learning)

    @property
    def is_paused(self) -> bool:
        """Whether statuses were lost a moment ago."""
        return self._clock.monotonic_s() - self._lost_s < DEFAULT_RETRY_AFTER_S

    @property
    def rest_s(self) -> float:
        """How long no reason of a waiting job is looked at."""
        return self._reasons.rest_s if self._reasons is not None and self._head is not None else math.inf

    def learn(self) -> None:
        """Start to read the stored statuses."""
        self.is_reading = self._is_learning = True
        self._stored.start(self._bus, StreamName.STATUS, start_seq=1)

    def read_stored(self) -> None:
        """Take note of stored statuses that arrived."""
        if not self._is_learning:
            return
        if self._stored.gap is not None:  # statuses were lost: all are written again
            self._written.clear()
            self._is_learning = False
            return
        for stored in self._stored.take():
            try:
                status = stored_status(stored.subject, stored.data)
            except DecodeError as error:
                self._log.warning("status does not decode", subject=stored.subject, reason=str(error))
                continue
            key = (status.namespace, status.name)
            if self._refusals.learn(status, is_newer=self._head is None) and self._head is not None:
                self._touched[key] = None
            if self._head is None or key not in self._written:  # what this dispatcher wrote itself is newer
                self._written[key] = _mark(status)
        if self._head is None and len(self._written) > self._written_max:  # a follower sees jobs come and go for long
            self._forget_gone()
            self._written_max = max(2 * len(self._written), _WRITTEN_MIN)
        self._is_learning = self._head is None or self._stored.covered < self._head
        if not self._is_learning:  # those of jobs that gave up their names stay stored for a while
            self._forget_gone()

    def _forget_gone(self) -> None:
        """Forget the statuses of jobs that are gone."""
        self._written = {key: mark for key, mark in self._written.items() if key in self._state.jobs}

    async def begin(self) -> None:
        """Review all jobs: another dispatcher wrote their statuses."""
        self._head = (await self._bus.state(StreamName.STATUS)).last_seq
        self._others.begin(self._head)
        self._review.extend(self._state.jobs)
        self.read_stored()

    async def stop(self) -> None:
        """Stop to read."""
        await self._stored.stop()
        self._stored = Feed(asyncio.Event())
        self.is_reading = False

    def touch(self, key: JobKey) -> None:
        """Note that a job may have changed."""
        self._touched[key] = None

    def renew(self, key: JobKey) -> None:
        """Write the status of a job again, also if it did not change."""
        self._written.pop(key, None)
        self._touched[key] = None

    def note_held(self, held: Mapping[JobKey, str]) -> None:
        """Note which jobs do not restart although they are faulty, and why."""
        changed = [key for key in {**self._held, **held} if self._held.get(key) != held.get(key)]
        self._touched.update(dict.fromkeys(changed))
        self._held = dict(held)

    def note_unplaced(self, found: Iterable[Unplaced]) -> None:
        """Note why ranks and backup pods of jobs found no place."""
        self._touched.update(dict.fromkeys(self._refusals.note(found)))

    def note_refused(self, record: Round) -> None:
        """Note the refusals of a record that was appended and adopted."""
        if self._reasons is not None:
            self._reasons.note(record)

    def all_jobs(self) -> None:
        """Write the status of every job again."""
        self._written.clear()
        self._review.clear()
        self._touched.update(dict.fromkeys(self._state.jobs))

    async def rewrite_statuses(self) -> None:
        """Write statuses again over which another dispatcher has written.

        Raises:
            TransientError: The bus does not answer.
        """
        for stored in await self._others.read():
            try:
                namespace, name = name_parts(stored.subject, 2)
            except ValueError:
                continue  # no job has this subject
            key = namespace, name
            try:
                self._written[key] = _mark(stored_status(stored.subject, stored.data))
            except DecodeError as error:
                self._foreign.inc()
                self._log.warning("foreign status found", subject=stored.subject, reason=error.reason)
                self._written.pop(key, None)
            self._touched[key] = None

    async def publish(self) -> None:
        """Write changed statuses, a bounded number at a time; those that cannot be written stay due."""
        at_ms = self._clock.now_ms()
        batch: list[tuple[JobKey, bytes]] = []
        size = 0
        if self._reasons is not None:
            self._touched.update(dict.fromkeys(self._reasons.step()))
        due = self._due()
        if self.is_reading and not self._is_learning:
            await self.stop()  # otherwise all statuses that this leader writes would pile up
        for key, is_reviewed in due:
            unplaced = self._refusals.of(self._state, key)
            held, reason = self._held.get(key, ""), self._reason(key)
            status = status_of(self._state, key, at_ms=at_ms, restart_held=held, unplaced=unplaced, reason=reason)
            self._refusals.settle(key, status)
            if status is None:
                self._written.pop(key, None)
                continue
            mark = _mark(status)
            is_written = self._written.get(key) == mark
            if status.phase in _OVER and (is_reviewed or not is_written):
                heapq.heappush(self._over, (status.since_ms, key, status.uid))
            if is_written:
                continue
            self._written[key] = mark
            data = encode(status)
            if batch and size + len(data) > _BATCH_BYTES_MAX:
                await self._submit(batch)
                batch, size = [], 0
            batch.append((key, data))
            size += len(data)
        if batch:
            await self._submit(batch)

    def _reason(self, key: JobKey) -> Reason | None:
        """Why a job waits now; None if the ledger says it."""
        job = self._state.jobs.get(key)
        return self._reasons.of(job.uid) if self._reasons is not None and job is not None else None

    def _due(self) -> list[tuple[JobKey, bool]]:
        """Jobs to look at now, and whether each is reviewed."""
        due = [(key, False) for key in itertools.islice(self._touched, _BATCH_MAX)]
        for key, _ in due:
            del self._touched[key]
        self.read_stored()
        if not self._is_learning:
            count = min(len(self._review), _REVIEW_MAX)
            due += [(self._review.popleft(), True) for _ in range(count)]
        return due

    async def expire_finished(self, now_ms: int, *, has_pending_verdict: Callable[[JobKey], bool]) -> None:
        """Release the names of jobs that finished long enough ago.

        Args:
            now_ms: The time.
            has_pending_verdict: Whether a verdict on a name is being stored; a tombstone must not be stored after it.
        """
        after_ms = self._state.fold.settings.tombstone_after_ms
        later: list[tuple[int, JobKey, str]] = []
        while self._over and now_ms - self._over[0][0] >= after_ms:
            _, key, uid = heapq.heappop(self._over)
            job = self._state.jobs.get(key)
            status = status_of(self._state, key, at_ms=now_ms)
            if job is None or status is None or job.uid != uid or status.phase not in _OVER:
                continue
            if has_pending_verdict(key):
                later.append((now_ms, key, uid))
                continue
            tombstone = msgspec.structs.replace(
                job, state="tombstone", request=None, refusal=None, rejection=None, at_ms=now_ms
            )
            self._faults.hit("fact.before")
            try:
                future = await self._bus.submit_wait(self._bus.subjects.fact_job(*key), encode(tombstone))
            except TransientError:
                later.append((now_ms, key, uid))
                break
            future.add_done_callback(functools.partial(self._on_tombstone, (now_ms, key, uid)))
        for entry in later:
            heapq.heappush(self._over, entry)

    async def _submit(self, batch: list[tuple[JobKey, bytes]]) -> None:
        """Write statuses with one acknowledgement: all of them can be written again."""
        for _ in batch:
            self._faults.hit("status.before")
        subjects = self._bus.subjects
        try:
            future = await self._bus.submit_batch([(subjects.status(*key), data) for key, data in batch])
        except TransientError:
            self._lost(batch)
            return
        future.add_done_callback(functools.partial(self._on_statuses, batch, self._others.sent()))
        self.published += len(batch)

    def _on_statuses(self, batch: list[tuple[JobKey, bytes]], number: int, future: "asyncio.Future[int]") -> None:
        if future.cancelled():
            self._others.failed()
            return
        error = future.exception()
        if error is None:
            if not self._others.stored(number, future.result(), len(batch)):
                self._lost(batch)
            for _ in batch:
                self._faults.hit("status.after")
            return
        self._others.failed()
        if isinstance(error, TransientError):
            self._lost(batch)
        elif isinstance(error, ShellError):
            self._refused(batch, error)
        else:
            raise error

    def _refused(self, batch: list[tuple[JobKey, bytes]], error: ShellError) -> None:
        """Write the statuses of a refused batch one by one, to find the one that cannot be written."""
        if len(batch) == 1:
            self._log.error("status cannot be written", job="/".join(batch[0][0]), reason=str(error))
            return
        for key, data in batch:
            alone = [(key, data)]
            try:
                future = self._bus.submit(self._bus.subjects.status(*key), data)
            except TransientError:
                self._lost(alone)
                continue
            future.add_done_callback(functools.partial(self._on_statuses, alone, self._others.sent()))

    def _on_tombstone(self, entry: tuple[int, JobKey, str], future: "asyncio.Future[int]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._faults.hit("fact.after")
        elif not isinstance(error, ShellError):
            raise error
        else:
            self._log.warning("tombstone not stored, retrying later", reason=str(error))
            heapq.heappush(self._over, entry)

    def _lost(self, batch: list[tuple[JobKey, bytes]]) -> None:
        self._lost_s = self._clock.monotonic_s()
        for key, _ in batch:
            self._written.pop(key, None)
            self._touched[key] = None


def _mark(status: JobStatus) -> tuple[object, ...]:
    """What of a status is not written again: its digest, and why the job waits."""
    return *digest(status), status.sentence if status.phase == "waiting" else ""
