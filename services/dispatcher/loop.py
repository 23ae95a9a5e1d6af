"""Dispatch cycle: intake, facts, one numbered round, statuses.

A decision counts once its record is appended, and what was appended is not decided again. After a refused or doubtful
append the dispatcher reads the ledger up to its head, where it finds its own record like any other.

Longer than 400 lines because each source of work has its step in the cycle.
"""

import functools
import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from berth.core.faults.storms import HeldBack
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import Asking, Choice, OffersExhaustedError, Opening, Recorded
from berth.core.state.cell import JobKey, State
from berth.core.state.internal_errors import SetAside
from berth.core.state.ledger import Folded
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, ConflictError, TransientError
from berth.runtime.feeds import Feeds
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Settings
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.heavy_scoring import HeavyScoring
from berth.services.dispatcher.intake import Intake
from berth.services.dispatcher.job_waits import JobWaits
from berth.services.dispatcher.leadership import Progress
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.old_jobs import OldJobs
from berth.services.dispatcher.scatter import Scatter
from berth.services.dispatcher.snapshots import FACTS_MAX, Snapshots
from berth.services.dispatcher.standby import FencedError, Standby
from berth.services.dispatcher.views import Views
from berth.services.dispatcher.waiting_reasons import WaitingReasons

_APPENDS_MAX: Final = 3
"""Times that a record is sent in one turn while its result is unknown."""
_NAMED_MAX: Final = 20
"""Jobs that one line of the log names."""
_BEHIND_MAX: Final = 100_000
_BEHIND_SNAPSHOTS: Final = 4
"""A standby keeps what it received in memory; it gives up when that is more than so many facts, and than the facts of
so many snapshots."""
_REST_S: Final = 0.001
"""Shortest pause between two turns."""
_READ_S: Final = 5.0
"""How long messages that are stored may take to arrive, besides the deadline of a round."""


class _Sent(NamedTuple):
    """A turn whose record may or may not be stored."""

    turn: Recorded
    data: bytes
    expected_seq: int


