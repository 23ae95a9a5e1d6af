"""Past: a job as it stood at a point of its cell's history, from facts and records in their order.

A history is looked at twice: a :class:`Trail` notes where the lives of a name and the verdicts on them are, and a :class:`View` makes
the state just before the verdict that counts, explains it, and goes on to the point.
"""

from typing import Final, Literal, NamedTuple

import msgspec

from berth.core.explain.explainer import explain, explain_now
from berth.core.explain.job_status import status_of
from berth.core.explain.model import Explanation
from berth.core.replay.log_clock import moment_of
from berth.core.state.cell import JobKey, State
from berth.core.state.ledger import dump_of
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
    """A point of a history: what came no later counts. Both limits hold."""

    at_ms: UnixMs = _NO_LIMIT
    """The last record that counts is the last one of this moment or an earlier one; after it facts count as long as they speak of no
    later moment."""
    ledger_seq: int = _NO_LIMIT
    """Last record that counts, with the facts that it knew."""


class Life(msgspec.Struct):
    """One job that had a name; another may have it later."""

    uid: str
    since_ms: UnixMs = 0
    """When its first verdict on the name was given."""
    facts_seq: int = 0
    """The first fact that spoke of it; 0 for one that was there at the start."""
    seen: JobSeen | None = None
    """The last word on the name while it was its own."""
    verdict_seq: int = 0
    """Last record with a verdict on it, or ..."""
    placed_seq: int = 0
    """... with a placement of it; 0 for none."""
    ended: Ended = ""
    """How it ended, by the last record or fact that says so."""
    ended_ms: UnixMs = 0


class Trail:
    """Lives of one name up to a point, and how far the point reaches.

    Args:
        key: Namespace and name.
        start: Where the history begins.
        until: Point after which nothing counts.

    Attributes:
        lives: By uid, the last one last.
        later_ms: When the name was first asked for after the point; 0 if not.
        first_ms: Moment of the first record, ...
        last_ms: ... and the latest of all that count; 0 without any.
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
        """A fact spoke of a later moment: it counts only if a record that counts comes after it."""
        self._held: list[Entry] = []
        """Words on the name since then."""
        self._is_closed = False
        self._begin(start)

    def add(self, entry: Entry) -> None:
        """See the next entry. What does not decode is passed over, as a state does."""
        if entry.subject:
            self._fact(entry)
        elif not self._is_closed:
            self._record(entry)

    def life(self, uid: str = "") -> Life | None:
        """The last life of the name, or the one with a uid; None without one."""
        return self.lives.get(uid) if uid else next(reversed(self.lives.values()), None)

    def end(self) -> None:
        """See that there is nothing more."""
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
        at_ms = moment_of(entry)
        if at_ms > self._until.at_ms or entry.sequence > self._until.ledger_seq:
            self.end()
            return
        for fact in self._held:
            self._job(fact)
        self._held.clear()
        self._is_held = False
        self.facts_seq, self.ledger_seq = self._last_fact, entry.sequence
        self.first_ms = self.first_ms or at_ms
        self.last_ms = max(self.last_ms, at_ms)
        named = [life for life in self.lives.values() if life.uid.encode() in entry.data]
        if named:
            self._verdicts(entry)

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
    """A job as it stood.

    Attributes:
        status: Its status at the point; None when its name was another's by then, or nobody's.
        explanation: Of the verdict that counts; None when there is none.
    """

    status: JobStatus | None
    explanation: Explanation | None


class View:
    """A life of a name, looked at up to the point up to which a trail of the same history counts.

    While it waits, its last verdict counts, else its last placement.

    Args:
        key: Namespace and name.
        life: One of the trail's lives.
        trail: The trail.
        start: Where the history begins.
    """

    def __init__(self, key: JobKey, life: Life, trail: Trail, start: SnapshotBody) -> None:
        self._key = key
        self._life = life
        self._trail = trail
        self._state = State()
        if start.ledger:
            self._state.load(start)
        self._found: dict[int, Explanation] = {}

    def add(self, entry: Entry) -> bool:
        """Take the next entry; false once nothing that comes counts.

        Raises:
            HistoryError: Records are missing.
            DecodeError: A record does not decode.
            InvariantError: A record breaks a rule of the ledger.
        """
        state, life = self._state, self._life
        if entry.subject:
            if entry.sequence <= self._trail.facts_seq:
                state.apply_fact(entry.subject, entry.sequence, entry.data)
            return True
        if entry.sequence > self._trail.ledger_seq:
            return False
        if entry.sequence in {life.verdict_seq, life.placed_seq}:
            record = body_of(open_envelope(entry.data), Round)
            explanation = explain(state, record, life.uid, ledger_seq=entry.sequence)
            if explanation is not None:
                self._found[entry.sequence] = explanation
        state.apply_record(entry.sequence, entry.data)
        return True

    def end(self) -> Look:
        """How it stood."""
        life, found = self._life, self._found
        status = status_of(self._state, self._key, at_ms=self._trail.last_ms)
        if status is not None and status.uid != life.uid:
            status = None
        is_waiting = status is not None and status.phase == "waiting"
        explanation = found.get(life.verdict_seq if is_waiting or not life.placed_seq else life.placed_seq)
        if explanation is None and status is not None and status.ledger_seq:
            explanation = _explanation_now(self._state, status)
        return Look(status, explanation)


def _explanation_now(state: State, status: JobStatus) -> Explanation | None:
    """What there is to tell of a job whose verdict came before the history begins."""
    if status.placement is None and status.refusal is None:
        return None
    verdict = Verdict(status.namespace, status.name, status.uid, status.attempt, status.placement, status.refusal)
    return explain_now(state, verdict, ledger_seq=status.ledger_seq)


_ENDED: Final[dict[str, Ended]] = {"succeeded": "succeeded", "cancelled": "cancelled"}
"""What a release makes of a job; any other reason makes it fail."""
