"""Statuses that another dispatcher stored although this one leads: they are found, and written again where they differ.

A leader that lost its connection, or was paused, may store some before it learns that another leads. Statuses have no
fence, because they are written faster than one by one. But only the leader writes them: its acknowledgements tell which
sequence comes next, and a higher sequence means that somebody else has written. A lower one means that the server has
dropped messages of a batch before the last one, which alone is acknowledged.
"""

from typing import Final

from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.schemas.subjects import StreamName

_LOOK_S: Final = 5.0
"""Pause between two looks at the end of the stream."""


class OtherStatuses:
    """Counts what this leader stored.

    Args:
        bus: The cell.
        clock: Source of time.
    """

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._open = 0
        """Batches without an outcome."""
        self._sent = self._acknowledged = 0
        """Numbers of the last batch that was sent, and of the last one that was stored."""
        self._looked_s = clock.monotonic_s()
        self.begin(0)

    def begin(self, head: int) -> None:
        """Begin to count.

        Args:
            head: Last sequence of the stream; everything up to there is reviewed anyway.
        """
        self._last = head
        """Sequence of the last message that is known."""
        self._clear = head
        """Up to here, what others stored has been seen."""
        self._is_foreign = False
        """Whether a message of another was stored behind :attr:`_clear`."""

    def sent(self) -> int:
        """Note that a batch is sent; returns its number."""
        self._open += 1
        self._sent += 1
        return self._sent

    def stored(self, number: int, sequence: int, count: int) -> bool:
        """Note that the last message of a batch is stored; returns whether all of them are known to be.

        Behind a batch that failed, of which any part may be stored, it is not known.

        Args:
            number: Of the batch.
            sequence: Of its last message.
            count: Number of its messages.
        """
        self._open -= 1
        is_next, self._acknowledged = number == self._acknowledged + 1, number
        is_whole = count == 1 or (is_next and sequence >= self._last + count)
        self._is_foreign |= sequence != self._last + count
        self._last = sequence
        return is_whole

    def failed(self) -> None:
        """Note that a batch has failed: any part of it may be stored."""
        self._open -= 1

    async def read(self) -> list[Stored]:
        """Statuses behind the last look, if others may have stored some; own ones may be among them.

        Raises:
            TransientError: The bus does not answer.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < _LOOK_S:
            return []
        self._looked_s = now_s
        head = self._last
        if not self._open:
            head = (await self._bus.state(StreamName.STATUS)).last_seq
            if self._open:
                return []  # some were sent meanwhile: what they count for is not known
            if head < self._last:  # the server lost some: all statuses are written again for that
                self.begin(head)
                return []
            self._is_foreign |= head != self._last
        if not self._is_foreign:
            self._clear = self._last
            return []
        self._is_foreign = False
        found = await self._bus.read(StreamName.STATUS, start_seq=self._clear + 1)
        self._clear = max([head, *(stored.sequence for stored in found)])
        self._last = max(self._last, self._clear)
        return found
