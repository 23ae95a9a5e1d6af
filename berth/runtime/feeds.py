"""Feeds: what a service has received of FACTS and LEDGER, and what of it is applied.

Messages are taken in as they come and wait here until the service says how far it goes; so what a service knows is
always a pair of sequences, never a matter of timing. At the start a feed is filled from the newest snapshot; where the kept history
of facts is too short, from LATEST.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from berth.core.changes import Changes, ChangesBuilder
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.runtime.bus.port import Bus, Follower, Gap, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import ConflictError, FatalError, TransientError
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.ledger import facts_known
from berth.schemas.status import DeadLetter, SnapshotBody, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName

_LOG: Final = structlog.get_logger()
_MIRROR_S: Final = 30.0
_DEAD_DATA_MAX: Final = 64_000
"""Bytes of a dead message that are kept with the reason."""


class Feed:
    """Messages of one stream that wait to be applied.

    Args:
        arrived: Set whenever something comes in.
    """

    def __init__(self, arrived: asyncio.Event) -> None:
        self._waiting: deque[Stored] = deque()
        self._arrived = arrived
        self._follower: Follower | None = None
        self.gap: Gap | None = None
        self._broke = asyncio.Event()

    def start(
        self, bus: Bus, stream: StreamName, *, start_seq: int, filters: Sequence[str] = (), created: str = ""
    ) -> None:
        """Follow ``stream`` from ``start_seq`` on."""
        self._follower = bus.follow(
            stream,
            on_message=self._take_in,
            on_gap=self._on_gap,
            start_seq=start_seq,
            filters=filters,
            created=created,
        )

    @property
    def received(self) -> int:
        """Sequence of the last message received."""
        return self._follower.applied if self._follower is not None else 0

    @property
    def reconnections(self) -> int:
        """Times that the stream had to be connected to anew."""
        return self._follower.recreations if self._follower is not None else 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting and self.gap is None

    async def caught_up(self) -> None:
        """Wait until everything stored at the start has been received, or the history broke."""
        if self._follower is None:
            return
        async with asyncio.TaskGroup() as group:
            events = {"reach head": self._follower.caught_up, "history broke": self._broke}
            waiting = [group.create_task(event.wait(), name=name) for name, event in events.items()]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()

    async def stop(self) -> None:
        """Receive no more."""
        if self._follower is not None:
            await self._follower.stop()

    def take(self, *, up_to: int | None = None) -> Iterator[Stored]:
        """Messages up to and with sequence ``up_to``, oldest first; all of them when None.

        Raises:
            FatalError: The history broke; only a new start can mend it.
        """
        if self.gap is not None:
            gap = self.gap
            raise FatalError(
                f"{gap.stream}: {gap.reason}: sequence {gap.wanted} was next, the stream has {gap.first_seq} to {gap.last_seq}"
            )
        while self._waiting and (up_to is None or self._waiting[0].sequence <= up_to):
            yield self._waiting.popleft()

    def _take_in(self, message: Stored) -> None:
        self._waiting.append(message)
        self._arrived.set()

    def _on_gap(self, gap: Gap) -> None:
        self.gap = gap
        self._broke.set()
        self._arrived.set()


class Feeds:
    """Facts and ledger of a cell, and the state that they make."""

    def __init__(self, bus: Bus, clock: Clock, state: State) -> None:
        self.bus = bus
        self.clock = clock
        self.state = state
        self.arrived = asyncio.Event()
        self.facts = Feed(self.arrived)
        self.records = Feed(self.arrived)
        self.dead: dict[int, tuple[Stored, str]] = {}
        """Facts that can never be applied, until :meth:`bury` has written them down."""

    async def start(self, *, filters: Sequence[str] = ()) -> Changes:
        """Load the newest snapshot, then receive what came after it; returns when all that was stored is applied.

        Args:
            filters: Facts to follow; none means all.

        Returns:
            What the snapshot, the facts and the records changed.

        Raises:
            FatalError: The bus has less history than the snapshot says.
        """
        found = ChangesBuilder()
        body = await newest_snapshot(self.bus)
        # Asked after the snapshot was read: the dispatcher may write one at any moment, and it must not seem to be ahead.
        facts = await self.bus.state(StreamName.FACTS)
        ledger = await self.bus.state(StreamName.LEDGER)
        if body is not None:
            if body.ledger_seq > ledger.last_seq or body.facts_seq > facts.last_seq:
                raise FatalError(
                    f"snapshot at ledger {body.ledger_seq}, facts {body.facts_seq} is ahead of the bus, which ends at"
                    f" {ledger.last_seq} and {facts.last_seq}: streams were lost or made anew"
                )
            found.add(self.state.load(body))
        start = self.state.facts_seq + 1
        from_latest = start < facts.first_seq and facts.last_seq > 0
        if from_latest:
            found.add(await self._load_latest(facts.last_seq, filters))
            start = self.state.facts_seq + 1
        self.facts.start(self.bus, StreamName.FACTS, start_seq=start, filters=filters, created=facts.created)
        self.records.start(self.bus, StreamName.LEDGER, start_seq=self.state.fold.head + 1, created=ledger.created)
        await self.records.caught_up()
        await self.facts.caught_up()
        found.add(self._replay())
        if from_latest:
            self.state.forget_unnamed()
        return found.build()

    async def stop(self) -> None:
        """Receive no more."""
        await self.facts.stop()
        await self.records.stop()

    def _replay(self) -> Changes:
        """Apply what was received in the order in which it came to be: before each record the facts that it knew.

        So a name or uid that was used again is not mistaken for its former life.
        """
        found = ChangesBuilder()
        for stored in self.records.take():
            if stored.sequence > self.state.fold.head:
                found.add(self.apply_facts(up_to=facts_known(stored.data)))
                found.add(self.state.apply_record(stored.sequence, stored.data).changes)
        found.add(self.apply_facts())
        return found.build()

    def apply_facts(self, *, up_to: int | None = None) -> Changes:
        """Apply received facts up to a sequence; returns what they changed."""
        found = ChangesBuilder()
        for stored in self.facts.take(up_to=up_to):
            applied = self.state.apply_fact(stored.subject, stored.sequence, stored.data)
            if applied.error:
                self.dead[stored.sequence] = (stored, applied.error)
            found.add(applied.changes)
        return found.build()

    def apply_records(self, *, up_to: int | None = None) -> list[tuple[Stored, Folded]]:
        """Apply received records up to a sequence; those that the state has already are passed over."""
        return [
            (stored, self.state.apply_record(stored.sequence, stored.data))
            for stored in self.records.take(up_to=up_to)
            if stored.sequence > self.state.fold.head
        ]

    async def reach_fact(self, sequence: int, *, timeout_s: float) -> None:
        """Wait until the fact of a sequence has been received.

        Raises:
            TransientError: It has not within ``timeout_s``.
        """
        await self._reach(self.facts, sequence, timeout_s)

    async def reach_record(self, sequence: int, *, timeout_s: float) -> None:
        """Wait until the record of a sequence has been received.

        Raises:
            TransientError: It has not within ``timeout_s``.
        """
        await self._reach(self.records, sequence, timeout_s)

    async def _reach(self, feed: Feed, sequence: int, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while feed.received < sequence and feed.gap is None:
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError as error:
            raise TransientError(f"sequence {sequence} not received, the last was {feed.received}") from error

    async def bury(self) -> None:
        """Write down the facts that can never be applied."""
        for sequence in list(self.dead):
            stored, reason = self.dead[sequence]
            try:
                await bury(self.bus, self.clock, StreamName.FACTS, stored, reason)
            except TransientError as error:
                _LOG.warning("dead letter not written, later again", sequence=sequence, reason=error.reason)
                return
            del self.dead[sequence]

    async def _load_latest(self, head: int, filters: Sequence[str]) -> Changes:
        """Take the latest fact of each subject for those that are no longer kept as history."""
        found = ChangesBuilder()
        await self.bus.wait_mirror(StreamName.LATEST, at_least=head, timeout_s=_MIRROR_S)
        for stored in await self.bus.read(StreamName.LATEST, start_seq=self.state.facts_seq + 1, filters=filters):
            if stored.sequence <= head:
                found.add(self.state.apply_fact(stored.subject, stored.sequence, stored.data, latest=True).changes)
        self.state.facts_seq = head
        return found.build()


async def bury(bus: Bus, clock: Clock, stream: StreamName, stored: Stored, reason: str) -> None:
    """Write a message that can never be handled to DEAD, once however many followers meet it.

    Raises:
        TransientError: It may not be written; do it again.
    """
    letter = DeadLetter(
        stream=stream.value,
        sequence=stored.sequence,
        subject=stored.subject,
        reason=reason,
        data=stored.data[:_DEAD_DATA_MAX],
        at_ms=clock.now_ms(),
    )
    _LOG.warning("dead letter", stream=stream.value, sequence=stored.sequence, subject=stored.subject, reason=reason)
    try:
        await bus.publish(bus.subjects.dead(stream, stored.sequence), encode(letter), expected_subject_seq=0)
    except ConflictError:
        return  # another follower was first


async def newest_snapshot(bus: Bus) -> SnapshotBody | None:
    """The newest whole snapshot; damaged or unfinished ones are passed over."""
    for end in reversed(await snapshot_ends(bus)):
        body = await read_snapshot(bus, end)
        if body is not None:
            return body
    return None


async def read_snapshot(bus: Bus, end: SnapshotEnd) -> SnapshotBody | None:
    """The snapshot that ``end`` finishes; None when it is damaged."""
    chunks = await bus.read(StreamName.SNAPSHOT, filters=[bus.subjects.snapshot_all(end.ledger_seq)])
    parts: dict[str, bytes] = {}
    for stored in chunks:
        tail = stored.subject.rsplit(".", 1)[1]
        if tail == "end":
            continue
        try:
            parts[tail] = decode(stored.data, SnapshotChunk).data
        except DecodeError as error:
            _LOG.warning("snapshot chunk does not decode", subject=stored.subject, reason=error.reason)
    joined = b"".join(parts.get(str(number), b"") for number in range(end.chunks))
    if len(joined) != end.bytes_total or zlib.crc32(joined) != end.checksum:
        _LOG.warning("snapshot is damaged", ledger_seq=end.ledger_seq)
        return None
    return decode(joined, SnapshotBody)


async def snapshot_ends(bus: Bus) -> list[SnapshotEnd]:
    """Ends of all finished snapshots, oldest first."""
    ends = []
    for stored in await bus.read(StreamName.SNAPSHOT, filters=[f"{bus.subjects.root}snapshot.*.end"]):
        try:
            ends.append(decode(stored.data, SnapshotEnd))
        except DecodeError as error:
            _LOG.warning("snapshot end does not decode", subject=stored.subject, reason=error.reason)
    return sorted(ends, key=lambda end: end.ledger_seq)
