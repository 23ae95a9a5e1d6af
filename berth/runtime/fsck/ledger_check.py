"""Check of ledger and snapshots: read at one point, however the cell goes on meanwhile."""

from collections.abc import Callable, Container
from typing import NamedTuple

from berth.core.state.ledger import dump_of
from berth.core.verification.findings import REPAIR, Checked, Finding
from berth.core.verification.ledger_walk import (
    SNAPSHOT,
    Evidence,
    LedgerWalk,
    Snapshot,
    SnapshotNeededError,
    snapshot_of,
)
from berth.runtime.bus.ledger_seal import Judged, seal_of
from berth.runtime.bus.port import Bus, Stored, StreamState
from berth.runtime.fsck.streams import ChangedError, each
from berth.runtime.ledger_reader import Skips, read_skips
from berth.runtime.stored_snapshots import body_of_chunks, read_snapshot, snapshot_ends
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.status import KeptFact, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName


class StoredSnapshots(NamedTuple):
    """Snapshots as they are stored, without their content, of which there may be more than fits into memory.

    Attributes:
        whole: Those that are whole, ascending.
        facts: Facts that they keep and that FACTS may still have, by sequence.
        damaged: Why others are not whole, by record; readers pass over them.
        broken: Why services end at others, by record: they are as they were written, and do not decode.
    """

    whole: list[Snapshot]
    facts: dict[int, KeptFact]
    damaged: dict[int, str]
    broken: dict[int, str]

    @property
    def newest(self) -> int:
        """Record of the newest one that is whole; 0 without any."""
        return self.whole[-1].ledger_seq if self.whole else 0


class LedgerCheck(NamedTuple):
    """What the check of ledger and snapshots has found.

    Attributes:
        findings: All of them.
        checked: What was looked at.
        kept: Facts that snapshots keep which are whole and of this ledger, ascending.
        removable: Records of the snapshots without which services start right: damaged ones, and those of another
            history.
        stops: Messages at which services stop.
        ledger: State of the stream.
        facts: State of FACTS, read later.
    """

    findings: list[Finding]
    checked: list[Checked]
    kept: list[KeptFact]
    removable: list[int]
    stops: list[int]
    ledger: StreamState
    facts: StreamState


async def read_snapshots(bus: Bus, *, without: Container[int] = frozenset()) -> StoredSnapshots:
    """Read all snapshots, one at a time.

    One that the cell removes or writes meanwhile is not damaged: they are read again then.

    Args:
        bus: The cell.
        without: Records of snapshots whose facts are left out.

    Raises:
        ChangedError: The stream was made anew meanwhile.
        TransientError: The bus did not answer.
        VersionError: Only another release reads one.
    """
    first = await _read(bus, without)
    found = first.end()
    if found.damaged:
        second = await _read(bus, without)
        later = second.end()
        damaged = {
            at: why
            for at, why in later.damaged.items()
            if found.damaged.get(at) == why and first.last.get(at) in second.sequences
        }
        return later._replace(damaged=damaged)
    return found


async def _read(bus: Bus, without: Container[int]) -> "_Sorting":
    sorting = _Sorting(bus, (await bus.state(StreamName.FACTS)).first_seq, without)
    await each(bus, StreamName.SNAPSHOT, await bus.state(StreamName.SNAPSHOT), sorting.take)
    return sorting