class Dispatcher:
    """One term of a leader.

    Args:
        bus: The cell.
        clock: Of the process.
        config: Settings.
        holder: Name of the leader; stored in the epoch record.
        instruments: Of the process.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        config: DispatcherConfig,
        *,
        holder: str,
        instruments: Instruments[DispatcherMetrics],
    ) -> None:
        self.bus = bus
        self.clock = clock
        self.config = config
        self.state = State(keeps=True)
        self.feeds = Feeds(bus, clock, self.state, instruments.log, void=instruments.metrics.void)
        self.scheduler = Scheduler(self.state)
        self.intake = Intake(bus, clock, self.state, self.feeds.arrived, instruments)
        self.scatter = Scatter(
            bus, clock, self.state, shards=config.shards, timeout_s=config.gather_timeout_s, log=instruments.log
        )
        self.heavy = HeavyScoring(clock, self.scheduler, timeout_s=config.gather_timeout_s, log=instruments.log)
        self.views = Views(bus, clock, self.state, instruments, WaitingReasons(clock, self.scheduler))
        self.snapshots = Snapshots(bus, clock, self.scheduler, config, instruments)
        self.old_jobs = OldJobs(bus, clock, self.state, self.views, self.snapshots, config, instruments)
        self.epoch = 0
        self._standby = Standby(
            bus,
            clock,
            self.feeds,
            self.scheduler,
            holder=holder,
            timeout_s=config.gather_timeout_s + _READ_S,
            instruments=instruments,
        )
        self._faults = instruments.faults
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._waits = JobWaits(clock, self.state, instruments.metrics)
        self._settings: Settings = config.decisions.to_settings()
        self._timer_s = self._tick_s = -math.inf
        self._links = bus.link_changes
        self._oversized: list[str] = []
        self._held_back: list[HeldBack] = []
        self._pods_changed: dict[JobKey, None] = {}
        """Jobs whose status is looked at once more when the turn is over."""
        self._sent: _Sent | None = None
        """Until its outcome is known, nothing else is decided and no fact is applied."""

    async def start(self) -> None:
        """Load what is stored and begin an epoch.

        Raises:
            FencedError: Another dispatcher was first.
            ConfigError: A setting withdraws a version of records.
            VersionError: Only another release reads a record or the newest snapshot.
        """
        await self.load()
        await self.lead()

    async def load(self) -> None:
        """Load what is stored; from then on :meth:`follow` keeps step with the leader.

        Raises:
            VersionError: Only another release reads a record or the newest snapshot.
        """
        self.views.learn()
        await self._standby.load()
        if self.feeds.snapshot is not None:
            self.snapshots.found(*self.feeds.snapshot)

    async def follow(self, leader: Progress) -> None:
        """Apply what another leader decided; see :meth:`berth.services.dispatcher.standby.Standby.follow`.

        Raises:
            TransientError: It is so far behind that the newest snapshot is nearer: load that with another dispatcher.
        """
        await self._standby.follow(leader)
        self._metrics.epoch.set(self.state.fold.epoch)
        self.views.read_stored()
        behind = self.feeds.facts.waiting
        if behind > max(_BEHIND_MAX, _BEHIND_SNAPSHOTS * FACTS_MAX):
            raise TransientError(f"{behind} facts behind the leader: starts again from the newest snapshot")

    async def lead(self) -> None:
        """Apply all that is stored, and begin an epoch.

        Raises:
            CannotLeadError: The ledger is not one to decide on.
            FencedError: Another dispatcher was first.
            ConfigError: A setting withdraws a version of records.
            TransientError: The bus does not answer.
        """
        self.epoch = await self._standby.begin_epoch(self._settings)
        self._metrics.epoch.set(self.epoch)
        if self.feeds.snapshot is None:
            await self.snapshots.write()
        await self.intake.start()
        await self.views.begin()
        self._log.info("became leader", epoch=self.epoch, jobs=len(self.state.jobs), waiting=len(self.queue))

    async def obstacle(self) -> str:
        """Why this dispatcher must not lead; empty if it may.

        Raises:
            TransientError: The bus did not answer.
        """
        return await self._standby.guard.obstacle()

    @property
    def progress(self) -> Progress:
        """How far this leader is."""
        return Progress(self.state.fold.head, self.state.facts_seq)

    async def stop(self) -> None:
        """Take nothing more in."""
        await self.intake.stop()
        await self.views.stop()
        await self.feeds.stop()

    @property
    def queue(self) -> Queue:
        """Gangs that wait."""
        return self.scheduler.queue

    @property
    def has_work(self) -> bool:
        """Whether a turn would do something now."""
        is_due = 0 < self.scheduler.next_due_ms <= self.clock.now_ms()
        return (
            self._sent is not None
            or ((self.scheduler.has_work or is_due) and not self.intake.awaits_cancel)
            or self.intake.has_work
            or self.views.has_work
            or not self.feeds.facts.is_empty
            or not self.feeds.records.is_empty
        )

    @property
    def rest_s(self) -> float:
        """How long to wait for something to come in: until the next tick, or until faults or reasons are due."""
        due_ms = self.scheduler.next_due_ms
        longest_s = min(self.config.tick_s, max(self.views.rest_s, _REST_S))
        return min(longest_s, max((due_ms - self.clock.now_ms()) / 1000, _REST_S)) if due_ms else longest_s

    async def turn(self) -> bool:
        """Do what there is to do once; returns whether a record was appended.

        Raises:
            CannotLeadError: The ledger is not one to decide on.
            FencedError: Another dispatcher is the leader.
            TransientError: The bus does not answer. A round may be undecided, in doubt or stored: take another turn.
            FatalError: The history broke.
        """
        if self._sent is not None:
            await self._settle(self._sent)
        if self.intake.needs_restart:
            await self._restart_intake()
        judged = await self.intake.step(self.state.fold.settings, batch_max=self.config.intake_batch_max)
        self._metrics.judged.inc(judged)
        self._absorb_records()
        await self.feeds.check_unchained()
        self._apply_facts()
        await self._standby.guard.check()
        await self.intake.uncover()
        await self.feeds.write_dead_letters()
        for key in self.scheduler.pending.jobs_changed:
            self.intake.echoed(key)
            self.views.touch(key)
        # A round knows facts only. It waits for a cancellation that is on its way; until then no class is woken.
        may_decide = not self.intake.awaits_cancel
        appended = may_decide and await self.round()
        for key in self._pods_changed:
            self.views.touch(key)
        self._pods_changed.clear()
        await self.views.publish()
        if may_decide:
            await self.snapshots.maybe_write(is_idle=not self.has_work)
        await self.tick()
        self._metrics.waiting.set(len(self.queue))
        self._metrics.ledger.set(self.state.fold.head)
        self._metrics.facts.set(self.state.facts_seq)
        return appended

    async def tick(self) -> None:
        """Do what waits for time, ``tick_s`` after the last time at the earliest."""
        now_s, now_ms = self.clock.monotonic_s(), self.clock.now_ms()
        if now_s - self._tick_s < self.config.tick_s:
            return
        self._tick_s = now_s
        await self.scatter.advance(at_ms=now_ms)
        is_due = 0 < self.queue.retry_at_ms <= now_ms
        if is_due and now_s - self._timer_s >= self.state.fold.settings.shard_retry_ms / 1000:
            self._timer_s = now_s
            await self.bus.publish(self.bus.subjects.fact_timer, encode(TimerSeen(now_ms)))
        if self.bus.link_changes != self._links:
            # The server may have lost views that it had acknowledged: publish everything again.
            self._links = self.bus.link_changes
            self.views.all_jobs()
        await self.views.rewrite_statuses()
        self._warn_of_large_superpods()
        self._waits.measure(self.queue)
        await self.views.expire_finished(now_ms, has_pending_verdict=self.intake.has_sent)

    def _warn_of_large_superpods(self) -> None:
        """Warn of SuperPoDs that are larger than the setting; they are used all the same."""
        settings, before = self.state.fold.settings, self._oversized
        found = [name for index in self.state.indexes.values() for name in index.oversized(settings)]
        self._oversized = found
        if found and found != before:
            self._log.warning(
                "SuperPoDs have more nodes than super_pod_size", superpods=found, super_pod_size=settings.super_pod_size
            )

    async def round(self) -> bool:
        """One round; returns whether it appended a record.

        Raises:
            FencedError: Another dispatcher is the leader.
        """
        began_s = self.clock.monotonic_s()
        # 1. Take gangs in queue order, and what is due without a decision.
        opening, set_aside = self.scheduler.open(self.clock.now_ms(), work_max=self.scatter.work_max)
        self._report(set_aside)
        self._report_held_back()
        if opening is None:
            return False
        try:
            # 2. and 3. Scatter the shapes and gather offers; 4. choose gang by gang.
            choice = await self._choose(opening)
            if choice.is_empty:
                self.scheduler.leave(choice)
                return False
            recorded = self.scheduler.record(choice)
            fold = self.state.fold
            data = fold.encoded(recorded.round)
            self._sent = _Sent(recorded, data, fold.head)
        finally:
            if self._sent is None and self.scheduler.turn is not None:
                self.scheduler.take_back(self.scheduler.turn)
        # 5. Append one record, 6. adopt it.
        self._faults.hit("append.before")
        is_stored = await self._settle(self._sent)
        self._metrics.round_took.observe(self.clock.monotonic_s() - began_s)
        self.heavy.rest_after(opening, began_s)
        return is_stored

    async def _settle(self, sent: _Sent) -> bool:
        """See what becomes of a record that was decided; returns whether it is stored.

        Raises:
            FencedError: Another dispatcher is the leader.
            TransientError: The outcome is unknown; the next cycle goes on from here.
        """
        await self._append(sent)
        self._sent = None
        record = sent.turn.round
        is_stored = self.state.fold.rounds == record.number
        if is_stored:
            self._metrics.count_round(record)
            self._waits.observe_placements(record)
            self.views.note_refused(record)
        else:
            self.scheduler.take_back(sent.turn)
        return is_stored

    async def _choose(self, opening: Opening) -> Choice:
        """Ask for offers until they reach far enough, and choose.

        Raises:
            TransientError: They never do, or the bus does not answer.
        """
        asking = Asking(opening)
        choice: Choice | None = None
        while choice is None:
            offers = await self.scatter.gather(self.scheduler.scorer, asking.asks, opening)
            left, views = await self.heavy.beside(offers, opening, asking.asks)
            if left is not opening:
                opening, asking = left, Asking(left)
            choose = functools.partial(self.scheduler.choose, opening, views, asking.asks, offers.missing_shards)
            try:
                choice = asking.tried(choose)
            except OffersExhaustedError as error:
                raise TransientError(str(error)) from error
        self._report(choice.set_aside)
        self.views.note_unplaced(choice.unplaced)
        return choice

    def _report_held_back(self) -> None:
        """Say which jobs are kept from restarting because many would, and why; once for each set of them."""
        held = self.scheduler.watch.held_back
        if held == self._held_back:
            return
        self._held_back = held
        self.views.note_held({(one.namespace, one.name): one.why for one in held})
        self._metrics.count_held(one.approvable for one in held)
        if held:
            jobs = [one.subject for one in held[:_NAMED_MAX]]
            self._log.warning("restarts held back", count=len(held), jobs=jobs, reason=held[0].reason)

    def _report(self, set_aside: Iterable[SetAside]) -> None:
        """Say which gangs were set aside because of an error, and show the error."""
        for one in set_aside:
            self._metrics.set_aside.inc()
            self._log.error("decision failed, gang set aside", gang=one.subject, exc_info=one.error)

    async def _append(self, sent: _Sent) -> None:
        """Append a record, and the same again while it is in doubt: at most one can be stored behind the same sequence.

        Raises:
            TransientError: It is still unknown whether the record is stored.
        """
        for _ in range(_APPENDS_MAX):
            began_s = self.clock.monotonic_s()
            try:
                sequence = await self.bus.append(sent.data, expected_seq=sent.expected_seq)
            except (ConflictError, AmbiguousError) as error:
                self._log.warning("append in doubt, reading the ledger", reason=error.reason)
                await self._read_back()
                if self.state.fold.head > sent.expected_seq:
                    return
                continue
            self._metrics.append.observe(self.clock.monotonic_s() - began_s)
            self._faults.hit("append.after")
            self._adopt(self.state.apply_record(sequence, sent.data), sent.turn)
            return
        raise TransientError(f"round {sent.turn.round.number} may or may not be stored")

    async def _read_back(self) -> None:
        """Go to the ledger's head, where an own record counts like any other."""
        head = (await self.bus.state(StreamName.LEDGER)).last_seq
        await self.feeds.reach_record(head, timeout_s=self.config.gather_timeout_s + _READ_S)
        self._absorb_records()
        await self.feeds.check_unchained()

    def _absorb_records(self) -> None:
        sent = self._sent
        for stored, folded in self.feeds.apply_records():
            is_own = sent is not None and stored.sequence == sent.expected_seq + 1 and stored.data == sent.data
            self._adopt(folded, sent.turn if sent is not None and is_own else None)
        if self.state.fold.epoch > self.epoch:
            raise FencedError(self.state.fold.holder)

    async def _restart_intake(self) -> None:
        """After doubt about a verdict: learn all that was stored, then judge again what has none."""
        await self.intake.stop()
        head = (await self.bus.state(StreamName.FACTS)).last_seq
        await self.feeds.reach_fact(head, timeout_s=self.config.gather_timeout_s + _READ_S)
        self._apply_facts()
        await self.intake.start()

    def _apply_facts(self) -> None:
        """Apply what was received of facts."""
        changes = self.feeds.apply_facts()
        self.scheduler.note(changes)
        self._pods_changed.update(changes.pods_changed)

    def _adopt(self, folded: Folded, turn: Recorded | None) -> None:
        """Bring views and queue in line with a record.

        Args:
            folded: What it changed.
            turn: The turn that it ends; None for a record that was not decided here.
        """
        for key in folded.jobs:
            self.intake.touch(key)
            self.views.touch(key)
        if turn is None:
            self.scheduler.follow(folded)
        else:
            self.scheduler.adopt(turn, folded)
