"""Watching jobs: their statuses, and the verdicts on their requests, as they come."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar

from berth.cli.output import CommandError
from berth.runtime.bus.port import Bus, Follower, Gap, Stored
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import JobSeen
from berth.schemas.status import JobStatus, stored_status
from berth.schemas.subjects import StreamName

_TICK_S: Final = 1.0
T = TypeVar("T")
JobKey = tuple[str, str]
"""(namespace, name)"""
_FILTERS_MAX: Final = 32
"""Maximum number of jobs with a filter each; for more, all jobs are followed."""


class Watch:
    """The newest status of each of some jobs, and all verdicts on their requests since the watch began.

    Args:
        bus: The cell.
        keys: The jobs.
    """

    def __init__(self, bus: Bus, keys: Sequence[JobKey]) -> None:
        self.statuses: dict[JobKey, JobStatus] = {}
        self.verdicts: dict[JobKey, list[JobSeen]] = {key: [] for key in keys}
        self._bus = bus
        self._arrived = asyncio.Event()
        self._followers: list[Follower] = []
        self._gaps: list[Gap] = []

    async def __aenter__(self) -> Self:
        subjects = self._bus.subjects
        keys = list(self.verdicts)
        few = len(keys) <= _FILTERS_MAX
        head = await self._bus.state(StreamName.FACTS)
        self._followers = [
            self._bus.follow(
                StreamName.STATUS,
                on_message=self._on_status,
                on_gap=self._on_gap,
                filters=[subjects.status(*key) for key in keys] if few else (),
            ),
            self._bus.follow(
                StreamName.FACTS,
                on_message=self._on_verdict,
                on_gap=self._on_gap,
                start_seq=head.last_seq + 1,
                filters=[subjects.fact_job(*key) for key in keys] if few else [subjects.facts("job")],
                created=head.created,
            ),
        ]
        for follower in self._followers:
            await follower.caught_up.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for follower in self._followers:
            await follower.stop()

    async def until(
        self, found: Callable[[], T | None], *, timeout_s: float | None, waiting: Callable[[], None] | None = None
    ) -> T | None:
        """Result of ``found`` as soon as it is not None; None after the timeout.

        Args:
            found: Called at first, and after each status or verdict that arrives.
            timeout_s: The longest wait; None for no limit.
            waiting: Called after ``found`` gave None, and once a second.

        Raises:
            CommandError: The history has a gap.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while (value := found()) is None:
                    if self._gaps:
                        raise CommandError(f"{self._gaps[0].stream}: {self._gaps[0].reason.value}")
                    self._arrived.clear()
                    await self._next(waiting)
        except TimeoutError:
            return found()
        return value

    async def _next(self, waiting: Callable[[], None] | None) -> None:
        """Wait until something arrives."""
        while not self._arrived.is_set():
            if waiting is not None:
                waiting()
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S if waiting is not None else None):
                    await self._arrived.wait()

    def _on_status(self, stored: Stored) -> None:
        try:
            status = stored_status(stored.subject, stored.data)
        except DecodeError:
            return
        key = (status.namespace, status.name)
        if key in self.verdicts:
            self.statuses[key] = status
            self._arrived.set()

    def _on_verdict(self, stored: Stored) -> None:
        try:
            verdict = decode(stored.data, JobSeen)
        except DecodeError:
            return
        key = (verdict.namespace, verdict.name)
        if key in self.verdicts:
            self.verdicts[key].append(verdict)
            self._arrived.set()

    def _on_gap(self, gap: Gap) -> None:
        self._gaps.append(gap)
        self._arrived.set()
