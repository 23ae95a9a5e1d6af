"""Follower of a cell that keeps its picture: facts, ledger and statuses become a view and its changes.

Whatever breaks the history, such as streams that were made again, ends the picture and all streams of it, and the
follower begins anew; requests for other things are answered meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from berth.core.errors import CoreError
from berth.core.overview.hour_log import HOUR_MS, HourLog
from berth.core.overview.hour_past import past_hour
from berth.core.overview.overview import Overview
from berth.core.state.cell import State
from berth.runtime.backoff import Backoff
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import ShellError, TransientError
from berth.runtime.feeds import Feed, Feeds
from berth.runtime.logs import Logger
from berth.runtime.waits import any_set, pause
from berth.schemas.envelope import DecodeError, VersionError
from berth.schemas.page.hour import Hour
from berth.schemas.page.view import Change, View
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName
from berth.services.gateway.view.past_events import past_events

_BATCH_S: Final = 0.1
"""Least time between two changes."""
_IDLE_S: Final = 5.0
_REACH_S: Final = 10.0
_SLICE: Final = 100
"""Messages that are applied before requests get a turn."""
_WAIT_S: Final = 0.5
_WAIT_MAX_S: Final = 30.0


Publish = Callable[[Change | View | None], None]


class CellView:
    """The picture of a cell.

    Args:
        bus: The cell.
        clock: Of the process.
        log: Of the process.

    Attributes:
        reason: Why there is no picture; empty while there is one.
    """

    def __init__(self, bus: Bus, clock: Clock, log: Logger) -> None:
        self.reason = "the history of the cell is being read"
        self._bus = bus
        self._clock = clock
        self._log = log
        self._publish: Publish = _nobody
        self._state = State()
        self._overview = Overview(self._state)
        self._hour = HourLog()
        self._applied = 0

    @property
    def is_known(self) -> bool:
        """Whether there is a picture."""
        return not self.reason

    @property
    def version(self) -> int:
        """Version of the last change."""
        return self._overview.version

    def now_ms(self) -> int:
        """The time, by the clock of the pictures."""
        return self._clock.now_ms()

    def view(self) -> View:
        """The whole picture as of the last change, at the time of now."""
        return self._overview.view(self._clock.now_ms())

    def hour(self, may_see: Callable[[str], bool]) -> Hour:
        """What changed within the last hour.

        Args:
            may_see: Whether the reader may see the jobs of a namespace.
        """
        return self._hour.hour(self._clock.now_ms(), may_see)

    def namespace_of(self) -> dict[int, str]:
        """Namespace of each job in the picture, by number."""
        return self._overview.namespace_of()

    async def run(self, stop: asyncio.Event, publish: Publish) -> None:
        """Follow the cell until ``stop`` is set.

        Args:
            stop: Ends it.
            publish: Called with each change; with None when the picture ends.
        """
        self._publish = publish
        backoff = Backoff(first_s=_WAIT_S, max_s=_WAIT_MAX_S)
        failures = 0
        while not stop.is_set():
            try:
                await self._follow(stop)
            except (ShellError, CoreError, DecodeError, VersionError) as error:
                failures = 1 if self.is_known else failures + 1
                self.reason = str(error)
                self._publish(None)
                wait_s = backoff.pause_s(failures)
                self._log.warning("cell view lost, reading it again", reason=self.reason, wait_s=round(wait_s, 1))
                await pause(stop, wait_s)

    async def _follow(self, stop: asyncio.Event) -> None:
        """Read the cell from its newest snapshot on, and follow it."""
        self._state = State()
        self._overview = Overview(self._state, cell=self._bus.subjects.cell)
        feeds = Feeds(self._bus, self._clock, self._state, self._log)
        statuses = Feed(feeds.arrived)
        try:
            await feeds.load()
            self._overview.note_loaded()
            for stored in await self._bus.read(StreamName.LATEST, filters=(self._bus.subjects.facts("health"),)):
                self._overview.note_fact(stored.data)
            statuses.start(self._bus, StreamName.STATUS, start_seq=1)
            await feeds.caught_up()
            await statuses.caught_up()
            await self._apply(feeds, statuses)
            if feeds.is_from_latest:
                self._state.forget_unnamed()
            self._overview.change(self._clock.now_ms())
            self._hour = await self._last_hour()
            self.reason = ""
            self._log.info("cell view ready", ledger_seq=self._state.fold.head, facts_seq=self._state.facts_seq)
            await self._go_on(feeds, statuses, stop)
        finally:
            await feeds.stop()
            await statuses.stop()

    async def _last_hour(self) -> HourLog:
        """The hour before the picture, as far as events are stored and can be read."""
        view = self._overview.view(self._clock.now_ms())
        try:
            events, begin_ms = await past_events(self._bus, view.at_ms - HOUR_MS)
        except TransientError as error:
            self._log.warning("cell view without the last hour: events cannot be read", reason=error.reason)
            events, begin_ms = [], view.at_ms
        chips_of = {job.uid: job.chips for job in view.jobs}
        log = HourLog()
        log.begin(view, past_hour(events, chips_of, begin_ms, view.at_ms))
        return log

    async def _go_on(self, feeds: Feeds, statuses: Feed, stop: asyncio.Event) -> None:
        while not stop.is_set():
            feeds.arrived.clear()
            await self._apply(feeds, statuses)
            change = self._overview.change(self._clock.now_ms())
            if change is not None:
                self._hour.note(change)
                self._publish(change)
                await pause(stop, _BATCH_S)
            else:
                await any_set([feeds.arrived, stop], _IDLE_S)

    async def _apply(self, feeds: Feeds, statuses: Feed) -> None:
        """Apply what was received: records after the facts that they are based on."""
        records, state = feeds.records, self._state
        records.check_whole()
        while (stored := records.next) is not None:
            if stored.sequence > state.fold.head:
                link = state.fold.link(stored.sequence, stored.data)
                if link.facts_seq > state.facts_seq:
                    await feeds.reach_fact(link.facts_seq, timeout_s=_REACH_S)
                    await self._apply_facts(feeds, up_to=link.facts_seq)
                self._overview.note_record(state.apply_link(link))
            records.skip()
            await self._counted()
        await self._apply_facts(feeds, up_to=None)
        for status in statuses.take():
            self._note_status(status)
            await self._counted()

    async def _apply_facts(self, feeds: Feeds, *, up_to: int | None) -> None:
        for stored in feeds.facts.take(up_to=up_to):
            applied = self._state.apply_fact(stored.subject, stored.sequence, stored.data)
            if not applied.error:  # the dispatcher writes the others to DEAD
                self._overview.note_fact(stored.data)
            await self._counted()

    def _note_status(self, stored: Stored) -> None:
        try:
            self._overview.note_status(stored_status(stored.subject, stored.data))
        except DecodeError as error:
            self._log.warning("status does not decode", subject=stored.subject, reason=error.reason)

    async def _counted(self) -> None:
        """Give requests a turn now and then."""
        self._applied += 1
        if self._applied % _SLICE == 0:
            await asyncio.sleep(0)


def _nobody(_: Change | View | None) -> None:
    """Nobody reads."""
