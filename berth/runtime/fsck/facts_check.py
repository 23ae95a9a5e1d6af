"""Check of FACTS, of its mirror LATEST, and of the facts that snapshots keep."""

import hashlib
from collections.abc import Iterable
from typing import Final

from berth.core.state.cell import State
from berth.core.verification.findings import RESTORE, Checked, Finding, Findings
from berth.runtime.bus.port import Bus, Stored, StreamState
from berth.runtime.errors import TransientError
from berth.runtime.fsck.streams import each
from berth.schemas.status import KeptFact
from berth.schemas.subjects import StreamName

_MIRROR_S: Final = 30.0
_FACTS: Final = "FACTS"
_LATEST: Final = "LATEST"


class _Scan:
    """What FACTS has: order, content, and the newest message of each subject."""

    def __init__(self, state: StreamState, kept: dict[int, tuple[str, bytes]]) -> None:
        self.findings = Findings()
        self.count = 0
        self.newest: dict[str, tuple[int, bytes]] = {}
        """Sequence and digest, by subject."""
        self.compared = 0
        self._kept = kept
        self._next = state.first_seq
        self._reader = State()

    def check(self, stored: Stored) -> None:
        """Check the next fact."""
        self.find_missing(stored.sequence)
        self._next = stored.sequence + 1
        self.count += 1
        applied = self._reader.apply_fact(stored.subject, stored.sequence, stored.data)
        if applied.error:
            text = f"it can never be applied: {applied.error}; readers pass over it, DEAD has a copy"
            self.findings.add(Finding("unreadable-fact", _FACTS, stored.sequence, 0, stored.subject, text))
        self.newest[stored.subject] = (stored.sequence, digest_of(stored.data))
        known = self._kept.get(stored.sequence)
        if known is not None:
            self.compared += 1
            if known != (stored.subject, stored.data):
                text = "snapshots contain another fact of this sequence: FACTS was made anew, or was changed"
                self.findings.add(Finding("changed-fact", _FACTS, stored.sequence, 0, stored.subject, text, RESTORE))

    def find_missing(self, sequence: int) -> None:
        """Note facts that are missing before a sequence."""
        if sequence > self._next:
            text = "they were deleted; services that start from before them do not know what they said"
            self.findings.add(Finding("deleted-fact", _FACTS, self._next, sequence - 1, "", text, RESTORE))


def digest_of(data: bytes) -> bytes:
    """Digest of a message, to compare two of them."""
    return hashlib.blake2b(data, digest_size=16).digest()


async def check_facts(
    bus: Bus, of_snapshots: Iterable[KeptFact], facts: StreamState
) -> tuple[list[Finding], list[Checked]]:
    """Check FACTS, LATEST, and the facts in snapshots.

    Args:
        bus: The cell.
        of_snapshots: Facts that snapshots of the cell keep.
        facts: State of FACTS; later facts are left out.

    Raises:
        ChangedError: The cell removed the oldest facts meanwhile.
        TransientError: The bus did not answer.
    """
    kept = {fact.sequence: (fact.subject, fact.data) for fact in of_snapshots}
    scan = _Scan(facts, kept)
    await each(bus, StreamName.FACTS, facts, scan.check)
    scan.find_missing(facts.last_seq + 1)
    found = scan.findings
    checked = [Checked("facts", scan.count), Checked("facts in snapshots", scan.compared)]
    try:
        await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=_MIRROR_S)
    except TransientError as error:
        text = f"it does not follow FACTS: {error.reason}; services that start from it do not know the newest facts"
        found.add(Finding("mirror-behind", _LATEST, text=text, repair="restart the NATS server"))
        return found.all(), [*checked, Checked("latest facts", 0, "the mirror does not follow")]
    mirror = await bus.state(StreamName.LATEST)
    found.extend(_floors(mirror))
    latest = await bus.read(StreamName.LATEST)
    for stored in latest:
        known = scan.newest.pop(stored.subject, None)
        if known is None or stored.sequence > facts.last_seq:
            continue  # older than FACTS is kept, or newer than what was read
        if known != (stored.sequence, digest_of(stored.data)):
            found.add(
                _other(stored.subject, known[0], f"it has fact {stored.sequence} of this subject, or other bytes")
            )
    for subject, (sequence, _) in scan.newest.items():
        if sequence < mirror.floor:
            continue  # it is over, and was passed
        found.add(_other(subject, sequence, "it has no message of this subject"))
    return found.all(), [*checked, Checked("latest facts", len(latest))]


def _floors(mirror: StreamState) -> list[Finding]:
    if mirror.floor <= mirror.last_seq + 1:
        return []
    text = f"its floor is {mirror.floor}, but it ends at {mirror.last_seq}: services do not read what comes next"
    return [Finding("wrong-floor", _LATEST, mirror.last_seq + 1, mirror.floor - 1, "", text, RESTORE)]


def _other(subject: str, sequence: int, what: str) -> Finding:
    text = f"{what}, but FACTS has fact {sequence}: a message was deleted from it; a later start loses what it said"
    return Finding("wrong-latest", _LATEST, sequence, sequence, subject, text, RESTORE)
