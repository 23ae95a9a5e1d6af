"""Work of the binder, from the folded ledger and its own outcomes. Pure.

The step for an attempt depends on the state, not on the order of messages: a placement without an outcome is to be
bound, a pending eviction is to be done, and a released attempt needs nothing.

Longer than 400 lines because the step for an attempt follows from all that is known of it.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, TypeAlias

from berth.core.state.holdings.moves import Move
from berth.core.state.ledger import Folded, GangRecord, Holding, LedgerDump, LedgerFold
from berth.formats.ascend.ledger_mark import ledger_mark
from berth.schemas.facts import OutcomeSeen, OutcomeState, RankFailure
from berth.schemas.placement import Placement
from berth.schemas.recovery import DRAIN, Recovery
from berth.schemas.units import UnixMs

AttemptKey: TypeAlias = tuple[str, int]
"""(uid, attempt)"""
Verb: TypeAlias = Literal["bind", "evict", "recover"]
_MS: Final = 1000


@dataclass(slots=True)
class Attempt:
    """A live attempt: placed, and not released.

    Attributes:
        holding: Its state in the ledger.
        evict_seq: Record that ended it; 0 while it may run.
        outcome: Its outcome so far; None for none.
        recovery: The newest step of its recovery; None while there was none.
        taken_up: Newest step whose pods are deleted or marked.
        done: Newest step that is carried out.
        bound: Ranks of later steps that are bound, and the step that gave each its place.
        left_backups: Ranks whose backup pods this process could not bind, and the step that gave each its place.
        forced: Step at which the pods of each rank were deleted at once, because their time was over.
        is_forced: The pods of an attempt that ends were deleted at once, because their time was over.
        evicted: Step at which the pods of each rank on drained nodes were evicted by this process.
        held_until_ms: When to evict those again that disruption budgets hold back.
        ledger: Newest record that gave it places, as pods name it; empty while the ledger's stream is not known.
    """

    holding: Holding
    evict_seq: int = 0
    outcome: OutcomeState | None = None
    recovery: Recovery | None = None
    taken_up: int = 0
    done: int = 0
    bound: dict[int, int] = field(default_factory=dict)
    left_backups: dict[int, int] = field(default_factory=dict)
    forced: dict[int, int] = field(default_factory=dict)
    is_forced: bool = False
    evicted: dict[int, int] = field(default_factory=dict)
    held_until_ms: UnixMs = 0
    ledger: str = ""

    @property
    def key(self) -> AttemptKey:
        """Identity of the decision."""
        return self.holding.key

    @property
    def namespace(self) -> str:
        """Namespace of the job."""
        return self.holding.namespace

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.holding.name

    @property
    def uid(self) -> str:
        """Uid of the job."""
        return self.holding.uid

    @property
    def attempt(self) -> int:
        """Number of the attempt; 0 for pods of another scheduler."""
        return self.holding.attempt

    @property
    def placement(self) -> Placement:
        """Nodes and chips of its pods."""
        return self.holding.placement

    @property
    def ledger_seq(self) -> int:
        """Record that placed it."""
        return self.holding.ledger_seq

    @property
    def evict_reason(self) -> str:
        """Why it was ended; empty while it may run."""
        return self.holding.ending

    @property
    def foreign(self) -> bool:
        """Whether another scheduler placed it: it is bound already."""
        return self.holding.foreign

    @property
    def gone(self) -> list[int]:
        """Ranks that were released, ascending: they need no work."""
        return self.holding.gone

    @property
    def recovers(self) -> bool:
        """Whether it was bound, and a step of its recovery is not carried out."""
        return self.outcome == "bound" and self.holding.step > self.done

    @property
    def is_moving(self) -> bool:
        """Whether a place is reserved for a rank whose pod has yet to leave."""
        return any(move.placed for move in self.holding.moves if move.how != "backup" and not move.is_restart)

    def is_unbound(self, rank: int) -> bool:
        """Whether no pod of a rank is known to be bound at the place that a step gave it."""
        return self.holding.step_of(rank) > max(self.done, self.bound.get(rank, 0))

    def unbound_backups(self) -> dict[int, Move]:
        """Ranks whose backup pods are to be bound, and the steps that gave these their places."""
        found = {} if self.evict_seq else self.holding.backups()
        return {
            rank: move
            for rank, move in found.items()
            if move.step > max(self.done, self.bound.get(rank, 0), self.left_backups.get(rank, 0))
        }

    def ranks(self) -> list[int]:
        """Ranks that have a place and whose pods do not leave."""
        settled = self.holding.leaving().keys() | self.gone
        return [rank for rank in range(self.placement.pods()) if rank not in settled]

    @property
    def saves(self) -> bool:
        """Whether agents are asked to save a checkpoint before its pods are deleted."""
        if self.evict_reason:
            return self.evict_reason == "fault" and self.recovery is not None and self.recovery.saves
        return any(move.saves for move in self.holding.moves)

    def unevicted(self) -> dict[int, int]:
        """Ranks on drained nodes whose pods were not evicted by this process yet, and the step of each."""
        moves = [move for move in self.holding.moves if is_eviction(move)]
        return {rank: move.step for move in moves for rank in move.leaving if self.evicted.get(rank, 0) < move.step}

    def overdue(self, now_ms: UnixMs) -> dict[int, int]:
        """Ranks whose pods had to be gone by now and were not deleted at once yet, and the step of each."""
        late = [move for move in self.holding.moves if move.how == "grace" and 0 < move.until_ms <= now_ms]
        return {rank: move.step for move in late for rank in move.leaving if self.forced.get(rank, 0) < move.step}

    @property
    def overdue_at_ms(self) -> UnixMs:
        """Time at which pods that end are deleted at once, or pods are evicted again; 0 for never."""
        if self.evict_seq:
            found = self.recovery
            is_open = found is not None and self.evict_reason == "fault" and found.how == "grace" and not self.is_forced
            return found.until_ms if found is not None and is_open else 0
        until = [
            move.until_ms
            for move in self.holding.moves
            if move.how == "grace" and any(self.forced.get(rank, 0) < move.step for rank in move.leaving)
        ]
        if self.unevicted():
            until.append(max(self.held_until_ms, 1))
        return min(filter(None, until), default=0)


def is_eviction(move: Move) -> bool:
    """Whether the pods of a step are evicted: their nodes are drained, and they are well."""
    return move.kind == DRAIN and move.how == "grace"


@dataclass(frozen=True, slots=True)
class Step:
    """Next step for an attempt."""

    verb: Verb
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Clearing:
    """Ended pods of earlier attempts are to be deleted: a fault has ended these, and the job starts anew.

    Its controller makes no others while they are there.
    """

    verb: ClassVar[Literal["clear"]] = "clear"
    namespace: str
    name: str
    uid: str
    attempt: int


@dataclass(slots=True)
class Work:
    """Live attempts and their outcomes.

    Attributes:
        fold: The ledger, folded by the same rules as in every other reader.
        clearings: Jobs that start anew after a fault, by their next attempt.
        over: Attempts that ended since the caller last emptied this, in the ledger's order.
        void: Why the last record counts for nothing; empty if it counts.
        stream: Id of the ledger's stream; empty if it is not known.
    """

    fold: LedgerFold = field(default_factory=LedgerFold)
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    clearings: dict[AttemptKey, Clearing] = field(default_factory=dict)
    over: list[AttemptKey] = field(default_factory=list)
    void: str = ""
    stream: str = ""
    _names: dict[tuple[str, str], dict[AttemptKey, None]] = field(default_factory=dict)
    _outcomes: dict[tuple[str, str], OutcomeSeen] = field(default_factory=dict)
    _settled: bool = False

    @property
    def head(self) -> int:
        """Sequence of the last record."""
        return self.fold.head

    @property
    def voided(self) -> int:
        """Number of void records."""
        return self.fold.voided

    @property
    def latest_ms(self) -> int:
        """Latest time in the ledger or in an outcome of a live attempt, in ms since 1970."""
        return max([self.fold.at_ms, *(outcome.at_ms for outcome in self._outcomes.values())])

    def restore(self, dump: LedgerDump) -> None:
        """Start from the ledger of a snapshot; records after ``dump.head`` follow."""
        self.fold.load(dump)
        for holding in dump.holdings:
            self._take(holding, evict_seq=dump.head if holding.ending else 0)
        self._note_recoveries(dump.gangs, dump.head)
        for gang in dump.gangs:
            self._note_restart(gang)
        self._forget_idle()

    def apply_record(self, sequence: int, data: bytes) -> list[AttemptKey]:
        """Apply a record of the ledger; returns the affected attempts, in its order.

        Raises:
            HistoryError: Records are missing before it.
            VersionError: Only another release reads it.
            LedgerBrokenError: It breaks a rule of the ledger. Nothing of it was applied.
        """
        folded = self.fold.apply(sequence, data)
        self.void = folded.void
        touched = [self._take(holding) for holding in folded.taken if not holding.foreign]
        for holding in folded.ending:
            self.attempts[holding.key].evict_seq = sequence
            touched.append(holding.key)
        touched.extend(holding.key for holding, _ in folded.freed)
        evicted = {holding.key for holding in folded.given_back if self.attempts[holding.key].outcome == "evicted"}
        for holding in folded.given_back:
            self._drop(holding)
        for holding in folded.taken:
            if holding.foreign:
                self._take(holding)
        touched.extend(self._note_recoveries(folded.gangs, sequence))
        touched.extend(self._note_restarts(folded, evicted))
        for gang in folded.gangs:
            if gang.phase not in {"placed", "ending"}:
                self.fold.gangs.pop(gang.uid, None)
        return touched

    def _note_recoveries(self, gangs: Iterable[GangRecord], sequence: int) -> list[AttemptKey]:
        """Note the newest steps of recoveries, known by a record; returns the attempts that recover, in their order."""
        found: dict[AttemptKey, None] = {}
        for gang in gangs:
            attempt = self.attempts.get((gang.uid, gang.recovery.attempt)) if gang.recovery is not None else None
            if attempt is not None:
                attempt.recovery = gang.recovery
                attempt.ledger = self._mark(sequence)
                found[attempt.key] = None
        return list(found)

    def _note_restarts(self, folded: Folded, evicted: Container[AttemptKey]) -> list[AttemptKey]:
        """Note jobs that start anew, unless the binder has ended their pods; returns their next attempts."""
        found: list[AttemptKey] = []
        for gang in folded.gangs:
            if gang.is_over:
                self.clearings.pop((gang.uid, gang.attempt), None)
            if (gang.uid, gang.attempt - 1) not in evicted and self._note_restart(gang):
                found.append((gang.uid, gang.attempt))
        return found

    def _note_restart(self, gang: GangRecord) -> bool:
        recovery = gang.recovery
        if recovery is None or recovery.scope != "job" or recovery.how == "mark":
            return False
        if gang.phase != "waiting" or recovery.attempt != gang.attempt - 1:
            return False
        self.clearings[gang.uid, gang.attempt] = Clearing(gang.namespace, gang.name, gang.uid, gang.attempt)
        return True

    def _forget_idle(self) -> None:
        """Drop gangs without chips: the binder reads no facts of jobs, so no other event would end them."""
        for gang in list(self.fold.gangs.values()):
            if gang.phase not in {"placed", "ending"}:
                del self.fold.gangs[gang.uid]

    def _take(self, holding: Holding, *, evict_seq: int = 0) -> AttemptKey:
        attempt = self.attempts[holding.key] = Attempt(holding, evict_seq, ledger=self._mark(holding.ledger_seq))
        self._names.setdefault((holding.namespace, holding.name), {})[holding.key] = None
        self._join(attempt)
        return holding.key

    def _mark(self, sequence: int) -> str:
        """A record as pods name it; the epoch of one in a snapshot is that of the snapshot."""
        return ledger_mark(self.stream, self.fold.epoch, sequence) if self.stream else ""

    def _drop(self, holding: Holding) -> None:
        attempt = self.attempts.pop(holding.key)
        name = (holding.namespace, holding.name)
        named = self._names[name]
        del named[holding.key]
        if not named:
            del self._names[name]
        if self.outcome_of(attempt) is not None:
            del self._outcomes[name]
        self.over.append(holding.key)

    def apply_outcome(self, outcome: OutcomeSeen) -> AttemptKey:
        """Apply an outcome of this or an earlier run; returns its attempt."""
        attempt = self.attempts.get((outcome.uid, outcome.attempt))
        if attempt is not None or not self._settled:
            self._outcomes[outcome.namespace, outcome.name] = outcome
        if attempt is not None:
            self._join(attempt)
        return (outcome.uid, outcome.attempt)

    def settle(self) -> None:
        """Drop outcomes of attempts that are not live. To be called after the ledger is folded."""
        self._settled = True
        live = {
            (item.namespace, item.name): item for item in self.attempts.values() if self.outcome_of(item) is not None
        }
        self._outcomes = {key: outcome for key, outcome in self._outcomes.items() if key in live}

    def _join(self, attempt: Attempt) -> None:
        seen = self.outcome_of(attempt)
        if seen is not None and attempt.outcome != "evicted":
            attempt.outcome = seen.state
            attempt.taken_up = max(attempt.taken_up, seen.step)
            attempt.done = max(attempt.done, seen.done)

    def outcome_of(self, attempt: Attempt) -> OutcomeSeen | None:
        """Last outcome of exactly this attempt."""
        seen = self._outcomes.get((attempt.namespace, attempt.name))
        return seen if seen is not None and (seen.uid, seen.attempt) == attempt.key else None

    def named(self, namespace: str, name: str) -> list[AttemptKey]:
        """Live attempts of a job, oldest first."""
        return list(self._names.get((namespace, name), ()))

    def next_step(self, key: AttemptKey, now_ms: UnixMs = 0) -> Step | Clearing | None:
        """Next step for an attempt; None for none.

        Args:
            key: The attempt.
            now_ms: The time; pods of a recovery may have had to be gone before.
        """
        if key in self.clearings:
            return self.clearings[key]
        attempt = self.attempts.get(key)
        verb = self._verb(attempt, now_ms) if attempt is not None else None
        return Step(verb, attempt) if attempt is not None and verb is not None else None

    def _verb(self, attempt: Attempt, now_ms: UnixMs) -> Verb | None:
        late = 0 < attempt.overdue_at_ms <= now_ms
        if attempt.evict_seq:
            return "evict" if attempt.outcome != "evicted" or late else None
        if attempt.outcome == "evicted" or attempt.foreign:
            return None
        if attempt.holding.step > attempt.taken_up or late:
            return "recover"
        may_go_on = attempt.recovers and (self.to_bind(attempt) or not attempt.is_moving)
        return "bind" if attempt.outcome is None or may_go_on else None

    def to_bind(self, attempt: Attempt) -> list[int]:
        """Ranks that are to be bound, ascending: all, or those that a step of a recovery has placed anew."""
        if attempt.outcome is None:
            return attempt.ranks()
        failed = {failure.rank for failure in self.failures_of(attempt)}
        unbound = {rank for rank in attempt.ranks() if attempt.is_unbound(rank) and rank not in failed}
        return sorted(unbound.union(attempt.unbound_backups()))

    def open_ranks(self, attempt: Attempt) -> list[int]:
        """Ranks that recover, ascending: they leave, have no place or no bound pod; all if the whole job leaves."""
        holding = attempt.holding
        if holding.ending:
            return list(range(holding.placement.pods())) if holding.ending == "fault" else []
        unbound = {rank for rank in holding.steps if rank not in holding.gone and attempt.is_unbound(rank)}
        return sorted(unbound.union(holding.leaving(), holding.unplaced))

    def failures_of(self, attempt: Attempt) -> list[RankFailure]:
        """Failures of ranks that are neither released nor placed anew since."""
        outcome = self.outcome_of(attempt)
        if outcome is None:
            return []
        holding = attempt.holding
        settled = holding.leaving().keys() | holding.gone
        return [
            one for one in outcome.failures if one.rank not in settled and holding.step_of(one.rank) <= outcome.step
        ]

    def due_in_s(self, key: AttemptKey, now_ms: UnixMs) -> float | None:
        """Seconds until pods that leave an attempt have to be gone; None for never."""
        attempt = self.attempts.get(key)
        until_ms = attempt.overdue_at_ms if attempt is not None else 0
        return max(until_ms - now_ms, 0) / _MS if until_ms else None

    def pending(self) -> list[AttemptKey]:
        """Attempts with a next step now or at a known time, in the order in which the ledger placed them."""
        due = [
            attempt
            for key, attempt in self.attempts.items()
            if self.next_step(key) is not None or attempt.overdue_at_ms
        ]
        found = [item.key for item in sorted(due, key=lambda item: (item.ledger_seq, item.uid))]
        return [*found, *sorted(self.clearings)]
