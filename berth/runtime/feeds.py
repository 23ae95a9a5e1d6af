"""Feeds: messages of FACTS and LEDGER that a service has received, and the state made of those that it has applied.

Received messages wait until the service applies them up to a sequence. The knowledge of a service is therefore a pair
of sequences and does not depend on timing. A feed starts from the newest snapshot. If the stored history of facts is
too short, it starts from LATEST.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from berth.core.changes import Changes, ChangesBuilder
from berth.core.requests.dead_reasons import code_of_bytes
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.core.state.waiting_dump import WaitingDump
from berth.runtime.bus.port import Bus, Follower, Gap, GapReason, Stored, StreamState
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.writing import dead_letter
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.ledger_reader import LedgerFollower, follow_ledger, last_kept
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.runtime.stored_snapshots import newest_snapshot
from berth.runtime.void_records import VoidRecords
from berth.schemas.chain import UNCHAINED
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName

_MIRROR_S: Final = 30.0


class Feed:
    """Received messages of one stream that are not applied yet.

    Args:
        arrived: Set whenever a message arrives.
        watched: Subject whose newest message is known as soon as it arrives; none if empty.

    Attributes:
        newest: The newest received message of that subject, applied or not; None before the first.
    """

    def __init__(self, arrived: asyncio.Event, *, watched: str = "") -> None:
        self.newest: Stored | None = None
        self._watched = watched
        self._waiting: deque[Stored] = deque()
        self._arrived = arrived
        self._follower: Follower | None = None
        self._ledger: LedgerFollower | None = None
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

    async def start_ledger(self, bus: Bus, state: StreamState, *, start_seq: int) -> None:
        """Follow the ledger from ``start_seq`` on, with its skips.

        Raises:
            TransientError: The bus did not answer.
        """
        self._follower = self._ledger = await follow_ledger(
            bus, state, on_message=self._take_in, on_gap=self._on_gap, start_seq=start_seq
        )

    async def check_skips(self, bus: Bus) -> None:
        """Check that no message of the ledger that was read is skipped by now; see :func:`follow_ledger`.

        Raises:
            FatalError: One is; the process must restart.
            TransientError: The bus did not answer.
        """
        if self._ledger is not None:
            await self._ledger.reread_skips(bus)
        self.check_whole()

    def report_deleted(self, state: StreamState, kept: int) -> None:
        """Note a gap if the messages after those received were deleted.

        Args:
            state: Of the stream.
            kept: The last message that it still has.
        """
        if self.gap is None and kept <= self.received < state.last_seq:
            gap = Gap(StreamName.LEDGER, GapReason.DELETED, self.received + 1, state.first_seq, state.last_seq)
            self._on_gap(gap)

    @property
    def received(self) -> int:
        """Sequence of the last message received."""
        return self._follower.applied if self._follower is not None else 0

    @property
    def covered(self) -> int:
        """Sequence up to which nothing is outstanding: the messages behind the last one received may be gone."""
        return self._follower.covered if self._follower is not None else 0

    @property
    def waiting(self) -> int:
        """Number of received messages that are not applied."""
        return len(self._waiting)

    @property
    def next(self) -> Stored | None:
        """The oldest received message that is not applied."""
        return self._waiting[0] if self._waiting else None

    @property
    def is_empty(self) -> bool:
        """Whether all received messages are applied."""
        return not self._waiting and self.gap is None

    async def caught_up(self) -> None:
        """Wait until every message stored at the start is received, or a gap was found."""
        if self._follower is None:
            return
        async with asyncio.TaskGroup() as group:
            events = {"reach head": self._follower.caught_up, "history broke": self._broke}
            waiting = [group.create_task(event.wait(), name=name) for name, event in events.items()]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()

    async def stop(self) -> None:
        """Stop receiving."""
        if self._follower is not None:
            await self._follower.stop()

    def take(self, *, up_to: int | None = None) -> Iterator[Stored]:
        """Take messages up to sequence ``up_to`` inclusive, oldest first; None takes all.

        Raises:
            FatalError: The stream has a gap; the process must restart.
        """
        self.check_whole()
        while self._waiting and (up_to is None or self._waiting[0].sequence <= up_to):
            yield self._waiting.popleft()

    def check_whole(self) -> None:
        """Check that no message is missing.

        Raises:
            FatalError: The stream has a gap; the process must restart.
        """
        if self.gap is not None:
            gap, rest = self.gap, ""
            if gap.reason not in {GapReason.REPAIRED, GapReason.CONFIRMED}:
                rest = f" was next, the stream has {gap.first_seq} to {gap.last_seq}"
            raise FatalError(f"{gap.stream}: {gap.reason}: sequence {gap.wanted}{rest}")

    def skip(self) -> None:
        """Drop the oldest message that is not applied."""
        self._waiting.popleft()

    def _take_in(self, message: Stored) -> None:
        self._waiting.append(message)
        if message.subject == self._watched:
            self.newest = message
        self._arrived.set()

    def _on_gap(self, gap: Gap) -> None:
        self.gap = gap
        self._broke.set()
        self._arrived.set()


class Feeds:
    """Facts and ledger of a cell, and the state made of them.

    Args:
        bus: The cell.
        clock: Of the process.
        state: Where they are applied.
        log: Logger of the service.
        void: Counts void messages of the ledger; None in a command.
    """

    def __init__(
        self, bus: Bus, clock: Clock, state: State, log: Logger = DEFAULT_LOG, *, void: VoidRecords | None = None
    ) -> None:
        self._log = log
        self._void = void
        self.bus = bus
        self.clock = clock
        self.state = state
        self.arrived = asyncio.Event()
        self.facts = Feed(self.arrived, watched=bus.subjects.fact_ledger)
        self.records = Feed(self.arrived)
        self.is_from_latest = False
        """Whether facts were missing at the start, and LATEST was read instead."""
        self.snapshot: tuple[int, int] | None = None
        """Sequences of ledger and facts of the loaded snapshot; None without one."""
        self.waiting: WaitingDump | None = None
        """Gangs that waited in the loaded snapshot; None if it does not contain them."""
        self.dead: dict[int, tuple[Stored, str]] = {}
        """Facts that can never be applied and that :meth:`write_dead_letters` has not written yet."""
        self._has_unchained = False

    async def start(self, *, filters: Sequence[str] = ()) -> Changes:
        """Load the newest snapshot and receive later messages; returns when everything that was stored is applied.

        Args:
            filters: Facts to follow; none means all.

        Returns:
            What the snapshot, the facts and the records changed.

        Raises:
            FatalError: The bus holds less history than the snapshot states.
        """
        found = ChangesBuilder()
        found.add(await self.load(filters=filters))
        await self.caught_up()
        found.add(self.replay())
        if self.is_from_latest:
            self.state.forget_unnamed()
        return found.build()

    async def load(self, *, filters: Sequence[str] = ()) -> Changes:
        """Load the newest snapshot and start to receive later messages.

        Args:
            filters: Facts to follow; none means all.

        Returns:
            What the snapshot changed, and the facts of LATEST, if they were needed.

        Raises:
            FatalError: The bus holds less history than the snapshot states.
        """
        return await self.load_from(await newest_snapshot(self.bus, self._log), filters=filters)

    async def load_from(self, body: SnapshotBody | None, *, filters: Sequence[str] = ()) -> Changes:
        """Load a snapshot that was read before, and start to receive later messages.

        Args:
            body: The snapshot; None for the beginning of the history.
            filters: Facts to follow; none means all.

        Returns:
            What the snapshot changed, and the facts of LATEST, if they were needed.

        Raises:
            FatalError: The bus holds less history than the snapshot states.
        """
        found = ChangesBuilder()
        # Read after the snapshot: the dispatcher may write one at any time, and it must not appear to be ahead.
        facts = await self.bus.state(StreamName.FACTS)
        ledger = await self.bus.state(StreamName.LEDGER)
        if body is not None:
            if body.ledger_seq > ledger.last_seq or body.facts_seq > facts.last_seq:
                raise FatalError(
                    f"snapshot at ledger {body.ledger_seq}, facts {body.facts_seq} is ahead of the bus, which ends at"
                    f" {ledger.last_seq} and {facts.last_seq}: streams were lost or created again; berth fsck reports what is wrong"
                )
            loaded = self.state.load(body)
            found.add(loaded.changes)
            self.waiting = loaded.waiting
            self.snapshot = (body.ledger_seq, body.facts_seq)
        start = self.state.facts_seq + 1
        self.is_from_latest = start < facts.first_seq and facts.last_seq > 0
        if self.is_from_latest:
            found.add(await self._load_latest(facts.last_seq, filters))
            start = self.state.facts_seq + 1
        self.facts.start(self.bus, StreamName.FACTS, start_seq=start, filters=filters, created=facts.created)
        await self.records.start_ledger(self.bus, ledger, start_seq=self.state.fold.head + 1)
        return found.build()

    async def caught_up(self) -> None:
        """Wait until every message that was stored at the start is received."""
        await self.records.caught_up()
        await self.facts.caught_up()

    async def stop(self) -> None:
        """Stop receiving."""
        await self.facts.stop()
        await self.records.stop()

    def replay(self) -> Changes:
        """Apply received messages in their original order: before each record the facts that it used.

        A reused name or uid is therefore not confused with the previous job.
        """
        found = ChangesBuilder()
        for stored in self.records.take():
            if stored.sequence > self.state.fold.head:
                link = self.state.fold.link(stored.sequence, stored.data)
                found.add(self.apply_facts(up_to=link.facts_seq))
                folded = self.state.apply_link(link)
                self.note_void(stored.sequence, folded)
                found.add(folded.changes)
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
        """Apply received records up to a sequence; records that are already applied are skipped."""
        applied = []
        for stored in self.records.take(up_to=up_to):
            if stored.sequence > self.state.fold.head:
                folded = self.state.apply_record(stored.sequence, stored.data)
                self.note_void(stored.sequence, folded)
                applied.append((stored, folded))
        return applied

    def note_void(self, sequence: int, folded: Folded) -> None:
        """Count and report a message of the ledger if it is void."""
        self._has_unchained |= folded.void == UNCHAINED
        if folded.void and self._void is not None:
            self._void.report(sequence, folded.void, self._log)

    async def check_unchained(self) -> None:
        """After a record without the right chain value, check that it is not this process that has another ledger.

        Raises:
            FatalError: A repair passes over a message that was read; the process must restart.
            TransientError: The bus did not answer.
        """
        if self._has_unchained:
            await self.records.check_skips(self.bus)
            self._has_unchained = False

    async def reach_fact(self, sequence: int, *, timeout_s: float) -> None:
        """Wait until the fact of a sequence has been received.

        Raises:
            TransientError: No fact came for ``timeout_s``: many may take longer in all, and reading goes on.
        """
        await self._reach(self.facts, sequence, timeout_s)

    async def reach_record(self, sequence: int, *, timeout_s: float) -> None:
        """Wait until the record of a sequence has been received.

        Raises:
            TransientError: No record came for ``timeout_s``.
            FatalError: It was deleted.
        """
        try:
            await self._reach(self.records, sequence, timeout_s)
        except TransientError:
            state = await self.bus.state(StreamName.LEDGER)
            self.records.report_deleted(state, await last_kept(self.bus, state))
            self.records.check_whole()
            raise

    async def _reach(self, feed: Feed, sequence: int, timeout_s: float) -> None:
        while feed.received < sequence and feed.gap is None:
            before = feed.received
            try:
                async with asyncio.timeout(timeout_s):
                    while feed.received == before and feed.gap is None:
                        self.arrived.clear()
                        await self.arrived.wait()
            except TimeoutError as error:
                raise TransientError(f"sequence {sequence} not received, the last was {before}") from error

    async def write_dead_letters(self) -> None:
        """Write facts that can never be applied to DEAD."""
        for sequence in list(self.dead):
            stored, reason = self.dead[sequence]
            try:
                code = code_of_bytes(stored.data)
                await dead_letter(self.bus, self.clock, StreamName.FACTS, stored, reason, code=code, log=self._log)
            except TransientError as error:
                self._log.warning("dead letter not written, will retry", sequence=sequence, reason=error.reason)
                return
            del self.dead[sequence]

    async def _load_latest(self, head: int, filters: Sequence[str]) -> Changes:
        """Apply the latest fact of each subject in place of the removed history."""
        found = ChangesBuilder()
        await self.bus.wait_mirror(StreamName.LATEST, at_least=head, timeout_s=_MIRROR_S)
        for stored in await self.bus.read(StreamName.LATEST, start_seq=self.state.facts_seq + 1, filters=filters):
            if stored.sequence <= head:
                found.add(self.state.apply_fact(stored.subject, stored.sequence, stored.data, latest=True).changes)
        self.state.facts_seq = head
        return found.build()
