"""Calls to the API server: a few at a time, one a thing, tried again while the server does not answer."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

from berth.runtime.backoff import Backoff
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to be done at the API server.

    Attributes:
        key: What it is about: of two chores with one key only the newer is done, and never two at a time.
        what: What it is, for the log.
        do: Does it; a :class:`TransientError` means that it is tried again.
        give_up: Called when it was refused, or tried too often.
        tries_max: Most tries; 0 for no end.
    """

    key: Hashable
    what: str
    do: Callable[[], Awaitable[None]]
    give_up: Callable[[], None] | None = None
    tries_max: int = 0


class ApiTasks:
    """Chores that wait and those in hand.

    Args:
        config: Settings.
        instruments: Of the process.
    """

    def __init__(self, config: InventoryConfig, instruments: Instruments[InventoryMetrics]) -> None:
        self._config = config
        self._backoff = Backoff(first_s=config.retry_wait_s, max_s=config.retry_wait_max_s)
        self._ready: dict[Hashable, Chore] = {}
        self._waiting: dict[Hashable, tuple[Chore, asyncio.TimerHandle]] = {}
        self._tries: dict[Hashable, int] = {}
        self._busy: set[Hashable] = set()
        self._stopping = False
        self._woken = asyncio.Event()
        self._log = instruments.log
        self._metrics = instruments.metrics

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done, now or later."""
        return not self._ready and not self._waiting and not self._busy

    @property
    def is_busy(self) -> bool:
        """Whether something is to be done now; what waits for another try does not count."""
        return bool(self._ready or self._busy)

    def put(self, chore: Chore) -> None:
        """Do a chore, soon; an older one about the same thing is dropped."""
        waiting = self._waiting.pop(chore.key, None)
        if waiting is not None:
            waiting[1].cancel()
        self._tries.pop(chore.key, None)
        self._ready[chore.key] = chore
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; what is in hand then is finished, the rest is left."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._config.calls_at_once):
                group.create_task(self._hand(), name=f"call {number}")
            await stop.wait()
            self._stopping = True
            self._woken.set()
        for _, timer in self._waiting.values():
            timer.cancel()

    async def _hand(self) -> None:
        while True:
            key = next((key for key in self._ready if key not in self._busy), None)
            if self._stopping:
                return
            if key is None:
                self._woken.clear()
                await self._woken.wait()
                continue
            chore = self._ready.pop(key)
            self._busy.add(key)
            try:
                await self._do(chore)
            finally:
                self._busy.discard(key)
                self._woken.set()

    async def _do(self, chore: Chore) -> None:
        try:
            await chore.do()
        except TransientError as error:
            self._metrics.failures.inc()
            self._later(chore, error)
        except PoisonError as error:
            self._metrics.failures.inc()
            self._log.warning("call refused", call=chore.what, reason=str(error))
            self._end(chore)
        else:
            self._tries.pop(chore.key, None)

    def _later(self, chore: Chore, error: TransientError) -> None:
        if chore.key in self._ready:  # a newer one takes its place
            return
        tries = self._tries[chore.key] = self._tries.get(chore.key, 0) + 1
        if chore.tries_max and tries >= chore.tries_max:
            self._log.warning("call given up", call=chore.what, tries=tries, reason=error.reason)
            self._end(chore)
            return
        wait_s = max(self._backoff.pause_s(tries), error.retry_after_s if tries == 1 else 0)
        timer = asyncio.get_running_loop().call_later(wait_s, self._again, chore)
        self._waiting[chore.key] = (chore, timer)

    def _again(self, chore: Chore) -> None:
        del self._waiting[chore.key]
        self._ready[chore.key] = chore
        self._woken.set()

    def _end(self, chore: Chore) -> None:
        self._tries.pop(chore.key, None)
        if chore.give_up is not None:
            chore.give_up()
