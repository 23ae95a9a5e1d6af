"""The dispatcher's turn: intake, facts, one numbered round, statuses.

Nothing is decided before it is appended, and nothing that was appended is decided again: a refused or doubtful append
is answered by reading the ledger up to its head, where an own record is found like any other.
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Final

import structlog

from berth.core.gangs import ClassKey, Gang, gang_of
from berth.core.ledger import Folded
from berth.core.lifecycle import due
from berth.core.products import FORMS
from berth.core.queue import Queue
from berth.core.round import Chooser, NeedMoreError, askable, asks_of
from berth.core.scoring import Scorer
from berth.core.state import State
from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, ConflictError, TransientError
from berth.runtime.faults import FaultPoints
from berth.runtime.feeds import Feeds
from berth.runtime.port import Bus
from schemas.envelope import encode
from schemas.facts import TimerSeen
from schemas.ledger import Epoch, Round, Settings, Verdict
from schemas.refusal import NodeReason
from schemas.subjects import StreamName
from services.dispatcher import metrics
from services.dispatcher.config import DispatcherConfig
from services.dispatcher.intake import Intake
from services.dispatcher.scatter import Offers, Scatter
from services.dispatcher.snapshots import Snapshots
from services.dispatcher.views import Views

_LOG: Final = structlog.get_logger()
_ROWS_ONE_BY_ONE: Final = 32
"""Up to so many improved nodes are asked one by one whether they help a class."""
_ASKS_MAX: Final = 20
"""Times that a round may ask again for more candidates."""


class DeposedError(Exception):
    """Another dispatcher has begun an epoch."""


class Dispatcher:
    """One reign.

    Args:
        bus: The cell.
        clock: Of the process.
        config: Settings.
        holder: Who reigns; stands in the epoch record.
        faults: Fault points.
    """

    def __init__(self, bus: Bus, clock: Clock, config: DispatcherConfig, *, holder: str, faults: FaultPoints) -> None:
        self.bus = bus
        self.clock = clock
        self.config = config
        self.state = State(keeps=True)
        self.feeds = Feeds(bus, clock, self.state)
        self.queue = Queue()
        self.intake = Intake(bus, clock, self.state, self.feeds.arrived, faults)
        self.scatter = Scatter(bus, self.state, shards=config.shards, timeout_s=config.gather_timeout_s)
        self.views = Views(bus, clock, self.state, faults)
        self.snapshots = Snapshots(bus, clock, self.state, config, faults)
        self.epoch = 0
        self._holder = holder
        self._faults = faults
        self._settings: Settings = config.decisions.to_settings()
        self._scorer = Scorer(self.state.table, self.state.shares, self._settings)
        self._timer_s = self._tick_s = -math.inf
        self._reconnections = 0
        self._oversized: list[str] = []

    async def start(self) -> None:
        """Load what is stored and begin an epoch.

        Raises:
            DeposedError: Another dispatcher was first.
        """
        await self.feeds.start()
        await self._begin_epoch()
        self.state.changed.update(dict.fromkeys(self.state.jobs))
        self._sync_queue()
        await self.snapshots.write()
        await self.intake.start()
        self.views.all_jobs()
        _LOG.info("reign begins", epoch=self.epoch, jobs=len(self.state.jobs), waiting=len(self.queue))

    async def stop(self) -> None:
        """Take nothing more in."""
        await self.intake.stop()
        await self.feeds.stop()

    @property
    def has_work(self) -> bool:
        """Whether a turn would do something now."""
        return (
            (self.queue.has_work and not self.intake.awaits_cancel)
            or self.intake.has_work
            or self.views.has_work
            or not self.feeds.facts.is_empty
            or not self.feeds.records.is_empty
        )

    async def turn(self) -> bool:
        """Do what there is to do once; returns whether a record was appended.

        Raises:
            DeposedError: Another dispatcher reigns.
            TransientError: The bus does not answer; nothing was decided, and another turn may be tried.
            FatalError: The history broke.
        """
        if self.intake.needs_restart:
            await self._restart_intake()
        metrics.JUDGED.inc(await self.intake.step(self.state.fold.settings, batch_max=self.config.intake_batch_max))
        self._absorb_records()
        self.feeds.apply_facts()
        await self.feeds.bury()
        self._sync_queue()
        self._wake()
        # A round knows facts only. One that is on its way and would change it is waited for.
        appended = not self.intake.awaits_cancel and await self.round()
        for key in self.state.moved:
            self.views.touch(key)
        self.state.moved.clear()
        await self.views.publish()
        await self.snapshots.maybe_write()
        await self.tick()
        metrics.WAITING.set(len(self.queue))
        metrics.LEDGER.set(self.state.fold.head)
        metrics.FACTS.set(self.state.facts_seq)
        return appended

    async def tick(self) -> None:
        """Do what waits for time, ``tick_s`` after the last time at the earliest."""
        now_s, now_ms = self.clock.monotonic_s(), self.clock.now_ms()
        if now_s - self._tick_s < self.config.tick_s:
            return
        self._tick_s = now_s
        await self.scatter.advance(at_ms=now_ms)
        if self.queue.waits_for_time and now_s - self._timer_s >= self.state.fold.settings.shard_retry_ms / 1000:
            self._timer_s = now_s
            await self.bus.publish(self.bus.subjects.fact_timer, encode(TimerSeen(now_ms)))
        if self.feeds.facts.reconnections != self._reconnections:
            # The server may have lost views that it had acknowledged: say everything again.
            self._reconnections = self.feeds.facts.reconnections
            self.views.all_jobs()
        self._look_at_superpods()
        await self.views.bury_the_dead(now_ms, is_spoken_of=self.intake.has_sent)

    def _look_at_superpods(self) -> None:
        """Warn of SuperPoDs that are larger than the setting says; they are used all the same."""
        size = self.state.fold.settings.super_pod_size
        found = self.state.blocks.superpods.oversized(size)
        if found != self._oversized:
            self._oversized = found
            if found:
                _LOG.warning("SuperPoDs have more nodes than super_pod_size", superpods=found, super_pod_size=size)

    async def round(self) -> bool:
        """One round; returns whether it appended a record.

        Raises:
            DeposedError: Another dispatcher reigns.
        """
        settings = self.state.fold.settings
        # 1. Take gangs in queue order, and what is due without a decision.
        taken = self.queue.take(gangs_max=settings.round_gangs_max, bytes_max=settings.round_bytes_max)
        gangs = askable(taken, nodes=len(self.state.table))
        must = due(self.state)
        if must.adoptions:
            gangs = []  # what is adopted must not be given away in the same record
        if not gangs and not must:
            return False
        number = self.state.fold.rounds + 1
        # 2. and 3. Scatter the shapes and gather offers; 4. choose gang by gang.
        verdicts, missing = await self._choose(gangs, number)
        record = Round(
            epoch=self.epoch,
            base_seq=self.state.fold.head,
            facts_seq=self.state.facts_seq,
            at_ms=self.clock.now_ms(),
            number=number,
            verdicts=verdicts,
            evictions=must.evictions,
            releases=must.releases,
            adoptions=must.adoptions,
            missing=missing,
        )
        # 5. Append one record, 6. adopt it.
        await self._append(encode(record))
        if self.state.fold.rounds == number:
            metrics.count_round(verdicts)
        return True

    async def _choose(self, gangs: Sequence[Gang], number: int) -> tuple[list[Verdict], list[int]]:
        asks = asks_of([gang for gang in gangs if gang.invalid is None])
        for _ in range(_ASKS_MAX):
            offers: Offers = await self.scatter.gather(self._scorer, asks, number=number)
            try:
                leaves = (self.state.leaves, self.state.leaf_book)
                chooser = Chooser(self._scorer, offers.views, asks, leaves=leaves, blocks=self.state.blocks)
                return chooser.choose(gangs, missing=offers.missing), offers.missing
            except NeedMoreError as error:
                asks[error.shape] = error.count
        raise TransientError(f"round {number} ran out of offers {_ASKS_MAX} times")

    async def _append(self, data: bytes) -> None:
        expected_seq = self.state.fold.head
        self._faults.hit("append.before")
        began_s = self.clock.monotonic_s()
        try:
            sequence = await self.bus.append(data, expected_seq=expected_seq)
            metrics.APPEND.observe(self.clock.monotonic_s() - began_s)
        except (ConflictError, AmbiguousError) as error:
            _LOG.warning("append is in doubt, reading the ledger", reason=error.reason)
            await self._read_back()
            return
        self._faults.hit("append.after")
        self._adopt(self.state.apply_record(sequence, data))

    async def _read_back(self) -> None:
        """Go to the ledger's head, where an own record counts like any other."""
        head = (await self.bus.state(StreamName.LEDGER)).last_seq
        await self.feeds.reach_record(head, timeout_s=self.config.gather_timeout_s + 5.0)
        self._absorb_records()

    def _absorb_records(self) -> None:
        for _, folded in self.feeds.apply_records():
            self._adopt(folded)
        if self.state.fold.epoch > self.epoch:
            raise DeposedError(self.state.fold.holder)

    async def _begin_epoch(self) -> None:
        fold = self.state.fold
        self.epoch = fold.epoch + 1
        record = Epoch(
            epoch=self.epoch,
            base_seq=fold.head,
            facts_seq=self.state.facts_seq,
            at_ms=self.clock.now_ms(),
            holder=self._holder,
            settings=self._settings,
        )
        data = encode(record)
        self._faults.hit("epoch.before")
        try:
            sequence = await self.bus.append(data, expected_seq=fold.head)
        except (ConflictError, AmbiguousError) as error:
            raise DeposedError(error.reason) from error
        self._faults.hit("epoch.after")
        self.state.apply_record(sequence, data)
        self._scorer = Scorer(self.state.table, self.state.shares, fold.settings)
        self.state.table.improved.clear()
        self.state.table.thinned.clear()

    async def _restart_intake(self) -> None:
        """After doubt about a verdict: learn all that was stored, then judge again what has none."""
        await self.intake.stop()
        head = (await self.bus.state(StreamName.FACTS)).last_seq
        await self.feeds.reach_fact(head, timeout_s=self.config.gather_timeout_s + 5.0)
        self.feeds.apply_facts()
        await self.intake.start()

    def _adopt(self, folded: Folded) -> None:
        """Bring the queue in line with a record."""
        for gang in folded.gangs:
            self.views.touch((gang.namespace, gang.name))
            if gang.phase != "waiting":
                self.queue.remove(gang.uid)
            elif gang.refusal is None:
                self.state.changed[gang.namespace, gang.name] = None  # it goes back to the queue
            else:
                wait_ms = self.state.fold.settings.shard_retry_ms
                retry_at_ms = gang.at_ms + wait_ms if gang.refusal.missing_shards else 0
                self.queue.refused(gang.uid, retry_at_ms=retry_at_ms)
        if folded.epoch:
            self.queue.wake_all()

    def _sync_queue(self) -> None:
        """Bring the queue in line with the facts of jobs that changed."""
        for key in self.state.changed:
            self.intake.echoed(key)
            self.views.touch(key)
            job = self.state.jobs.get(key)
            self.queue.keep_only(key, job.uid if job is not None else "")
            if job is None or job.state == "rejected":
                continue
            gang = self.state.fold.gangs.get(job.uid)
            if job.state != "accepted" or job.request is None or (gang is not None and gang.phase != "waiting"):
                self.queue.remove(job.uid)
                continue
            attempt = gang.attempt if gang is not None else 1
            self.queue.put(gang_of(job, job.request, attempt=attempt, settings=self.state.fold.settings))
        self.state.changed.clear()

    def _wake(self) -> None:
        """Wake the classes that something can help."""
        table = self.state.table
        if table.improved or table.thinned or self.queue.waits_for_time or self.state.leaf_book.eased:
            improved = list(table.improved)
            most = functools.reduce(operator.or_, table.thinned.values(), 0)
            self.queue.wake(lambda key: self._helps(key, improved, most), time_ms=self.state.time_ms)
            table.improved.clear()
            table.thinned.clear()
            self.state.leaf_book.eased = False

    def _helps(self, key: ClassKey, improved: list[int], most: int) -> bool:
        """Whether one of the rows that changed now takes a pod of the class, or leaves are open to more jobs.

        Args:
            key: The class.
            improved: Rows on which something got better.
            most: Chips that were free on any row where now fewer are.
        """
        scorer = self._scorer
        for shape, _ in key:
            if shape.tor_affinity and self.state.leaf_book.eased:
                return True
            rows = improved
            if shape.form and FORMS[shape.form].is_beyond(most):
                thinned = self.state.table.thinned.items()
                rows = improved + [row for row, before in thinned if FORMS[shape.form].is_beyond(before)]
            if len(rows) <= _ROWS_ONE_BY_ONE:
                if any(scorer.evaluate_one(shape, row, scorer.row_state(row))[0] == NodeReason.FITS for row in rows):
                    return True
            elif (scorer.evaluate(shape)[0][rows] == NodeReason.FITS).any():
                return True
        return False
