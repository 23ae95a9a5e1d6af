"""Snapshots: folded ledger and facts, so that a start does not read the whole history."""

import zlib
from collections.abc import Container, Iterable
from typing import Final

from berth.core.scheduling.scheduler import Scheduler
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.instruments import Instruments
from berth.runtime.stored_snapshots import snapshot_ends
from berth.schemas.envelope import encode
from berth.schemas.status import SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.metrics import DispatcherMetrics

FACTS_MAX: Final = 100_000
"""A snapshot is written after so many facts."""
_CHUNK_BYTES: Final = 500_000
"""Size of a piece of a snapshot."""
_NEWEST_KEPT: Final = 3
_EARLY_SHARE: Final = 10
"""A tenth of the messages is enough for a snapshot that costs little."""
_APART_S: Final = 10.0
"""Between two snapshots, of which the second one is early, at least so long, and while there is other work ..."""
_APART: Final = 50
"""... so many times as long as the first one took."""


class Snapshots:
    """Writes snapshots, and deletes what they supersede."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        scheduler: Scheduler,
        config: DispatcherConfig,
        instruments: Instruments[DispatcherMetrics],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._scheduler = scheduler
        self._state = scheduler.state
        self._config = config
        self._faults = instruments.faults
        self._log = instruments.log
        self._metrics = instruments.metrics
        self._ledger_seq = 0
        self._facts_seq = 0
        self._written_s = clock.monotonic_s()
        self._took_s = 0.0
        self._is_asked = False
        self._unfinished: dict[int, int] | None = None
        """When snapshots without an end were begun, by their records; None until those of earlier leaders are known."""

    def ask(self) -> None:
        """Let the next snapshot be written soon, however little has happened since the last one."""
        self._is_asked = True

    def found(self, ledger_seq: int, facts_seq: int) -> None:
        """Note the sequences of a snapshot that is stored."""
        self._ledger_seq, self._facts_seq = ledger_seq, facts_seq
        self._metrics.snapshot.set(ledger_seq)

    async def maybe_write(self, *, is_idle: bool) -> None:
        """Write a snapshot after enough messages since the last one.

        The next start reads all messages since then, which takes some 50 us each: a tenth of them is enough where
        snapshots take a small share of the time.

        Args:
            is_idle: Nothing else is to be done.
        """
        share = 1
        apart_s = _APART_S if is_idle else max(_APART_S, _APART * self._took_s)
        if self._clock.monotonic_s() - self._written_s >= apart_s:
            share = _EARLY_SHARE
        records = self._state.fold.head - self._ledger_seq
        facts = self._state.facts_seq - self._facts_seq
        many = records >= self._config.snapshot_records / share
        if many or (records and (self._is_asked or facts >= FACTS_MAX / share)):
            await self.write()

    async def write(self) -> None:
        """Write a snapshot of the current state; after a failure the next one follows as usual."""
        began_s = self._clock.monotonic_s()
        await self._write()
        self._took_s = self._clock.monotonic_s() - began_s

    async def _write(self) -> None:
        self._is_asked = False
        ledger_seq, facts_seq = self._state.fold.head, self._state.facts_seq
        body = self._state.dump(self._scheduler.dump())
        size = _CHUNK_BYTES
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        subjects = self._bus.subjects
        self._ledger_seq, self._facts_seq = ledger_seq, facts_seq
        self._written_s = self._clock.monotonic_s()
        self._faults.hit("snapshot.before")
        try:
            for number, piece in enumerate(pieces):
                await self._bus.publish(subjects.snapshot_chunk(ledger_seq, number), encode(SnapshotChunk(piece)))
            end = SnapshotEnd(
                ledger_seq=ledger_seq,
                facts_seq=facts_seq,
                chunks=len(pieces),
                bytes_total=len(body),
                checksum=zlib.crc32(body),
                at_ms=self._clock.now_ms(),
            )
            await self._bus.publish(subjects.snapshot_end(ledger_seq), encode(end))
            self._faults.hit("snapshot.after")
            await self._prune(end)
        except TransientError as error:
            if self._unfinished is not None:
                self._unfinished[ledger_seq] = self._clock.now_ms()
            self._metrics.snapshots.labels("failed").inc()
            self._log.warning("snapshot not written", ledger_seq=ledger_seq, reason=error.reason)
            return
        self._metrics.snapshots.labels("written").inc()
        self._metrics.snapshot.set(ledger_seq)
        self._log.info("snapshot written", ledger_seq=ledger_seq, facts_seq=facts_seq, bytes=len(body))

    async def _prune(self, newest: SnapshotEnd) -> None:
        """Delete the snapshots that :func:`kept_of` does not keep, and the ledger before the oldest kept one.

        The ledger stays as long as that snapshot may not be on the server's disk: a power loss would take the snapshot
        and not give the records back.
        """
        ends = await snapshot_ends(self._bus, self._log)
        oldest_fact = (await self._bus.state(StreamName.FACTS)).first_seq
        synced_ms = self._clock.now_ms() - self._config.snapshot_synced_s * 1000
        apart_ms = self._config.snapshot_apart_s * 1000
        kept = kept_of([*ends, newest], oldest_fact=oldest_fact, synced_ms=synced_ms, apart_ms=apart_ms)
        keep = {end.ledger_seq for end in kept}
        self._faults.hit("purge.before")
        for end in ends:
            if end.ledger_seq not in keep:
                await self._bus.purge(StreamName.SNAPSHOT, subject=self._bus.subjects.snapshot_all(end.ledger_seq))
        if kept[0].ledger_seq > 1 and kept[0].at_ms <= synced_ms:
            await self._bus.purge(StreamName.LEDGER, keep_from_seq=kept[0].ledger_seq)
        await self._purge_unfinished({end.ledger_seq for end in [*ends, newest]}, synced_ms)
        self._faults.hit("purge.after")

    async def _purge_unfinished(self, whole: Container[int], old_ms: int) -> None:
        """Delete the chunks of snapshots that never got an end.

        One that was begun after ``old_ms`` stays: another dispatcher that takes itself for leader may be writing it.
        """
        if self._unfinished is None:
            first = await self._bus.read(StreamName.SNAPSHOT, filters=[f"{self._bus.subjects.root}snapshot.*.0"])
            begun = [(stored.subject.rsplit(".", 2)[1], stored.at_ms) for stored in first]
            self._unfinished = {int(record): at_ms for record, at_ms in begun if record.isdecimal()}
        for ledger_seq, begun_ms in sorted(self._unfinished.items()):
            is_whole = ledger_seq in whole
            if not is_whole and begun_ms <= old_ms:
                await self._bus.purge(StreamName.SNAPSHOT, subject=self._bus.subjects.snapshot_all(ledger_seq))
            if is_whole or begun_ms <= old_ms:
                del self._unfinished[ledger_seq]


def kept_of(ends: Iterable[SnapshotEnd], *, oldest_fact: int, synced_ms: int, apart_ms: int) -> list[SnapshotEnd]:
    """Snapshots to keep, oldest first.

    Kept are the newest few, which a reader may be loading, and older ones back to one that is not younger than the
    oldest kept fact, so that the whole history can be restored from some snapshot, and that is on the server's disk, so
    that the ledger can be cut there. Between those, one per ``apart_ms`` is enough.

    Args:
        ends: Ends of all snapshots, at least one.
        oldest_fact: Sequence of the oldest kept fact.
        synced_ms: Snapshots of this time and before are on the server's disk.
        apart_ms: Time between two older snapshots.
    """
    order = [end for _, end in sorted({end.ledger_seq: end for end in ends}.items())]
    reaching = [index for index, end in enumerate(order) if end.facts_seq + 1 <= oldest_fact and end.at_ms <= synced_ms]
    order = order[reaching[-1] if reaching else 0 :]
    kept = order[:1]
    for index, end in enumerate(order[1:], start=1):
        if index >= len(order) - _NEWEST_KEPT or end.at_ms - kept[-1].at_ms >= apart_ms:
            kept.append(end)
    return kept
