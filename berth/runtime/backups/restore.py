"""Restore of a backup: the streams of a cell are made anew with the messages of a file.

Sequences stay, so that records and facts mean the same; the streams are other ones for the server, so every reader
starts again, and the ledger has another id. Nobody leads meanwhile: a lease without an end is held from before the
first stream is deleted until the last one is complete. A restore that was interrupted leaves it, so the cell stays
without a leader until another restore completes. If only its release is lost, with the power of the server, records
behind the restored ledger show that the restore was complete.
"""

import asyncio
import contextlib
from collections import deque
from pathlib import Path
from typing import Final

from berth.formats.recordings.backup import BackupReading
from berth.runtime.backups.checks import Checked, DamagedError, check_file
from berth.runtime.bus.leaders import ROLE, answering_leader, held_by, is_restored
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.stuck_lease import StuckLease
from berth.runtime.clock import Clock
from berth.runtime.errors import ConflictError, NoStreamError, PoisonError, ShellError
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.runtime.stored_snapshots import chunks_of
from berth.schemas.envelope import encode
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName, StreamSpec

_CHUNK_BYTES: Final = 1 << 20
_SNAPSHOT_CHUNK: Final = 500_000
_MIRROR_S: Final = 60.0
_OUTSTANDING_MAX: Final = 1_000
_ANSWER_S: Final = 2.0
_VIEWS: Final = (StreamName.SUMMARY, StreamName.EVENTS)
"""Streams that are not in a backup because services make their content again."""


class RestoreError(ShellError):
    """The cell cannot be restored, or not as it is; says whether anything was changed."""


async def restore(
    bus: NatsBus,
    clock: Clock,
    path: Path,
    *,
    replace: bool = False,
    replicas: int | None = None,
    log: Logger = DEFAULT_LOG,
) -> Checked:
    """Make the streams of a cell anew with the messages of a backup.

    Nothing is changed before the whole file is read and checked. The services of the cell must not run.

    Args:
        bus: The cell; it needs the right to delete and to create streams.
        clock: Source of times.
        path: The backup.
        replace: Whether to delete what the cell holds.
        replicas: Replicas of each stream; None for those of the backup.
        log: Logger of the process.

    Returns:
        What the backup holds.

    Raises:
        DamagedError: The backup is damaged, or its last records do not count; nothing was changed.
        RestoreError: It is one of another cell, the cell is not empty, a dispatcher leads, or something else writes
            to the streams.
        OlderVersionError: A release before 0.5 wrote the backup, or made the streams; nothing was changed.
        TransientError: The bus did not answer; start it again.
        OSError: The file cannot be read.
    """
    checked = check_file(path)
    if checked.uncounted:
        raise DamagedError(f"{checked.uncounted}; nothing was changed")
    if checked.head.cell != bus.subjects.cell:
        raise RestoreError(
            f"{path} is a backup of the cell {checked.head.cell!r}, not of {bus.subjects.cell!r}: nothing was changed"
        )
    count = replicas if replicas is not None else max((one.replicas for one in checked.head.streams), default=1)
    specs = [spec for spec in bus.subjects.streams() if spec.backup != "none"]
    for spec in specs:
        with contextlib.suppress(NoStreamError):
            await bus.check_format(spec.name)
    lock = _Lock(bus, clock, log)
    await lock.check_no_leader()
    if not (replace or lock.is_left):
        await _check_empty(bus, specs)
    await lock.take(count)
    for spec in reversed(specs):  # mirrors before their origins
        await bus.delete_stream(spec.name)
    filling = _Filling(bus, clock, checked, path, count)
    await _empty_views(bus, count)
    await filling.make_streams(specs)
    await lock.name_ledger(checked.stream(StreamName.LEDGER).last_seq)
    await filling.run()
    await bus.ensure_streams(replicas=count)
    await bus.wait_mirror(StreamName.LATEST, at_least=checked.stream(StreamName.FACTS).last_seq, timeout_s=_MIRROR_S)
    await lock.release()
    return checked


