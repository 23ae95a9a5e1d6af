"""Reading of whole streams, message by message, also where messages are missing."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from berth.runtime.bus.port import Bus, Gap, Stored, StreamState
from berth.runtime.errors import TransientError
from berth.schemas.subjects import StreamName

T = TypeVar("T")
_QUIET_S: Final = 10.0
_TRIES: Final = 5


class ChangedError(TransientError):
    """A stream was made anew, or lost its oldest messages, while it was read; the check begins again."""


async def checked_again(check: Callable[[], Awaitable[T]]) -> T:
    """Result of a check that begins again, up to four times, if the cell removed old messages meanwhile.

    Raises:
        ChangedError: Old messages were removed during each try.
    """
    for _ in range(_TRIES - 1):
        with suppress(ChangedError):
            return await check()
    return await check()


async def each(bus: Bus, stream: StreamName, state: StreamState, take: Callable[[Stored], None]) -> None:
    """Call a function with each message of a stream up to its end as it was; those that are missing are left out.

    Args:
        bus: The cell.
        stream: The stream.
        state: Its state; later messages are left out.
        take: Called with each message, in order.

    Raises:
        ChangedError: The stream was made anew, or its oldest messages were removed meanwhile.
        TransientError: No message came for 10 s.
    """
    if not state.messages:
        return
    moved = asyncio.Event()
    gaps: list[Gap] = []
    failed: list[Exception] = []
    seen = 0

    def on_message(stored: Stored) -> None:
        nonlocal seen
        seen = stored.sequence
        moved.set()
        if seen <= state.last_seq and not failed:
            try:
                take(stored)
            except Exception as error:  # noqa: BLE001  # raised below: a follower that raises ends the connection
                failed.append(error)

    def on_gap(gap: Gap) -> None:
        gaps.append(gap)
        moved.set()

    follower = bus.follow(
        stream, on_message=on_message, on_gap=on_gap, start_seq=state.first_seq, created=state.created
    )
    try:
        while not gaps and not failed and seen < state.last_seq and not follower.caught_up.is_set():
            moved.clear()
            async with asyncio.timeout(_QUIET_S):
                await _first_of(moved, follower.caught_up)
    except TimeoutError as error:
        raise TransientError(f"no message from {stream} for {_QUIET_S:g} s") from error
    finally:
        await follower.stop()
    if failed:
        raise failed[0]
    if gaps:
        raise ChangedError(f"{stream}: {gaps[0].reason}")


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of some events is set."""
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(event.wait(), name="event of a stream") for event in events]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
