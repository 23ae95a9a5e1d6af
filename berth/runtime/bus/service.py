"""Handler of requests, with a bounded queue: one at a time, in the order of each subject, or some at the same time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from berth.runtime.bus.fair_queue import FairQueue
from berth.runtime.bus.port import Endpoint
from berth.runtime.bus.wire import Listening, Received, Wire
from berth.runtime.errors import FatalError, PoisonError, TransientError
from berth.runtime.inboxes import is_inbox_of
from berth.runtime.logs import Logger, is_logged

_ROUND_TRIP_S: Final = 5.0

_SHOWN_MAX: Final = 100
WAITING_MAX: Final = 65_536
"""Most requests that wait for a handler; more are dropped and counted, and their callers time out."""
WAITING_OF_ONE_MAX: Final = 4_096
"""Most of them on one subject of those that an endpoint serves: each caller has a subject of its own."""


class NatsServed:
    """See :class:`berth.runtime.bus.port.Served`."""

    def __init__(
        self,
        wire: Wire,
        endpoint: Endpoint,
        handler: Callable[[str, bytes], Awaitable[bytes | None]],
        log: Logger,
    ) -> None:
        self._log = log
        self.dropped = 0
        self.endpoint = endpoint
        self.subject = endpoint.subject
        self.taken = 0
        """Number of handled requests, with any result."""
        self.failed = 0
        """Number of those that got no answer because of an error, or were refused."""
        self.refused = 0
        """Number of those that asked for an answer where their callers have no inbox; they were not carried out."""
        self._errors = 0
        """Number of those that failed with an error."""
        self.last_error = ""
        self.took_s = 0.0
        """Total handling time in seconds."""
        self._wire = wire
        self._handler = handler
        self._queue: FairQueue[Received] = FairQueue()
        """Requests that wait; the subjects take turns."""
        self._waiting_of_one_max = WAITING_OF_ONE_MAX if "*" in endpoint.subject else WAITING_MAX
        self._wake = asyncio.Event()
        self._is_stopping = False
        self._is_drained = False
        self._listening: Listening | None = None
        # Not in a task group: the bus owns it and stops it at close; its failure goes to `lost`.
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"serve {endpoint.subject}")
        self._task.add_done_callback(self._ended)

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    async def open(self) -> None:
        """Subscribe; returns when the server has registered the subscription."""
        self._listening = await self._wire.listen(self.subject, self._receive, queue=self.endpoint.queue)
        await self._wire.round_trip(timeout_s=_ROUND_TRIP_S)

    async def stop(self) -> None:
        """Accept no more requests, finish those already received, end."""
        self._is_stopping = True
        if self._listening is not None:
            if self._wire.connected:
                await self._listening.retire()
                with contextlib.suppress(TransientError):  # the connection broke: no more requests come
                    await self._wire.round_trip(timeout_s=_ROUND_TRIP_S)
                while self._listening.waiting:  # noqa: ASYNC110  # the library has no event for it
                    await asyncio.sleep(0)
            await self._listening.stop()
        self._is_drained = True
        self._wake.set()
        await asyncio.wait([self._task])

    async def cancel(self) -> None:
        """End immediately."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _receive(self, message: Received) -> None:
        subject, queue = message.subject, self._queue
        if len(queue) >= WAITING_MAX or queue.count_of(subject) >= self._waiting_of_one_max:
            self.dropped += 1
            return
        queue.append(subject, message)
        self._wake.set()

    async def _run(self) -> None:
        try:
            if self.endpoint.at_once == 1:
                await self._take(self._answer)
            else:
                await self._take_at_once(self.endpoint.at_once)
        finally:
            # Without the subscription callers learn at once that there are no responders.
            if self._listening is not None and not self._is_stopping:
                await self._listening.stop()

    async def _take(self, handle: Callable[[Received], Awaitable[None]]) -> None:
        while True:
            while self._queue:
                await handle(self._queue.popleft())
            if self._is_drained:
                return
            self._wake.clear()
            await self._wake.wait()

    async def _take_at_once(self, count: int) -> None:
        places = asyncio.Semaphore(count)

        async def begin(message: Received) -> None:
            await places.acquire()
            task = group.create_task(self._answer(message), name=f"answer {message.subject}")
            task.add_done_callback(lambda _: places.release())

        try:
            async with asyncio.TaskGroup() as group:
                await self._take(begin)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _answer(self, message: Received) -> None:
        if message.reply and not is_inbox_of(self.endpoint.callers, message.reply, message.subject):
            self._refuse(message)
            return
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            reply = await self._handler(message.subject, message.data)
            if reply is not None and message.reply:
                await self._wire.write(message.reply, reply)
        except (TransientError, PoisonError) as error:
            self.failed += 1
            self._errors += 1
            self.last_error = error.reason
            if is_logged(self._errors):
                self._log.warning("request failed", subject=self.subject, reason=error.reason, count=self._errors)
        finally:
            self.taken += 1
            self.took_s += loop.time() - began_s

    def _refuse(self, message: Received) -> None:
        self.taken += 1
        self.failed += 1
        self.refused += 1
        self.last_error = "the reply subject is not in the inbox of a caller"
        if is_logged(self.refused):
            shown = message.reply[:_SHOWN_MAX]
            self._log.warning(
                "request refused", subject=self.subject, reply=shown, reason=self.last_error, count=self.refused
            )

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        failure = FatalError(f"handler of {self.subject} ended: {error!r}")
        failure.__cause__ = error
        self._wire.fail(failure)
