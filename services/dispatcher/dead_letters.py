"""Count of the dead letters of a cell, for the metrics. Every dispatcher counts them, also one that does not lead."""

import asyncio
from collections import defaultdict
from typing import Final, NamedTuple

from berth.core.requests.dead_reasons import OTHER, code_of
from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.letters import Letter
from berth.runtime.errors import TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.status import DeadLetter
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.metrics import DispatcherMetrics

_LOOK_S: Final = 5.0
"""Pause between two counts."""


class _Open(NamedTuple):
    """An open letter: its sequence in DEAD, the kind of its reason, and when it was written."""

    revision: int
    code: str
    at_ms: int


class LetterCount:
    """Open letters, kept in step with DEAD.

    Args:
        bus: The cell.
        clock: For the ages.
        metrics: Of the dispatcher.
    """

    def __init__(self, bus: Bus, clock: Clock, metrics: DispatcherMetrics) -> None:
        self._bus = bus
        self._clock = clock
        self._metrics = metrics
        self._open: dict[str, _Open] = {}
        """By subject, ascending by revision."""
        self._gap: Gap | None = None
        self._follow()

    def _follow(self) -> None:
        self._open.clear()
        self._gap = None
        self._follower = self._bus.follow(StreamName.DEAD, on_message=self._take, on_gap=self._end)

    def _take(self, stored: Stored) -> None:
        self._open.pop(stored.subject, None)
        try:
            letter = Letter(stored.sequence, decode(stored.data, DeadLetter))
        except DecodeError:
            self._open[stored.subject] = _Open(stored.sequence, OTHER, stored.at_ms)
            return
        if letter.is_open:
            self._open[stored.subject] = _Open(stored.sequence, code_of(letter.body), letter.body.at_ms)

    def _end(self, gap: Gap) -> None:
        self._gap = gap

    async def count(self) -> None:
        """Set the metrics.

        Raises:
            TransientError: The bus did not answer.
        """
        if self._gap is not None:
            self._follow()
        first_seq = (await self._bus.state(StreamName.DEAD)).first_seq
        for subject, one in list(self._open.items()):
            if one.revision >= first_seq:
                break
            del self._open[subject]  # it was too old, or there was no room for it
        now_ms = self._clock.now_ms()
        ages_s: dict[str, list[float]] = defaultdict(list)
        for one in self._open.values():
            ages_s[one.code].append(max(0, now_ms - one.at_ms) / 1000)
        self._metrics.count_letters(ages_s)

    async def stop(self) -> None:
        """Stop to follow."""
        await self._follower.stop()


async def count_letters(bus: Bus, clock: Clock, instruments: Instruments[DispatcherMetrics]) -> None:
    """Keep the metrics about dead letters up to date until cancelled."""
    count = LetterCount(bus, clock, instruments.metrics)
    try:
        while True:
            try:
                await count.count()
            except TransientError as error:
                instruments.log.debug("dead letters not counted", reason=error.reason)
            await asyncio.sleep(_LOOK_S)
    finally:
        await count.stop()