async def _check_empty(bus: NatsBus, specs: list[StreamSpec]) -> None:
    """Check that no stream has ever held a message.

    Raises:
        RestoreError: A stream has held a message.
    """
    names = [*(spec.name for spec in specs), *_VIEWS]
    found = [(name, await bus.keeping(name)) for name in names]
    held = [f"{name.value} ({kept.state.last_seq})" for name, kept in found if kept is not None and kept.state.last_seq]
    if held:
        raise RestoreError(
            f"the cell {bus.subjects.cell!r} is not empty: {', '.join(held)}; nothing was changed. To delete what it"
            " holds, use --replace"
        )


async def _empty_views(bus: NatsBus, replicas: int) -> None:
    """Delete what services make again: it is of the history that the restore replaces.

    The sequences of EVENTS go on after a hole: a program that has kept a position, also that of the last event, is told
    that its events are gone.
    """
    await bus.delete_stream(StreamName.SUMMARY)
    events = await bus.keeping(StreamName.EVENTS)
    if events is not None:
        await bus.delete_stream(StreamName.EVENTS)
        await bus.make_stream(StreamName.EVENTS, first_seq=events.state.last_seq + 2, replicas=replicas)


class _Lock:
    """The lease of the dispatchers, held without an end.

    Attributes:
        is_left: Whether a restore holds it that was interrupted.
    """

    def __init__(self, bus: NatsBus, clock: Clock, log: Logger) -> None:
        self._bus = bus
        self._clock = clock
        self._log = log
        self._subject = bus.subjects.lease(ROLE)
        self._revision = 0
        self.is_left = False

    async def check_no_leader(self) -> None:
        """Read the lease, and ask for a leader without one.

        Raises:
            RestoreError: A dispatcher holds it, or leads without it.
        """
        await StuckLease(self._bus, self._clock, self._log).free()  # dispatchers, which free it too, are stopped
        leader = await answering_leader(self._bus, timeout_s=_ANSWER_S)
        held = await self._read()
        holder = held.holder
        if holder == RESTORE_HOLDER:
            self.is_left = not await is_restored(self._bus, held)
        elif holder:
            raise RestoreError(
                f"the dispatcher {holder} leads the cell: stop all services first, and wait until its lease is over;"
                " nothing was changed"
            )
        if leader is not None:
            raise RestoreError(
                f"a dispatcher{f' ({leader})' if leader else ''} leads the cell: stop all services first; nothing was"
                " changed"
            )

    async def _read(self) -> LeaseHeld:
        """Read the lease; one without a holder if there is none."""
        if await self._bus.keeping(StreamName.LEASE) is None:
            return held_by(self._bus, None)
        stored = await self._bus.last(StreamName.LEASE, self._subject)
        if stored is not None:
            self._revision = stored.sequence
        return held_by(self._bus, stored)

    async def take(self, replicas: int) -> None:
        """Hold it.

        Raises:
            RestoreError: A dispatcher was faster.
        """
        if await self._bus.keeping(StreamName.LEASE) is None:
            await self._bus.make_stream(StreamName.LEASE, first_seq=1, replicas=replicas)
        held = encode(LeaseHeld(RESTORE_HOLDER, 0, self._clock.now_ms()))
        try:
            self._revision = await self._bus.publish(self._subject, held, expected_subject_seq=self._revision)
        except ConflictError as error:
            raise RestoreError("a dispatcher began to lead: stop all services first; nothing was changed") from error

    async def name_ledger(self, last_seq: int) -> None:
        """Say which ledger is made, and with which record it will end."""
        ledger = (await self._bus.state(StreamName.LEDGER)).created
        held = encode(LeaseHeld(RESTORE_HOLDER, 0, self._clock.now_ms(), ledger=ledger, ledger_seq=last_seq))
        self._revision = await self._bus.publish(self._subject, held, expected_subject_seq=self._revision)

    async def release(self) -> None:
        """Let a dispatcher lead."""
        released = encode(LeaseHeld("", 0, self._clock.now_ms()))
        await self._bus.publish(self._subject, released, expected_subject_seq=self._revision, ttl_s=1)


