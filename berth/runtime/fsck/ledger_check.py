"""Check of ledger and snapshots: read at one point, however the cell goes on meanwhile."""

from typing import NamedTuple

from berth.core.verification.findings import REPAIR, Checked, Finding
from berth.core.verification.ledger_walk import SNAPSHOT, Evidence, LedgerWalk, Snapshot, snapshot_of
from berth.runtime.bus.port import Bus, Stored, StreamState
from berth.runtime.fsck.streams import ChangedError, each
from berth.runtime.ledger_reader import Skips, read_skips
from berth.runtime.stored_snapshots import body_of_chunks
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.status import SnapshotBody, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName


class StoredSnapshots(NamedTuple):
    """Snapshots as they are stored.

    Attributes:
        whole: Those that are whole, ascending.
        bodies: Facts that each of them keeps, by record.
        damaged: Why others are not, by record; readers pass over them.
    """

    whole: list[Snapshot]
    bodies: dict[int, SnapshotBody]
    damaged: dict[int, str]

    @property
    def newest(self) -> int:
        """Record of the newest one that is whole; 0 without any."""
        return self.whole[-1].ledger_seq if self.whole else 0


class LedgerCheck(NamedTuple):
    """What the check of ledger and snapshots has found.

    Attributes:
        findings: All of them.
        checked: What was looked at.
        snapshots: Those that are whole and of this ledger.
        removable: Records of the snapshots without which services start right: damaged ones, and those of another
            history.
        stops: Messages at which services stop.
        ledger: State of the stream.
        facts: State of FACTS, read later.
    """

    findings: list[Finding]
    checked: list[Checked]
    snapshots: list[SnapshotBody]
    removable: list[int]
    stops: list[int]
    ledger: StreamState
    facts: StreamState


async def read_snapshots(bus: Bus) -> StoredSnapshots:
    """Read all snapshots. One that the cell removes or writes meanwhile is not damaged: they are read again then.

    Raises:
        TransientError: The bus did not answer.
        NewerVersionError: Only a newer release reads one.
    """
    messages = await bus.read(StreamName.SNAPSHOT)
    found = _sorted_out(bus, messages)
    if found.damaged:
        again = await bus.read(StreamName.SNAPSHOT)
        later = _sorted_out(bus, again)
        kept = {one.sequence for one in messages} & {one.sequence for one in again}
        of = {_record_of(bus, one): one.sequence for one in messages}
        damaged = {at: why for at, why in later.damaged.items() if found.damaged.get(at) == why and of.get(at) in kept}
        return later._replace(damaged=damaged)
    return found


def _record_of(bus: Bus, stored: Stored) -> int:
    part = stored.subject.removeprefix(f"{bus.subjects.root}snapshot.").partition(".")[0]
    return int(part) if part.isascii() and part.isdigit() else 0


def _sorted_out(bus: Bus, messages: list[Stored]) -> StoredSnapshots:
    ends: dict[int, SnapshotEnd] = {}
    chunks: dict[int, dict[str, bytes]] = {}
    damaged: dict[int, str] = {}
    for stored in messages:
        at = _record_of(bus, stored)
        tail = stored.subject.rpartition(".")[2]
        of = chunks.setdefault(at, {})
        try:
            if tail == "end":
                ends[at] = decode(stored.data, SnapshotEnd)
            else:
                of[tail] = decode(stored.data, SnapshotChunk).data
        except DecodeError as error:
            damaged[at] = f"message {stored.sequence} does not decode: {error.reason}"
    found = StoredSnapshots([], {}, damaged)
    newest = max(ends, default=0)
    for at in sorted(chunks):
        end = ends.get(at)
        if at in damaged or (end is None and at > newest):
            continue  # the latter is being written
        try:
            found.bodies[at] = _body(at, end, chunks[at])
            found.whole.append(snapshot_of(found.bodies[at]))
        except DecodeError as error:
            damaged[at] = error.reason
    return found


