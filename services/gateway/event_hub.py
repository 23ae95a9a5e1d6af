"""One follower of the stream of events for all readers, each of which gets the events of its job."""

import asyncio
from typing import Final

from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.errors import TransientError
from berth.runtime.logs import Logger
from berth.runtime.waits import any_set, pause
from berth.schemas.subjects import StreamName
from berth.services.gateway.event_streams import Reader, event_chunk

_AGAIN: Final = Backoff(first_s=0.1, max_s=5.0)


class EventHub:
    """Hands events to the readers of their subjects.

    Args:
        bus: The cell.
        log: Of the process.
    """

    def __init__(self, bus: Bus, log: Logger) -> None:
        self.following = asyncio.Event()
        """Set while every event from now on reaches the readers."""
        self._bus = bus
        self._log = log
        self._readers: dict[str, set[Reader]] = {}
        self._gap: Gap | None = None
        self._gapped = asyncio.Event()

    def add(self, subject: str, reader: Reader) -> None:
        """Tell a reader of the events of a subject from now on; call it while :attr:`following` is set."""
        self._readers.setdefault(subject, set()).add(reader)

    def remove(self, subject: str, reader: Reader) -> None:
        """Tell a reader of nothing more."""
        found = self._readers.get(subject)
        if found is not None:
            found.discard(reader)
            if not found:
                del self._readers[subject]

    async def run(self, stop: asyncio.Event) -> None:
        """Follow the events until ``stop`` is set."""
        tries = 0
        while not stop.is_set():
            try:
                state = await self._bus.state(StreamName.EVENTS)
            except TransientError as error:
                tries += 1
                self._log.warning("events cannot be followed yet, trying again", reason=error.reason)
                await pause(stop, _AGAIN.pause_s(tries))
                continue
            self._gapped.clear()
            follower = self._bus.follow(
                StreamName.EVENTS,
                on_message=self._tell,
                on_gap=self._lose,
                start_seq=state.last_seq + 1,
                filters=[f"{self._bus.subjects.root}event.job.>"],
                created=state.created,
            )
            self.following.set()
            try:
                await any_set([self._gapped, stop], None)
            finally:
                self.following.clear()
                await follower.stop()
            if self._gapped.is_set():
                tries += 1
                await pause(stop, _AGAIN.pause_s(tries))

    def _tell(self, stored: Stored) -> None:
        readers = self._readers.get(stored.subject)
        if not readers:
            return
        chunk = job_event_chunk(stored)
        for reader in readers:
            reader.put(stored.sequence, chunk)

    def _lose(self, gap: Gap) -> None:
        self.following.clear()
        self._log.warning("events have a gap, streams end", reason=gap.reason.value)
        for readers in self._readers.values():
            for reader in readers:
                reader.end("events-lost", f"stream of events has a gap: {gap.reason.value}; read the events anew")
        self._gapped.set()


def job_event_chunk(stored: Stored) -> bytes:
    """Text of a stored event of a job."""
    data = stored.data
    if b"\n" in data or b"\r" in data:  # whoever wrote it used white space, which would end the event
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return event_chunk(data, position=stored.sequence)
