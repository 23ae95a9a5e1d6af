"""The pure turn of the dispatcher: who waits, who is woken, what a round decides.

The dispatcher, a replay and a simulation drive the same turn: they apply facts and records to the state, open a round,
choose on offers, and adopt the record once it is stored. What a decision depends on is the state at its sequences, the moment,
and the shards that did not answer; nothing here depends on how many turns led to it. So nothing is looked at between rounds,
and a round that was opened but never stored is taken back.

Longer than 400 lines because a round, what wakes classes before it and what is kept after it are steps on one queue.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.errors import ReportedError, guarded
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.offers import merge
from berth.core.placement.projected_state import MissingRows
from berth.core.placement.queue_policy import RESERVED
from berth.core.placement.round_demand import NeedMoreError, candidate_counts, gangs_of_one_offer
from berth.core.placement.round_refusals import is_larger_than_cluster
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.requests.gangs import ClassKey, Gang, gang_of
from berth.core.scheduling.backfill import Backfill, Memory, chips_of
from berth.core.scheduling.queue import Queue, Sleep
from berth.core.scheduling.queue_policies import NEVER, StrictOrder
from berth.core.scheduling.reservations import next_end_ms
from berth.core.scheduling.wake_rules import is_helped_by_any_change, may_fit
from berth.core.state.cell import State, shard_of
from berth.core.state.internal_errors import INTERNAL, RETRY_MS, SetAside, unreadable
from berth.core.state.ledger import Folded, GangRecord, SleeperDump, WaitingDump
from berth.core.state.lifecycle import Due, due
from berth.products.catalogue import FORMS
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Round, Settings, Verdict
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason, Refusal

_BACKFILLS: Final = frozenset({"easy", "conservative"})
_ROWS_ONE_BY_ONE: Final = 32
"""Up to so many improved nodes are asked one by one whether they help a class."""


class Opening(NamedTuple):
    """A round that was begun."""

    number: int
    at_ms: int
    gangs: Sequence[Gang]
    """Gangs to decide, in queue order."""
    must: Due
    asks: dict[Shape, int]
    """Candidates that are needed of each shape; more may be asked for later."""


class MissingShards(NamedTuple):
    """Shards that did not answer, as a record says it."""

    shards: int = 0
    """How many there are; 0 when the dispatcher scores."""
    missing: Sequence[int] = ()
    doubted: Sequence[int] = ()
    """Those of ``missing`` that count for shapes without switch affinity."""


class _Before(NamedTuple):
    """What waking changed, to be taken back."""

    woken: list[tuple[ClassKey, Sleep]]
    improved: dict[int, None]
    thinned: dict[int, int]
    eased: bool
    held: Sequence[SleeperDump] = ()
    loosened: bool = False
    worsened: bool = False
    regained: Iterable[int] = ()
    stirred: bool = False


class Scheduler:
    """Decisions on one state.

    Args:
        state: The cell, with nothing kept back: all facts and records go through it.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.queue = Queue()
        self.scorer = self.new_scorer()
        self._before = _Before([], {}, {}, eased=False)
        self._memory = Memory()
        self.setbacks: Sequence[SetAside] = ()
        """Errors of the last step: of :meth:`open` those in what is due, of :meth:`choose` those of the choice. Each names the gang
        that was set aside for it."""
        self._opening: Opening | None = None
        """The round that was opened last, until it is known what became of it."""

    def new_scorer(self) -> Scorer:
        """Scoring under the settings of the epoch."""
        return Scorer(self.state.table, self.state.shares, self.state.fold.settings)

    def gang(self, job: JobSeen, request: JobRequest, attempt: int) -> Gang:
        """A job as it waits."""
        return gang_of(job, request, attempt=attempt, settings=self.state.fold.settings)

    def _gang(self, job: JobSeen, request: JobRequest, attempt: int) -> Gang:
        """As :meth:`gang`; of a request that ends with an error, a gang that is refused."""
        return guarded(
            lambda: self.gang(job, request, attempt), lambda error: unreadable(job, request, error, attempt=attempt)
        )

    def begin(self) -> None:
        """An epoch has begun: everybody who waits is tried anew, under its settings."""
        state = self.state
        self.queue = Queue(strict=state.fold.settings.queue_policy == "fifo")
        self.scorer = self.new_scorer()
        self._before = _Before([], {}, {}, eased=False)
        self._memory = Memory()
        self._opening = None
        state.table.improved.clear()
        state.table.thinned.clear()
        state.table.regained.clear()
        state.table.worsened = state.table.stirred = state.leaf_book.eased = False
        state.changed.update(dict.fromkeys(state.jobs))
        self.sync()

    def sync(self) -> None:
        """Bring the queue in line with the facts of jobs that changed."""
        state = self.state
        for key in state.changed:
            job = state.jobs.get(key)
            if job is None or job.state == "rejected":  # what was rejected may bear the uid of a gang that waited
                self.queue.keep_only(key, "")
                continue
            self.queue.keep_only(key, job.uid)
            gang = state.fold.gangs.get(job.uid)
            if job.state != "accepted" or job.request is None or (gang is not None and gang.phase != "waiting"):
                self.queue.remove(job.uid)
                continue
            attempt = gang.attempt if gang is not None else 1
            self.queue.put(self._gang(job, job.request, attempt))
        state.changed.clear()

    def open(self, at_ms: int) -> Opening | None:
        """Begin a round at the state as it is; None when there is nothing to decide.

        Args:
            at_ms: The moment, as the record will say it.
        """
        self.sync()
        self._wake()
        settings = self.state.fold.settings
        # A class is read as far as the free chips go, unless a later gang of it may fare otherwise than those before it.
        skims = settings.skims_classes and settings.queue_policy == "skip" and not settings.strict_product_support
        most = self._most() if skims else None
        taken = self.queue.take(gangs_max=settings.round_gangs_max, bytes_max=settings.round_bytes_max, most=most)
        gangs = gangs_of_one_offer(taken, nodes=len(self.state.table))
        must = due(self.state)
        self.setbacks = must.setbacks
        if must.adoptions:
            gangs = []  # what is adopted must not be given away in the same record
        if not gangs and not must:
            if self._before.woken:
                self.take_back()  # in strict order, whoever was woken behind the head: no record will tell of it
            return None
        asks = candidate_counts([gang for gang in gangs if gang.invalid is None])
        self._opening = Opening(self.state.fold.rounds + 1, at_ms, gangs, must, asks)
        return self._opening

    def _most(self) -> Callable[[ClassKey], int]:
        """How many gangs of a class a round can decide: as many as the free chips are enough for, and one that is refused.

        Those behind it would have no verdict, for then the class sleeps.
        """
        table = self.state.table
        free = int(np.bitwise_count(table.free[table.view()]).sum())
        gangs_max = self.state.fold.settings.round_gangs_max

        def most(key: ClassKey) -> int:
            chips = sum(shape.chips * pods for shape, pods in key if shape.share is None)
            return min(gangs_max, free // chips + 1) if chips else gangs_max

        return most

    def choose(
        self, opening: Opening, views: Mapping[Shape, Candidates], asks: Mapping[Shape, int], away: MissingShards
    ) -> list[Verdict]:
        """Verdicts on the gangs of a round.

        Args:
            opening: The round.
            views: Merged candidates of each shape.
            asks: How many were asked for.
            away: Shards that did not answer.

        Raises:
            NeedMoreError: The candidates do not reach far enough.
        """
        self.setbacks = []
        if not opening.gangs:
            return []
        state = self.state
        gate = self._gate(opening, away)
        chooser = PlacementRound(
            self.scorer, views, asks, leaves=(state.leaves, state.leaf_book), blocks=state.blocks, policy=gate
        )
        verdicts = chooser.choose(opening.gangs, missing=away.missing)
        self.setbacks = [
            *(
                SetAside(gang.namespaced_name, ReportedError(gang.invalid.value))
                for gang in opening.gangs
                if gang.invalid is not None and gang.invalid.code == INTERNAL
            ),
            *chooser.setbacks,
            *(gate.setbacks if isinstance(gate, Backfill) else ()),
        ]
        return verdicts

    def _gate(self, opening: Opening, away: MissingShards) -> StrictOrder | Backfill | None:
        """The policy of the queue; None where everybody gets what it finds."""
        policy = self.state.fold.settings.queue_policy
        if policy == "skip":
            return None
        if policy == "fifo":
            return StrictOrder(self.queue.head(), self._last_refusal)
        tried = {gang.uid for gang in opening.gangs}
        waiting = self.queue.waiting_for_room(held=policy == "conservative")
        others = (gang for gang in waiting if gang.uid not in tried)
        return Backfill(self.state, self.scorer, opening.at_ms, others, self._silent(away), self._memory)

    def _last_refusal(self, uid: str) -> Refusal | None:
        known = self.state.fold.gangs.get(uid)
        return None if known is None else known.refusal

    def _silent(self, away: MissingShards) -> MissingRows:
        """Rows that silent shards own."""
        lost = self.rows_of_shards(away.missing, away.shards)
        believed = [shard for shard in away.missing if shard not in away.doubted]
        return MissingRows(lost, self.rows_of_shards(believed, away.shards))

    def decide(self, opening: Opening, missing_shards: MissingShards | None = None) -> Round:
        """The record of a round, with offers made here.

        Args:
            opening: The round.
            missing_shards: Shards that are taken not to answer.
        """
        away = missing_shards or MissingShards()
        asks = dict(opening.asks)
        silent = self._silent(away)
        while True:
            views = {shape: self._seen(shape, count, silent, away) for shape, count in asks.items()}
            try:
                verdicts = self.choose(opening, views, asks, away)
            except NeedMoreError as error:
                asks[error.shape] = error.count
                continue
            return self.record(opening, verdicts, away)

    def _seen(self, shape: Shape, count: int, silent: MissingRows, away: MissingShards) -> Candidates:
        """Candidates of a shape as offers would give them.

        Args:
            shape: What is asked.
            count: How many rows at most.
            silent: Rows that nobody speaks for.
            away: Shards that did not answer.
        """
        table = self.state.table
        unheard = len(away.missing) - (0 if shape.tor_affinity else len(away.doubted))
        if away.shards and unheard == away.shards:
            return merge(table, [], missing_nodes=int(table.present[table.view()].sum()))
        without = silent.by_leaf if shape.tor_affinity else silent.others
        return self.scorer.candidates(shape, count, leaves=self.state.leaves, without=without)

    def record(self, opening: Opening, verdicts: list[Verdict], missing_shards: MissingShards) -> Round:
        """What is to be stored of a round."""
        fold = self.state.fold
        return Round(
            epoch=fold.epoch,
            base_seq=fold.head,
            facts_seq=self.state.facts_seq,
            at_ms=opening.at_ms,
            number=opening.number,
            verdicts=verdicts,
            evictions=opening.must.evictions,
            releases=opening.must.releases,
            adoptions=opening.must.adoptions,
            missing=list(missing_shards.missing),
            doubted=list(missing_shards.doubted),
            shards=missing_shards.shards if missing_shards.missing else 0,
        )

    def adopt(self, folded: Folded) -> None:
        """Bring the queue in line with a record that was folded."""
        for gang in folded.gangs:
            if gang.phase != "waiting":
                self.queue.remove(gang.uid)
                self._free_uid(gang)
            elif gang.refusal is None:
                self.state.changed[gang.namespace, gang.name] = None  # it goes back to the queue
            elif gang.refusal.code == "behind":
                self.queue.seen(gang.uid)
            else:
                self._refused(gang, gang.refusal)
        self._keep_back(folded)
        has_left = folded.given_back or folded.freed
        # Reservations follow from who runs, and until when.
        if has_left or (self.state.fold.settings.corrected and (folded.taken or folded.ending)):
            self.queue.loosen()

    def _refused(self, gang: GangRecord, refusal: Refusal) -> None:
        """Put the class of a refused gang to sleep, unless it found room that is kept for somebody."""
        queue, settings = self.queue, self.state.fold.settings
        request_class = queue.class_of(gang.uid)
        if request_class is None:
            return
        if refusal.code == RESERVED:
            may_reserve = settings.queue_policy == "conservative" and chips_of(request_class) >= settings.reserve_chips
            has_reserved = may_reserve and queue.is_fresh(gang.uid)
        else:
            has_reserved = refusal.start_ms > 0
            queue.refused(
                gang.uid,
                retry_at_ms=_retry_at_ms(gang, refusal, settings),
                never=refusal.code in NEVER,
                by_any_change=settings.corrected and is_helped_by_any_change(request_class, refusal),
            )
        if has_reserved and settings.corrected:
            queue.loosen()  # its reservation may be in the place of the one for whose sake others are held

    def _free_uid(self, gang: GangRecord) -> None:
        """A gang is over and nothing is known of it any more: a job that has its uid by now waits."""
        key = self.state.name_of.get(gang.uid)
        fold = self.state.fold
        if key is not None and gang.is_over and gang.uid not in fold.gangs and fold.settings.corrected:
            self.state.changed[key] = None

    def _keep_back(self, folded: Folded) -> None:
        """Hold the gangs that may not start for the sake of a reservation, those included of which there was no news."""
        fold = self.state.fold
        opening, self._opening = self._opening, None
        if fold.settings.queue_policy not in _BACKFILLS:
            return
        kept: dict[str, GangRecord] = {gang.uid: gang for gang in folded.gangs}
        if opening is not None and opening.number == fold.rounds and not folded.void:
            silent = (fold.gangs.get(gang.uid) for gang in opening.gangs)
            kept |= {gang.uid: gang for gang in silent if gang is not None}
        held = [gang for gang in kept.values() if gang.refusal is not None and gang.refusal.code == RESERVED]
        late_ms = next_end_ms(self.state, fold.at_ms) if held else 0  # who is late by then makes reservations move
        heard_ms = fold.at_ms + fold.settings.shard_retry_ms if folded.silent else 0
        for gang in held:
            if gang.phase == "waiting" and gang.refusal is not None:
                start_ms = gang.refusal.start_ms if gang.refusal.start_ms > fold.at_ms else 0
                moments = (start_ms, late_ms if fold.settings.corrected or not start_ms else 0, heard_ms)
                self.queue.hold(gang.uid, retry_at_ms=min(filter(None, moments), default=0))

    def take_back(self) -> None:
        """Forget the last round that was opened: it was never stored, and its reader will not know of it."""
        before = self._before
        for key, sleep in before.woken:
            self.queue.restore_sleep(key, sleep)
        for one in before.held:
            self.queue.hold_again(one)
        self.queue.loosened = self.queue.loosened or before.loosened
        self._opening = None
        self.state.table.improved.update(before.improved)
        for row, chips in before.thinned.items():
            self.state.table.thinned[row] = self.state.table.thinned.get(row, 0) | chips
        self.state.leaf_book.eased = self.state.leaf_book.eased or before.eased
        table = self.state.table
        table.worsened = table.worsened or before.worsened
        table.regained.update(dict.fromkeys(before.regained))
        table.stirred = table.stirred or before.stirred
        self._before = _Before([], {}, {}, eased=False)

    def dump(self) -> WaitingDump:
        """Who waits and who sleeps, for snapshots: it follows from the history of the epoch, not from the state."""
        table = self.state.table
        known, sleeping = self.queue.dump()
        return WaitingDump(
            known=known,
            sleeping=sleeping,
            improved=sorted(table.names[row] for row in table.improved),
            thinned=sorted((table.names[row], chips) for row, chips in table.thinned.items()),
            eased=self.state.leaf_book.eased,
            time_ms=self.state.time_ms,
            held=self.queue.held,
            loosened=self.queue.loosened,
            worsened=table.worsened,
            regained=sorted(table.names[row] for row in table.regained),
            stirred=table.stirred,
        )

    def load(self, dump: WaitingDump) -> None:
        """Become what a snapshot holds; the state must have been loaded from the same one."""
        state = self.state
        self.begin()
        self.queue.load(dump.known, dump.sleeping, dump.held, loosened=dump.loosened)
        state.table.improved.update(dict.fromkeys(state.table.row(name) for name in dump.improved))
        state.table.thinned.update({state.table.row(name): chips for name, chips in dump.thinned})
        state.table.regained.update(dict.fromkeys(state.table.row(name) for name in dump.regained))
        state.table.worsened, state.leaf_book.eased = dump.worsened, dump.eased
        state.table.stirred = dump.stirred

    def rows_of_shards(self, missing: Sequence[int], shards: int) -> Fits | None:
        """Marks of the rows that silent shards own; None when none is silent."""
        if not missing or not shards:
            return None
        table = self.state.table
        lost = set(missing)
        marks = np.zeros(len(table), np.bool_)
        for domain in table.domains:
            if shard_of(domain, shards) in lost:
                marks[table.rows_of_domain(domain)] = True
        return marks

    def _wake(self) -> None:
        """Wake the classes that something can help."""
        table, book = self.state.table, self.state.leaf_book
        woken: list[tuple[ClassKey, Sleep]] = []
        improved, thinned, eased = dict(table.improved), dict(table.thinned), book.eased
        regained, stirred = list(table.regained), table.stirred
        is_corrected = self.state.fold.settings.corrected
        came_back = regained if is_corrected else []
        if improved or thinned or eased or came_back or (is_corrected and stirred) or self.queue.waits_for_time:
            rows = list(improved)
            most = functools.reduce(operator.or_, thinned.values(), 0)
            woken = self.queue.wake(lambda key: self._helps(key, rows, most, came_back), time_ms=self.state.time_ms)
            table.improved.clear()
            table.thinned.clear()
            book.eased = False
        if improved or table.worsened or is_corrected:  # who is head may change by time alone
            woken += self._wake_heads()
        held: Sequence[SleeperDump] = ()
        loosened, worsened = self.queue.loosened, table.worsened
        has_changed = bool(woken or improved) or eased or loosened or worsened or (is_corrected and stirred)
        if self.queue.is_holding and (has_changed or self.queue.is_due(self.state.time_ms)):
            held = self.queue.release()
        self.queue.loosened = table.worsened = table.stirred = False
        table.regained.clear()
        self._before = _Before(woken, improved, thinned, eased, held, loosened, worsened, regained, stirred)

    def _wake_heads(self) -> list[tuple[ClassKey, Sleep]]:
        """In strict order, wake who stands first and needs more than the cluster has by now: once told so, it lets others go.

        One that is tried again when its time has come is left until then: while shards are missing nobody can tell it so.
        """
        woken: list[tuple[ClassKey, Sleep]] = []
        settings = self.state.fold.settings
        while settings.queue_policy == "fifo" and (head := self.queue.head()) is not None:
            is_timed = settings.corrected and self.queue.sleep_of(head.request_class).retry_at_ms > 0
            if is_timed or not self._is_larger_than_cluster(head.request_class):
                break
            woken += self.queue.wake(functools.partial(operator.eq, head.request_class), time_ms=0)
        return woken

    def _is_larger_than_cluster(self, request_class: ClassKey) -> bool:
        return guarded(lambda: is_larger_than_cluster(self.scorer, request_class), lambda _: False)

    def _helps(self, key: ClassKey, improved: list[int], most: int, regained: list[int]) -> bool:
        """Whether one of the rows that changed now takes a pod of the class, or leaves are open to more jobs.

        A class that a row cannot be scored for is tried, and set aside, unless it was before and has its time.

        Args:
            key: The class.
            improved: Rows on which something got better.
            most: Chips that were free on any row where now fewer are.
            regained: Rows on which chips came back that others may hold: they help pods that share chips.
        """
        if self.state.leaf_book.eased and any(shape.tor_affinity for shape, _ in key):
            return True
        sleep, table = self.queue.sleep_of(key), self.state.table
        if sleep.by_any_change and table.stirred and may_fit(self.scorer, key):
            return True
        is_aside = sleep.never and sleep.retry_at_ms > 0
        for shape, _ in key:
            rows = improved
            if shape.share is not None and self.state.fold.settings.corrected:
                rows = [*improved, *regained, *table.thinned]
            if shape.form and FORMS[shape.form].is_beyond(most):
                rows = rows + [row for row, before in table.thinned.items() if FORMS[shape.form].is_beyond(before)]
            if self._takes(shape, rows, otherwise=not is_aside):
                return True
        return False

    def _takes(self, shape: Shape, rows: list[int], *, otherwise: bool) -> bool:
        """Whether a row takes a pod of a shape; ``otherwise`` for a row that cannot be scored."""
        scorer = self.scorer

        def one_by_one(_: Exception | None = None) -> bool:
            return any(guarded(functools.partial(self._takes_on, shape, row), lambda _: otherwise) for row in rows)

        if len(rows) <= _ROWS_ONE_BY_ONE:
            return one_by_one()
        return guarded(lambda: bool((scorer.evaluate(shape)[0][rows] == NodeReason.FITS).any()), one_by_one)

    def _takes_on(self, shape: Shape, row: int) -> bool:
        return self.scorer.evaluate_one(shape, row, self.scorer.row_state(row))[0] == NodeReason.FITS


def _retry_at_ms(gang: GangRecord, refusal: Refusal, settings: Settings) -> int:
    """When the class of a refused gang is tried although nothing got better; 0 for never."""
    if refusal.missing_shards:
        return gang.at_ms + settings.shard_retry_ms
    return gang.at_ms + RETRY_MS if refusal.code == INTERNAL else 0
