"""Events of jobs as they come, from a position in their stream."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import msgspec

from berth.client.errors import ClientError, ConnectionLostError, EventsLostError
from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.errors import FatalError, ShellError
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName

_WAITING_MAX: Final = 1_000
"""Events that wait for the program. If it is slower, reading ends, and goes on when it has taken them."""


class StoredEvent(NamedTuple):
    """An event and its place in the stream.

    Attributes:
        position: Sequence in the stream of events; the next :meth:`berth.client.Client.follow` continues after it.
        event: The event.
    """

    position: int
    event: JobEvent


async def events_after(
    bus: Bus, subject: str, *, after: int, since_ms: int, consumer: str
) -> AsyncGenerator[StoredEvent, None]:
    """Events in their order, without end.

    Args:
        bus: Bus of the cell.
        subject: Subject of the events, which may have wildcards.
        after: Position after which to begin; 0 for the oldest event.
        since_ms: Leave out events that were stored before; milliseconds since 1970.
        consumer: Name of the consumer; empty: a new one.

    Raises:
        ConnectionLostError: The connection is closed, or NATS does not permit the reading.
        EventsLostError: Events after the position are no longer stored.
        ClientError: An event cannot be read.
    """
    position = after
    while True:
        reading = _Reading(bus, subject, after=position, consumer=consumer)
        try:
            while (stored := await reading.next()) is not None:
                position = stored.sequence
                if stored.at_ms >= since_ms:
                    yield StoredEvent(position, _event(stored))
        finally:
            await reading.stop()


def _event(stored: Stored) -> JobEvent:
    try:
        return msgspec.json.decode(stored.data, type=JobEvent)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ClientError(f"event {stored.sequence} cannot be read: {error}") from error


class _Reading:
    """A follower, and the events that it has delivered and nobody has taken."""

    def __init__(self, bus: Bus, subject: str, *, after: int, consumer: str) -> None:
        self._bus = bus
        self._waiting: deque[Stored] = deque()
        self._is_full = False
        self._gap: Gap | None = None
        self._wake = asyncio.Event()
        try:
            self._follower = bus.follow(
                StreamName.EVENTS,
                on_message=self._put,
                on_gap=self._end,
                start_seq=after + 1,
                filters=[subject],
                consumer=consumer,
            )
        except ShellError as error:
            raise ConnectionLostError(str(error)) from error
        bus.lost.add_done_callback(self._lose)

    async def next(self) -> Stored | None:
        """The next event; None if those that follow must be read again.

        Raises:
            ConnectionLostError: The connection is closed.
            EventsLostError: There is a gap.
        """
        while not self._waiting:
            if self._is_full:
                return None
            if self._gap is not None:
                raise EventsLostError(f"events from {self._gap.wanted} on: {self._gap.reason}")
            if self._bus.lost.done():
                raise ConnectionLostError(self._bus.lost.result().reason)
            self._wake.clear()
            await self._wake.wait()
        return self._waiting.popleft()

    async def stop(self) -> None:
        self._bus.lost.remove_done_callback(self._lose)
        await self._follower.stop()

    def _put(self, stored: Stored) -> None:
        self._is_full = self._is_full or len(self._waiting) >= _WAITING_MAX
        if not self._is_full:
            self._waiting.append(stored)
        self._wake.set()

    def _end(self, gap: Gap) -> None:
        self._gap = gap
        self._wake.set()

    def _lose(self, _: asyncio.Future[FatalError]) -> None:
        self._wake.set()
