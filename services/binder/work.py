"""Work of the binder, from the folded ledger and its own outcomes. Pure.

The step for an attempt depends on the state, not on the order of messages: a placement without an outcome is to be
bound, a pending eviction is to be done, and a released attempt needs nothing.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from berth.core.state.ledger import Holding, LedgerDump, LedgerFold
from berth.schemas.envelope import open_envelope
from berth.schemas.facts import OutcomeSeen, OutcomeState
from berth.schemas.placement import Placement

AttemptKey: TypeAlias = tuple[str, int]
"""(uid, attempt)"""


@dataclass(slots=True)
class Attempt:
    """A live attempt: placed, and not released.

    Attributes:
        holding: Its state in the ledger.
        evict_seq: Record that ended it; 0 while it may run.
        outcome: Its outcome so far; None for none.
    """

    holding: Holding
    evict_seq: int = 0
    outcome: OutcomeState | None = None

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


@dataclass(frozen=True, slots=True)
class Step:
    """Next step for an attempt."""

    verb: Literal["bind", "evict"]
    attempt: Attempt


@dataclass(slots=True)
class Work:
    """Live attempts and their outcomes.

    Attributes:
        fold: The ledger, folded by the same rules as in every other reader.
        over: Attempts that ended since the caller last emptied this, in the ledger's order.
    """

    fold: LedgerFold = field(default_factory=LedgerFold)
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    over: list[AttemptKey] = field(default_factory=list)
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
        self._forget_idle()

    def apply_record(self, sequence: int, data: bytes) -> list[AttemptKey]:
        """Apply a record of the ledger; returns the affected attempts, in its order.

        Raises:
            HistoryError: Records are missing before it.
            DecodeError: It does not decode.
            InvariantError: It breaks a rule of the ledger.
        """
        folded = self.fold.apply(sequence, open_envelope(data))
        touched = [self._take(holding) for holding in folded.taken if not holding.foreign]
        for holding in folded.ending:
            self.attempts[holding.key].evict_seq = sequence
            touched.append(holding.key)
        touched.extend(holding.key for holding, _ in folded.freed)
        for holding in folded.given_back:
            self._drop(holding)
        for holding in folded.taken:
            if holding.foreign:
                self._take(holding)
        for gang in folded.gangs:
            if gang.phase not in {"placed", "ending"}:
                self.fold.gangs.pop(gang.uid, None)
        return touched

    def _forget_idle(self) -> None:
        """Drop gangs without chips: the binder reads no facts of jobs, so no other event would end them."""
        for gang in list(self.fold.gangs.values()):
            if gang.phase not in {"placed", "ending"}:
                del self.fold.gangs[gang.uid]

    def _take(self, holding: Holding, *, evict_seq: int = 0) -> AttemptKey:
        attempt = self.attempts[holding.key] = Attempt(holding, evict_seq)
        self._names.setdefault((holding.namespace, holding.name), {})[holding.key] = None
        self._join(attempt)
        return holding.key

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

    def outcome_of(self, attempt: Attempt) -> OutcomeSeen | None:
        """Last outcome of exactly this attempt."""
        seen = self._outcomes.get((attempt.namespace, attempt.name))
        return seen if seen is not None and (seen.uid, seen.attempt) == attempt.key else None

    def named(self, namespace: str, name: str) -> list[AttemptKey]:
        """Live attempts of a job, oldest first."""
        return list(self._names.get((namespace, name), ()))

    def next_step(self, key: AttemptKey) -> Step | None:
        """Next step for an attempt; None for none."""
        attempt = self.attempts.get(key)
        if attempt is None or attempt.outcome == "evicted":
            return None
        if attempt.evict_seq:
            return Step("evict", attempt)
        return Step("bind", attempt) if attempt.outcome is None and not attempt.foreign else None

    def pending(self) -> list[AttemptKey]:
        """Attempts with a next step, in the order in which the ledger placed them."""
        due = [attempt for key, attempt in self.attempts.items() if self.next_step(key) is not None]
        return [item.key for item in sorted(due, key=lambda item: (item.ledger_seq, item.uid))]