def _body(at: int, end: SnapshotEnd | None, chunks: dict[str, bytes]) -> SnapshotBody:
    """A snapshot that is whole.

    Raises:
        DecodeError: It is not.
    """
    if end is None:
        raise DecodeError("it was never completed")
    body = body_of_chunks(end, chunks)
    if body is None:
        raise DecodeError("its checksum or digest is not that of its content")
    if body.ledger_seq != at:
        raise DecodeError(f"it says that it is at record {body.ledger_seq}")
    return body


async def check_ledger(bus: Bus) -> LedgerCheck:
    """Check ledger and snapshots.

    Snapshots are read first, so that none is ahead of the ledger, then the ledger's end, then that of the facts, so
    that each record comes with the facts that it knew.

    Raises:
        ChangedError: The cell removed the oldest records meanwhile.
        NewerVersionError: Only a newer release reads a record or a snapshot.
        TransientError: The bus did not answer.
    """
    stored = await read_snapshots(bus)
    skips = await read_skips(bus)
    ledger = await bus.state(StreamName.LEDGER)
    facts = await bus.state(StreamName.FACTS)
    if ledger.first_seq > max(1, stored.newest + 1) and (await read_snapshots(bus)).newest != stored.newest:
        raise ChangedError("the cell wrote snapshots and removed the records before them")
    evidence = Evidence(stored.whole)
    await each(bus, StreamName.LEDGER, ledger, lambda one: evidence.read(one.sequence, one.data))
    first = ledger.first_seq
    if all(skips.over(sequence, None) for sequence in range(1, min(first, ledger.last_seq + 1))):
        first = 1
    walk = LedgerWalk(
        stored.whole, evidence.confirmed, first_seq=first, last_seq=ledger.last_seq, facts_seq=facts.last_seq
    )
    reader = _Reader(walk, skips)
    await each(bus, StreamName.LEDGER, ledger, reader.take)
    reader.up_to(ledger.last_seq)
    findings = walk.end()
    whole = [one for one in stored.whole if one.ledger_seq not in walk.foreign]
    can_start = first <= 1 or any(one.ledger_seq >= first - 1 for one in whole)
    findings += [_damaged(at, why, can_start=can_start) for at, why in sorted(stored.damaged.items())]
    checked = [
        Checked("records", walk.counted, "" if walk.has_start else "the ledger has no start"),
        Checked("void messages", walk.voided),
        Checked("skips", walk.skipped),
        Checked("snapshots", walk.compared, _left_out(len(stored.whole), walk.compared)),
    ]
    removable = [*(walk.removable if can_start else []), *(sorted(stored.damaged) if can_start else [])]
    bodies = [stored.bodies[one.ledger_seq] for one in whole]
    return LedgerCheck(findings, checked, bodies, sorted(removable), walk.stops, ledger, facts)


def _left_out(whole: int, compared: int) -> str:
    left = whole - compared
    return f"the ledger does not reach back to {left} of them" if left > 0 else ""


def _damaged(at: int, why: str, *, can_start: bool) -> Finding:
    text = f"the snapshot at record {at} is damaged: {why}; services start from an older one"
    return Finding("damaged-snapshot", SNAPSHOT, at, at, "", text, REPAIR if can_start else "berth restore")


class _Reader:
    """Gives a walk each sequence, also those of messages that were deleted."""

    def __init__(self, walk: LedgerWalk, skips: Skips) -> None:
        self._walk = walk
        self._skips = skips

    def take(self, stored: Stored) -> None:
        """Give the next message."""
        self.up_to(stored.sequence - 1)
        self._walk.read(stored.sequence, stored.data, self._skips.over(stored.sequence, stored.data))

    def up_to(self, sequence: int) -> None:
        """Give messages that are not there."""
        for one in range(self._walk.head + 1, sequence + 1):
            if not self._walk.has_start:
                return
            self._walk.read(one, None, self._skips.over(one, None))
