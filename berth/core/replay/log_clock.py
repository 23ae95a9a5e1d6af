"""Clock of a recording: the moments of facts and records.

An entry without a moment has the moment of the entry before it.
"""

from typing import Final, get_args

from berth.schemas.envelope import DecodeError, VersionError, body_of, open_envelope
from berth.schemas.facts import (
    HealthSeen,
    JobSeen,
    LedgerSeen,
    MembersSeen,
    NodesSeen,
    OutcomeSeen,
    PodsSeen,
    TimerSeen,
    TopologySeen,
)
from berth.schemas.fault_facts import ApprovalSeen, DrainSeen, GroupSeen, ReplacementsSeen
from berth.schemas.ledger import record_head
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.recording import Entry
from berth.schemas.units import UnixMs
from berth.schemas.usage_facts import NamespaceSeen, UsageSeen
from berth.schemas.volume_facts import ClaimSeen, StorageSeen, VolumeSeen

_Fact = (
    NodesSeen | HealthSeen | TopologySeen | PodsSeen | MembersSeen | JobSeen | OutcomeSeen | TimerSeen
    | UsageSeen | NamespaceSeen | ClaimSeen | VolumeSeen | StorageSeen | GroupSeen
    | ReplacementsSeen | DrainSeen | ApprovalSeen | QueueSeen | LedgerSeen
)  # fmt: skip
_FACTS: Final[dict[str, type[_Fact]]] = {kind.KIND: kind for kind in get_args(_Fact)}


def moment_of(entry: Entry) -> UnixMs:
    """The moment of an entry; 0 if it has none, does not decode, or only a newer release reads it."""
    try:
        envelope = open_envelope(entry.data)
        if not entry.subject:
            head = record_head(envelope)
            return head.at_ms if head is not None else 0
        kind = _FACTS.get(envelope.kind)
        return body_of(envelope, kind).at_ms if kind is not None else 0
    except (DecodeError, VersionError):
        return 0  # whatever folds the entry reports it, unless it is void


class LogClock:
    """Moments of entries, monotonic.

    Attributes:
        begin_ms: First moment of the recording; 0 before it is known.
        now_ms: Last moment so far.
    """

    def __init__(self) -> None:
        self.begin_ms = 0
        self.now_ms = 0
        self._has_begun = False

    def begin(self, at_ms: int) -> None:
        """Set a moment of the ledger; the first one begins the recording, as facts may be older."""
        if not self._has_begun:
            self._has_begun = True
            self.begin_ms = at_ms
        self.now_ms = max(self.now_ms, at_ms)

    def moment_of(self, entry: Entry) -> int:
        """Moment of an entry; entries before the begin of the recording are at its begin."""
        self.now_ms = max(self.now_ms, moment_of(entry))  # folding reports an entry that does not decode
        return self.now_ms
