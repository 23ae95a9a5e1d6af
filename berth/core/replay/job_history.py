"""Status and explanation of a job at a point of the history, from facts and records in their order.

The history is read twice. A :class:`Trail` notes the jobs that had a name and the records with verdicts on them. A
:class:`View` rebuilds the state just before the relevant verdict, explains it, and continues to the point.
"""

from typing import Final, Literal, NamedTuple

import msgspec

from berth.core.explain.explainer import explain, explain_now
from berth.core.explain.job_status import status_of
from berth.core.explain.model import Explanation
from berth.core.replay.log_clock import moment_of
from berth.core.replay.recovery_history import PastRecovery, RecoveryHistory
from berth.core.state.cell import JobKey, State
from berth.core.state.ledger import dump_of
from berth.schemas.chain import ChainReader, position_of
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Round, Verdict
from berth.schemas.recording import Entry
from berth.schemas.status import JobStatus, SnapshotBody
from berth.schemas.subjects import token
from berth.schemas.units import UnixMs

Ended = Literal["succeeded", "failed", "cancelled", "rejected", ""]
_NO_LIMIT: Final = 1 << 62


class Point(msgspec.Struct, frozen=True):
    """A point of a history: earlier entries count. Both limits apply."""

    at_ms: UnixMs = _NO_LIMIT
    """Records up to this moment count, and facts after the last such record unless they are of a later moment."""
    ledger_seq: int = _NO_LIMIT
    """Last record that counts, with the facts that it is based on."""


class Life(msgspec.Struct):
    """One job that had a name; another job may have it later."""

    uid: str
    since_ms: UnixMs = 0
    """When its first fact was made."""
    facts_seq: int = 0
    """First fact of the job; 0 for a job of the start."""
    seen: JobSeen | None = None
    """Last fact of the name while this job had it."""
    verdict_seq: int = 0
    """Last record with a verdict on it; 0 for none."""
    placed_seq: int = 0
    """Last record with a placement of it; 0 for none."""
    ended: Ended = ""
    """How it ended, by the last record or fact of an end."""
    ended_ms: UnixMs = 0


class Trail:
    """Jobs of one name up to a point, and the range of the history up to it.

    Args:
        key: Namespace and name.
        start: Start of the history.
        until: Point after which entries do not count.

    Attributes:
        lives: Jobs by uid, oldest first.
        later_ms: First request with this name after the point; 0 for none.
        first_ms: Moment of the first record; 0 without records.
        last_ms: Latest moment of the records that count; 0 without records.
        ledger_seq: Last record that counts.
        facts_seq: Last fact that counts.
    """

    def __init__(self, key: JobKey, start: SnapshotBody, until: Point) -> None:
        self._suffix = f".fact.job.{token(key[0])}.{token(key[1])}"
        self._until = until
        self.lives: dict[str, Life] = {}
        self.later_ms: UnixMs = 0
        self.first_ms: UnixMs = 0
        self.last_ms: UnixMs = 0
        self.ledger_seq = start.ledger_seq
        self.facts_seq = start.facts_seq
        self._last_fact = start.facts_seq
        self._is_held = False
        """A fact was of a later moment: it counts only if a record that counts follows."""
        self._held: list[Entry] = []
        """Facts of the name since then."""
        self._is_closed = False
        self._chain = ChainReader(position_of(start))
        self._begin(start)

    def add(self, entry: Entry) -> None:
        """Read the next entry. An entry that does not decode is skipped, as in the state."""
        if entry.subject:
            self._fact(entry)
        elif not self._is_closed:
            self._record(entry)

    def life(self, uid: str = "") -> Life | None:
        """The last job of the name, or the one with a uid; None without one."""
        return self.lives.get(uid) if uid else next(reversed(self.lives.values()), None)

    def close(self) -> None:
        """Close the trail: later entries do not count."""
        self._is_closed = True
        for fact in self._held:
            self._job(fact)

    def _begin(self, start: SnapshotBody) -> None:
        for fact in start.facts:
            if fact.subject.endswith(self._suffix):
                self._job(Entry(0, fact.data, fact.subject))
        if start.ledger:
            self.first_ms = self.last_ms = dump_of(start.ledger).at_ms

    def _fact(self, fact: Entry) -> None:
        self._last_fact = fact.sequence
        if not self._is_closed and not self._is_held:
            self._is_held = self._is_later(fact)
        if not self._is_closed and not self._is_held:
            self.facts_seq = fact.sequence
        if fact.subject.endswith(self._suffix):
            if self._is_held and not self._is_closed:
                self._held.append(fact)
            else:
                self._job(fact)

    def _is_later(self, fact: Entry) -> bool:
        if self.ledger_seq >= self._until.ledger_seq:
            return True
        return self._until.at_ms != _NO_LIMIT and moment_of(fact) > self._until.at_ms

    def _job(self, entry: Entry) -> None:
        try:
            seen = body_of(open_envelope(entry.data), JobSeen)
        except DecodeError:
            return
        if self._is_closed:
            self.later_ms = self.later_ms or seen.at_ms
            return
        if seen.state == "tombstone":
            return
        life = self.lives.pop(seen.uid, None) or Life(seen.uid, seen.at_ms, entry.sequence)
        self.lives[seen.uid] = life
        life.seen = seen
        if seen.state != "accepted":
            life.ended, life.ended_ms = ("cancelled" if seen.state == "cancelled" else "rejected"), seen.at_ms

    def _record(self, entry: Entry) -> None:
        counts = self._counts(entry)
        at_ms = moment_of(entry) if counts else 0
        if at_ms > self._until.at_ms or entry.sequence > self._until.ledger_seq:
            self.close()
            return
        for fact in self._held:
            self._job(fact)
        self._held.clear()
        self._is_held = False
        self.facts_seq, self.ledger_seq = self._last_fact, entry.sequence
        self.first_ms = self.first_ms or at_ms
        self.last_ms = max(self.last_ms, at_ms)
        named = [life for life in self.lives.values() if counts and life.uid.encode() in entry.data]
        if named:
            self._verdicts(entry)

    def _counts(self, entry: Entry) -> bool:
        """Whether a record is not void."""
        try:
            return not self._chain.read(entry.sequence, entry.data).void
        except DecodeError:
            return False  # whoever folds it reports it

    def _verdicts(self, entry: Entry) -> None:
        try:
            record = body_of(open_envelope(entry.data), Round)
        except DecodeError:
            return
        for verdict in record.verdicts:
            life = self.lives.get(verdict.uid)
            if life is not None:
                life.verdict_seq = entry.sequence
                life.placed_seq = entry.sequence if verdict.placement is not None else life.placed_seq
                if verdict.final:
                    life.ended, life.ended_ms = "failed", record.at_ms
        for release in record.releases:
            life = self.lives.get(release.uid)
            if life is not None and not release.again and not release.ranks:
                life.ended, life.ended_ms = _ENDED.get(release.reason, "failed"), record.at_ms


