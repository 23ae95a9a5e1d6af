"""Requests and gathers over one permanent wildcard subscription.

A request costs a dictionary entry, not a subscription, a task or a queue. A reply without an entry is late and is
dropped.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from berth.runtime.bus.port import Gathered
from berth.runtime.bus.wire import Listening, Received, Wire, is_no_responders
from berth.runtime.errors import TransientError

_SECRET_BYTES: Final = 12
_ROUND_TRIP_S: Final = 5.0
_COLLECTED_MAX: Final = 4_096
_COLLECTED_BYTES_MAX: Final = 64 << 20
_COLLECTING_S: Final = 20.0
"""Bounds of the replies to one request: whoever may answer it may answer it as often as it likes."""


class Inbox:
    """Inbox for replies of one kind to a connection.

    Args:
        wire: The connection.
        prefix: Its subject, which no other one has.
    """

    def __init__(self, wire: Wire, prefix: str) -> None:
        self._wire = wire
        self._prefix = prefix + "."
        self._listening: Listening | None = None
        self._waiting: dict[str, Callable[[Received | None], None]] = {}

    async def open(self) -> None:
        """Subscribe; call it once, before the first request."""
        self._listening = await self._wire.listen(f"{self._prefix}*", self._receive)

    def broke(self) -> None:
        """Fail all outstanding requests: the connection broke, so no reply will come."""
        waiting, self._waiting = self._waiting, {}
        for take in waiting.values():
            take(None)

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> bytes:
        """Reply to a request; see :meth:`berth.runtime.bus.port.Bus.request`.

        Raises:
            TransientError: The subject has no responders, the connection broke, or no reply came within ``timeout_s``.
        """
        future: asyncio.Future[Received | None] = asyncio.get_running_loop().create_future()
        token = self._expect(partial(_resolve, future))
        try:
            await self._wire.write(subject, data, self._prefix + token)
            async with asyncio.timeout(timeout_s):
                message = await future
        except TimeoutError as error:
            raise TransientError(f"no reply from {subject} within {timeout_s} s") from error
        finally:
            self._waiting.pop(token, None)
        if message is None:
            raise TransientError(f"connection broke before the reply from {subject}")
        if is_no_responders(message):
            raise TransientError(f"no responders on {subject}")
        return message.data

    async def collect(self, subject: str, *, first_s: float, quiet_s: float) -> list[bytes]:
        """All replies to an empty request, until no more come, or there are as many as no cell has processes.

        Args:
            subject: Whom to ask.
            first_s: Seconds to wait for the first reply.
            quiet_s: Seconds to wait for one more reply. Replies that came while this process or the server was paused
                are not late.

        Raises:
            TransientError: Not connected, the connection broke, or the server does not answer.
        """
        replies: list[bytes] = []
        moved = asyncio.Event()
        is_over = is_broken = False
        left_bytes = _COLLECTED_BYTES_MAX

        def take(message: Received | None) -> None:
            nonlocal is_over, is_broken, left_bytes
            is_broken = message is None
            left_bytes -= len(message.data) if message is not None else 0
            if message is None or is_no_responders(message) or left_bytes < 0:
                is_over = True
            else:
                replies.append(message.data)
                is_over = len(replies) >= _COLLECTED_MAX
                if not is_over:
                    self._waiting[token] = take
            moved.set()

        token = self._expect(take)
        try:
            await self._wire.write(subject, b"", self._prefix + token)
            end_s = asyncio.get_running_loop().time() + _COLLECTING_S
            while not is_over and asyncio.get_running_loop().time() < end_s:
                count = len(replies)
                try:
                    async with asyncio.timeout(quiet_s if replies else first_s):
                        await moved.wait()
                except TimeoutError:
                    await self.round_trip(timeout_s=_ROUND_TRIP_S)  # what the server has sent comes before its answer
                    if len(replies) == count:
                        break
                moved.clear()
        finally:
            self._waiting.pop(token, None)
        if is_broken:
            raise TransientError(f"connection broke before the replies from {subject}")
        return replies

    async def round_trip(self, *, timeout_s: float) -> None:
        """Wait until the server has processed everything that was written before, and the replies that it sent.

        Raises:
            TransientError: It did not within ``timeout_s``, or the connection broke.
        """
        await self._wire.round_trip(timeout_s=timeout_s)
        while self._listening is not None and self._listening.waiting:  # noqa: ASYNC110  # the library has no event
            await asyncio.sleep(0)

    async def gather(
        self, subjects: Mapping[int, str], data: Mapping[int, bytes] | bytes, *, timeout_s: float
    ) -> Gathered:
        """Replies of shards; see :meth:`berth.runtime.bus.port.Bus.gather`."""
        gathering = _Gathering(len(subjects))
        tokens = {shard: self._expect(partial(gathering.take, shard)) for shard in subjects}
        try:
            for shard, subject in subjects.items():
                request = data if isinstance(data, bytes) else data[shard]
                await self._wire.write(subject, request, self._prefix + tokens[shard])
            if gathering.open_count:
                async with asyncio.timeout(timeout_s):
                    await gathering.done
        except TimeoutError:
            pass  # shards without an answer are missing
        finally:
            for token in tokens.values():
                self._waiting.pop(token, None)
        replies = gathering.replies
        return Gathered(replies, sorted(shard for shard in subjects if shard not in replies))

    def _expect(self, take: Callable[[Received | None], None]) -> str:
        # Who answers one request may answer others of this user too, and must not guess where.
        token = secrets.token_urlsafe(_SECRET_BYTES)
        self._waiting[token] = take
        return token

    def _receive(self, message: Received) -> None:
        take = self._waiting.pop(message.subject[len(self._prefix) :], None)
        if take is not None:
            take(message)


class _Gathering:
    def __init__(self, open_count: int) -> None:
        self.open_count = open_count
        self.replies: dict[int, bytes] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, shard: int, message: Received | None) -> None:
        if message is not None and not is_no_responders(message):
            self.replies[shard] = message.data
        self.open_count -= 1
        if not self.open_count and not self.done.done():
            self.done.set_result(None)


def _resolve(future: asyncio.Future[Received | None], message: Received | None) -> None:
    if not future.done():
        future.set_result(message)
