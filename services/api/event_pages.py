"""The operation ``events``: stored events of jobs in pages, and a wait for those to come.

A program that follows jobs asks again and again, each time after the position of the reply before. A reply also has a
mark: the newest message that the stream had. If that is gone, or is another one, the stream has lost its end, and the
positions that the program knows may be those of other events.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from berth.runtime.bus.port import Bus, Gap, GapReason, Stored, StreamState
from berth.runtime.errors import TransientError
from berth.runtime.logs import Logger
from berth.runtime.waits import any_set
from berth.schemas.programs.events import EventsKept, EventsReply, JobEvent
from berth.schemas.programs.requests import EventsRequest
from berth.schemas.programs.shape import Shape
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig
from berth.services.api.event_mark import EventsLostError, Mark
from berth.services.api.event_tail import Jobs, Reading, Row, Tail
from berth.services.api.event_writer import without_ranks
from berth.services.api.request_errors import RequestError
from berth.services.api.turns import Turns, counted

AT_ONCE: Final = 64
"""Most requests of an operation that are carried out at the same time; of ``events`` those of each identity."""
_OPEN_MAX: Final = 2_000
"""Requests of all identities that wait or are carried out. More are refused at once."""
_AGAIN_MS: Final = 1_000
_READS_AT_ONCE: Final = 8
_READ_S: Final = 10.0
_TRIES: Final = 5
"""How often a request begins anew because the connection broke or the stream was made again."""
_REPLY_BYTES_MAX: Final = 500_000
_REPLY_FRAME_BYTES: Final = 600
"""What surrounds the events of a reply ..."""
_ROW_FRAME_BYTES: Final = 100
"""... and each of them."""


class _RawEvent(Shape, frozen=True, kw_only=True):
    """As :class:`berth.schemas.programs.events.PositionedEvent`, with the bytes that are stored."""

    position: int
    stored_ms: int
    event: msgspec.Raw


class _RawReply(EventsReply, frozen=True, kw_only=True):
    events: list[_RawEvent]  # type: ignore[assignment]  # encoded alike


class _Asked(NamedTuple):
    """A request, whose it is, and until when it waits, in seconds of the loop."""

    request: EventsRequest
    identity: str
    jobs: Jobs
    mark: Mark | None
    end_s: float


class _Page(NamedTuple):
    """Events, the position up to which they are all, whether more are stored, and whether the tail gave them."""

    rows: list[Row]
    position: int
    has_more: bool
    is_of_tail: bool = True


class EventPages:
    """Answers requests for events.

    Args:
        bus: The cell.
        config: Settings of the service.
        log: Of the service.
    """

    def __init__(self, bus: Bus, config: ApiConfig, log: Logger) -> None:
        self._bus = bus
        self._log = log
        self._reading = Reading(bus.subjects, log)
        self._tail: Tail | None = None
        self._opening: asyncio.Task[Tail] | None = None
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)
        self._turns = Turns()
        self._open: Counter[str] = Counter()
        self._open_each = _OPEN_MAX if config.is_open else AT_ONCE
        self._is_closed = False

    @property
    def at_once(self) -> int:
        """Requests that are taken at the same time: so many more than may wait that the others are refused."""
        return 2 * _OPEN_MAX

    async def page(self, request: EventsRequest, identity: str) -> EventsReply:
        """Events of jobs which the caller may read.

        Pages of one identity are put together one after another, so that others wait for one of them at most.

        Args:
            request: The request.
            identity: The caller; empty if it has none.

        Raises:
            EventsLostError: Events after the position are lost.
            RequestError: The mark is none, or too many requests wait.
            TransientError: The bus did not answer.
        """
        asked = _Asked(
            request,
            identity,
            Jobs.of(request.namespace, request.name),
            Mark.of(request.mark) if request.mark else None,
            asyncio.get_running_loop().time() + request.wait_s,
        )
        with self._place(identity):
            for _ in range(_TRIES):
                reply = await self._reply(await self._open_tail(), asked)
                if reply is not None:
                    return reply
        raise TransientError(f"{StreamName.EVENTS} cannot be followed: the connection breaks")

    async def close(self) -> None:
        """Answer all requests that wait, and refuse those to come."""
        self._is_closed = True
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._tail is not None:
            await self._tail.close()

    @contextmanager
    def _place(self, identity: str) -> Iterator[None]:
        """Count a request of an identity.

        Raises:
            RequestError: Too many are open.
        """
        for count, most in ((self._open[identity], self._open_each), (self._open.total(), _OPEN_MAX)):
            if count >= most:
                raise RequestError(
                    "events requests at once",
                    str(count),
                    f"fewer than {most}: ask again",
                    code="too-many",
                    retry_after_ms=_AGAIN_MS,
                )
        with counted(self._open, identity):
            yield

    async def _open_tail(self) -> Tail:
        """The tail, which is opened when a program asks first and when it is over; all who ask wait for one try.

        Raises:
            RequestError: The service ends.
            TransientError: The bus did not answer.
        """
        if self._is_closed:
            raise RequestError("service api", "ending", "another instance: ask again", code="unavailable")
        if self._tail is not None and not self._tail.is_over:
            return self._tail
        if self._opening is None or self._opening.done():
            # Not in a task group: it goes on when the request that began it is gone. Its failure is that of requests.
            self._opening = asyncio.get_running_loop().create_task(self._opened(), name="open the tail of events")
        await asyncio.wait([self._opening])
        return self._opening.result()

    async def _opened(self) -> Tail:
        if self._tail is not None:
            await self._tail.close()
        self._tail = await Tail.open(self._bus, self._reading)
        return self._tail

    async def _reply(self, tail: Tail, asked: _Asked) -> EventsReply | None:
        """The reply; None if the tail is over, or has forgotten meanwhile what is asked for."""
        after = asked.request.after
        while True:
            state = await self._check_stream(tail, asked, after)
            if tail.is_over:
                return None
            if not asked.request.limit and state is not None:
                kept = EventsKept(stream=state.created, first=state.first_seq, last=state.last_seq)
                return _reply_of(tail, _Page([], after, has_more=False), kept)
            async with self._turns.of(asked.identity):
                page = await self._page(tail, asked, after, state)
            if page is None or tail.is_over:
                return None
            left_s = asked.end_s - asyncio.get_running_loop().time()
            if page.rows or page.has_more or left_s <= 0:
                return _reply_of(tail, page)
            after = page.position
            if page.is_of_tail:
                await tail.wait(asked.jobs, left_s)

    async def _check_stream(self, tail: Tail, asked: _Asked, after: int) -> StreamState | None:
        """Check that the stream has what it had; its state, unless the tail knows enough.

        A request that waits is answered from the tail alone if it goes on there. Any other one gets what was stored
        before it came.

        Raises:
            EventsLostError: Events after the position are lost.
            TransientError: The bus did not answer.
        """
        mark, request = asked.mark, asked.request
        newest = max(after, mark.position) if mark is not None else after
        goes_on = tail.base <= after and newest <= tail.last.position and (mark is None or mark.created == tail.created)
        state = None
        if not goes_on or not request.wait_s or not request.limit:
            state = await self._bus.state(StreamName.EVENTS)
            if state.created != tail.created:
                await tail.close()
                return None
            if newest > state.last_seq:
                raise EventsLostError("after", newest, f"at most {state.last_seq}", GapReason.BACKWARDS)
            if after and after + 1 < state.first_seq:
                raise EventsLostError("after", after, f"at least {state.first_seq - 1}", GapReason.TOO_OLD)
            if state.first_seq <= state.last_seq:
                await tail.reach(state.last_seq)
        if mark is not None:
            await self._check_mark(tail, mark)
        return state

    async def _check_mark(self, tail: Tail, mark: Mark) -> None:
        """Check that the stream has the message of a mark, unless that became too old.

        Raises:
            EventsLostError: The stream does not have the message.
            TransientError: The bus did not answer.
        """
        if mark.created != tail.created:
            raise EventsLostError("mark", mark.text(), "that of the stream as it is now", GapReason.RECREATED)
        if not mark.at_ms:
            return
        at_ms = tail.at_ms(mark.position)
        if at_ms is None:
            stored = await self._bus.message(StreamName.EVENTS, mark.position)
            if stored is None and mark.position < (await self._bus.state(StreamName.EVENTS)).first_seq:
                return
            at_ms = stored.at_ms if stored is not None else 0
        if at_ms != mark.at_ms:
            raise EventsLostError("mark", mark.text(), "that of a message that is kept", GapReason.BACKWARDS)

    async def _page(self, tail: Tail, asked: _Asked, after: int, state: StreamState | None) -> _Page | None:
        """Events after a position; None if the tail has forgotten them, or the stream has changed meanwhile."""
        limit = asked.request.limit
        if after >= tail.base:
            begin = after if state is None else max(after, state.first_seq - 1)  # what was removed may be here still
            rows, has_more = self._taken(tail.rows_of(asked.jobs, begin), limit)
            position = rows[-1].position if has_more else tail.last.position
            return _Page(rows, max(after, position), has_more)
        if state is None:
            return None
        stored = await self._stored(tail, limit, asked.jobs, max(after + 1, state.first_seq))
        if stored is None:
            return None
        found, is_whole = stored
        rows, has_more = self._taken(found, limit)
        if has_more:
            return _Page(rows, rows[-1].position, has_more=True, is_of_tail=False)
        position = found[-1].position if found else 0
        return _Page(rows, max(state.last_seq, position) if is_whole else position, not is_whole, is_of_tail=False)

    async def _stored(self, tail: Tail, limit: int, jobs: Jobs, start_seq: int) -> tuple[list[Row], bool] | None:
        """Events from a sequence on, at least as many as a reply takes, and whether they are all; None after a gap.

        Raises:
            TransientError: They did not come in time.
        """
        found: list[Row] = []
        size = 0
        full, gapped = asyncio.Event(), asyncio.Event()

        def take(stored: Stored) -> None:
            nonlocal size
            if full.is_set():
                return
            row = self._reading.row(stored)
            found.append(row)
            size += len(row.data)
            if len(found) > limit or size > _REPLY_BYTES_MAX:
                full.set()

        def lose(_: Gap) -> None:
            gapped.set()

        async with self._reads:
            follower = self._bus.follow(
                StreamName.EVENTS,
                on_message=take,
                on_gap=lose,
                start_seq=start_seq,
                filters=[jobs.subject(self._bus.subjects)],
                created=tail.created,
            )
            try:
                await any_set([full, gapped, follower.caught_up], _READ_S)
                if gapped.is_set():
                    return None
                if not full.is_set() and not follower.caught_up.is_set():
                    raise TransientError(f"{StreamName.EVENTS}: reading ended at {follower.applied}")
                return found, not full.is_set()
            finally:
                await follower.stop()

    def _taken(self, rows: Iterable[Row], limit: int) -> tuple[list[Row], bool]:
        """The first rows that a reply takes, and whether there are more."""
        size_max = min(_REPLY_BYTES_MAX, self._bus.payload_limit_bytes - _REPLY_FRAME_BYTES)
        found: list[Row] = []
        size = 0
        for row in rows:
            fitting = self._fitting(row, size_max)
            if not fitting.data:
                continue
            size += len(fitting.data) + _ROW_FRAME_BYTES
            if len(found) == limit or (found and size > size_max):
                return found, True
            found.append(fitting)
        return found, False

    def _fitting(self, row: Row, size_max: int) -> Row:
        """An event that a reply takes: without its ranks if it is too long, without data if that does not help."""
        if len(row.data) + _ROW_FRAME_BYTES <= size_max:
            return row
        data = msgspec.json.encode(without_ranks(msgspec.json.decode(row.data, type=JobEvent)))
        if len(data) + _ROW_FRAME_BYTES > size_max:
            self._log.error("event is left out: it is too long", position=row.position, size_bytes=len(data))
            data = b""
        return row._replace(data=data)


def _reply_of(tail: Tail, page: _Page, kept: EventsKept | None = None) -> EventsReply:
    return _RawReply(
        events=[
            _RawEvent(position=one.position, stored_ms=one.at_ms, event=msgspec.Raw(one.data)) for one in page.rows
        ],
        position=page.position,
        mark=Mark(tail.created, tail.last.position, tail.last.at_ms).text(),
        more=page.has_more,
        kept=kept,
    )
