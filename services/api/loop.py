"""Follower of facts and ledger that derives events and has them stored."""

import asyncio
import math
from collections.abc import Iterable
from typing import Final

import msgspec

from berth.core.events.job_events import JobEvents
from berth.core.events.job_spans import JobSpan, JobSpans
from berth.core.events.trace_limit import FIRST_PHASES, TraceLimit
from berth.core.overview.fault_log import FaultLog
from berth.core.requests.waiting_jobs import WaitingJobs
from berth.core.state.cell import JobKey, State
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.feeds import Feed, Feeds
from berth.runtime.instruments import Instruments
from berth.runtime.tracing.spans import Spans
from berth.runtime.waits import any_set, pause
from berth.schemas.envelope import DecodeError
from berth.schemas.programs.events import JobEvent
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig
from berth.services.api.event_position import Position, position_at, start_of
from berth.services.api.event_writer import EventWriter
from berth.services.api.job_list import JobList
from berth.services.api.metrics import ApiMetrics
from berth.services.api.usage import Usage

POSITION_EVERY_S: Final = 5.0
"""How often it is stored how far the events go; after a crash those since then are looked up one by one."""
_REACH_S: Final = 10.0
_MESSAGES_MAX: Final = 2_000
"""Messages that are applied before their events are stored."""
_SLICE: Final = 4
"""Messages that are applied before requests get a turn: each takes some tenths of a millisecond."""
_IDLE_S: Final = 5.0
"""Longest pause between two steps: each sees whether the server still answers."""
_MS: Final = 1_000
_NODES: Final = 64
"""Nodes whose faults are looked at before requests get a turn."""


