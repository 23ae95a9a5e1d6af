"""Stretches: messages of a stream from one sequence to another, a piece at a time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from berth.runtime.bus.port import Bus, Gap, Stored, StreamState
from berth.runtime.errors import ShellError, TransientError
from berth.schemas.subjects import StreamName

_QUIET_S: Final = 10.0
"""How long a stream may say nothing while messages are known to be left."""
_PIECE_BYTES: Final = 8 << 20
_PIECE_MESSAGES: Final = 5_000


class NotKeptError(ShellError):
    """A stream does not have all that was wanted of it: it is no longer kept, or not there yet."""

    def __init__(self, stream: StreamName, wanted: int, state: StreamState) -> None:
        super().__init__(
            f"{stream} {wanted} is not kept: the stream has sequences {state.first_seq} to {state.last_seq}"
        )
        self.stream = stream
        self.wanted = wanted


class _Piece:
    """Takes messages in until it has enough."""

    def __init__(self, end: int) -> None:
        self.taken: list[Stored] = []
        self.gap: Gap | None = None
        self.moved = asyncio.Event()
        self._end = end
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        taken = self.taken
        return bool(taken) and (
            taken[-1].sequence >= self._end or len(taken) >= _PIECE_MESSAGES or self._bytes >= _PIECE_BYTES
        )

    def take(self, stored: Stored) -> None:
        if not self.is_full and stored.sequence <= self._end:
            self.taken.append(stored)
            self._bytes += len(stored.data)
        self.moved.set()

    def stumble(self, gap: Gap) -> None:
        self.gap = gap
        self.moved.set()


async def pieces(bus: Bus, stream: StreamName, start: int, end: int) -> AsyncIterator[list[Stored]]:
    """All messages with sequences ``start`` to ``end``, some MiB at a time.

    Raises:
        NotKeptError: Some are not kept any more, or not there yet.
        TransientError: The stream said nothing for a while.
    """
    created = ""
    while start <= end:
        found = await bus.state(stream)
        if found.first_seq > start or found.last_seq < end or (created and created != found.created):
            raise NotKeptError(stream, start if found.first_seq > start else end, found)
        created = found.created
        piece = _Piece(end)
        follower = bus.follow(
            stream, on_message=piece.take, on_gap=piece.stumble, start_seq=start, created=found.created
        )
        try:
            while not piece.is_full and piece.gap is None:
                piece.moved.clear()
                async with asyncio.timeout(_QUIET_S):
                    await piece.moved.wait()
        except TimeoutError as error:
            raise TransientError(f"{stream} says nothing for {_QUIET_S:g} s") from error
        finally:
            await follower.stop()
        if not piece.is_full:
            raise NotKeptError(stream, start, await bus.state(stream))
        yield piece.taken
        start = piece.taken[-1].sequence + 1
