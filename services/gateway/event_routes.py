"""Events of a job: those that are stored, and those to come."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from berth.runtime.bus.port import Bus, Gap, Stored, StreamState
from berth.runtime.errors import TransientError
from berth.runtime.waits import any_set
from berth.schemas.subjects import StreamName
from berth.services.gateway.application import caller_of, identity_of
from berth.services.gateway.cell_requests import CellRequests
from berth.services.gateway.errors import RequestError, error_body
from berth.services.gateway.event_hub import EventHub, job_event_chunk
from berth.services.gateway.event_streams import RETRY, Reader, StreamResponse, Streams, event_chunk
from berth.services.gateway.guard import Guard
from berth.services.gateway.job_routes import JOB, fields, job_in

_READS_AT_ONCE: Final = 16
_PAGE: Final = 256
"""Most stored events that are read for a stream at once; the next ones are read when these are sent."""
_PAGE_S: Final = 10.0
"""Longest time for that."""
_FOLLOWING_S: Final = 5.0
"""Longest wait until the stream of events is followed."""
_DIGITS_MAX: Final = 18
_SHOWN_MAX: Final = 80
_YES_NO: Final = {"true": True, "false": False}


class _Page(NamedTuple):
    """Stored events of a job, in order.

    Attributes:
        events: The events.
        created: Identity of the stream that they are in.
        is_last: No more were stored when they were read.
    """

    events: list[Stored]
    created: str = ""
    is_last: bool = True


class _About(msgspec.Struct, frozen=True, gc=False):
    """What of an event tells whether a stream ends with it."""

    uid: str = ""
    final: bool = False


class EventRoutes:
    """Routes of events.

    Args:
        bus: The cell.
        cell: Asks the service ``api``.
        hub: Hands out events as they come.
        streams: Counts streams.
        guard: Knows whether a caller's token is still valid.
    """

    def __init__(self, bus: Bus, cell: CellRequests, hub: EventHub, streams: Streams, guard: Guard) -> None:
        self._bus = bus
        self._cell = cell
        self._hub = hub
        self._streams = streams
        self._guard = guard
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route(f"{JOB}/events", self.events, methods=["GET"])]

    async def events(self, request: Request) -> StreamResponse:
        """Events of a job, in their order."""
        namespace, name = job_in(request.path_params)
        found = fields(request, {"after", "follow", "uid"})
        follows = _flag("follow", found.get("follow", "true"))
        after = _position("after", found.get("after", "0"))
        if (last_id := request.headers.get("last-event-id")) is not None:
            after = _position("header Last-Event-ID", last_id)
        identity = identity_of(request)
        await self._cell.check_reader(identity, namespace)
        subject = self._bus.subjects.event_job(namespace, name)
        reader = self._streams.open(identity)
        try:
            if follows:
                await self._until_following()
                self._hub.add(subject, reader)
            with self._cell.waiting(identity):
                page = await self._page(subject, after)
        except BaseException:
            self._hub.remove(subject, reader)
            self._streams.close(reader)
            raise
        chunks = self._chunks(reader, subject, page, after, follows=follows)
        if uid := found.get("uid", ""):
            chunks = _of_job(chunks, uid)
        return self._streams.respond(
            reader,
            chunks,
            partial(self._check_permitted, request, namespace),
            partial(self._hub.remove, subject, reader),
        )

    async def _chunks(
        self, reader: Reader, subject: str, page: _Page, after: int, *, follows: bool
    ) -> AsyncGenerator[bytes, None]:
        position = after
        yield RETRY
        while True:
            for one in page.events:
                position = one.sequence
                yield job_event_chunk(one)
            if page.is_last:
                break
            if reader.is_gone:
                return
            try:
                page = await self._page(subject, position, page.created)
            except RequestError as error:
                yield event_chunk(error_body(error.error, error.code), name="end")
                return
        page = _Page([])
        while follows and (found := await reader.next(self._streams.limits.keepalive_s)) is not None:
            if not found[0]:
                yield found[1]
            elif found[0] > position:
                position = found[0]
                yield found[1]

    async def _check_permitted(self, request: Request, namespace: str) -> None:
        """Check that the caller may still read.

        Raises:
            RequestError: Its token has expired, or its rights are gone.
        """
        self._guard.check_valid(caller_of(request))
        await self._cell.check_reader(identity_of(request), namespace)

    async def _until_following(self) -> None:
        """Wait until the events are followed.

        Raises:
            RequestError: They are not: NATS does not answer.
        """
        try:
            async with asyncio.timeout(_FOLLOWING_S):
                await self._hub.following.wait()
        except TimeoutError as error:
            raise RequestError("stream of events is unavailable, expected an answer of NATS", "unavailable") from error

    async def _page(self, subject: str, after: int, created: str = "") -> _Page:
        """The next stored events of a subject after a position.

        Args:
            subject: The subject.
            after: The position.
            created: Identity of the stream of the page before; empty for the first page.

        Raises:
            RequestError: NATS does not answer, or the position is not in the stream any more.
        """
        try:
            async with self._reads:
                state = await self._bus.state(StreamName.EVENTS)
                if after > state.last_seq or created not in {"", state.created}:
                    raise RequestError(
                        f"after is {after}, expected at most {state.last_seq}: the stream of events was made again, read"
                        " it anew",
                        "events-lost",
                    )
                if after and after + 1 < state.first_seq:
                    raise RequestError(
                        f"after is {after}, expected at least {state.first_seq - 1}: older events are not kept, read"
                        " anew",
                        "events-lost",
                    )
                if await self._bus.last(StreamName.EVENTS, subject) is None:
                    return _Page([])
                return await self._read(subject, max(after + 1, state.first_seq), state)
        except TransientError as error:
            raise RequestError(
                f"stream of events is unavailable ({error.reason}), expected an answer of NATS", "unavailable"
            ) from error

    async def _read(self, subject: str, start_seq: int, state: StreamState) -> _Page:
        """At most a page of stored events.

        Raises:
            TransientError: They do not come in time, or the stream was made again.
        """
        if start_seq > state.last_seq:
            return _Page([])
        found: list[Stored] = []
        is_full = asyncio.Event()
        gaps: list[Gap] = []

        def take(stored: Stored) -> None:
            if len(found) < _PAGE:
                found.append(stored)
            else:
                is_full.set()

        follower = self._bus.follow(
            StreamName.EVENTS,
            on_message=take,
            on_gap=gaps.append,
            start_seq=start_seq,
            filters=[subject],
            created=state.created,
        )
        try:
            await any_set([is_full, follower.caught_up], _PAGE_S)
        finally:
            await follower.stop()
        if gaps or not (is_full.is_set() or follower.caught_up.is_set()):
            raise TransientError(gaps[0].reason.value if gaps else f"no events within {_PAGE_S:g} s")
        return _Page(found, state.created, not is_full.is_set())


async def _of_job(chunks: AsyncGenerator[bytes, None], uid: str) -> AsyncGenerator[bytes, None]:
    """Those chunks of a stream that are events of one uid, up to its last one, and what is no event."""
    async with aclosing(chunks):
        async for chunk in chunks:
            head, _, data = chunk.partition(b"\ndata: ")
            if not head.startswith(b"id: "):
                yield chunk
                continue
            event = msgspec.json.decode(data, type=_About)
            if event.uid == uid:
                yield chunk
                if event.final:
                    yield event_chunk(error_body("job is over, expected no more events", "over"), name="end")
                    return


def _flag(field: str, text: str) -> bool:
    """A yes or no.

    Raises:
        RequestError: The text is neither a yes nor a no.
    """
    if text not in _YES_NO:
        raise RequestError(f"query field {field} is {text[:_SHOWN_MAX]!r}, expected true or false")
    return _YES_NO[text]


def _position(field: str, text: str) -> int:
    """A position in the stream of events.

    Raises:
        RequestError: The text is no position.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise RequestError(f"{field} is {text[:_SHOWN_MAX]!r}, expected the id of an event")
    return int(text)
