"""Replay: repeats the decisions of a recording from facts, times and settings alone.

Each recorded round is decided on the state that the record is based on, and then compared with the record. The recorded
decision is folded afterwards, so a replay continues after a difference.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.errors import HistoryError, InvariantError
from berth.core.replay.divergence import Difference, Moment, difference_of
from berth.core.scheduling.following import opening_for
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import MissingShards, Opening
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.schemas.chain import Link
from berth.schemas.envelope import DecodeError, encode
from berth.schemas.ledger import Epoch, Round
from berth.schemas.recording import Entry
from berth.schemas.status import SnapshotBody

_DIFFERENCES_MAX: Final = 20
_BEFORE: Final = 8
"""Facts and records before a difference that are reported with it."""


class ReplayError(Exception):
    """A recording that is no valid history: a record does not follow from the entries before it.

    Attributes:
        sequence: Record of the ledger; 0 for the state at the start.
        reason: What is wrong.
    """

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"record {sequence} cannot be: {reason}" if sequence else f"the start: {reason}")
        self.sequence = sequence
        self.reason = reason


class Replayed(msgspec.Struct, frozen=True):
    """Result of a replay."""

    facts: int = 0
    records: int = 0
    rounds: int = 0
    """Records that were replayed."""
    decisions: int = 0
    """Verdicts in them, and recoveries, evictions, releases and adoptions."""
    placed: int = 0
    refused: int = 0
    epochs: int = 0
    void: int = 0
    """Void messages: from a writer that was no longer leader, of another kind, or without the right chain value."""
    undecodable: int = 0
    """Facts that no reader can apply."""
    differences: int = 0
    found: list[Difference] = []
    """The first differences."""
    digest: str = ""
    """SHA-256 over the epochs and the replayed rounds."""
    recorded_digest: str = ""
    """SHA-256 over the epochs and the recorded rounds."""

    @property
    def events(self) -> int:
        """Facts and records."""
        return self.facts + self.records

    @property
    def is_identical(self) -> bool:
        """Whether every compared decision equals the recorded one."""
        return not self.differences


class _Own(NamedTuple):
    """A replayed decision."""

    opening: Opening | None
    record: Round | None


class Replay:
    """Replays a recording entry by entry.

    Args:
        start: State at its beginning.
        differences_max: Differences that are kept with what is around them; all are counted.

    Attributes:
        state: Facts and ledger so far.
        scheduler: Scheduler of the replay.

    Raises:
        ReplayError: The start does not decode, or lacks the jobs that wait.
    """

    def __init__(self, start: SnapshotBody, *, differences_max: int = _DIFFERENCES_MAX) -> None:
        self.state = State()
        self.scheduler = Scheduler(self.state)
        self._differences_max = differences_max
        self._own, self._recorded = hashlib.sha256(), hashlib.sha256()
        self._before: deque[Entry] = deque(maxlen=_BEFORE)
        self._found: list[Difference] = []
        self._facts = self._records = self._rounds = self._decisions = self._placed = self._refused = 0
        self._epochs = self._void = self._undecodable = self._differences = 0
        if start.ledger:
            self._load(start)

    def feed(self, entry: Entry) -> Difference | None:
        """Read the next entry; returns the difference if the entry is a decision that differs.

        Args:
            entry: The entry, in the order of recordings: each record follows the facts that it is based on.

        Raises:
            ReplayError: The recorded decision is impossible; no further entry can be read.
            VersionError: Only another release reads the record; nothing can be fed any more.
        """
        if entry.subject:
            self._facts += 1
            applied = self.state.apply_fact(entry.subject, entry.sequence, entry.data)
            self._undecodable += bool(applied.error)
            self.scheduler.note(applied.changes)
            self._before.append(entry)
            return None
        self._records += 1
        try:
            found = self._record(entry)
        except InvariantError as error:
            raise ReplayError(entry.sequence, error.what) from error
        except (HistoryError, DecodeError) as error:
            raise ReplayError(entry.sequence, str(error)) from error
        self._before.append(entry)
        return found

    @property
    def result(self) -> Replayed:
        """The result so far."""
        return Replayed(
            facts=self._facts,
            records=self._records,
            rounds=self._rounds,
            decisions=self._decisions,
            placed=self._placed,
            refused=self._refused,
            epochs=self._epochs,
            void=self._void,
            undecodable=self._undecodable,
            differences=self._differences,
            found=list(self._found),
            digest=self._own.hexdigest(),
            recorded_digest=self._recorded.hexdigest(),
        )

    def _load(self, start: SnapshotBody) -> None:
        try:
            changes, waiting = self.state.load(start)
        except DecodeError as error:
            raise ReplayError(0, error.reason) from error
        except InvariantError as error:
            raise ReplayError(0, f"the folded ledger cannot be: {error.what}") from error
        if waiting is None:
            raise ReplayError(0, "the snapshot does not contain the jobs that wait")
        self.scheduler.load(waiting, changes)

    def _record(self, entry: Entry) -> Difference | None:
        fold = self.state.fold
        link = fold.link(entry.sequence, entry.data)
        record = fold.round_of(link)
        if record is not None:
            return self._round(link, record)
        folded = self.state.apply_link(link)
        if link.epoch is not None and folded.epoch:
            self._epoch(link.epoch, folded)
        else:
            self._void += bool(folded.void)
            self.scheduler.note(folded.changes)
        return None

    def _epoch(self, record: Epoch, folded: Folded) -> None:
        self._epochs += 1
        self.scheduler.begin(folded.changes, resumes=folded.resumes)
        digested = encode(record)
        self._own.update(digested)
        self._recorded.update(digested)

    def _round(self, link: Link, record: Round) -> Difference | None:
        own = self._decided(record)
        found = self._compared(link, record, own)
        self.scheduler.follow(self.state.apply_link(link, record), own.opening)
        return found

    def _decided(self, record: Round) -> _Own:
        """The decision on the current state; of the recorded one it takes what follows from time alone."""
        opening = opening_for(self.scheduler, record)
        if opening is None:
            return _Own(None, None)
        missing_shards = MissingShards(record.shards, record.missing)
        return _Own(opening, self.scheduler.decide(opening, missing_shards).round)

    def _compared(self, link: Link, record: Round, own: _Own) -> Difference | None:
        self._rounds += 1
        self._decisions += len(record.verdicts) + len(record.recoveries) + len(record.corrections)
        self._decisions += len(record.evictions) + len(record.releases) + len(record.adoptions)
        placed = sum(1 for verdict in record.verdicts if verdict.placement is not None)
        self._placed += placed
        self._refused += len(record.verdicts) - placed
        mine = encode(own.record) if own.record is not None else b""
        recorded = _unchained(link)
        # A record of another release may lack the last fields; written again, it has them.
        theirs = recorded if mine == recorded else encode(record)
        self._own.update(mine)
        self._recorded.update(theirs)
        if mine == theirs:
            return None
        self._differences += 1
        moment = Moment(self.scheduler, link.sequence, own.opening, list(self._before))
        found = difference_of(moment, record, own.record)
        if len(self._found) < self._differences_max:
            self._found.append(found)
        return found


def _unchained(link: Link) -> bytes:
    """The recorded bytes without the chain value, which says nothing of the decision."""
    return msgspec.structs.replace(link.envelope, chain=b"").encode() if link.envelope is not None else b""


def replayed(start: SnapshotBody, entries: Sequence[Entry]) -> Replayed:
    """Replay a whole history.

    Args:
        start: State at its beginning.
        entries: Facts and records, in the order of recordings.

    Raises:
        ReplayError: See :meth:`Replay.feed`.
    """
    replay = Replay(start)
    for entry in entries:
        replay.feed(entry)
    return replay.result
