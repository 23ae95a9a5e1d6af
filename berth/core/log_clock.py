"""The clock of a recording: facts and records say when they were made, and what says nothing came when the one before it did."""

from typing import Final

from schemas.envelope import DecodeError, body_of, open_envelope
from schemas.facts import HealthSeen, JobSeen, MembersSeen, NodesSeen, OutcomeSeen, PodsSeen, TimerSeen, TopologySeen
from schemas.ledger import Epoch, Round
from schemas.message import Message
from schemas.recording import Entry

_KINDS: Final[dict[str, type[Message]]] = {
    kind.KIND: kind
    for kind in (
        NodesSeen,
        HealthSeen,
        TopologySeen,
        PodsSeen,
        MembersSeen,
        JobSeen,
        OutcomeSeen,
        TimerSeen,
        Epoch,
        Round,
    )
}


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
        try:
            envelope = open_envelope(entry.data)
            kind = _KINDS.get(envelope.kind)
            at_ms = getattr(body_of(envelope, kind), "at_ms", 0) if kind is not None else 0
        except DecodeError:
            at_ms = 0  # whoever folds it says what is wrong
        self.now_ms = max(self.now_ms, at_ms)
        return self.now_ms
