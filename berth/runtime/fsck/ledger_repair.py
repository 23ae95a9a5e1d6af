"""Repair of a ledger that stops its readers: the smallest set of skips with which they go on.

Readers stop at a message that breaks a rule or does not decode, and where messages were deleted. The ledger is folded
as they do it, and each such place gets a skip. What was applied by anyone is not skipped: a deleted record that a later
one follows, or by which a job has a status or pods are bound, cannot be repaired by a skip, because readers that start
anew would give its chips again.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Container, Iterable
from typing import Final

import msgspec

from berth.core.errors import LedgerBrokenError
from berth.core.state.ledger import LedgerFold, dump_of
from berth.runtime.bus.ledger_seal import seal_of
from berth.runtime.bus.port import Bus, StreamState
from berth.runtime.clock import Clock
from berth.runtime.errors import ConflictError
from berth.runtime.fsck.ledger_fence import HOLDER, Fence, RepairError
from berth.runtime.ledger_reader import read_skips, skip_of
from berth.runtime.stored_snapshots import newest_snapshot
from berth.schemas.chain import UNCHAINED, Link, stored_digest
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.facts import LedgerSeen, OutcomeSeen
from berth.schemas.ledger import Round
from berth.schemas.status import Skip, stored_status
from berth.schemas.subjects import StreamName

__all__ = ["Found", "RepairError", "find", "repair"]

_RESTORE: Final = "no skip can repair that; use: berth restore. Nothing was changed"
_DELETED: Final = "deleted"


class Found(msgspec.Struct, frozen=True):
    """What stops the readers of a ledger.

    Attributes:
        first_seq: First message that was read: the one after the newest snapshot.
        last_seq: Last message of the ledger.
        skips: What lets readers go on, ascending; empty if nothing stops them.
    """

    first_seq: int
    last_seq: int
    skips: list[Skip]


async def find(bus: Bus, clock: Clock, *, by: str, without: Container[int] = frozenset()) -> Found:
    """Find what stops the readers of the ledger. Nothing is changed.

    Args:
        bus: The cell.
        clock: For the time in the skips.
        by: Name of this process, for the skips.
        without: Records of snapshots that are left out.

    Raises:
        RepairError: A skip would not repair it.
        VersionError: Only another release reads a record or the newest snapshot.
        TransientError: The bus did not answer.
    """
    return (await _search(bus, clock, by, without))[0]


async def _search(bus: Bus, clock: Clock, by: str, without: Container[int]) -> tuple[Found, LedgerFold]:
    """What stops the readers, and the ledger without it.

    Raises:
        RepairError: A skip would not repair it.
    """
    body = await newest_snapshot(bus, without=without)
    state = await bus.state(StreamName.LEDGER)
    fold = LedgerFold()
    if body is not None:
        try:
            fold.load(dump_of(body.ledger))
        except DecodeError as error:
            raise RepairError(f"the newest snapshot, at record {body.ledger_seq}: {error}: {_RESTORE}") from error
    start = fold.head + 1
    if fold.head > state.last_seq:
        raise RepairError(
            f"the newest snapshot is at record {fold.head}, but the ledger ends at {state.last_seq}: {_RESTORE}"
        )
    if start < state.first_seq <= state.last_seq and start > 1:
        raise RepairError(f"records {start} to {state.first_seq - 1} were removed from the ledger: {_RESTORE}")
    seal = await seal_of(bus, start_seq=start, first_seq=state.first_seq, end=state.last_seq)
    stored = await bus.read(StreamName.LEDGER, start_seq=start)
    judged = [one for message in stored for one in seal.judge(message)] + seal.rest()
    found = {one.stored.sequence: one for one in judged}
    skips = await read_skips(bus)
    search = _Search(fold, by, clock.now_ms())
    for sequence in range(start, state.last_seq + 1):
        one = found.get(sequence)
        skip = skips.over(sequence, None if one is None else one.stored.data)
        search.read(sequence, None if one is None else one.data, skip)
        await asyncio.sleep(0)  # however long the ledger is, a lease is renewed meanwhile
    search.end()
    if search.skips:
        await _check_unused(bus, state, search.skips)
    return Found(start, state.last_seq, search.skips), fold


class _Search:
    """Folds a ledger and skips what stops it.

    Attributes:
        skips: What had to be skipped.
    """

    def __init__(self, fold: LedgerFold, by: str, at_ms: int) -> None:
        self.skips: list[Skip] = []
        self._open: list[int] = []
        """Those of which no later record says that they were void: a round names the epoch and the number that were
        reached without them, a record has the digest."""
        self._doubt = ""
        """Why what was skipped seems to have counted, unless a later record says that it was void."""
        self._fold = fold
        self._by = by
        self._at_ms = at_ms

    def read(self, sequence: int, data: bytes | None, known: bytes | None) -> None:
        """Fold the next message.

        Args:
            sequence: Its sequence.
            data: The message; None if it was deleted.
            known: Its skip, if there is one.

        Raises:
            RepairError: It follows a deleted record, or one that would be skipped.
        """
        fold = self._fold
        if known is not None:
            fold.apply(sequence, known)
            return
        if data is None:
            self._skip(sequence, "", _DELETED)
            return
        try:
            link = fold.link(sequence, data)
            record = fold.round_of(link)
            self._check_follows(link, record)
            fold.apply_link(link, record)
            if not link.void and not _is_own(link):
                self._settle()
        except LedgerBrokenError as error:
            deleted = [self.skips[one] for one in self._open if self.skips[one].reason == _DELETED]
            if deleted and error.epoch:
                raise RepairError(
                    f"{error.what} in record {sequence}, after {_words(deleted[0])}: {_RESTORE}"
                ) from error
            self._skip(sequence, stored_digest(data), error.what)

    def end(self) -> None:
        """See, after the last message, that nothing that counted is skipped.

        Raises:
            RepairError: Something may be.
        """
        if self._doubt:
            raise RepairError(self._doubt)

    def _check_follows(self, link: Link, record: Round | None) -> None:
        """Check that nothing that counted is skipped: that this message was not decided on it.

        Raises:
            RepairError: The message was decided on something that is to be skipped.
        """
        if not self._open:
            return
        fold = self._fold
        text = f"record {link.sequence} does not follow without {_words(self.skips[self._open[-1]])}: {_RESTORE}"
        if link.void:
            # Of an epoch that begins in what is skipped, or chained on it; or of no leader at all.
            if link.void == UNCHAINED or (link.head is not None and link.head.epoch > fold.epoch):
                self._doubt = self._doubt or text
            return
        if _is_own(link):
            return
        epoch = link.epoch.epoch if link.epoch is not None else fold.epoch + 1
        number = record.number if record is not None else fold.rounds + 1
        if epoch > fold.epoch + 1 or number > fold.rounds + 1:
            raise RepairError(text)

    def _settle(self) -> None:
        """Note that what was skipped was void: a leader has read it, and its record follows without it."""
        for one in self._open:
            self.skips[one] = msgspec.structs.replace(self.skips[one], was_void=True)
        self._open.clear()
        self._doubt = ""

    def _skip(self, sequence: int, digest: str, reason: str) -> None:
        last = self.skips[-1] if self.skips else None
        if last is not None and last.reason == reason == _DELETED and last.last_seq == sequence - 1:
            self.skips[-1] = msgspec.structs.replace(last, last_seq=sequence)
        else:
            self._open.append(len(self.skips))
            self.skips.append(Skip(sequence, sequence, digest, reason, self._by, self._at_ms))
        self._fold.apply(sequence, encode(self.skips[-1]))


def _is_own(link: Link) -> bool:
    """Whether a record is the epoch of a repair that may have been interrupted: it says nothing of what is skipped."""
    return link.epoch is not None and link.epoch.holder == HOLDER


def _words(skip: Skip) -> str:
    return (
        f"record {skip.sequence}" if skip.sequence == skip.last_seq else f"records {skip.sequence} to {skip.last_seq}"
    )


async def _check_unused(bus: Bus, state: StreamState, skips: list[Skip]) -> None:
    """Check that nothing was made of what is to be skipped.

    Args:
        bus: The cell.
        state: Of the ledger.
        skips: At least one, ascending.

    Raises:
        RepairError: A job has a status, or pods are bound, by it.
        TransientError: The bus did not answer.
    """
    seen = await bus.last(StreamName.FACTS, bus.subjects.fact_ledger)
    if seen is not None:
        try:
            fact = decode(seen.data, LedgerSeen)
            if fact.stream == state.created:
                _check_not_skipped(skips, fact.sequence, "a pod is bound")
        except DecodeError:
            pass  # it is a dead letter of the dispatcher
    for stored in await bus.read(StreamName.STATUS):
        try:
            status = stored_status(stored.subject, stored.data)
        except DecodeError:
            continue  # a view, written again
        _check_not_skipped(skips, status.ledger_seq, f"job {status.namespace}/{status.name} has a status")
    for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("outcome"),)):
        try:
            outcome = decode(stored.data, OutcomeSeen)
        except DecodeError:
            continue
        _check_not_skipped(skips, outcome.ledger_seq, f"job {outcome.namespace}/{outcome.name} has pods")


def _check_not_skipped(skips: list[Skip], sequence: int, what: str) -> None:
    """Check that a record of which something was made is not to be skipped.

    Raises:
        RepairError: The record is to be skipped.
    """
    skip = skips[max(0, bisect_right(skips, sequence, key=lambda one: one.sequence) - 1)]
    if skip.sequence <= sequence <= skip.last_seq:
        raise RepairError(f"{what} by record {sequence}, which {_why(skip)}: {_RESTORE}")


def _why(skip: Skip) -> str:
    return "was deleted" if skip.reason == _DELETED else f"breaks the ledger: {skip.reason}"


async def repair(bus: Bus, clock: Clock, found: Found, *, by: str, without: Container[int] = frozenset()) -> Found:
    """Write the skips that were found: of what was void at once, the others while no dispatcher leads, behind an epoch.

    All readers agree on what was void. For the others the lease is taken from a dispatcher that holds it. It then reads
    the ledger again, at once, so what was void is skipped before. If a repair is interrupted, the same command goes on:
    readers stop where they did, until the skips are there.

    Args:
        bus: The cell.
        clock: For the lease and the epoch.
        found: What a person has agreed to.
        by: Name of this process.
        without: Records of snapshots that are left out.

    Returns:
        What is found afterwards: nothing to skip.

    Raises:
        RepairError: The ledger is not as it was found, a dispatcher leads on, or a restore holds the lease; nothing was
            changed, except that what was void anyway may be skipped.
        TransientError: The bus did not answer.
    """
    fence = Fence(bus, clock)
    try:
        await fence.check_no_restore()
        left = await _skip_void(bus, clock, fence, found, by, without)
        if left.skips:
            async with fence.held():
                await _write(bus, clock, fence, left, by, without)
    except ConflictError as error:
        raise RepairError(
            f"another process wrote meanwhile ({error.reason}); start the repair again, it goes on where this one ended"
        ) from error
    return await find(bus, clock, by=by, without=without)


async def _skip_void(bus: Bus, clock: Clock, fence: Fence, found: Found, by: str, without: Container[int]) -> Found:
    """Skip what a later record says was void; returns what is left of what was found.

    Raises:
        RepairError: The ledger is not as it was found.
    """
    again = await find(bus, clock, by=by, without=without)
    if _places(again.skips) != _places(found.skips):
        raise RepairError("the ledger is not as it was found any more. Start the repair again")
    await _store(bus, fence, (skip for skip in again.skips if skip.was_void))
    return Found(again.first_seq, again.last_seq, [skip for skip in again.skips if not skip.was_void])


async def _write(bus: Bus, clock: Clock, fence: Fence, found: Found, by: str, without: Container[int]) -> None:
    left = await _skip_void(bus, clock, fence, found, by, without)  # a leader may have gone on since it was found
    await fence.wait_until_alone()
    last, fold = await _search(bus, clock, by, without)
    if _places(last.skips) != _places(left.skips):
        raise RepairError("the ledger is not as it was found any more. Start the repair again")
    # First the epoch: it is refused if anything was appended since, and then no skip has passed over what that follows.
    await fence.begin_epoch(fold, lost=sum(one.last_seq - one.sequence + 1 for one in last.skips if not one.digest))
    await _store(bus, fence, last.skips)


async def _store(bus: Bus, fence: Fence, skips: Iterable[Skip]) -> None:
    for skip in skips:
        subject = bus.subjects.skip(skip.sequence)
        before = await bus.last(StreamName.SKIPS, subject)
        there = None if before is None or not bus.signatures.counts(before) else skip_of(before.data)
        if there is not None and there.digest == skip.digest and there.last_seq >= skip.last_seq:
            continue  # another repair has written it meanwhile
        expected = before.sequence if before is not None else 0
        fence.check_held()
        await bus.publish(subject, encode(skip), expected_subject_seq=expected)


def _places(skips: Iterable[Skip]) -> list[tuple[int, int, str]]:
    return [(skip.sequence, skip.last_seq, skip.digest) for skip in skips]
