"""Waits of services: for events until a stop, for one of some events, for a time, and of workers for work."""

import asyncio
from collections import deque
from collections.abc import Iterable


async def all_set(events: Iterable[asyncio.Event], stop: asyncio.Event) -> bool:
    """Wait until all events are set or ``stop`` is set.

    Returns:
        Whether to continue, that is, whether ``stop`` is not set.
    """

    async def each() -> None:
        for event in events:
            await event.wait()

    async with asyncio.TaskGroup() as group:
        ready = group.create_task(each(), name="wait for events")
        asked = group.create_task(stop.wait(), name="wait for stop")
        await asyncio.wait({ready, asked}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        asked.cancel()
    return not stop.is_set()


async def pause(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most ``seconds``; returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def any_set(events: Iterable[asyncio.Event], seconds: float | None) -> None:
    """Wait until one of the events is set, for at most ``seconds``; None for as long as it takes."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait(), name="wait for an event") for event in events]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


class IdleWorkers:
    """Workers that wait for work; a piece of work wakes one of them, not all.

    A worker looks for work, and waits here when it finds none; who puts work in its place calls :meth:`wake_one`.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until this worker is woken."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting.append(woken)
        await woken

    def wake_one(self) -> None:
        """Wake the worker that has waited longest, if one waits."""
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():  # a worker that was cancelled takes no work
                woken.set_result(None)
                return

    def wake_all(self) -> None:
        """Wake every worker that waits, such as for the end."""
        while self._waiting:
            self.wake_one()
