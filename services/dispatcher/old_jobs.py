"""What is over leaves the streams that keep the latest message of each subject; see decision old-jobs.

The leader looks at the oldest messages of LATEST and STATUS. What still counts is stored again, so it is among the
newest; when only what is over is left at the old end, the floor of the stream is raised above it, and no reader is
given it any more. It is purged one pass later: a server that is killed after a purge may have older messages of the
same subjects on file again, and those are below the floor.

Whatever stops this, the next pass begins again with what is there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from berth.core.explain.job_status import status_of
from berth.core.state.cell import State
from berth.core.state.over import ended_name, has_members, is_over
from berth.runtime.bus.port import Bus, Gap, Stored, StreamState
from berth.runtime.clock import Clock
from berth.runtime.errors import ConflictError, TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.stored_snapshots import snapshot_ends
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import MembersSeen
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.snapshots import Snapshots
from berth.services.dispatcher.views import Views

_STREAMS: Final = (StreamName.STATUS, StreamName.LATEST)
_BATCH: Final = 256
"""Messages between two pauses."""
_PACE_S: Final = 0.05
"""Pause after a batch."""
_READ_S: Final = 10.0
"""Longest wait for a batch."""
_SNAPSHOTS: Final = 3
"""Newest snapshots that a start may have to use."""
_SNAPSHOT_APART_S: Final = 86_400
"""Between two snapshots that are written only so that facts before them may go."""
_MS: Final = 1000


class OldJobs:
    """Removes what is over from LATEST and STATUS while this dispatcher leads.

    Args:
        bus: The cell.
        clock: Of the process.
        state: Of the dispatcher.
        views: Writes the statuses that still count again.
        snapshots: Writes a snapshot when the newest ones are too old.
        config: Settings.
        instruments: Of the process.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        state: State,
        views: Views,
        snapshots: Snapshots,
        config: DispatcherConfig,
        instruments: Instruments[DispatcherMetrics],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._state = state
        self._views = views
        self._snapshots = snapshots
        self._after_s = config.expire_after_s
        self._every_s = config.expire_every_s
        self._faults = instruments.faults
        self._log = instruments.log
        self._settled: dict[StreamName, int] = {}
        """Floor of each stream as the last pass found it."""
        self._purged: dict[StreamName, int] = {}
        """Floor below which this leader has purged each stream, or may not."""
        self._asked_ms = 0

    async def run(self, leads: Callable[[], bool]) -> None:
        """Make a pass every ``expire_every_s``, until cancelled.

        Args:
            leads: Whether this dispatcher leads, as far as it knows.
        """
        while self._after_s:
            await asyncio.sleep(self._every_s)
            try:
                for stream in _STREAMS:
                    await self.sweep(stream, leads)
            except TransientError as error:
                self._log.warning("old jobs not removed, retrying later", reason=error.reason)

    async def sweep(self, stream: StreamName, leads: Callable[[], bool]) -> None:
        """Make a pass over the old end of a stream.

        Raises:
            TransientError: The bus does not answer.
        """
        before = await self._bus.state(stream)
        await self._purge(stream, before, leads)
        floor = await self._store_again(stream, before)
        if floor > before.first_seq and leads():
            self._faults.hit("expire.before")
            await self._bus.raise_floor(stream, floor)
            self._faults.hit("expire.after")
            self._log.info("old jobs removed", stream=stream.value, floor=floor, before=before.first_seq)

    async def _purge(self, stream: StreamName, state: StreamState, leads: Callable[[], bool]) -> None:
        """Remove what is below the floor, if the last pass found this floor already."""
        floor = state.floor
        is_settled = self._settled.get(stream) == floor
        self._settled[stream] = floor
        if floor and is_settled and self._purged.get(stream) != floor and leads():
            self._faults.hit("expire.before")
            await self._bus.purge(stream, keep_from_seq=floor)
            self._purged[stream] = floor
            self._faults.hit("expire.after")

    async def _store_again(self, stream: StreamName, state: StreamState) -> int:
        """Store again what counts among the old messages; returns the sequence before which nothing does.

        What is stored again here is still at the old end for this pass: a server that loses power may lose it.
        """
        until_ms = self._clock.now_ms() - self._after_s * _MS
        end_seq = await self._end_of(stream, state)
        position = floor = state.first_seq
        is_clear = True
        while True:
            batch = await self._some(stream, position)
            for stored in batch:
                if stored.at_ms > until_ms:
                    return floor
                if stored.sequence >= end_seq:
                    self._ask_for_snapshot(stream)
                    return floor
                if not await self._is_over(stream, stored):
                    is_clear = False
                    await self._keep(stream, stored)
                elif is_clear:
                    floor = stored.sequence + 1
            if len(batch) < _BATCH:
                return floor
            position = batch[-1].sequence + 1
            await asyncio.sleep(_PACE_S)

    async def _end_of(self, stream: StreamName, state: StreamState) -> int:
        """First sequence that is not looked at.

        The last message of a stream always stays: a server that loses power after everything was purged may begin to
        count anew, below the floor. A start loads a snapshot, and then LATEST if FACTS no longer reaches back to it. So
        a fact that takes something back stays until the newest snapshots have it; there are several, because one may be
        damaged.
        """
        if stream is not StreamName.LATEST:
            return state.last_seq
        ends = await snapshot_ends(self._bus, self._log)
        reached = min((end.facts_seq for end in ends[-_SNAPSHOTS:]), default=0)
        return min(reached + 1, state.last_seq)

    def _ask_for_snapshot(self, stream: StreamName) -> None:
        """Let a snapshot be written although little has happened since the last one."""
        now_ms = self._clock.now_ms()
        if stream is StreamName.LATEST and now_ms - self._asked_ms >= min(self._after_s, _SNAPSHOT_APART_S) * _MS:
            self._asked_ms = now_ms
            self._snapshots.ask()

    async def _some(self, stream: StreamName, start_seq: int) -> list[Stored]:
        """Some messages from a sequence on, in order; none if there are none.

        Raises:
            TransientError: They did not come in time.
        """
        found: list[Stored] = []
        is_enough = asyncio.Event()

        def take(stored: Stored) -> None:
            found.append(stored)
            if len(found) >= _BATCH:
                is_enough.set()

        def end(_: Gap) -> None:
            is_enough.set()

        follower = self._bus.follow(stream, on_message=take, on_gap=end, start_seq=start_seq)
        try:
            async with asyncio.timeout(_READ_S), asyncio.TaskGroup() as group:
                events = {"read enough": is_enough, "read all": follower.caught_up}
                waiting = [group.create_task(event.wait(), name=name) for name, event in events.items()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    task.cancel()
        except TimeoutError as error:
            raise TransientError(f"{stream} was not read within {_READ_S:g} s") from error
        finally:
            await follower.stop()
        return found[:_BATCH]

    async def _is_over(self, stream: StreamName, stored: Stored) -> bool:
        if stream is StreamName.STATUS:
            key = _job_of(stored)
            return key is None or status_of(self._state, key, at_ms=self._clock.now_ms()) is None
        name = ended_name(self._state, stored.data)
        if name is not None:
            return not await self._has_members(*name)
        return is_over(self._state, stored.data)

    async def _has_members(self, namespace: str, name: str) -> bool:
        """Whether the cluster still has pods of a job that is over: inventory would ask for them again."""
        stored = await self._bus.last(StreamName.LATEST, self._bus.subjects.fact_member(namespace, name))
        try:
            return stored is not None and has_members(decode(stored.data, MembersSeen))
        except DecodeError:
            return True

    async def _keep(self, stream: StreamName, stored: Stored) -> None:
        """Store a message that counts again, unless there is a newer one on its subject."""
        if stream is StreamName.STATUS:
            key = _job_of(stored)
            if key is not None:
                self._views.renew(key)
            return
        last = await self._bus.last(StreamName.FACTS, stored.subject)  # also before the first that counts
        expected = stored.sequence if last is not None else 0
        self._faults.hit("expire.before")
        try:
            await self._bus.publish(stored.subject, stored.data, expected_subject_seq=expected)
        except ConflictError:
            return
        self._faults.hit("expire.after")


def _job_of(stored: Stored) -> tuple[str, str] | None:
    """Job of a status; None if it does not decode: nobody reads it, and that of a job is written again."""
    try:
        status = stored_status(stored.subject, stored.data)
    except DecodeError:
        return None
    return status.namespace, status.name
