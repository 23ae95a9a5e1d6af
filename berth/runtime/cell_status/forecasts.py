"""Forecasts: expected starts as of a state of the cell that is followed only while somebody asks.

The state is that of the newest record when a forecast is made. It stays until the next one, so that an answer is never
newer than the state that it names. A forecast is made at most every :data:`KEPT_S`, and takes at most a tenth of the
time: what is asked meanwhile is answered from the one before.
"""

import asyncio
from typing import Final

from berth.core.errors import CoreError
from berth.core.expected.forecast import Forecast
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError
from berth.runtime.history import advanced, state_now
from berth.schemas.envelope import DecodeError
from berth.schemas.subjects import StreamName

KEPT_S: Final = 2.0
_OLD_S: Final = 30.0
"""A forecast of a cell in which nothing changes is made again after so long: jobs may be late by then."""
_PAUSES: Final = 9
"""Least pause after a forecast, in times of how long it took."""
_TAIL_MAX: Final = 20_000
"""Messages that are applied to a state; where more were stored since, the newest snapshot is read."""


class Forecasts:
    """Makes forecasts of one cell.

    Args:
        clock: Of the process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state: State | None = None
        self._forecast: Forecast | None = None
        self._made_s = self._due_s = 0.0
        self._turn = asyncio.Lock()

    async def newest(self, bus: Bus, *, aside: bool = False) -> Forecast:
        """The forecast of now, or of a moment ago. It may be used until the next call.

        Args:
            bus: The cell.
            aside: Whether to compute on a thread, while the event loop goes on.

        Raises:
            TransientError: The bus did not answer.
            FatalError: The bus holds less history than the newest snapshot states.
        """
        async with self._turn:
            now_s = self._clock.monotonic_s()
            if self._forecast is not None and now_s < self._due_s:
                return self._forecast
            before, state = self._forecast, await self._followed(bus)
            is_same = before is not None and (before.ledger_seq, before.facts_seq) == (
                state.fold.head,
                state.facts_seq,
            )
            if before is not None and is_same and now_s < self._made_s + _OLD_S:
                self._due_s = now_s + KEPT_S
                return before
            self._forecast = None
            now_ms, began_s = self._clock.now_ms(), self._clock.monotonic_s()
            made = await asyncio.to_thread(_made, state, now_ms) if aside else _made(state, now_ms)
            self._forecast, self._made_s = made, self._clock.monotonic_s()
            self._due_s = self._made_s + max(KEPT_S, _PAUSES * (self._made_s - began_s))
            return made

    async def _followed(self, bus: Bus) -> State:
        """The state at the end of what is stored."""
        state, self._state = self._state, None
        if state is not None:
            ledger_seq = (await bus.state(StreamName.LEDGER)).last_seq
            facts_seq = (await bus.state(StreamName.FACTS)).last_seq
            left = ledger_seq - state.fold.head + facts_seq - state.facts_seq
            try:
                state = await advanced(bus, state, ledger_seq, facts_seq) if 0 <= left <= _TAIL_MAX else None
            except (CoreError, DecodeError, FatalError):
                state = None  # a repair has passed over something: a reader that begins anew passes over it, too
        if state is None:
            state = await state_now(bus, self._clock)
        self._state = state
        return state


def _made(state: State, at_ms: int) -> Forecast:
    forecast = Forecast(state, at_ms)
    forecast.all()
    return forecast