class _Filling:
    """Makes the streams and stores their messages, in the order of the file."""

    def __init__(self, bus: NatsBus, clock: Clock, checked: Checked, path: Path, replicas: int) -> None:
        self._bus = bus
        self._clock = clock
        self._checked = checked
        self._path = path
        self._replicas = replicas
        self._outstanding: deque[tuple[StreamName, int, asyncio.Future[int]]] = deque()
        self._last: dict[StreamName, int] = {}

    async def make_streams(self, specs: list[StreamSpec]) -> None:
        """Make the streams, empty.

        Raises:
            RestoreError: They cannot be made.
        """
        old = self._checked.counts.get(StreamName.LATEST.value, 0)
        for spec in specs:
            first = 1
            if spec.backup == "all":
                first = self._first_of(spec.name, old)
                self._last[spec.name] = first - 1
            kept = self._checked.stream(spec.name)
            # Old facts are there for the mirror, under sequences that were those of other facts: no reader may take the
            # history for one that is whole from there.
            floor = kept.first_seq if spec.name is StreamName.FACTS and old else 0
            try:
                await self._bus.make_stream(
                    spec.name, first_seq=first, replicas=self._replicas, max_bytes=kept.max_bytes, floor=floor
                )
            except PoisonError as error:
                raise RestoreError(
                    f"stream {spec.name.value} cannot be made ({error.reason}): stop all services, then start the"
                    " restore again"
                ) from error

    async def run(self) -> None:
        """Store the messages.

        Raises:
            RestoreError: Something else writes to the streams.
        """
        try:
            await self._store_all()
        finally:
            for _, _, future in self._outstanding:
                future.cancel()  # after an error nobody asks what became of them
        if not self._checked.has_history:
            await self._write_snapshot()
        for name, last in self._last.items():
            found = (await self._bus.state(name)).last_seq
            if found != last:
                raise RestoreError(f"{name.value} ends at {found}, not at {last}: something else writes to it")

    async def _store_all(self) -> None:
        with self._path.open("rb") as file:
            for name, entry in BackupReading(iter(lambda: file.read(_CHUNK_BYTES), b"")):
                stream = StreamName.FACTS if name == StreamName.LATEST else StreamName(name)
                if stream is not StreamName.INTAKE or not self._all_are_judged:
                    await self._store(stream, entry.subject, entry.data)
        await self._settle(0)

    def _first_of(self, name: StreamName, old: int) -> int:
        """First sequence of a stream: old facts come right before the others, in their order."""
        kept = self._checked.stream(name)
        if name is StreamName.FACTS:
            return kept.first_seq - old
        if name is StreamName.INTAKE and self._all_are_judged:
            return self._checked.state.intake_seq + 1
        return kept.first_seq

    @property
    def _all_are_judged(self) -> bool:
        """Whether every request of the file has a verdict in its facts: then none is needed."""
        return self._checked.stream(StreamName.INTAKE).last_seq <= self._checked.state.intake_seq

    async def _store(self, stream: StreamName, subject: str, data: bytes) -> None:
        wanted = 0
        if stream in self._last:
            wanted = self._last[stream] = self._last[stream] + 1
        future = await self._bus.submit_wait(self._bus.subjects.root + subject, data, sequence=wanted)
        self._outstanding.append((stream, wanted, future))
        await self._settle(_OUTSTANDING_MAX)

    async def _settle(self, most: int) -> None:
        """Check that messages got their sequences, until at most so many are outstanding.

        Raises:
            RestoreError: One got another sequence.
        """
        while len(self._outstanding) > most:
            stream, wanted, future = self._outstanding.popleft()
            sequence = await future
            if wanted and sequence != wanted:
                raise RestoreError(
                    f"{stream.value}: a message that had sequence {wanted} got {sequence}: something else writes to the"
                    " stream; stop all services, then start the restore again"
                )

    async def _write_snapshot(self) -> None:
        """Write a snapshot of the end of the backup: the facts since its newest one are not all there."""
        state, subjects = self._checked.state, self._bus.subjects
        chunks, end = chunks_of(
            state.dump(),
            ledger_seq=state.fold.head,
            facts_seq=state.facts_seq,
            size=_SNAPSHOT_CHUNK,
            at_ms=self._clock.now_ms(),
        )
        for number, chunk in enumerate(chunks):
            await self._bus.publish(subjects.snapshot_chunk(end.ledger_seq, number), chunk)
        await self._bus.publish(subjects.snapshot_end(end.ledger_seq), encode(end))
