"""The scheduler: turns on one state, from waiting gangs to a record of the ledger.

The dispatcher, a replay and a simulation drive the same turns: they apply facts and records to the state, hand over
what these changed, open a turn, choose on offers, record the choice, and adopt the record once it is stored. A decision
depends on the state at its sequences, the moment, and the shards that did not answer, and not on how many turns led to
it. So a turn that was opened and is not stored is taken back.

Longer than 400 lines because all steps of a turn are here, each with what may go wrong.
"""

import functools
from collections.abc import Container, Mapping
from typing import Final

import msgspec

from berth.core.changes import NO_CHANGES, Changes, merged
from berth.core.errors import InvariantError, guarded
from berth.core.gangs import Gang
from berth.core.placement.round_demand import ROUND_WORK_MAX
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.requests.gangs import gang_of
from berth.core.scheduling.admissions import Admissions
from berth.core.scheduling.constraint_wakeups import is_about_gang
from berth.core.scheduling.delays import Delays
from berth.core.scheduling.fault_watch import FaultWatch
from berth.core.scheduling.gang_class import has_queues
from berth.core.scheduling.growth import apart, may_grow
from berth.core.scheduling.heavy_gangs import gangs_of_round, with_asks, without
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.record_effects import take_effect
from berth.core.scheduling.recoveries import held_back
from berth.core.scheduling.rules.port import TurnStart
from berth.core.scheduling.rules.registry import built
from berth.core.scheduling.turn import Choice, MissingShards, Opened, Opening, Recorded, Turn, opening_of
from berth.core.scheduling.verdicts import Decided, Decisions, round_of
from berth.core.scheduling.waiting_dumps import changes_of, waiting_dump
from berth.core.scheduling.wakeups import Wakeups, Woken
from berth.core.state.cell import JobKey, State
from berth.core.state.internal_errors import unreadable
from berth.core.state.ledger import Folded
from berth.core.state.lifecycle import examine
from berth.core.state.waiting_dump import WaitingDump
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest
from berth.schemas.offers import Shape

_PARTS_MAX: Final = 64
"""Values of changes that are kept apart until a turn; more are merged, so that many facts without a turn need little
memory."""


