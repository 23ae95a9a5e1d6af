"""What a reader of events has handed over, and where it goes on after a break.

A server that was killed may have lost the end of the stream, also events that it had delivered. The service stores
them again with the same ids, but in other places, and others may have their places. So once it has, reading goes on
before the last event, and leaves out the ids that were handed over.
"""

from collections import OrderedDict
from typing import Final

from berth.client.errors import EventsLostError
from berth.runtime.bus.port import GapReason
from berth.schemas.programs.events import EventsKept

REMEMBERED_MAX: Final = 10_000
"""Ids that are remembered, which takes about 3 MB. A server that is killed loses what it has not given to the system,
milliseconds; after a power cut it is up to two minutes, so that these ids are enough for 80 events a second."""


class HandedOver:
    """Ids and places of the newest events that were handed over.

    Args:
        after: Position after which the reading begins; 0 for the oldest event.

    Attributes:
        position: Place of the last event that was read.
        is_remade: The stream was made again since the reading began.
    """

    def __init__(self, after: int) -> None:
        self.position = after
        self.is_remade = False
        self._ids: OrderedDict[str, int] = OrderedDict()
        self._behind = after
        """All ids that were handed over from behind this place are remembered."""
        self._passed = 0
        """Place before the first event that was handed over."""
        self._covered = after
        """Nothing up to here is still to come."""
        self._is_whole = not after
        self._stream = ""

    def start_in(self, kept: EventsKept) -> int:
        """First position to read.

        Args:
            kept: The stream as it is now, which may have lost its end since. If it was made again and begins behind
                what was read, the cell was restored: events of an id may say something else now.

        Raises:
            EventsLostError: Events are gone, or it is not known any more which were handed over.
        """
        if self._stream and kept.stream != self._stream:
            if not self._is_whole or (self._ids and kept.first > self._covered):
                raise self._lost(GapReason.RECREATED)
            self.position = self._behind = self._passed = self._covered = 0
            self.is_remade = True
        self._stream = kept.stream
        if kept.last < self._behind:
            raise self._lost(GapReason.BACKWARDS)
        if self._covered and kept.first > self._covered + 1:
            raise self._lost(GapReason.TOO_OLD)
        return max(self._behind, min(self._passed, kept.last), kept.first - 1) + 1

    def pass_by(self, sequence: int) -> None:
        """Take note of an event that is not handed over."""
        if not self._ids:
            self._passed = sequence
        self._reach(sequence)

    def add(self, event_id: str, sequence: int) -> bool:
        """Take note of an event; returns whether it is to be handed over."""
        self._reach(sequence)
        is_new = event_id not in self._ids
        self._ids[event_id] = sequence
        self._ids.move_to_end(event_id)
        if len(self._ids) > REMEMBERED_MAX:
            _, place = self._ids.popitem(last=False)
            self._is_whole = False
            if place < sequence:  # otherwise the stream ended before it since
                self._behind = max(self._behind, place)
        return is_new

    def cover(self, sequence: int) -> None:
        """Take note that nothing up to a place is still to come."""
        self._covered = max(self._covered, sequence)

    def _reach(self, sequence: int) -> None:
        self.position = sequence
        self.cover(sequence)

    def _lost(self, reason: GapReason) -> EventsLostError:
        return EventsLostError(f"events from {self._covered + 1} on: {reason}")
