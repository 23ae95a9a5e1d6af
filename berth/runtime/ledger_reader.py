"""The ledger as its readers see it: with skips in place of the messages that they pass over.

A skip says that readers pass over messages of the ledger: one that stops them, or some that were deleted. Skips are in
a stream of their own and are read before the ledger. A reader gets the skip at the sequence of what is skipped; being
no record, it is void for all of them, and a recording contains it like any message of the ledger. Where messages were
deleted and no skip says so, the reader stops. So does one that has read a message that is skipped later, unless that
was void: one that starts anew has another ledger. Nobody reads the ledger while the stream of skips does not answer.
``docs/decisions/ledger-chain.md`` gives the reasons.
"""

import asyncio
from collections.abc import Callable, Iterable

from berth.runtime.bus.ledger_seal import Judged, LedgerSeal, seal_of
from berth.runtime.bus.port import Bus, Follower, Gap, GapReason, Stored, StreamState
from berth.runtime.errors import NoStreamError, TransientError
from berth.schemas.chain import stored_digest
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.status import Skip
from berth.schemas.subjects import StreamName


def skip_of(data: bytes) -> Skip | None:
    """The skip that a message is; None if it is none."""
    try:
        return decode(data, Skip)
    except DecodeError:
        return None


def skips_void(data: bytes, record: bytes) -> bool:
    """Whether a message is the skip, by a repair, of a record that counts for nothing in either case."""
    skip = skip_of(data)
    return skip is not None and skip.was_void and skip.digest in {"", stored_digest(record)}


class Skips:
    """Skips of a cell.

    Attributes:
        last_seq: End of their stream, read before them; None if there is no such stream.
        created: Creation of their stream; empty if there is none.
    """

    def __init__(self, skips: Iterable[Skip] = (), *, last_seq: int | None = None, created: str = "") -> None:
        self._skips = [(skip, encode(skip)) for skip in skips]
        self.last_seq = last_seq
        self.created = created

    def add(self, skip: Skip) -> None:
        """Add one that was stored later."""
        self._skips.append((skip, encode(skip)))

    @property
    def known(self) -> list[Skip]:
        """All of them."""
        return [skip for skip, _ in self._skips]

    def over(self, sequence: int, data: bytes | None) -> bytes | None:
        """The skip of a sequence, encoded; None without one.

        Args:
            sequence: A sequence of the ledger.
            data: What is stored there; None if it was deleted. A skip of other bytes does not count: it is of another
                stream of this name.
        """
        for skip, encoded in self._skips:
            is_there = skip.sequence <= sequence <= skip.last_seq
            if is_there and (data is None or skip.digest == stored_digest(data)):
                return encoded
        return None


async def read_skips(bus: Bus, *, before: Skips | None = None) -> Skips:
    """All skips of the cell.

    A skip that does not decode, or has no valid signature, counts for nothing: the reader then stops where it would
    have without it.

    Args:
        bus: The cell.
        before: Those that were read before; the result if none was written since.

    Raises:
        TransientError: The bus did not answer, or the stream has no leader: that says nothing of skips.
    """
    try:
        state = await bus.state(StreamName.SKIPS)
    except NoStreamError:
        return Skips()  # no service has made the stream yet
    if before is not None and (before.created, before.last_seq) == (state.created, state.last_seq):
        return before
    stored = await bus.read(StreamName.SKIPS) if state.messages else []
    found = filter(None, (skip_of(one.data) for one in stored if bus.signatures.counts(one)))
    return Skips(found, last_seq=state.last_seq, created=state.created)


async def last_kept(bus: Bus, state: StreamState) -> int:
    """Sequence of the last message that the ledger's stream still has.

    Args:
        bus: The cell.
        state: Of the stream, read before.

    Returns:
        The sequence; ``state.last_seq`` if the stream is empty, which it is after its messages were removed for age.

    Raises:
        TransientError: The bus did not answer.
    """
    if state.messages == max(0, state.last_seq - state.first_seq + 1):
        return state.last_seq
    last = await bus.last(StreamName.LEDGER, bus.subjects.ledger)
    return state.last_seq if last is None else min(last.sequence, state.last_seq)


async def follow_ledger(
    bus: Bus,
    state: StreamState,
    *,
    on_message: Callable[[Stored], None],
    on_gap: Callable[[Gap], None],
    start_seq: int,
    is_live: bool = True,
) -> "LedgerFollower":
    """Follow the ledger; see :meth:`Bus.follow`.

    Each message that is skipped, deleted or not, is delivered as its skip. A deleted one without a skip is a gap. So is
    a skip of what was delivered or lies before it, unless that was void. A skip that is written later and of what was
    not delivered takes its place as well. A message without a valid signature is delivered as a skip, where signatures
    are checked; see :class:`LedgerSeal`.

    Args:
        bus: The cell.
        state: Of the ledger's stream, read before.
        on_message: Called with each message.
        on_gap: Called before the follower ends.
        start_seq: First sequence to deliver; up to 1 means from the oldest stored.
        is_live: Whether skips that are written later matter: False for one that ends soon.

    Raises:
        TransientError: The bus did not answer.
    """
    skips = await read_skips(bus)
    kept = await last_kept(bus, state)
    seal = await seal_of(bus, start_seq=start_seq, first_seq=state.first_seq, end=kept)
    follower = LedgerFollower(skips, state, kept, seal, on_message, on_gap, start_seq)
    follower.start(bus)
    if is_live:  # a stream that is not there yet is followed from its beginning once it is made
        follower.watch_skips(bus, (skips.last_seq or 0) + 1)
    return follower