class _Sorting:
    """Sorts the messages of SNAPSHOT, and forgets the content of each snapshot as soon as it is whole.

    Args:
        bus: The cell.
        facts_first_seq: Older facts are left out.
        without: Records of snapshots whose facts are left out.

    Attributes:
        sequences: Messages that were read.
        last: The last of them, by record.
    """

    def __init__(self, bus: Bus, facts_first_seq: int, without: Container[int]) -> None:
        self.sequences: set[int] = set()
        self.last: dict[int, int] = {}
        self._root = f"{bus.subjects.root}snapshot."
        self._facts_first_seq = facts_first_seq
        self._without = without
        self._ends: dict[int, SnapshotEnd] = {}
        self._chunks: dict[int, dict[str, bytes]] = {}
        self._whole: dict[int, Snapshot] = {}
        self._facts: dict[int, KeptFact] = {}
        self._damaged: dict[int, str] = {}
        self._broken: dict[int, str] = {}

    def take(self, stored: Stored) -> None:
        """Take the next message.

        Raises:
            VersionError: It completes a snapshot that only another release reads.
        """
        part, _, tail = stored.subject.removeprefix(self._root).partition(".")
        at = int(part) if part.isascii() and part.isdigit() else 0
        self.sequences.add(stored.sequence)
        self.last[at] = stored.sequence
        chunks = self._chunks.setdefault(at, {})
        try:
            if tail == "end":
                self._ends[at] = decode(stored.data, SnapshotEnd)
            else:
                chunks[tail] = decode(stored.data, SnapshotChunk).data
        except DecodeError as error:
            self._damaged[at] = f"message {stored.sequence} does not decode: {error.reason}"
            self._whole.pop(at, None)
            self._broken.pop(at, None)
        if at in self._damaged or at in self._whole or at in self._broken:
            chunks.clear()
        elif tail == "end":
            self._complete(at, self._ends[at], chunks)

    def _complete(self, at: int, end: SnapshotEnd, chunks: dict[str, bytes]) -> bool:
        """Note a snapshot, if it is whole; returns whether it is."""
        body = body_of_chunks(end, chunks)
        if body is None or body.ledger_seq != at:
            return False
        chunks.clear()
        try:
            self._whole[at] = snapshot_of(body)
        except DecodeError as error:
            self._broken[at] = error.reason
            return True
        if at not in self._without:
            self._facts.update({one.sequence: one for one in body.facts if one.sequence >= self._facts_first_seq})
        return True

    def end(self) -> StoredSnapshots:
        """What there is, after the last message.

        Raises:
            VersionError: See :meth:`take`.
        """
        newest = max(self._ends, default=0)
        for at in sorted(self._chunks):
            end = self._ends.get(at)
            if at in self._damaged or at in self._whole or at in self._broken:
                continue
            if end is None and at > newest:
                continue  # it is being written
            if end is None:
                self._damaged[at] = "it was never completed"
            elif not self._complete(at, end, self._chunks[at]):
                self._damaged[at] = "its content does not decode, or is not that of its checksum, digest or record"
        whole = [self._whole[at] for at in sorted(self._whole)]
        return StoredSnapshots(whole, self._facts, self._damaged, self._broken)


async def check_ledger(bus: Bus) -> LedgerCheck:
    """Check ledger and snapshots.

    Snapshots are read first, so that none is ahead of the ledger, then the ledger's end, then that of the facts, so
    that each record comes with the facts that it knew.

    Raises:
        ChangedError: The cell removed the oldest records meanwhile.
        VersionError: Only another release reads a record or a snapshot.
        TransientError: The bus did not answer.
    """
    stored = await read_snapshots(bus)
    skips = await read_skips(bus)
    ledger = await bus.state(StreamName.LEDGER)
    facts = await bus.state(StreamName.FACTS)
    if ledger.first_seq > max(1, stored.newest + 1) and (await read_snapshots(bus)).newest != stored.newest:
        raise ChangedError("the cell wrote snapshots and removed the records before them")
    evidence = Evidence(stored.whole)
    await _each_record(bus, ledger, lambda one: evidence.read(one.stored.sequence, one.data))
    first = ledger.first_seq
    if all(skips.over(sequence, None) for sequence in range(1, min(first, ledger.last_seq + 1))):
        first = 1
    walk = await _walked(bus, ledger, facts, stored.whole, evidence.confirmed, first, skips)
    findings = walk.end()
    whole = [one for one in stored.whole if one.ledger_seq not in walk.foreign]
    can_start = first <= 1 or any(one.ledger_seq >= first - 1 for one in whole)
    for wrong, then in ((stored.damaged, "services start from an older one"), (stored.broken, "services end at it")):
        findings += [_damaged(at, f"{why}; {then}", can_start=can_start) for at, why in sorted(wrong.items())]
    checked = [
        Checked("records", walk.counted, "" if walk.has_start else "the ledger has no start"),
        Checked("void messages", walk.voided),
        Checked("skips", walk.skipped),
        Checked("snapshots", walk.compared, _left_out(len(stored.whole), walk.compared)),
    ]
    removable = [*walk.removable, *stored.damaged, *stored.broken] if can_start else []
    kept = (await read_snapshots(bus, without=set(walk.foreign))).facts if walk.foreign else stored.facts
    return LedgerCheck(
        findings, checked, [kept[at] for at in sorted(kept)], sorted(removable), walk.stops, ledger, facts
    )


