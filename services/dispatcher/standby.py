"""Standby: a dispatcher that does not lead keeps step with the one that does, so that it can go on at once."""

import asyncio
from typing import Final

from berth.core.scheduling.following import follow_record
from berth.core.scheduling.rules.registry import rules_of
from berth.core.scheduling.scheduler import Scheduler
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, ConflictError
from berth.runtime.feeds import Feeds
from berth.runtime.instruments import Instruments
from berth.schemas.ledger import Epoch, Settings
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.leadership import Progress
from berth.services.dispatcher.ledger_guard import LedgerGuard
from berth.services.dispatcher.metrics import DispatcherMetrics

_FACTS_AT_ONCE: Final = 200
"""Facts that are applied before other tasks have a turn."""
_APPENDS_MAX: Final = 3
"""Times that an epoch record is sent while another leader still appends."""


class FencedError(Exception):
    """Another dispatcher has begun an epoch."""


class Standby:
    """State and queue of a dispatcher before it leads.

    Args:
        bus: The cell.
        clock: Of the process.
        feeds: Facts and ledger.
        scheduler: The scheduler on the state of the feeds.
        holder: Name in the epoch record.
        timeout_s: How long to wait for messages that are stored.
        instruments: Of the process.

    Attributes:
        guard: Knows whether the ledger is one to decide on.
        is_exact: Whether gangs wait here as the ledger says, so that an epoch may resume. It is not so after a start
            that did not read the whole history, until an epoch tries all gangs again.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        feeds: Feeds,
        scheduler: Scheduler,
        *,
        holder: str,
        timeout_s: float,
        instruments: Instruments[DispatcherMetrics],
    ) -> None:
        self.is_exact = False
        self._bus = bus
        self._clock = clock
        self._holder = holder
        self._faults = instruments.faults
        self._feeds = feeds
        self._scheduler = scheduler
        self._state = scheduler.state
        self._timeout_s = timeout_s
        self.guard = LedgerGuard(feeds)

    async def load(self) -> None:
        """Load what is stored.

        Raises:
            FatalError: The bus holds less history than the snapshot states.
            VersionError: Only another release reads a record or the newest snapshot.
        """
        feeds, scheduler = self._feeds, self._scheduler
        changes = await feeds.load()
        waiting = feeds.waiting
        if waiting is not None and not feeds.is_from_latest:
            self.is_exact = True
            scheduler.load(waiting, changes)
        else:
            scheduler.note(changes)
        await feeds.caught_up()
        if feeds.is_from_latest:  # which facts the records knew is not kept
            scheduler.note(feeds.replay())
            self._state.forget_unnamed()
        await self.follow(Progress())

    async def follow(self, leader: Progress) -> None:
        """Apply what another leader decided and what its decisions knew: each record after its facts.

        Only records are applied that are received now. Under load there is always one more, and the caller has other
        things to do between them.

        Args:
            leader: How far the leader is: no later record knows fewer facts.

        Raises:
            FatalError: The history broke.
            VersionError: Only another release reads a record.
            LedgerBrokenError: A record breaks a rule of the ledger.
        """
        feeds, scheduler, fold = self._feeds, self._scheduler, self._state.fold
        feeds.facts.check_whole()
        feeds.records.check_whole()
        last = feeds.records.received
        while (stored := feeds.records.next) is not None and stored.sequence <= last:
            if stored.sequence > fold.head:
                link = fold.link(stored.sequence, stored.data)
                if feeds.facts.received < link.facts_seq:
                    return  # they are on their way
                await self._apply_facts(link.facts_seq)
                folded = follow_record(scheduler, link)
                feeds.note_void(stored.sequence, folded)
                self.is_exact |= folded.epoch and not folded.resumes
                await asyncio.sleep(0)
            feeds.records.skip()
        if leader.ledger_seq == fold.head:
            await self._apply_facts(leader.facts_seq)

    async def _apply_facts(self, up_to: int) -> None:
        """Apply received facts, some at a time: a process that starts may have very many."""
        feeds = self._feeds
        while (stored := feeds.facts.next) is not None and stored.sequence <= up_to:
            self._scheduler.note(feeds.apply_facts(up_to=min(up_to, stored.sequence + _FACTS_AT_ONCE)))
            await asyncio.sleep(0)

    async def begin_epoch(self, settings: Settings) -> int:
        """Apply all that is stored and append an epoch record; returns the epoch.

        A leader that is about to end may append another record before that.

        Raises:
            CannotLeadError: The ledger is not one to decide on.
            FatalError: A repair passes over a message that was read.
            FencedError: Another dispatcher began an epoch, or it is unknown whether the record is stored.
            TransientError: The bus does not answer.
        """
        await self._reach_heads()
        await self._feeds.records.check_skips(self._bus)
        await self.guard.check()
        fold = self._state.fold
        before = fold.epoch
        for _ in range(_APPENDS_MAX):
            try:
                await self._append_epoch(settings)
            except ConflictError as error:
                await self._reach_heads()
                if fold.epoch > before:
                    raise FencedError(error.reason) from error
            except AmbiguousError as error:
                raise FencedError(error.reason) from error
            else:
                return fold.epoch
        raise FencedError("another dispatcher appends records")

    async def _append_epoch(self, settings: Settings) -> None:
        fold, rules = self._state.fold, rules_of(settings)
        record = Epoch(
            epoch=fold.epoch + 1,
            base_seq=fold.base_seq,
            facts_seq=self._state.facts_seq,
            at_ms=self._clock.now_ms(),
            holder=self._holder,
            settings=settings,
            resumes=self.is_exact and fold.has_terms(settings, rules),
            rules=rules,
        )
        data = fold.encoded(record)
        self._faults.hit("epoch.before")
        sequence = await self._bus.append(data, expected_seq=fold.head)
        self._faults.hit("epoch.after")
        folded = self._state.apply_record(sequence, data)
        self._scheduler.begin(folded.changes, resumes=folded.resumes)

    async def _reach_heads(self) -> None:
        """Apply every record and fact that is stored.

        Raises:
            TransientError: The bus does not answer.
        """
        records = (await self._bus.state(StreamName.LEDGER)).last_seq
        await self._feeds.reach_record(records, timeout_s=self._timeout_s)
        facts = (await self._bus.state(StreamName.FACTS)).last_seq
        await self._feeds.reach_fact(facts, timeout_s=self._timeout_s)
        await self.follow(Progress())
        self._scheduler.note(self._feeds.apply_facts())