class LedgerFollower:
    """Follower of the ledger that puts skips in place; made by :func:`follow_ledger`.

    Args:
        skips: Of the cell.
        state: Of the stream at the start.
        kept: The last message that it had then.
        seal: Judges signatures.
        on_message: Called with each message.
        on_gap: Called before the end.
        start_seq: First sequence.
    """

    def __init__(
        self,
        skips: Skips,
        state: StreamState,
        kept: int,
        seal: LedgerSeal,
        on_message: Callable[[Stored], None],
        on_gap: Callable[[Gap], None],
        start_seq: int,
    ) -> None:
        self.applied = max(0, start_seq - 1)
        self.caught_up = asyncio.Event()
        self.gaps = 0
        self.recreations = 0
        self._skips = skips
        self._state = state
        self._kept = kept
        self._seal = seal
        self._on_message = on_message
        self._on_gap = on_gap
        self._subject = ""
        self._follower: Follower | None = None
        self._watch: Follower | None = None
        self._gap: Gap | None = None

    def start(self, bus: Bus) -> None:
        """Begin to deliver."""
        self._subject = bus.subjects.ledger
        start_seq = self.applied + 1
        follower = bus.follow(
            StreamName.LEDGER,
            on_message=self._take,
            on_gap=self._end,
            start_seq=start_seq,
            created=self._state.created,
        )
        self._follower = follower
        self.caught_up = follower.caught_up
        if self._kept < start_seq:
            self._fill(self._state.last_seq)

    def watch_skips(self, bus: Bus, start_seq: int) -> None:
        """Begin to receive skips that are written from now on; 0 for all that there are."""

        def again(_: Gap) -> None:
            self.watch_skips(bus, 0)

        def take(stored: Stored) -> None:
            skip = skip_of(stored.data)
            if skip is not None and bus.signatures.counts(stored):  # as in :func:`read_skips`
                self._add_skip(skip)

        self._watch = bus.follow(StreamName.SKIPS, on_message=take, on_gap=again, start_seq=start_seq)

    async def reread_skips(self, bus: Bus) -> None:
        """Read the skips again, for a process that must not go on without knowing them; see :func:`follow_ledger`.

        Raises:
            TransientError: The bus did not answer.
        """
        skips = await read_skips(bus)
        if skips.last_seq is None and self._skips.last_seq is not None:
            raise TransientError(f"{StreamName.SKIPS} was deleted")  # what it would say of the ledger is not known
        for skip in skips.known:
            self._add_skip(skip)

    @property
    def covered(self) -> int:
        """Sequence up to which no message is outstanding."""
        return self.applied

    async def stop(self) -> None:
        """Stop; no message is delivered afterwards."""
        for follower in (self._watch, self._follower):
            if follower is not None:
                await follower.stop()

    async def wait(self) -> Gap | None:
        """Wait for the end; see :meth:`Follower.wait`."""
        ended = None if self._follower is None else await self._follower.wait()
        return self._gap or ended

    def _add_skip(self, skip: Skip) -> None:
        if self._gap is not None or skip in self._skips.known:
            return
        if skip.last_seq > self.applied:
            self._skips.add(skip)  # of what may be on its way
        if skip.sequence <= self.applied and not skip.was_void:
            state = self._state
            self._end(Gap(StreamName.LEDGER, GapReason.REPAIRED, skip.sequence, state.first_seq, state.last_seq))

    def _take(self, stored: Stored) -> None:
        for judged in self._seal.judge(stored):
            if self._seal.wrong:
                state = self._state
                gap = Gap(StreamName.LEDGER, GapReason.CONFIRMED, self._seal.wrong, state.first_seq, state.last_seq)
                self._end(gap)
                return
            self._pass(judged)

    def _pass(self, judged: Judged) -> None:
        """Deliver a message that is judged."""
        stored = judged.stored
        if self._gap is not None:
            return
        self.recreations = self._follower.recreations if self._follower is not None else 0
        is_first = not self.applied
        if is_first and any(self._skips.over(one, None) is None for one in range(1, stored.sequence)):
            self.applied = stored.sequence - 1  # the oldest that is kept
        self._fill(stored.sequence - 1)
        if self._gap is not None:
            return
        skip = self._skips.over(stored.sequence, stored.data)
        self._deliver(stored._replace(data=judged.data if skip is None else skip))
        if stored.sequence == self._kept:
            self._fill(self._state.last_seq)

    def _fill(self, end: int) -> None:
        """Deliver skips for the messages up to ``end``, which were deleted."""
        while self.applied < end and self._gap is None:
            sequence = self.applied + 1
            skip = self._skips.over(sequence, None)
            if skip is None:
                state = self._state
                self._end(Gap(StreamName.LEDGER, GapReason.DELETED, sequence, state.first_seq, state.last_seq))
            else:
                self._deliver(Stored(self._subject, sequence, skip, 0))

    def _deliver(self, stored: Stored) -> None:
        self._on_message(stored)
        self.applied = stored.sequence

    def _end(self, gap: Gap) -> None:
        self._gap = gap
        self.gaps = 1
        self._on_gap(gap)
