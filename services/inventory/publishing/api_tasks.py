"""Calls to the API server: a bounded number at a time, one per object, retried while the server does not answer.

Namespaces take turns: calls about the objects of one delay those about others by few calls, however many they are.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final

from berth.runtime.backoff import Backoff
from berth.runtime.bus.fair_queue import FairQueue
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.waits import IdleWorkers
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics

CALLS_AT_ONCE: Final = 16
"""Most concurrent calls to the API server, watches excluded."""
TRIES_MAX: Final = 8
"""Tries of a write to an API server that does not answer, before it is given up until something changes."""


@dataclass(frozen=True, slots=True)
class ApiTask:
    """Call to the API server.

    Attributes:
        key: Object of the call: of two tasks with one key only the newer runs, and never two at a time.
        what: Description for the log.
        namespace: Namespace of the object; empty for objects of the cluster.
        do: Performs the call; a :class:`TransientError` means that it is retried.
        give_up: Called when the call was refused, or failed too often.
        tries_max: Maximum number of tries; 0 for no limit.
    """

    key: Hashable
    what: str
    namespace: str
    do: Callable[[], Awaitable[None]]
    give_up: Callable[[], None] | None = None
    tries_max: int = 0


class ApiTasks:
    """Queued and running tasks.

    Args:
        config: Settings.
        instruments: Of the process.
    """

    def __init__(self, config: InventoryConfig, instruments: Instruments[InventoryMetrics]) -> None:
        self._config = config
        self._backoff = Backoff(max_s=config.retry_wait_max_s)
        self._ready: dict[Hashable, ApiTask] = {}
        self._turns: FairQueue[Hashable] = FairQueue()
        """Keys of tasks that are ready, but for those of which one runs."""
        self._waiting: dict[Hashable, tuple[ApiTask, asyncio.TimerHandle]] = {}
        self._tries: dict[Hashable, int] = {}
        self._busy: set[Hashable] = set()
        self._stopping = False
        self._idle = IdleWorkers()
        self._log = instruments.log
        self._metrics = instruments.metrics

    def put(self, task: ApiTask) -> None:
        """Queue a task; an older one with the same key is dropped."""
        waiting = self._waiting.pop(task.key, None)
        if waiting is not None:
            waiting[1].cancel()
        self._tries.pop(task.key, None)
        self._line_up(task)

    async def run(self, stop: asyncio.Event) -> None:
        """Run tasks until ``stop`` is set; running ones are then finished, the rest is dropped."""
        async with asyncio.TaskGroup() as group:
            for number in range(CALLS_AT_ONCE):
                group.create_task(self._worker(), name=f"call {number}")
            await stop.wait()
            self._stopping = True
            self._idle.wake_all()
        for _, timer in self._waiting.values():
            timer.cancel()

    async def _worker(self) -> None:
        while True:
            if self._stopping:
                return
            if not self._turns:
                await self._idle.wait()
                continue
            key = self._turns.popleft()
            task = self._ready.pop(key)
            self._busy.add(key)
            try:
                await self._do(task)
            finally:
                self._busy.discard(key)
                if key in self._ready:  # a newer task is found by this worker, or one that looks first
                    self._turns.append(self._ready[key].namespace, key)

    async def _do(self, task: ApiTask) -> None:
        try:
            await task.do()
        except TransientError as error:
            self._metrics.failures.inc()
            self._later(task, error)
        except PoisonError as error:
            self._metrics.failures.inc()
            self._log.warning("API call refused", call=task.what, reason=str(error))
            self._end(task)
        else:
            self._tries.pop(task.key, None)

    def _later(self, task: ApiTask, error: TransientError) -> None:
        if task.key in self._ready:  # a newer one replaces it
            return
        tries = self._tries[task.key] = self._tries.get(task.key, 0) + 1
        if task.tries_max and tries >= task.tries_max:
            self._log.warning("API call given up", call=task.what, tries=tries, reason=error.reason)
            self._end(task)
            return
        wait_s = max(self._backoff.pause_s(tries), error.retry_after_s if tries == 1 else 0)
        timer = asyncio.get_running_loop().call_later(wait_s, self._again, task)
        self._waiting[task.key] = (task, timer)

    def _again(self, task: ApiTask) -> None:
        del self._waiting[task.key]
        self._line_up(task)

    def _line_up(self, task: ApiTask) -> None:
        if task.key not in self._ready and task.key not in self._busy:
            self._turns.append(task.namespace, task.key)
        self._ready[task.key] = task
        self._idle.wake_one()

    def _end(self, task: ApiTask) -> None:
        self._tries.pop(task.key, None)
        if task.give_up is not None:
            task.give_up()
