"""What the binder has to do, from the ledger's records and its own outcomes. Pure.

The answer for an attempt depends on where things stand, not on the order in which messages came: a placement without an
outcome is to be bound, an eviction that has not been carried out is to be carried out, and what was released is nobody's
business any more.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from berth.core.ledger import LedgerDump
from schemas.envelope import body_of, open_envelope
from schemas.facts import OutcomeSeen, OutcomeState
from schemas.ledger import Adoption, Epoch, Round, Verdict
from schemas.placement import Placement

AttemptKey: TypeAlias = tuple[str, int]
"""(uid, attempt)"""


@dataclass(slots=True)
class Attempt:
    """A live attempt: placed, and not released.

    Attributes:
        ledger_seq: Record that placed it.
        evict_seq: Record that ended it; 0 while it may run.
        evict_reason: Why.
        outcome: What has been achieved; None for nothing yet.
        foreign: Placed by another scheduler: it is bound already.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    ledger_seq: int
    evict_seq: int = 0
    evict_reason: str = ""
    outcome: OutcomeState | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The next thing to do for an attempt."""

    verb: Literal["bind", "evict"]
    attempt: Attempt


@dataclass(slots=True)
class Work:
    """Live attempts and their outcomes.

    Attributes:
        head: Sequence of the last record taken.
        epoch: The reign whose records count.
        voided: Records that did not count.
        unknown: Records of kinds that this release does not know.
    """

    head: int = 0
    epoch: int = 0
    voided: int = 0
    unknown: int = 0
    attempts: dict[AttemptKey, Attempt] = field(default_factory=dict)
    _outcomes: dict[tuple[str, str], OutcomeSeen] = field(default_factory=dict)
    _epoch_is_sure: bool = True
    _settled: bool = False

    def restore(self, dump: LedgerDump) -> None:
        """Begin with a ledger that a snapshot has folded; records from behind ``dump.head`` follow."""
        self.head, self.epoch = dump.head, dump.epoch
        for holding in dump.holdings:
            attempt = Attempt(
                holding.namespace,
                holding.name,
                holding.uid,
                holding.attempt,
                holding.placement,
                holding.ledger_seq,
                evict_seq=dump.head if holding.ending else 0,
                evict_reason=holding.ending,
                foreign=holding.foreign,
            )
            self.attempts[holding.key] = attempt
            self._join(attempt)

    def apply_record(self, sequence: int, data: bytes) -> list[AttemptKey]:
        """Take a record of the ledger; returns the attempts that it concerns, in its order.

        Records of a past reign, and those that do not follow on the record before them, are void. When the ledger's oldest
        records are not kept any more, the reign is learned from those that are.

        Raises:
            DecodeError: The record is unreadable.
        """
        if sequence > self.head + 1:
            self._epoch_is_sure = False
        self.head = sequence
        envelope = open_envelope(data)
        match envelope.kind:
            case Epoch.KIND:
                self._begin(sequence, body_of(envelope, Epoch))
                return []
            case Round.KIND:
                return self._round(sequence, body_of(envelope, Round))
            case _:
                self.unknown += 1
                return []

    def _begin(self, sequence: int, record: Epoch) -> None:
        if record.epoch <= self.epoch or record.base_seq != sequence - 1:
            self.voided += 1
            return
        self.epoch = record.epoch
        self._epoch_is_sure = True

    def _round(self, sequence: int, record: Round) -> list[AttemptKey]:
        if not self._epoch_is_sure and record.base_seq == sequence - 1:
            self.epoch = max(self.epoch, record.epoch)
        if record.epoch != self.epoch or record.base_seq != sequence - 1:
            self.voided += 1
            return []
        touched = [self._place(sequence, verdict) for verdict in record.verdicts if verdict.placement is not None]
        for eviction in record.evictions:
            key = (eviction.uid, eviction.attempt)
            attempt = self.attempts.get(key)
            if attempt is not None:
                attempt.evict_seq, attempt.evict_reason = sequence, eviction.reason
                touched.append(key)
        for release in record.releases:
            attempt = self.attempts.pop((release.uid, release.attempt), None)
            if attempt is not None and self.outcome_of(attempt) is not None:
                del self._outcomes[attempt.namespace, attempt.name]
        for adoption in record.adoptions:
            self._adopt(sequence, adoption)
        return touched

    def _place(self, sequence: int, verdict: Verdict) -> AttemptKey:
        key = (verdict.uid, verdict.attempt)
        if verdict.placement is not None:
            attempt = Attempt(
                verdict.namespace, verdict.name, verdict.uid, verdict.attempt, verdict.placement, sequence
            )
            self.attempts[key] = attempt
            self._join(attempt)
        return key

    def _adopt(self, sequence: int, adoption: Adoption) -> None:
        attempt = Attempt(
            adoption.namespace, adoption.gang, adoption.uid, 0, adoption.placement, sequence, foreign=True
        )
        self.attempts[adoption.uid, 0] = attempt
        self._join(attempt)

    def apply_outcome(self, outcome: OutcomeSeen) -> AttemptKey:
        """Take an outcome, own or of an earlier run; returns the attempt that it concerns."""
        attempt = self.attempts.get((outcome.uid, outcome.attempt))
        if attempt is not None or not self._settled:
            self._outcomes[outcome.namespace, outcome.name] = outcome
        if attempt is not None:
            self._join(attempt)
        return (outcome.uid, outcome.attempt)

    def settle(self) -> None:
        """Forget outcomes of attempts that are not live: the ledger has been folded, so nobody will ask for them."""
        self._settled = True
        live = {
            (item.namespace, item.name): item for item in self.attempts.values() if self.outcome_of(item) is not None
        }
        self._outcomes = {key: outcome for key, outcome in self._outcomes.items() if key in live}

    def _join(self, attempt: Attempt) -> None:
        seen = self._outcomes.get((attempt.namespace, attempt.name))
        if (
            seen is not None
            and (seen.uid, seen.attempt) == (attempt.uid, attempt.attempt)
            and attempt.outcome != "evicted"
        ):
            attempt.outcome = seen.state

    def outcome_of(self, attempt: Attempt) -> OutcomeSeen | None:
        """The last outcome of exactly this attempt."""
        seen = self._outcomes.get((attempt.namespace, attempt.name))
        return seen if seen is not None and (seen.uid, seen.attempt) == (attempt.uid, attempt.attempt) else None

    def next_step(self, key: AttemptKey) -> Step | None:
        """What is to be done for an attempt now; None for nothing."""
        attempt = self.attempts.get(key)
        if attempt is None or attempt.outcome == "evicted":
            return None
        if attempt.evict_seq:
            return Step("evict", attempt)
        return Step("bind", attempt) if attempt.outcome is None and not attempt.foreign else None

    def pending(self) -> list[AttemptKey]:
        """Attempts for which something is to be done, in the order in which the ledger placed them."""
        due = [attempt for key, attempt in self.attempts.items() if self.next_step(key) is not None]
        return [(item.uid, item.attempt) for item in sorted(due, key=lambda item: (item.ledger_seq, item.uid))]
