"""The end of the stream of events in memory, for programs that follow it: one reader for all of them.

Whatever was stored since the tail began is here, up to a bound; older events are read from the stream.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from berth.formats.shortened import shortened
from berth.runtime.bus.port import Bus, Follower, Gap, Stored, StreamState
from berth.runtime.errors import TransientError
from berth.runtime.logs import Logger, is_logged
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName, Subjects, token

ANY: Final = "*"
"""Instead of a namespace or a name: all of them."""
_ROWS_MAX: Final = 10_000
"""Messages that are kept, ..."""
_BYTES_MAX: Final = 16 << 20
"""... and their size; a part of them is removed when there are more."""
_KEPT_PART: Final = 2
_REACH_S: Final = 5.0


class Row(NamedTuple):
    """A message of the stream. Of a message that is no event of a job, ``data`` is empty."""

    position: int
    at_ms: int
    namespace: str
    name: str
    data: bytes


class Jobs(NamedTuple):
    """Jobs by namespace and name, as tokens of subjects; each may be :data:`ANY`."""

    namespace: str
    name: str

    @classmethod
    def of(cls, namespace: str, name: str) -> "Jobs":
        """Jobs with a namespace and a name; each may be ``*``."""
        return cls(*(ANY if one == ANY else token(one) for one in (namespace, name)))

    def has(self, row: Row) -> bool:
        """Whether a message is an event of one of them."""
        return bool(row.data) and self.namespace in {ANY, row.namespace} and self.name in {ANY, row.name}

    def subject(self, subjects: Subjects) -> str:
        """Filter for their events."""
        return f"{subjects.root}event.job.{self.namespace}.{'>' if self.name == ANY else self.name}"


class Reading:
    """Makes rows of messages.

    Args:
        subjects: Of the cell.
        log: Gets lines about events that cannot be read, which are left out.
    """

    def __init__(self, subjects: Subjects, log: Logger) -> None:
        self._prefix = f"{subjects.root}event.job."
        self._log = log
        self._wrong = 0

    def row(self, stored: Stored) -> Row:
        """The row of a message."""
        jobs, _, name = stored.subject.removeprefix(self._prefix).partition(".")
        if not stored.subject.startswith(self._prefix) or not self._is_event(stored):
            return Row(stored.sequence, stored.at_ms, "", "", b"")
        return Row(stored.sequence, stored.at_ms, jobs, name, stored.data)

    def _is_event(self, stored: Stored) -> bool:
        try:
            msgspec.json.decode(stored.data, type=JobEvent)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self._wrong += 1
            if is_logged(self._wrong):  # it is read again and again
                shown = shortened(stored.subject)
                self._log.warning("event does not decode", subject=shown, sequence=stored.sequence, count=self._wrong)
            return False
        return True


class Tail:
    """All messages of the stream after a position, as far as they are kept; made by :meth:`open`.

    Attributes:
        created: Which stream it is.
        base: Position after which all messages are here.
        last: The newest message, or the one at ``base``; its time is 0 if that is not known.
    """

    def __init__(self, bus: Bus, reading: Reading, state: StreamState, at_ms: int) -> None:
        self.created = state.created
        self.base = state.last_seq
        self.last = Row(state.last_seq, at_ms, "", "", b"")
        self._base_ms = at_ms
        self._bus = bus
        self._links = bus.link_changes
        self._reading = reading
        self._rows: list[Row] = []
        self._bytes = 0
        self._is_over = False
        self._waiting: dict[Jobs, set[asyncio.Event]] = {}
        self._moved = asyncio.Event()
        self._follower: Follower = bus.follow(
            StreamName.EVENTS,
            on_message=self._put,
            on_gap=self._lose,
            start_seq=state.last_seq + 1,
            created=state.created,
        )

    @classmethod
    async def open(cls, bus: Bus, reading: Reading) -> "Tail":
        """The tail that begins at the end of the stream.

        Raises:
            TransientError: The bus did not answer, or the connection broke meanwhile.
        """
        links = bus.link_changes
        state = await bus.state(StreamName.EVENTS)
        newest = await bus.message(StreamName.EVENTS, state.last_seq) if state.last_seq else None
        if bus.link_changes != links:
            raise TransientError("the connection broke")
        return cls(bus, reading, state, newest.at_ms if newest is not None else 0)

    @property
    def is_over(self) -> bool:
        """Whether it may differ from the stream: that has a gap, or the connection broke since."""
        return self._is_over or self._bus.link_changes != self._links

    def rows_of(self, jobs: Jobs, after: int) -> Iterable[Row]:
        """Events of jobs after a position that is not before :attr:`base`, in their order."""
        for at in range(bisect_right(self._rows, after, key=attrgetter("position")), len(self._rows)):
            if jobs.has(self._rows[at]):
                yield self._rows[at]

    def at_ms(self, position: int) -> int | None:
        """When a message was stored; None if it is not here."""
        if position == self.base:
            return self._base_ms or None
        at = bisect_right(self._rows, position, key=attrgetter("position")) - 1
        return self._rows[at].at_ms if at >= 0 and self._rows[at].position == position else None

    async def reach(self, position: int) -> None:
        """Wait until the messages up to a position are here, or it is over.

        Raises:
            TransientError: They did not come in time.
        """
        try:
            async with asyncio.timeout(_REACH_S):
                while self.last.position < position and not self._is_over:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError as error:
            raise TransientError(f"{StreamName.EVENTS}: no message after {self.last.position}") from error

    async def wait(self, jobs: Jobs, seconds: float) -> None:
        """Wait for an event of jobs, or the end, for at most so long."""
        woken = asyncio.Event()
        self._waiting.setdefault(jobs, set()).add(woken)
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            pass
        finally:
            waiting = self._waiting[jobs]
            waiting.discard(woken)
            if not waiting:
                del self._waiting[jobs]

    async def close(self) -> None:
        """End it, and what waits for it."""
        self._end()
        await self._follower.stop()

    def _put(self, stored: Stored) -> None:
        row = self._reading.row(stored)
        self._rows.append(row)
        self._bytes += len(row.data)
        self.last = row
        self._moved.set()
        if len(self._rows) > _ROWS_MAX or self._bytes > _BYTES_MAX:
            self._forget()
        if row.data:
            for jobs in (
                Jobs(row.namespace, row.name), Jobs(row.namespace, ANY), Jobs(ANY, row.name), Jobs(ANY, ANY)
            ):  # fmt: skip
                for woken in self._waiting.get(jobs, ()):
                    woken.set()

    def _forget(self) -> None:
        """Remove the oldest messages until half of what may be kept is left."""
        count, size = 0, self._bytes
        while len(self._rows) - count > _ROWS_MAX // _KEPT_PART or size > _BYTES_MAX // _KEPT_PART:
            size -= len(self._rows[count].data)
            count += 1
        self.base, self._base_ms = self._rows[count - 1].position, self._rows[count - 1].at_ms
        self._bytes = size
        del self._rows[:count]

    def _lose(self, _: Gap) -> None:
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._moved.set()
        for waiting in self._waiting.values():
            for woken in waiting:
                woken.set()