class Look(NamedTuple):
    """A job at a point of the history.

    Attributes:
        status: Its status at the point; None when another job, or none, had its name by then.
        explanation: Explanation of the relevant verdict; None without one.
        recoveries: Its recoveries from faults up to then, the oldest first.
    """

    status: JobStatus | None
    explanation: Explanation | None
    recoveries: tuple[PastRecovery, ...] = ()


class View:
    """One job of a name, up to the point of a trail of the same history.

    The relevant verdict is its last one while it waits, and its last placement otherwise.

    Args:
        key: Namespace and name.
        life: One of the jobs of the trail.
        trail: The trail.
        start: Start of the history.
    """

    def __init__(self, key: JobKey, life: Life, trail: Trail, start: SnapshotBody) -> None:
        self._key = key
        self._life = life
        self._trail = trail
        self._state = State()
        if start.ledger:
            self._state.load(start)
        self._found: dict[int, Explanation] = {}
        self._recoveries = RecoveryHistory(life.uid)

    def add(self, entry: Entry) -> bool:
        """Read the next entry; returns false once no later entry counts.

        Raises:
            HistoryError: Records are missing.
            LedgerBrokenError: A record breaks a rule of the ledger, or does not decode.
        """
        state, life = self._state, self._life
        if entry.subject:
            if entry.sequence <= self._trail.facts_seq:
                state.apply_fact(entry.subject, entry.sequence, entry.data)
            return True
        if entry.sequence > self._trail.ledger_seq:
            return False
        link = state.fold.link(entry.sequence, entry.data)
        record = state.fold.round_of(link)
        if record is not None and life.uid.encode() in entry.data:
            if entry.sequence in {life.verdict_seq, life.placed_seq}:
                explanation = explain(state, record, life.uid, ledger_seq=entry.sequence)
                if explanation is not None:
                    self._found[entry.sequence] = explanation
            self._recoveries.before(record, state.fold)
        state.apply_link(link, record)
        self._recoveries.after(state.fold)
        return True

    def end(self) -> Look:
        """The job at the point."""
        life, found = self._life, self._found
        status = status_of(self._state, self._key, at_ms=self._trail.last_ms)
        if status is not None and status.uid != life.uid:
            status = None
        is_waiting = status is not None and status.phase == "waiting"
        explanation = found.get(life.verdict_seq if is_waiting or not life.placed_seq else life.placed_seq)
        if explanation is None and status is not None and status.ledger_seq:
            explanation = _explanation_now(self._state, status)
        return Look(status, explanation, tuple(self._recoveries.found))


def _explanation_now(state: State, status: JobStatus) -> Explanation | None:
    """Explanation of a job whose verdict is older than the history."""
    if status.placement is None and status.refusal is None:
        return None
    verdict = Verdict(status.namespace, status.name, status.uid, status.attempt, status.placement, status.refusal)
    return explain_now(state, verdict, ledger_seq=status.ledger_seq)


_ENDED: Final[dict[str, Ended]] = {"succeeded": "succeeded", "cancelled": "cancelled"}
"""End of a job by the reason of its release; any other reason is a failure."""
