"""The clock of a recording: facts and records say when they were made, and what says nothing came when the one before it did."""

from typing import Final

import msgspec

from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    TimerSeen,
    TopologySeen,
)
from berth.schemas.ledger import Epoch, Round
from berth.schemas.message import Part
from berth.schemas.recording import Entry
from berth.schemas.units import UnixMs


class _Began(Part, frozen=True):
    """The first fields of an epoch and of a round."""

    epoch: int
    base_seq: int
    facts_seq: int
    at_ms: UnixMs


_BEGAN: Final = msgspec.msgpack.Decoder(_Began)
_RECORDS: Final = frozenset({Epoch.KIND, Round.KIND})
_Fact = NodesSeen | HealthSeen | TopologySeen | PodsSeen | MembersSeen | JobSeen | OutcomeSeen | TimerSeen
_FACTS: Final[dict[str, type[_Fact]]] = {
    kind.KIND: kind
    for kind in (NodesSeen, HealthSeen, TopologySeen, PodsSeen, MembersSeen, JobSeen, OutcomeSeen, TimerSeen)
}


def moment_of(entry: Entry) -> UnixMs:
    """The moment of which an entry speaks; 0 where it says none, or does not decode."""
    try:
        envelope = open_envelope(entry.data)
        if not entry.subject:
            return _BEGAN.decode(envelope.body).at_ms if envelope.kind in _RECORDS else 0
        kind = _FACTS.get(envelope.kind)
        return body_of(envelope, kind).at_ms if kind is not None else 0
    except (DecodeError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0


class LogClock:
    """Moments of entries, never falling.

    Attributes:
        begin_ms: First moment of the recording; 0 before it is known.
        now_ms: Last moment so far.
    """

    def __init__(self) -> None:
        self.begin_ms = 0
        self.now_ms = 0
        self._has_begun = False

    def begin(self, at_ms: int) -> None:
        """A moment of the ledger; the first one begins the recording, for facts may tell of older days."""
        if not self._has_begun:
            self._has_begun = True
            self.begin_ms = at_ms
        self.now_ms = max(self.now_ms, at_ms)

    def moment_of(self, entry: Entry) -> int:
        """When an entry came; what comes before the recording begins comes when it begins."""
        self.now_ms = max(self.now_ms, moment_of(entry))  # of what does not decode whoever folds it says what is wrong
        return self.now_ms
