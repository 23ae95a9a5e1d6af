"""Explanations of jobs, and forecasts of their starts, computed beside the loop that answers.

An explanation reads a part of the history and replays it; a forecast is made of a state of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from berth.core.expected.expectation import as_of
from berth.core.expected.forecast import Forecast
from berth.core.explain.model import all_sentences
from berth.core.explain.restricted import MayRead, restricted
from berth.runtime.bus.port import Bus
from berth.runtime.cell_status.forecasts import Forecasts
from berth.runtime.clock import Clock
from berth.runtime.history import explanation_of
from berth.schemas.status import JobStatus
from berth.services.api.job_states import utc_text

T = TypeVar("T")


class Explained(NamedTuple):
    """Why a job is where it is.

    Attributes:
        sentences: The reasons; empty without an explanation.
        evidence: The whole explanation; None without one.
    """

    sentences: list[str]
    evidence: dict[str, Any] | None


class Explanations:
    """Explains one job at a time, so that one state of the past at most is in memory.

    Args:
        clock: Of the process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forecasts = Forecasts(clock)
        self._outer = asyncio.get_running_loop()
        self._inner: asyncio.Future[tuple[asyncio.AbstractEventLoop, Bus]] = self._outer.create_future()
        self._turn = asyncio.Lock()

    async def work(self, bus: Bus, stop: asyncio.Event) -> None:
        """Compute until asked to stop; see :data:`berth.runtime.beside.BesideWork`.

        Args:
            bus: The cell, for the loop on which this runs.
            stop: Set to end.
        """
        self._outer.call_soon_threadsafe(self._inner.set_result, (asyncio.get_running_loop(), bus))
        await stop.wait()

    async def of(self, status: JobStatus, *, is_over: bool, may_read: MayRead, with_nodes: bool) -> Explained:
        """Explain a job; called on the loop that answers.

        Args:
            status: Of the job.
            is_over: The job has ended.
            may_read: Whether the caller may read a namespace: jobs of others have no names.
            with_nodes: Whether to say of each node if it could take a pod of a job that waits.

        Raises:
            TransientError: The bus did not answer.
        """
        async with self._turn:
            loop, bus = await asyncio.shield(self._inner)
            work = self._explained(bus, status, is_over=is_over, may_read=may_read, with_nodes=with_nodes)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def forecast(self, use: Callable[[Forecast], T]) -> T:
        """What is read of the newest forecast of the cell; called on the loop that answers.

        Args:
            use: Reads it, where it is made; the forecast is not kept.

        Raises:
            TransientError: The bus did not answer.
        """
        loop, bus = await asyncio.shield(self._inner)

        async def work() -> T:
            return use(await self._forecasts.newest(bus))

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), loop))

    async def _explained(
        self, bus: Bus, status: JobStatus, *, is_over: bool, may_read: MayRead, with_nodes: bool
    ) -> Explained:
        found = await explanation_of(bus, self._clock, status, expects_start=False, with_nodes=with_nodes)
        if found is None:
            return Explained([], None)
        if found.outcome == "waiting" and not is_over:
            expected = (await self._forecasts.newest(bus)).of(status.uid)
            found.expected_start = None if expected is None else as_of(expected, self._clock.now_ms())
        found = restricted(found, may_read)
        return Explained(all_sentences(found, is_over=is_over, clock=utc_text), msgspec.to_builtins(found))
