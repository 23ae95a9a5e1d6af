"""Whoever decides on a history: the one that writes it, and readers beside it."""

from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import MissingShards, Opening, Recorded
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.schemas.envelope import decode
from berth.schemas.ledger import Epoch, Round
from berth.schemas.status import SnapshotBody
from berth.schemas.versions import encode_record


class Seat:
    """A state and its decider."""

    def __init__(self) -> None:
        self.state = State(keeps=True)
        self.scheduler = Scheduler(self.state)
        self.turn: Recorded | None = None
        """The turn that is to be stored or taken back."""

    @classmethod
    def loaded(cls, snapshot: bytes) -> "Seat":
        """One that begins at a snapshot."""
        seat = cls()
        changes, waiting = seat.state.load(decode(snapshot, SnapshotBody))
        assert waiting is not None
        seat.scheduler.load(waiting, changes)
        return seat

    def snapshot(self) -> bytes:
        """What a snapshot holds now."""
        return self.state.dump(self.scheduler.dump())

    def fact(self, subject: str, sequence: int, data: bytes) -> str:
        """Take a fact; returns why it can never be applied, or nothing."""
        applied = self.state.apply_fact(subject, sequence, data)
        self.scheduler.note(applied.changes)
        return applied.error

    def decided(self, at_ms: int, missing_shards: MissingShards) -> Round | None:
        """Decide a round; None when there is nothing to decide. It is to be stored or taken back."""
        opening = self.scheduler.open(at_ms).opening
        turn = self.on(opening, missing_shards) if opening is not None else None
        return turn.round if turn is not None else None

    def on(self, opening: Opening, missing_shards: MissingShards) -> Recorded | None:
        """Decide a round that was opened; None when nothing is decided."""
        choice = self.scheduler.choose_alone(opening, missing_shards if missing_shards.missing else None)
        if choice.is_empty:
            self.scheduler.leave(choice)
            return None
        self.turn = self.scheduler.record(choice)
        return self.turn

    def take_back(self) -> None:
        """The round that was decided is not stored."""
        assert self.turn is not None
        turn, self.turn = self.turn, None
        self.scheduler.take_back(turn)

    def encoded(self, record: Epoch | Round) -> bytes:
        """A record as it is written behind the newest one."""
        fold = self.state.fold
        return encode_record(record, chain=fold.chain, sequence=fold.head + 1)

    def stored(self, sequence: int, data: bytes) -> Folded:
        """Take a record that was stored."""
        is_own = self.turn is not None and data == self.encoded(self.turn.round)
        folded = self.state.apply_record(sequence, data)
        if folded.epoch:
            self.scheduler.begin(folded.changes, resumes=folded.resumes)
        elif is_own and self.turn is not None:
            turn, self.turn = self.turn, None
            self.scheduler.adopt(turn, folded)
        else:
            self.scheduler.follow(folded)
        return folded

    def settle(self, at_ms: int) -> int:
        """Decide until nothing is to be decided at a moment; returns how many rounds that took.

        Raises:
            AssertionError: It never ends.
        """
        rounds = 0
        while (record := self.decided(at_ms, MissingShards())) is not None:
            self.stored(self.state.fold.head + 1, self.encoded(record))
            rounds += 1
            assert rounds < ROUNDS_MAX, "the same moment is decided again and again"
        return rounds


ROUNDS_MAX = 400
"""Far more rounds than a history has gangs."""
