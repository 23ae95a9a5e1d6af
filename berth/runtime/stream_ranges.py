"""Ranges of a stream: messages from one sequence to another, read in bounded pieces."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from berth.runtime.bus.port import Bus, Follower, Gap, Stored, StreamState
from berth.runtime.errors import ShellError, TransientError
from berth.runtime.ledger_reader import follow_ledger
from berth.schemas.subjects import StreamName

_QUIET_S: Final = 10.0
"""Longest time without a message while the range is not complete."""
_PIECE_BYTES: Final = 8 << 20
_PIECE_MESSAGES: Final = 5_000


class NotKeptError(ShellError):
    """A stream does not hold the whole range: a part was removed, or is not stored yet."""

    def __init__(self, stream: StreamName, wanted: int, state: StreamState) -> None:
        super().__init__(
            f"{stream} {wanted} is not kept: the stream has sequences {state.first_seq} to {state.last_seq}"
        )
        self.stream = stream
        self.wanted = wanted


class _Piece:
    """Collects messages up to the limits of one piece."""

    def __init__(self, end: int) -> None:
        self.taken: list[Stored] = []
        self.gap: Gap | None = None
        self.moved = asyncio.Event()
        self._end = end
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is complete."""
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
    """All messages with sequences ``start`` to ``end``, in pieces of at most 8 MiB or 5,000 messages.

    Raises:
        NotKeptError: Some were removed, or are not stored yet.
        TransientError: No message came for 10 s.
    """
    created = ""
    while start <= end:
        found = await bus.state(stream)
        if found.first_seq > start or found.last_seq < end or (created and created != found.created):
            raise NotKeptError(stream, start if found.first_seq > start else end, found)
        created = found.created
        piece = _Piece(end)
        if stream is StreamName.LEDGER:
            follower: Follower = await follow_ledger(
                bus, found, on_message=piece.take, on_gap=piece.stumble, start_seq=start, is_live=False
            )
        else:
            follower = bus.follow(
                stream, on_message=piece.take, on_gap=piece.stumble, start_seq=start, created=found.created
            )
        try:
            while not piece.is_full and piece.gap is None:
                piece.moved.clear()
                async with asyncio.timeout(_QUIET_S):
                    await piece.moved.wait()
        except TimeoutError as error:
            raise TransientError(f"no message from {stream} for {_QUIET_S:g} s") from error
        finally:
            await follower.stop()
        if not piece.is_full:
            raise NotKeptError(stream, start, await bus.state(stream))
        yield piece.taken
        start = piece.taken[-1].sequence + 1