async def _walked(
    bus: Bus,
    ledger: StreamState,
    facts: StreamState,
    snapshots: list[Snapshot],
    confirmed: set[int],
    first_seq: int,
    skips: Skips,
) -> LedgerWalk:
    """The walk through the ledger, begun anew for each snapshot that it needs.

    Raises:
        ChangedError: The cell removed such a snapshot meanwhile.
        VersionError: Only another release reads a record.
        TransientError: The bus did not answer.
    """
    kept: dict[int, bytes] = {}
    while True:
        dumps = {at: dump_of(dump) for at, dump in kept.items()}  # anew: a fold changes what it begins with
        try:
            walk = LedgerWalk(
                snapshots,
                confirmed,
                first_seq=first_seq,
                last_seq=ledger.last_seq,
                facts_seq=facts.last_seq,
                dumps=dumps,
            )
            reader = _Reader(walk, skips)
            await _each_record(bus, ledger, reader.take)
            reader.up_to(ledger.last_seq)
        except SnapshotNeededError as error:
            ends = {end.ledger_seq: end for end in await snapshot_ends(bus)}
            end = ends.get(error.ledger_seq)
            body = await read_snapshot(bus, end) if end is not None else None
            if body is None:
                raise ChangedError(f"the cell removed the snapshot at record {error.ledger_seq}") from error
            kept[error.ledger_seq] = body.ledger
        else:
            return walk


async def _each_record(bus: Bus, ledger: StreamState, take: Callable[[Judged], None]) -> None:
    """Call a function with each message of the ledger, see :func:`each`, and whether it counts by its signature."""
    seal = await seal_of(bus, start_seq=ledger.first_seq, first_seq=ledger.first_seq, end=ledger.last_seq)

    def judge(stored: Stored) -> None:
        for one in seal.judge(stored):
            take(one)

    await each(bus, StreamName.LEDGER, ledger, judge)
    for one in seal.rest():
        take(one)


def _left_out(whole: int, compared: int) -> str:
    left = whole - compared
    return f"the ledger does not reach back to {left} of them" if left > 0 else ""


def _damaged(at: int, why: str, *, can_start: bool) -> Finding:
    text = f"the snapshot at record {at} is damaged: {why}"
    return Finding("damaged-snapshot", SNAPSHOT, at, at, "", text, REPAIR if can_start else "berth restore")


class _Reader:
    """Gives a walk each sequence, also those of messages that were deleted."""

    def __init__(self, walk: LedgerWalk, skips: Skips) -> None:
        self._walk = walk
        self._skips = skips

    def take(self, one: Judged) -> None:
        """Give the next message."""
        sequence = one.stored.sequence
        self.up_to(sequence - 1)
        self._walk.read(sequence, one.data, self._skips.over(sequence, one.stored.data))

    def up_to(self, sequence: int) -> None:
        """Give messages that are not there."""
        for one in range(self._walk.head + 1, sequence + 1):
            if not self._walk.has_start:
                return
            self._walk.read(one, None, self._skips.over(one, None))
