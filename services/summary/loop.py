"""Writer of summaries: collects changes and reconciles a few jobs at a time, at most one worker per job."""

import asyncio
from typing import Final

from berth.runtime.backoff import Backoff
from berth.runtime.clock import Clock
from berth.runtime.errors import ShellError
from berth.runtime.instruments import Instruments
from berth.runtime.waits import IdleWorkers, pause
from berth.services.summary.config import SummaryConfig
from berth.services.summary.job_summaries import JobSummaries
from berth.services.summary.metrics import SummaryMetrics
from berth.services.summary.store import Store
from berth.services.summary.views import JobName

_WRITES_AT_ONCE: Final = 8
_IDLE_S: Final = 3_600.0
_TRIES_QUIET: Final = 2
"""Tries that fail without a warning."""


class Loop:
    """Brings ConfigMaps and events in line with the summaries.

    Args:
        summaries: What should be.
        store: What is.
        clock: Source of time.
        config: Settings.
        instruments: Of the process.
    """

    def __init__(
        self,
        summaries: JobSummaries,
        store: Store,
        clock: Clock,
        config: SummaryConfig,
        instruments: Instruments[SummaryMetrics],
    ) -> None:
        self._summaries = summaries
        self._store = store
        self._clock = clock
        self._config = config
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._backoff = Backoff(max_s=config.retry_wait_max_s)
        self.dirty = asyncio.Event()
        self._jobs: dict[str, JobName] = {}
        self._ready: dict[str, None] = {}
        self._busy: dict[str, None] = {}
        self._tries: dict[str, int] = {}
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._idle = IdleWorkers()
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish the current work."""
        async with asyncio.TaskGroup() as group:
            for number in range(_WRITES_AT_ONCE):
                group.create_task(self._worker(), name=f"worker {number}")
            stopping = group.create_task(self._end(stop), name="wait for stop")
            while not stop.is_set():
                self.dirty.clear()
                self._settle()
                await self._wait_for_change(stop)
            await stopping
        for timer in self._waiting.values():
            timer.cancel()

    async def _end(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stopping = True
        self.dirty.set()
        self._idle.wake_all()

    async def _wait_for_change(self, stop: asyncio.Event) -> None:
        """Wait for a change or a due deletion, then collect further changes."""
        due_s = self._summaries.next_due_s()
        wait_s = _IDLE_S if due_s is None else max(due_s - self._clock.now_ms() / 1000, 0.0)
        await pause(self.dirty, wait_s + self._config.settle_s)
        await pause(stop, self._config.settle_s)

    def _settle(self) -> None:
        for change in self._summaries.settle(self._clock.now_ms() // 1000):
            self._jobs[change.job.uid] = change.job
            self._wake(change.job.uid)
        for uid in self._store.drifted:
            if uid in self._jobs:
                self._wake(uid)
        self._store.drifted.clear()
        self._metrics.jobs.set(len(self._summaries))

    def _wake(self, uid: str) -> None:
        self._ready[uid] = None
        self._idle.wake_one()

    async def _worker(self) -> None:
        while True:
            while (uid := next((one for one in self._ready if one not in self._busy), None)) is None:
                if self._stopping:
                    return
                await self._idle.wait()
            if self._stopping and uid in self._tries:
                del self._ready[uid]
                continue
            del self._ready[uid]
            self._busy[uid] = None
            try:
                await self._write(self._jobs[uid])
            finally:
                del self._busy[uid]

    async def _write(self, job: JobName) -> None:
        wanted = self._summaries.wanted(job.uid)
        try:
            count = await self._store.reconcile(job, wanted)
        except ShellError as error:
            self._later(job, error)
            return
        self._tries.pop(job.uid, None)
        self._metrics.writes.inc(count)
        if count:
            state = wanted[0].data["job_status"] if wanted else "gone"
            self._log.info("summary written", namespace=job.namespace, job=job.name, state=state, chunks=len(wanted))
        if not wanted and job.uid not in self._ready:
            self._jobs.pop(job.uid, None)

    def _later(self, job: JobName, error: ShellError) -> None:
        self._metrics.failures.inc()
        tries = self._tries[job.uid] = self._tries.get(job.uid, 0) + 1
        wait_s = self._backoff.pause_s(tries)
        if tries > _TRIES_QUIET:
            self._log.warning(
                "summary not written",
                namespace=job.namespace,
                job=job.name,
                tries=tries,
                reason=str(error),
                wait_s=wait_s,
            )
        previous = self._waiting.pop(job.uid, None)
        if previous is not None:
            previous.cancel()
        self._waiting[job.uid] = asyncio.get_running_loop().call_later(wait_s, self._again, job.uid)

    def _again(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        if uid in self._jobs:
            self._wake(uid)