class Scheduler:
    """Turns on one state.

    Args:
        state: The cell, with nothing kept back: all facts and records go through it.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._renew()
        self._pending: list[Changes] = []
        self._applied = 0
        """Facts and records whose changes were handed over."""
        self.to_examine: dict[str, None] = {}
        """Gangs (uid) that may have to be evicted, released or adopted, or need a step of a recovery."""
        self.watch = FaultWatch(state)
        self._delays = Delays(state)

    def _renew(self) -> None:
        """Begin with an empty queue, under the settings and rules of the epoch."""
        state = self.state
        self.rules = built(state.fold.rules)
        self.queue = Queue(strict=self.rules.is_strict)
        self.scorer = self.new_scorer()
        self.decisions = Decisions(state, self.queue, self.scorer, self.rules)
        self._wakeups = Wakeups(state, self.queue, self.scorer)
        self._admissions = Admissions(state, self.queue)
        self.turn: Turn | None = None
        """The step that the open turn has reached."""
        self._consumed: tuple[Woken, Changes] = (Woken(), NO_CHANGES)
        """What the open turn woke, and which changes it consumed."""

    def new_scorer(self) -> Scorer:
        """Scoring under the settings of the epoch."""
        return Scorer(self.state.table, self.state.shares, self.state.fold.settings)

    def gang(self, job: JobSeen, request: JobRequest, attempt: int) -> Gang:
        """A job as it waits."""
        profiles = self.state.constraints.profiles(job.namespace, request)
        gang = gang_of(job, request, attempt=attempt, settings=self.state.fold.settings, profiles=profiles)
        record = self.state.fold.gangs.get(job.uid)
        if record is not None and record.recovery is not None and record.recovery.attempt < attempt:
            gang.avoided = tuple(sorted({*gang.avoided, *record.recovery.nodes}))
        return gang

    def _gang(self, job: JobSeen, request: JobRequest, attempt: int) -> Gang:
        """As :meth:`gang`; of a request that ends with an error, a gang that is refused."""
        made = functools.partial(self.gang, job, request, attempt)
        return guarded(made, lambda error: unreadable(job, request, error, attempt=attempt))

    def note(self, changes: Changes) -> None:
        """Take over what a fact changed, for the next turn. What records changed comes with them."""
        if changes is NO_CHANGES:
            return
        self._applied += changes.applied
        self.to_examine.update(changes.gangs_to_examine)
        self._pending.append(changes)
        if len(self._pending) > _PARTS_MAX:
            self._pending = [merged(self._pending)]

    @property
    def pending(self) -> Changes:
        """Changes that no turn has consumed."""
        found = merged(self._pending)
        self._pending = [found]
        return found

    @property
    def next_due_ms(self) -> int:
        """First time at which a recovery needs a step, held places are free or a pause is over, unasked; 0 without."""
        held = (held.until_ms for held in self.state.fold.held.values())
        return min(filter(None, (self.watch.next_due_ms, *held, *self._delays.moments())), default=0)

    @property
    def has_work(self) -> bool:
        """Whether a turn could decide something."""
        queue = self.queue
        is_released = queue.is_holding and any(map(queue.may_release, self._pending))
        is_strict = queue.is_strict and any(map(has_queues, self._pending))  # the head may block others no longer
        may_decide = queue.has_work or is_released or self._admissions.is_due
        return may_decide or (is_strict and queue.head() is not None)

    def begin(self, changes: Changes, *, resumes: bool = False) -> None:
        """Begin an epoch: all waiting gangs are tried again, under its settings.

        Args:
            changes: What the record of the epoch changed, and whatever else was not handed over yet.
            resumes: The settings are those of the epoch before, and gangs wait as they did.
        """
        state = self.state
        self.note(merged([changes, Changes(jobs_changed=self._delays.advance(state.fold.at_ms))]))
        if resumes:
            return
        self._renew()
        self._pending = [Changes(jobs_changed={**self.pending.jobs_changed, **dict.fromkeys(state.jobs)})]
        # Other settings may want other steps.
        self.to_examine.update((uid, None) for uid, _ in sorted(state.fold.holdings))
        self.sync()

    def sync(self) -> None:
        """Bring the queue in line with the jobs that changed."""
        self._sync_terms()
        pending = self.pending
        if not pending.jobs_changed:
            return
        unblocked = pending.queue_unblocked
        self._admissions.note_jobs()
        for key in pending.jobs_changed:
            unblocked |= self._sync_job(key)
        self._pending = [msgspec.structs.replace(pending, jobs_changed={}, queue_unblocked=unblocked)]

    def _sync_terms(self) -> None:
        """Bring the classes of waiting gangs in line with the required anti-affinity of other pods, if that changed."""
        changes = self.pending.constraints
        if not (changes.terms_changed or changes.namespaces_changed):
            return
        for known in self.queue.gangs():
            if not is_about_gang(changes, known, self.state.constraints.namespaces):
                continue
            job = self.state.jobs.get((known.namespace, known.name))
            if job is not None and job.request is not None and job.uid == known.uid:
                gang = self._gang(job, job.request, known.attempt)
                if gang.request_class != known.request_class:
                    self.queue.move(gang)

    def _sync_job(self, key: JobKey) -> bool:
        """Bring the queue in line with a job; returns whether that may help gangs that are held."""
        state, queue = self.state, self.queue
        job = state.jobs.get(key)
        if job is None or job.state == "rejected":  # a request that was rejected may bear the uid of a gang that waited
            return queue.keep_only(key, "")
        unblocked = queue.keep_only(key, job.uid)
        gang = state.fold.gangs.get(job.uid)
        is_out = job.state != "accepted" or job.hold is not None or (gang is not None and gang.phase != "waiting")
        if is_out or job.request is None or (job.namespace, job.uid) in state.claimed:
            return queue.remove(job.uid) or unblocked
        if self._delays.see(key, gang):
            return queue.remove(job.uid) or unblocked
        attempt = gang.attempt if gang is not None else 1
        return queue.put(self._gang(job, job.request, attempt)) or unblocked

    def open(self, at_ms: int, *, work_max: int = 0) -> Opened:
        """Open a turn at the state as it is, if there is something to decide.

        Args:
            at_ms: The moment, as the record will contain it.
            work_max: Bound of the work, likewise; 0 for that of the release.

        Returns:
            The opening, or None when there is nothing to decide, and the errors in what is due.

        Raises:
            InvariantError: The turn before is neither adopted nor taken back, or changes were not handed over.
        """
        state = self.state
        number = state.fold.rounds + 1
        if self.turn is not None:
            raise InvariantError("the turn before is still open", subject=f"round {number}")
        if self._applied != state.applied:
            raise InvariantError("changes of facts or records were not handed over", subject=f"round {number}")
        self._pending.append(Changes(jobs_changed=self._delays.advance(at_ms)))
        self.sync()
        self._consume()
        terms = self.rules.terms(state, at_ms)
        taken = gangs_of_round(state, self.queue, self.rules, work_max=work_max or ROUND_WORK_MAX)
        gangs = [terms.applied(gang) for gang in taken]
        self.to_examine.update(dict.fromkeys(self.watch.due(at_ms)))
        faulty, with_errors = self.watch.find_faulty(self.to_examine, self._consumed[1], at_ms=at_ms)
        must, settled, set_aside, is_cut = examine(state, self._delays.unkept(self.to_examine, self.queue), at_ms=at_ms)
        set_aside = [*with_errors, *set_aside]
        faulty, held = held_back(must, [one._replace(gang=terms.applied(one.gang)) for one in faulty])
        wanting = {one.holding.uid: None for one in faulty}
        faulty, growing = apart(faulty)
        growing = may_grow(state.fold, self.queue, growing, tried={gang.uid for gang in gangs})
        self.to_examine.update(wanting)
        for uid in settled:
            if uid not in wanting:
                del self.to_examine[uid]
        # What is adopted must not be given away in the same record, nor what only the next record has room to adopt.
        adopts = must.takes_places or is_cut
        if adopts:
            gangs, faulty, growing = [], [], []
        start = TurnStart(state, self.queue, terms, gangs, self._consumed[1])
        returning = [] if adopts else self.rules.returning(start)
        admissions = self._admissions.due()
        if not (gangs or must or faulty or growing or returning or admissions):
            self._restore_classes()
            return Opened(None, set_aside)
        bare = Opening(number, at_ms, gangs, must, {}, faulty, growing, held, returning, admissions, work_max=work_max)
        self.turn = opening = with_asks(bare, nodes=len(state.table), full=state.constraints.full_nodes)
        return Opened(opening, set_aside)

    def leave_out(self, opening: Opening, gangs: Container[str]) -> Opening:
        """Leave the heavy ones of some gangs (uid) out of a turn; returns the turn to use from then on.

        Raises:
            InvariantError: The opening was used before.
        """
        self._expect(opening)
        self.turn = left = without(opening, gangs, nodes=len(self.state.table))
        return left

    def _restore_classes(self) -> None:
        """Undo what a turn woke that decides nothing: in strict order, classes behind the head; no record has them."""
        if self._consumed[0].classes:
            self._restore()

    def _consume(self) -> None:
        """Wake and release what the pending changes help; they are consumed by that."""
        changes = self.pending
        self._pending = []
        self._consumed = (self._wakeups.wake(changes), changes)

    def _restore(self) -> None:
        """Undo what a turn woke, and make the changes that it consumed pending again."""
        woken, changes = self._consumed
        self._consumed = (Woken(), NO_CHANGES)
        self._wakeups.take_back(woken)
        self._pending.insert(0, changes)
        self._admissions.take_back()

    def choose(
        self,
        opening: Opening,
        views: Mapping[Shape, Candidates],
        asks: Mapping[Shape, int],
        missing_shards: MissingShards,
    ) -> Choice:
        """Decide the gangs of a turn on offers; :class:`berth.core.scheduling.turn.Asking` asks for them.

        Args:
            opening: The turn; it may be used again after NeedMoreError alone.
            views: Merged candidates of each shape.
            asks: How many were asked for.
            missing_shards: Shards that did not answer.

        Raises:
            NeedMoreError: The candidates do not reach far enough.
            InvariantError: The opening was used before.
        """
        self._expect(opening)
        return self._chosen(opening, self.decisions.on_offers(opening, views, asks, missing_shards), missing_shards)

    def _chosen(self, opening: Opening, found: Decided, missing_shards: MissingShards) -> Choice:
        self.turn = choice = found.choice(opening, missing_shards)
        return choice

    def record(self, choice: Choice) -> Recorded:
        """Make the record of a turn, which is to be stored.

        Raises:
            InvariantError: The choice was used before.
        """
        self._expect(choice)
        self.turn = recorded = Recorded(choice.opening, round_of(self.state, choice), choice.set_aside)
        return recorded

    def choose_alone(self, opening: Opening, missing_shards: MissingShards | None = None) -> Choice:
        """As :meth:`choose`, on candidates of the state itself, without offers of shards.

        Args:
            opening: The turn.
            missing_shards: Shards that are taken not to answer.

        Raises:
            OffersExhaustedError: The candidates never reach far enough.
            InvariantError: The opening was used before.
        """
        self._expect(opening)
        missing_shards = missing_shards or MissingShards()
        return self._chosen(opening, self.decisions.on_own_candidates(opening, missing_shards), missing_shards)

    def decide(self, opening: Opening, missing_shards: MissingShards | None = None) -> Recorded:
        """:meth:`choose_alone`, and record the choice.

        Args:
            opening: The turn.
            missing_shards: Shards that are taken not to answer.

        Raises:
            OffersExhaustedError: The candidates never reach far enough.
            InvariantError: The opening was used before.
        """
        return self.record(self.choose_alone(opening, missing_shards))

    def adopt(self, recorded: Recorded, folded: Folded) -> None:
        """End a turn whose record was stored and folded.

        Args:
            recorded: The turn.
            folded: What its record changed.

        Raises:
            InvariantError: The turn was ended before.
        """
        self._expect(recorded)
        self.turn = None
        self._settle(recorded.opening, lacks_shards=bool(recorded.round.missing))
        self._follow(folded, recorded.opening)

    def leave(self, choice: Choice) -> None:
        """End a turn that decided nothing (:attr:`Choice.is_empty`), without a record.

        Args:
            choice: The turn.

        Raises:
            InvariantError: The choice was used before.
        """
        self._expect(choice)
        self.turn = None
        self._settle(choice.opening, lacks_shards=bool(choice.missing_shards.missing))
        self._restore_classes()

    def _settle(self, opening: Opening, *, lacks_shards: bool) -> None:
        """The faulty gangs of a turn have been tried: the watch knows when to try those without a step again."""
        if lacks_shards:
            retry_ms = opening.at_ms + self.state.fold.settings.shard_retry_ms
            self.watch.note_unheard([one.holding.uid for one in (*opening.faulty, *opening.growing)], retry_ms)
        left = {*self._delays.kept_ms, *(one.uid for one in opening.held)}  # to be examined again
        for one in [*opening.faulty, *(() if opening.gangs else opening.growing)]:  # gangs may have been before these
            if one.holding.uid not in left:
                self.to_examine.pop(one.holding.uid, None)

    def follow(self, folded: Folded, opening: Opening | None = None) -> None:
        """Bring the queue in line with a record that was not decided here.

        Args:
            folded: What the record changed.
            opening: The turn that was opened here for the same round, if any; it ends with that.

        Raises:
            InvariantError: The turn was ended before.
        """
        if opening is not None:
            self._expect_turn(opening)
            self.turn = None
        self._follow(folded, opening)

    def take_back(self, turn: Turn) -> None:
        """End a turn whose record is not stored: as if it had never been opened.

        Args:
            turn: The turn, at whatever step.

        Raises:
            InvariantError: The turn was ended before.
        """
        self._expect_turn(turn)
        self.turn = None
        self._restore()

    def _expect(self, step: Turn) -> None:
        """Check that a step is the last one of the open turn.

        Raises:
            InvariantError: The step was used before, or its turn was ended.
        """
        self._expect_turn(step)
        if self.turn is not step:
            subject = f"round {opening_of(step).number}"
            raise InvariantError(f"the {type(step).__name__} of a turn was used before", subject=subject)

    def _expect_turn(self, turn: Turn) -> None:
        """Check that a turn is the open one, at whatever step.

        Raises:
            InvariantError: The turn was ended before.
        """
        opening = opening_of(turn)
        if self.turn is None or opening_of(self.turn) is not opening:
            raise InvariantError("the turn was ended before", subject=f"round {opening.number}")

    def _follow(self, folded: Folded, opening: Opening | None) -> None:
        if any(gang.phase != "waiting" for gang in folded.gangs):
            self._admissions.note_jobs()
        self.note(merged([folded.changes, take_effect(self.state, self.queue, self.rules, folded, opening)]))

    def dump(self) -> WaitingDump:
        """Gangs that wait and classes that sleep, for snapshots: they follow from the epoch, not from the state.

        The facts of the same snapshot may be newer than the last turn, and its reader has jobs as those say.
        """
        if self.turn is None:
            self.sync()
        return waiting_dump(self.state, self.queue, self.pending)

    def load(self, dump: WaitingDump, changes: Changes) -> None:
        """Become what a snapshot holds.

        Args:
            dump: Gangs that wait, as the snapshot has them.
            changes: What the state returned when it was loaded from the same snapshot.
        """
        self._delays.now_ms = self.state.fold.at_ms
        self.begin(changes)
        self.queue.load(dump.known, dump.sleeping, dump.held)
        self._pending.append(changes_of(dump, self.state.table.row))