class Loop:
    """Applies facts and records to a state, and stores the events; keeps the lists of jobs and of faults, too.

    Attributes:
        as_of_s: Moment (``monotonic_s``) as of which it has applied what is stored; minus infinity before all of that
            was applied once.

    Args:
        bus: The cell.
        clock: Of the process.
        config: Settings.
        instruments: Of the process.
        spans: Takes the spans of jobs.
    """

    def __init__(
        self, bus: Bus, clock: Clock, config: ApiConfig, instruments: Instruments[ApiMetrics], spans: Spans
    ) -> None:
        self.state = State()
        self.waiting = WaitingJobs()
        self.jobs = JobList()
        self.usage = Usage(clock, self.state, self.jobs)
        self.faults = FaultLog(self.state)
        self.as_of_s = -math.inf
        self.writer = EventWriter(bus, instruments.metrics, instruments.log, self._send_spans)
        self._bus = bus
        self._clock = clock
        self._config = config
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._feeds = Feeds(bus, clock, self.state, instruments.log, void=instruments.metrics.void)
        self._statuses = Feed(self._feeds.arrived)
        self._source = JobEvents(self.state)
        self._job_spans = JobSpans(self.state)
        self._trace_limit = TraceLimit(config.tracing.jobs_per_s)
        self._spans = spans
        self._ended: dict[str, list[JobSpan]] = {}
        """Spans that end with events which are not stored yet, by id of the event."""
        self._untraced: set[str] = set()
        """Ids of the first events of jobs without spans, which are not stored yet."""
        self._events: list[JobEvent] = []
        """Events that are not stored yet."""
        self._created = ""
        self._record_seq = self._record_ms = 0
        """Sequence of the last record that was applied, and when the server stored it."""
        self._fact_seq = self._fact_ms = 0
        """The same of the last fact."""
        self._position = Position()
        self._position_s = 0.0
        self._applied = 0

    async def start(self, stop: asyncio.Event) -> None:
        """Load the state, and store the events of all that was stored until now, unless ``stop`` is set before.

        Raises:
            FatalError: The bus holds less history than the snapshot states; or as :meth:`run`.
            TransientError: The bus did not answer while the state was loaded.
        """
        self._created = (await self._bus.state(StreamName.EVENTS)).created
        start = await start_of(self._bus, self._log)
        await self.writer.note_end()
        self._position = start.position
        await self._feeds.load_from(start.body)
        if not start.is_whole:
            self._log.warning("events before the oldest kept snapshot are lost", facts_seq=self.state.facts_seq)
        self._update_waiting(self.state.jobs)
        for stored in await self._bus.read(StreamName.LATEST, filters=(self._bus.subjects.facts("health"),)):
            self.faults.note_fact(stored.data)
        self.faults.refresh(0)
        self._statuses.start(self._bus, StreamName.STATUS, start_seq=1)
        await self._feeds.caught_up()
        await self._statuses.caught_up()
        while await self._tried(stop):
            pass
        if self._feeds.is_from_latest:
            self.state.forget_unnamed()
        self._log.info("events stored", ledger_seq=self.state.fold.head, facts_seq=self.state.facts_seq)

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until ``stop`` is set.

        Raises:
            FatalError: The history has a gap, the stream of events was made again, or the server has lost its end: the
                next start derives the events anew.
        """
        while not stop.is_set():
            if not await self._tried(stop):
                await any_set([self._feeds.arrived, stop], min(POSITION_EVERY_S, _IDLE_S))

    async def stop(self) -> None:
        """Stop to follow."""
        await self._feeds.stop()
        await self._statuses.stop()

    async def _tried(self, stop: asyncio.Event) -> bool:
        """Make a step, however often it takes, until ``stop`` is set; returns whether there is more."""
        backoff = Backoff(max_s=self._config.retry_wait_max_s)
        failures = 0
        while not stop.is_set():
            self._feeds.arrived.clear()
            try:
                return await self._step()
            except TransientError as error:
                failures += 1
                self._metrics.failures.inc()
                self._log.warning("events not stored, retrying", reason=error.reason, events=len(self._events))
                await pause(stop, backoff.pause_s(failures))
        return False

    async def _step(self) -> bool:
        """Apply what was received, and store its events; returns whether there is more.

        A record is applied before the facts that were stored after it, so facts wait until all records that were
        stored before them are received.
        """
        began_s = self._clock.monotonic_s()
        await self._check_kept()
        if not self._events:
            facts_seq = self._feeds.facts.received
            head = (await self._bus.state(StreamName.LEDGER)).last_seq
            await self._feeds.reach_record(head, timeout_s=_REACH_S)
            has_more = await self._apply(facts_seq)
        else:
            has_more = True
        await self.writer.store(
            event for event in self._events if not self._position.covers(event.source, event.sequence)
        )
        self._events = []
        self._ended = {}
        self._untraced.clear()
        has_more |= self.faults.refresh(self._fact_ms, most=_NODES)
        for stored in self._statuses.take():
            self._note_status(stored)
            await self._counted()
        self._metrics.facts.set(self.state.facts_seq)
        self._metrics.ledger.set(self.state.fold.head)
        self._note_moment(began_s, has_more=has_more)
        await self._note_position()
        return has_more

    def _note_moment(self, began_s: float, *, has_more: bool) -> None:
        """Note as of when the state is, after a step: the begin of the step, or when its last message was stored."""
        behind_s = max(self._clock.now_ms() - max(self._fact_ms, self._record_ms), 0) / _MS if has_more else 0.0
        if not has_more or self.as_of_s > -math.inf:
            self.as_of_s = max(self.as_of_s, began_s - behind_s)

    async def _apply(self, facts_seq: int) -> bool:
        """Apply received records, each after the facts that it is based on, and then facts up to ``facts_seq``.

        Returns:
            Whether the limit of messages was reached.
        """
        self._applied = 0
        records = self._feeds.records
        records.check_whole()
        while (stored := records.next) is not None:
            if stored.sequence > self.state.fold.head:
                await self._apply_record(stored)
            records.skip()
            if await self._counted():
                return True
        await self._apply_facts(facts_seq)
        return self._applied >= _MESSAGES_MAX

    async def _apply_record(self, stored: Stored) -> None:
        link = self.state.fold.link(stored.sequence, stored.data)
        if link.facts_seq > self.state.facts_seq:
            await self._feeds.reach_fact(link.facts_seq, timeout_s=_REACH_S)
            await self._apply_facts(link.facts_seq)
        folded, events = self._source.apply_link(link)
        self._record_seq, self._record_ms = stored.sequence, stored.at_ms
        self._feeds.note_void(stored.sequence, folded)
        self._update_waiting(folded.jobs)
        self._take(events)

    async def _apply_facts(self, up_to: int) -> None:
        for stored in self._feeds.facts.take(up_to=up_to):
            self._take(self._fact(stored))
            await self._counted()

    def _take(self, events: list[JobEvent]) -> None:
        """Take events of the last message, with the spans that end with them."""
        self._events += events
        for event in events:
            if not self._spans.wants(event.trace_id):
                continue
            if self._trace_limit.leaves_out(event):
                if event.phase in FIRST_PHASES:
                    self._untraced.add(event.id)
            elif spans := self._job_spans.ended_by(event):
                self._ended[event.id] = spans

    def _send_spans(self, event: JobEvent) -> None:
        if event.id in self._untraced:
            self._metrics.untraced.inc()
        for span in self._ended.pop(event.id, ()):
            self._spans.add(span)

    def _fact(self, stored: Stored) -> list[JobEvent]:
        applied, events = self._source.apply_fact(stored.subject, stored.sequence, stored.data)
        self._update_waiting(applied.changes.jobs_changed)
        self._fact_seq, self._fact_ms = stored.sequence, stored.at_ms
        if not applied.error:
            self.faults.note_fact(stored.data)
            self.faults.refresh(stored.at_ms, most=_NODES)
        return events  # what cannot be applied is written to DEAD by the dispatcher

    def _note_status(self, stored: Stored) -> None:
        try:
            self.jobs.note(stored_status(stored.subject, stored.data))
        except DecodeError as error:
            self._log.warning("status does not decode", subject=stored.subject, reason=error.reason)

    def _update_waiting(self, keys: Iterable[JobKey]) -> None:
        """Take note of jobs that may wait, or not wait any more."""
        for key in keys:
            job = self.state.jobs.get(key)
            gang = self.state.fold.gangs.get(job.uid) if job is not None else None
            self.waiting.note(key, job, gang.phase if gang is not None else "")

    async def _counted(self) -> bool:
        """Count a message, and give requests a turn now and then; whether the limit is reached."""
        self._applied += 1
        if self._applied % _SLICE == 0:
            await asyncio.sleep(0)
        return self._applied >= _MESSAGES_MAX

    async def _note_position(self) -> None:
        """Store how far the events go, unless that was done a moment ago.

        Raises:
            FatalError: The stream of events was made again.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._position_s < POSITION_EVERY_S:
            return
        ledger_seq, facts_seq = self.state.fold.head, self.state.facts_seq
        position = await position_at(
            self._bus,
            ledger_seq,
            facts_seq,
            ledger_ms=self._record_ms if self._record_seq == ledger_seq else 0,
            facts_ms=self._fact_ms if self._fact_seq == facts_seq else 0,
        )
        if position.events != self._created:
            raise FatalError(f"{StreamName.EVENTS} was made again: its events are derived anew at the next start")
        await self._check_kept()
        if (position.ledger_seq, position.facts_seq) > (self._position.ledger_seq, self._position.facts_seq):
            await self._bus.publish(self._bus.subjects.event_position, msgspec.json.encode(position))
            self._position = position
        self._position_s = now_s

    async def _check_kept(self) -> None:
        """Check after a break of the connection that the server has kept the events: it may have been killed.

        Raises:
            FatalError: The server has lost events.
        """
        if not await self.writer.is_kept():
            raise FatalError(f"{StreamName.EVENTS} has lost its end: its events are derived anew at the next start")
