"""Which messages of the ledger have a writer who may write: by their signatures, and by what is chained on them.

What is stored when a reader starts is held back up to the end of the stream, in parts. Of each part the newest message
with a valid signature is looked for, and the records before it are found by their chain values: its writer has read
them. What is stored later is judged by its own signature. See decision signatures.
"""

from collections import deque
from typing import Final, NamedTuple

from berth.runtime.bus.port import Bus, Stored
from berth.runtime.bus.signatures import Signatures
from berth.schemas.chain import follows, unsigned
from berth.schemas.envelope import LEDGER, DecodeError, Envelope, open_envelope
from berth.schemas.subjects import StreamName

_PART: Final = 256
"""Messages of which one signature is checked while a reader starts."""
_PART_BYTES: Final = 4 << 20
"""Bytes of messages after which one is checked, if they are fewer."""
_SIGNED_MAX: Final = 8
_LOOK_BACK: Final = 1_000
"""Messages before the start of a reader among which one with a signature is looked for."""


class Judged(NamedTuple):
    """A message, and whether it counts for nothing because nobody who may write has signed or confirmed it."""

    stored: Stored
    is_void: bool

    @property
    def data(self) -> bytes:
        """What a reader is given."""
        return unsigned(self.stored.sequence, self.stored.data) if self.is_void else self.stored.data


class _Held(NamedTuple):
    stored: Stored
    envelope: Envelope | None
    """None if it is no message of Berth."""

    @property
    def is_other(self) -> bool:
        """Whether it is a message of another kind, which is void for every reader."""
        return self.envelope is not None and not self.envelope.kind.startswith(LEDGER)

    @property
    def chain(self) -> bytes:
        """Its chain value; empty without one."""
        return b"" if self.envelope is None or self.is_other else self.envelope.chain

    def follows(self, digest: bytes) -> bool:
        """Whether it is chained on a record with this chain value."""
        return self.envelope is not None and follows(digest, self.stored.sequence, self.envelope)


class LedgerSeal:
    """Judges the messages of the ledger, in their order.

    Args:
        signatures: Of the process.
        is_in_force: Whether a message before the first has a valid signature.
        end: Sequence of the last message that is stored at the start; what is later comes one by one.

    Attributes:
        wrong: Sequence of a message that was judged void, although the next signed record may be chained on it: it is
            not on the one before. The list of keys lacks one, or another message was delivered in its place. 0: none.
    """

    def __init__(self, signatures: Signatures, *, is_in_force: bool, end: int) -> None:
        self._signatures = signatures
        self._is_in_force = is_in_force
        self._end = end
        self._held: list[_Held] = []
        self._tried = 0
        """Messages held of which it is known that their own signatures are not valid."""
        self._bytes = 0
        """Bytes of the others that are held."""
        self._denied: list[int] = []
        """Messages that were judged void since the last signed record."""
        self._signed: deque[bytes] = deque(maxlen=_SIGNED_MAX)
        """Chain values of the last records that count by their signatures: also of a leader that was replaced."""
        self.wrong = 0

    def judge(self, stored: Stored) -> list[Judged]:
        """Take the next message; returns those that can be judged by now, in order."""
        if not self._signatures.is_on:
            return [Judged(stored, is_void=False)]
        held = _held_of(stored)
        if stored.sequence > self._end and not self._held:
            return [self._judge_late(held)]
        self._held.append(held)
        self._bytes += len(stored.data)
        is_part = len(self._held) - self._tried >= _PART or self._bytes >= _PART_BYTES
        if stored.sequence < self._end and not is_part:
            return []
        return self._judge_held(is_end=stored.sequence >= self._end)

    def rest(self) -> list[Judged]:
        """What is held when no message follows, because the last ones of the stream were deleted."""
        return self._judge_held(is_end=True)

    def _judge_late(self, one: _Held) -> Judged:
        if self._signatures.is_record(one.stored):
            self._is_in_force = True
            if self._denied and one.chain and self._signed and not any(map(one.follows, self._signed)):
                self.wrong = self._denied[0]
            self._denied.clear()
            self._signed.append(one.chain)
            return Judged(one.stored, is_void=False)
        if not self._is_in_force or one.is_other:
            return Judged(one.stored, is_void=False)
        self._denied.append(one.stored.sequence)
        return Judged(one.stored, is_void=True)

    def _judge_held(self, *, is_end: bool) -> list[Judged]:
        counting, newest = self._counting()
        part, self._held = self._held[: newest + 1], self._held[newest + 1 :]
        self._tried, self._bytes = len(self._held), 0
        judged = [
            Judged(one.stored, is_void=index not in counting and not one.is_other) for index, one in enumerate(part)
        ]
        if part:
            self._is_in_force = True
            self._signed.extend(one.chain for one in part if one.chain)
        if is_end or not self._is_in_force:
            judged += (Judged(one.stored, is_void=self._is_in_force and not one.is_other) for one in self._held)
            self._denied = [one.stored.sequence for one in self._held if self._is_in_force]
            self._held, self._tried = [], 0
        return judged

    def _counting(self) -> tuple[set[int], int]:
        """Places of messages held that are signed or confirmed, and that of the newest signed one; -1 without one.

        What is not confirmed may be signed nevertheless: the leader that wrote it was replaced meanwhile.
        """
        counting: set[int] = set()
        newest = -1
        first = {one.chain: index for index, one in reversed(list(enumerate(self._held))) if one.chain}
        for index in range(len(self._held) - 1, -1, -1):
            one = self._held[index]
            if index in counting or index < self._tried or one.envelope is None or one.is_other:
                continue
            if self._signatures.is_record(one.stored):
                newest = max(newest, index)
                self._confirm(index, first, counting)
        return counting, newest

    def _confirm(self, at: int, first: dict[bytes, int], counting: set[int]) -> None:
        """Add a signed record, and those that it is chained on.

        A chain value is not known before its record is stored: of several messages with the same one, the first is the
        record.
        """
        while at not in counting:
            counting.add(at)
            tip = self._held[at]
            before = (index for index in range(at - 1, -1, -1) if first.get(self._held[index].chain) == index)
            found = next((index for index in before if tip.follows(self._held[index].chain)), None)
            if found is not None:
                at = found


async def seal_of(bus: Bus, *, start_seq: int, first_seq: int, end: int) -> LedgerSeal:
    """The seal for a reader of the ledger.

    Args:
        bus: The cell.
        start_seq: First sequence that it reads.
        first_seq: Oldest sequence that is stored.
        end: Last sequence that is stored.

    Raises:
        TransientError: The bus did not answer.
    """
    return LedgerSeal(bus.signatures, is_in_force=await _is_in_force(bus, start_seq, first_seq), end=end)


async def _is_in_force(bus: Bus, before: int, oldest: int) -> bool:
    """Whether one of the messages just before a place in the ledger has a valid signature.

    Args:
        bus: The cell.
        before: Sequence of the place.
        oldest: Oldest sequence that is stored.

    Raises:
        TransientError: The bus did not answer.
    """
    signatures = bus.signatures
    if not signatures.is_on or before <= oldest:
        return False
    last = await bus.message(StreamName.LEDGER, before - 1)
    if last is not None and signatures.is_record(last):
        return True
    found = await bus.read(StreamName.LEDGER, start_seq=max(oldest, before - _LOOK_BACK))
    return any(signatures.is_record(one) for one in reversed(found) if one.sequence < before)


def _held_of(stored: Stored) -> _Held:
    try:
        return _Held(stored, open_envelope(stored.data))
    except DecodeError:
        return _Held(stored, None)
