"""Events of jobs that are stored, from the newest back: a bounded part of the last hour."""

import asyncio
from typing import Final, NamedTuple

import msgspec

from berth.runtime.bus.port import Bus, Stored
from berth.runtime.errors import TransientError
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName

_CHUNK: Final = 250
"""Positions of the stream that are read at once."""
_MOST: Final = 5_000
"""Most positions that are read, ..."""
_BYTES_MAX: Final = 16 << 20
"""... and about the most bytes."""
_READ_S: Final = 5.0


class PastEvents(NamedTuple):
    """Events, ascending, and since when they are all."""

    events: list[JobEvent]
    begin_ms: int


async def past_events(bus: Bus, begin_ms: int) -> PastEvents:
    """Events of jobs that were stored since a time, as far as a bounded read goes.

    Args:
        bus: The cell.
        begin_ms: The time.

    Raises:
        TransientError: They do not come in time, or the stream was made again.
    """
    state = await bus.state(StreamName.EVENTS)
    end, size = state.last_seq, 0
    floor = max(state.first_seq, end - _MOST + 1)
    found: list[Stored] = []
    is_whole = state.first_seq == floor
    while end >= floor:
        start = max(floor, end - _CHUNK + 1)
        chunk = await _read(bus, start, end)
        found[:0] = chunk
        size += sum(len(one.data) for one in chunk)
        end = start - 1
        if chunk and chunk[0].at_ms < begin_ms:
            is_whole = True
            break
        if size > _BYTES_MAX:
            is_whole = start == state.first_seq
            break
    if (await bus.state(StreamName.EVENTS)).created != state.created:
        raise TransientError("the events were made again meanwhile")
    events = [event for one in found if (event := _event(one)) is not None]
    if not is_whole and events:
        begin_ms = max(begin_ms, events[0].at_ms)
    return PastEvents(events, begin_ms)


async def _read(bus: Bus, start: int, end: int) -> list[Stored]:
    """Messages of the stream from one position to another.

    Raises:
        TransientError: They do not come in time, or are gone.
    """
    try:
        async with asyncio.timeout(_READ_S):
            return [stored async for piece in pieces(bus, StreamName.EVENTS, start, end) for stored in piece]
    except (TimeoutError, NotKeptError) as error:
        raise TransientError(str(error) or f"no events within {_READ_S:g} s") from error


def _event(stored: Stored) -> JobEvent | None:
    """The event in a message; None if it has none."""
    if ".event.job." not in stored.subject:
        return None
    try:
        return msgspec.json.decode(stored.data, type=JobEvent)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
