"""Events of jobs as they come, from a position in their stream."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import msgspec

from berth.client.errors import ClientError, ConnectionLostError
from berth.client.handed_over import HandedOver
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus, Gap, Stored, StreamState
from berth.runtime.errors import FatalError, ShellError, TransientError
from berth.schemas.message import json_decoder
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName

_WAITING_MAX: Final = 1_000
"""Events that wait for the program. If it is slower, reading ends, and goes on when it has taken them."""
_LOOK_S: Final = 1.0
"""Pause between two looks at the connection while no event comes."""
_AGAIN: Final = Backoff(first_s=0.1, max_s=2.0)


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
    """Events in their order, without end, each id once; see :class:`HandedOver`.

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
    known = HandedOver(after)
    goes_on, gaps = False, 0
    while True:
        links = bus.link_changes
        state = await _state(bus)
        start_seq = known.start_in(state, goes_on=goes_on)
        reading = _Reading(bus, subject, start_seq=start_seq, created=state.created, links=links, consumer=consumer)
        try:
            while (stored := await reading.next()) is not None:
                event, gaps = _event(stored), 0
                if stored.at_ms < since_ms or (known.is_remade and event.at_ms < since_ms):
                    known.pass_by(stored.sequence)
                elif known.add(event.id, stored.sequence):
                    yield StoredEvent(stored.sequence, event)
        finally:
            await reading.stop()
        goes_on = reading.is_full and bus.link_changes == links
        known.cover(reading.covered)
        if reading.gap is not None:
            gaps += 1
            await asyncio.sleep(_AGAIN.pause_s(gaps))


async def _state(bus: Bus) -> StreamState:
    """The stream of events, as soon as the server answers.

    Raises:
        ConnectionLostError: The connection is closed.
    """
    tries = 0
    while True:
        try:
            return await bus.state(StreamName.EVENTS)
        except TransientError:
            tries += 1
            await asyncio.wait([bus.lost], timeout=_AGAIN.pause_s(tries))
        except FatalError as error:
            raise ConnectionLostError(_why_closed(bus, error)) from error
        if bus.lost.done():
            raise ConnectionLostError(bus.lost.result().reason)


def _why_closed(bus: Bus, error: ShellError) -> str:
    return bus.lost.result().reason if bus.lost.done() else str(error)


def _event(stored: Stored) -> JobEvent:
    try:
        return json_decoder(JobEvent).decode(stored.data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ClientError(f"event {stored.sequence} cannot be read: {error}") from error


class _Reading:
    """A follower, and the events that it has delivered and nobody has taken.

    Attributes:
        is_full: Events were left out, as too many wait.
        gap: Why it ended.
    """

    def __init__(self, bus: Bus, subject: str, *, start_seq: int, created: str, links: int, consumer: str) -> None:
        self.is_full = False
        self.gap: Gap | None = None
        self._bus = bus
        self._links = links
        self._waiting: deque[Stored] = deque()
        self._wake = asyncio.Event()
        try:
            self._follower = bus.follow(
                StreamName.EVENTS,
                on_message=self._put,
                on_gap=self._end,
                start_seq=start_seq,
                filters=[subject],
                created=created,
                consumer=consumer,
            )
        except ShellError as error:
            raise ConnectionLostError(_why_closed(bus, error)) from error
        bus.lost.add_done_callback(self._lose)

    @property
    def covered(self) -> int:
        """Place up to which all events were taken; 0 if it is not known."""
        return 0 if self._waiting or self.is_full else self._follower.covered

    async def next(self) -> Stored | None:
        """The next event; None if those that follow must be read again.

        Raises:
            ConnectionLostError: The connection is closed.
        """
        while True:
            if self._bus.lost.done():
                raise ConnectionLostError(self._bus.lost.result().reason)
            if self._bus.link_changes != self._links:
                return None
            if self._waiting:
                return self._waiting.popleft()
            if self.is_full or self.gap is not None:
                return None
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()

    async def stop(self) -> None:
        self._bus.lost.remove_done_callback(self._lose)
        await self._follower.stop()

    def _put(self, stored: Stored) -> None:
        self.is_full = self.is_full or len(self._waiting) >= _WAITING_MAX
        if not self.is_full:
            self._waiting.append(stored)
        self._wake.set()

    def _end(self, gap: Gap) -> None:
        self.gap = gap
        self._wake.set()

    def _lose(self, _: asyncio.Future[FatalError]) -> None:
        self._wake.set()
