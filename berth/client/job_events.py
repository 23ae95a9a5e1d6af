"""Events of jobs as they come, from a position in their stream."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from berth.client.errors import ClientError, RequestError
from berth.client.handed_over import HandedOver
from berth.schemas.programs.events import EventsKept, EventsReply, JobEvent
from berth.schemas.programs.requests import EventsRequest

_WAIT_S: Final = 3.0
"""How long the service waits for an event: less than the client waits for an answer. If the service is killed
meanwhile, the next request comes that much later."""
_APART_S: Final = 0.02
"""Time between two requests over a longer time, unless more events are stored: of many events in a second, several come
with one reply ..."""
_BURST_S: Final = 0.4
"""... after so many of them without a pause as would take this time."""
_LOST: Final = "events-lost"
Ask: TypeAlias = Callable[[EventsRequest], Awaitable[EventsReply]]
"""Asks the service until it answers."""


class StoredEvent(NamedTuple):
    """An event and its place in the stream.

    Attributes:
        position: Sequence in the stream of events; the next :meth:`berth.client.Client.follow` continues after it.
        event: The event.
    """

    position: int
    event: JobEvent


async def events_after(
    ask: Ask, link_changes: Callable[[], int], namespace: str, name: str, *, uid: str, after: int, since_ms: int
) -> AsyncGenerator[StoredEvent, None]:
    """Events in their order, each id once, without end unless a uid is given; see :class:`HandedOver`.

    Args:
        ask: Asks the service.
        link_changes: How often the connection broke or was restored: what the program has not taken by then is asked
            for again, as the stream may have lost it.
        namespace: Of the jobs; ``*`` for all.
        name: Of the jobs; ``*`` for all.
        uid: Only events of this uid, up to the last one; empty: of any.
        after: Position after which to begin; 0 for the oldest event.
        since_ms: Leave out events that were stored before; milliseconds since 1970.

    Raises:
        RequestError: The service refuses the request.
        ConnectionLostError: The connection is closed.
        EventsLostError: Events after the position are no longer stored.
        ClientError: The answer cannot be read.
    """
    try:
        wanted = msgspec.convert({"namespace": namespace, "name": name}, EventsRequest)
    except msgspec.ValidationError as error:
        raise ClientError(f"namespace and name are {namespace!r} and {name!r}, expected names or *: {error}") from error
    known, pace = HandedOver(after), _Pace()
    while True:
        await pace.keep()
        begin = await ask(msgspec.structs.replace(wanted, limit=0))
        position, mark = known.start_in(_kept(begin)) - 1, begin.mark
        while (reply := await _page(ask, msgspec.structs.replace(wanted, after=position, mark=mark))) is not None:
            links = link_changes()
            for one in reply.events:
                if link_changes() != links:
                    break
                position, event = one.position, one.event
                if one.stored_ms < since_ms or (known.is_remade and event.at_ms < since_ms):
                    known.pass_by(position)
                elif known.add(event.id, position) and uid in {"", event.uid}:
                    yield StoredEvent(position, event)
                    if uid and event.final:
                        return
            else:
                position, mark = reply.position, reply.mark
                known.cover(position)
            if not reply.more:
                await pace.keep()


class _Pace:
    """Spreads the requests of a program that follows many events."""

    def __init__(self) -> None:
        self._due_s = 0.0

    async def keep(self) -> None:
        """Wait until the next request may be sent."""
        now_s = asyncio.get_running_loop().time()
        self._due_s = max(self._due_s, now_s - _BURST_S) + _APART_S
        if self._due_s > now_s:
            await asyncio.sleep(self._due_s - now_s)


async def _page(ask: Ask, wanted: EventsRequest) -> EventsReply | None:
    """The next events; None if the stream has lost some, so that what it has now decides whether they are lost.

    Raises:
        RequestError: The service refuses the request for another reason.
    """
    try:
        return await ask(msgspec.structs.replace(wanted, wait_s=_WAIT_S))
    except RequestError as error:
        if error.code != _LOST:
            raise
        return None


def _kept(reply: EventsReply) -> EventsKept:
    """How far the stream goes.

    Raises:
        ClientError: The reply does not say it.
    """
    if reply.kept is None:
        raise ClientError("answer cannot be read: it does not say which events are kept")
    return reply.kept
