"""Writer of events: each is stored once, by whichever instance is first, also after a restart.

An event is stored under the condition that the last event of its job is the one that is known here. If it is not, the
events of the job are read: another instance, or this one before a restart, may have stored it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from berth.formats.shortened import shortened
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.errors import AmbiguousError, ConflictError, DuplicateError, OversizeError, TransientError
from berth.runtime.logs import Logger
from berth.schemas.programs.events import JobEvent
from berth.schemas.subjects import StreamName, is_plain
from berth.services.api.metrics import ApiMetrics

_KNOWN_MAX: Final = 50_000
"""Jobs whose events are known; of others they are read when the next one comes."""
_AT_ONCE: Final = 16
"""Jobs whose events are stored at the same time."""
_TOO_LONG: Final = "the places of its ranks are too long for an event; the status of the job has them"


class _Stored(msgspec.Struct):
    """Events of one job that are stored."""

    last_seq: int
    ids: set[str]


class _Id(msgspec.Struct):
    id: str = ""


class EventWriter:
    """Stores events.

    Args:
        bus: The cell.
        metrics: Of the service.
        log: Of the service.
        on_stored: Called with each event that is stored here, and by no other instance.
    """

    def __init__(
        self, bus: Bus, metrics: ApiMetrics, log: Logger, on_stored: Callable[[JobEvent], None] = lambda _: None
    ) -> None:
        self._bus = bus
        self._on_stored = on_stored
        self._metrics = metrics
        self._log = log
        self._known: OrderedDict[str, _Stored] = OrderedDict()
        self._newest = (0, "")
        """Sequence and id of the newest event that was stored or read here."""
        self._end: Stored | None = None
        """Last message when this instance started; counts until a later one was stored or read."""
        self._links = bus.link_changes
        """The connection over which all of that was learned, or checked."""

    async def note_end(self) -> None:
        """Note the end of the stream, once its position is read: what others stored may be lost like the own events.

        Raises:
            TransientError: The bus did not answer, or the connection broke since this writer was made.
        """
        last_seq = (await self._bus.state(StreamName.EVENTS)).last_seq
        self._end = await self._bus.message(StreamName.EVENTS, last_seq) if last_seq else None
        self._check_link()

    async def store(self, events: Iterable[JobEvent]) -> None:
        """Store events; those of one job in their order.

        Raises:
            TransientError: Some may not be stored; call again with all of them.
        """
        by_job: dict[str, list[JobEvent]] = {}
        for event in events:
            by_job.setdefault(self._bus.subjects.event_job(event.namespace, event.name), []).append(event)
        waiting = list(by_job.items())
        for start in range(0, len(waiting), _AT_ONCE):
            try:
                async with asyncio.TaskGroup() as group:
                    for subject, own in waiting[start : start + _AT_ONCE]:
                        group.create_task(self._store_all(subject, own), name="store events")
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from errors

    async def stored_ids(self, subject: str) -> set[str]:
        """Ids of all stored events of a job.

        Raises:
            TransientError: The bus did not answer.
        """
        return (await self._read(subject)).ids

    async def is_kept(self) -> bool:
        """Whether the stream still has what it had; a server that was killed may have lost its end.

        Nothing is stored after a break of the connection until it was found that it has: other events would soon have
        the sequences of those that are lost.

        Raises:
            TransientError: The bus did not answer.
        """
        links = self._bus.link_changes
        if links != self._links:
            if not await self._has_newest():
                return False
            self._links = links
        return True

    async def _has_newest(self) -> bool:
        sequence, event_id = self._newest
        end = self._end if self._end is not None and self._end.sequence > sequence else None
        if end is not None:
            sequence = end.sequence
        state = await self._bus.state(StreamName.EVENTS)
        if sequence > state.last_seq:
            return False
        if sequence < state.first_seq:
            return True  # it became too old
        stored = await self._bus.message(StreamName.EVENTS, sequence)
        if stored is None:
            return sequence < (await self._bus.state(StreamName.EVENTS)).first_seq  # it became too old just now
        return stored == end if end is not None else self._id_of(stored) == event_id

    async def _store_all(self, subject: str, events: list[JobEvent]) -> None:
        for event in events:
            await self._store(subject, event)

    async def _store(self, subject: str, event: JobEvent) -> None:
        stored = self._known.get(subject) or _Stored(0, set())
        message_id = event.id if is_plain(event.id) else ""
        while event.id not in stored.ids:
            self._check_link()
            try:
                sequence = await self._publish(subject, event, stored.last_seq, message_id)
                self._check_link()
            except (ConflictError, AmbiguousError) as error:
                if isinstance(error, DuplicateError):
                    message_id = ""  # another job may have had the uid a moment ago
                stored = await self._read(subject)
                self._check_link()
                continue
            stored.ids.add(event.id)
            if sequence:
                stored.last_seq = sequence
                self._newest = max(self._newest, (sequence, event.id))
                self._metrics.events.inc()
                self._on_stored(event)
            self._keep(subject, stored)
            return
        self._keep(subject, stored)
        self._metrics.repeated.inc()

    async def _publish(self, subject: str, event: JobEvent, last_seq: int, message_id: str) -> int:
        """Sequence of an event that is stored; 0 for one that is left out, as it is too long without its ranks."""
        try:
            return await self._bus.publish(
                subject, msgspec.json.encode(event), expected_subject_seq=last_seq, message_id=message_id
            )
        except OversizeError as error:
            if not event.ranks:
                # It would end this start of the service and every later one: the event is derived again each time.
                self._log.error(
                    "event is left out: it is too long", uid=shortened(event.uid), size_bytes=error.size_bytes
                )
                return 0
            self._log.warning("event without its ranks", id=shortened(event.id), size_bytes=error.size_bytes)
            return await self._publish(subject, without_ranks(event), last_seq, message_id)

    async def _read(self, subject: str) -> _Stored:
        found = _Stored(0, set())
        links = self._bus.link_changes
        for stored in await self._bus.read(StreamName.EVENTS, filters=[subject]):
            found.last_seq = stored.sequence
            event_id = self._id_of(stored)
            found.ids.add(event_id)
            if links == self._bus.link_changes == self._links:
                self._newest = max(self._newest, (stored.sequence, event_id))
        return found

    def _check_link(self) -> None:
        """Check that the connection is still the one over which it was found what the stream has.

        Raises:
            TransientError: The connection is another one.
        """
        if self._bus.link_changes != self._links:
            raise TransientError("the connection broke; what the server has kept is checked first")

    def _id_of(self, stored: Stored) -> str:
        try:
            return msgspec.json.decode(stored.data, type=_Id).id
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self._log.warning("event does not decode", subject=stored.subject, sequence=stored.sequence)
            return ""

    def _keep(self, subject: str, stored: _Stored) -> None:
        self._known[subject] = stored
        self._known.move_to_end(subject)
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)


def without_ranks(event: JobEvent) -> JobEvent:
    """An event whose places are too long for a message."""
    return msgspec.structs.replace(event, ranks=[], sentence=_TOO_LONG)
