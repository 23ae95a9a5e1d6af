"""Snapshots as they are stored: their ends, the newest one that is whole, and the settings since then."""

import zlib
from collections.abc import Container, Mapping

from berth.core.state.ledger import dump_of
from berth.runtime.bus.port import Bus
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.chain import ChainReader, Position, position_of, state_digest
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.ledger import Settings
from berth.schemas.status import SnapshotBody, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName


async def newest_snapshot(
    bus: Bus, log: Logger = DEFAULT_LOG, *, without: Container[int] = frozenset()
) -> SnapshotBody | None:
    """The newest complete snapshot; damaged and incomplete ones are skipped, and those at the records ``without``."""
    for end in reversed(await snapshot_ends(bus, log)):
        body = await read_snapshot(bus, end, log) if end.ledger_seq not in without else None
        if body is not None:
            return body
    return None


async def settings_now(bus: Bus) -> Settings | None:
    """Settings of the current epoch; None before the first."""
    found: Settings | None = None
    start, reader = 1, ChainReader(Position())
    body = await newest_snapshot(bus)
    if body is not None:
        found = dump_of(body.ledger).settings
        start, reader = body.ledger_seq + 1, ChainReader(position_of(body))
    head = (await bus.state(StreamName.LEDGER)).last_seq
    try:
        tail = [stored async for piece in pieces(bus, StreamName.LEDGER, start, head) for stored in piece]
    except NotKeptError:
        return found
    for stored in tail:
        link = reader.read(stored.sequence, stored.data)
        if link.epoch is not None and not link.void:
            found = link.epoch.settings
    return found


async def read_snapshot(bus: Bus, end: SnapshotEnd, log: Logger = DEFAULT_LOG) -> SnapshotBody | None:
    """The snapshot that ``end`` completes; None if it is damaged."""
    chunks = await bus.read(StreamName.SNAPSHOT, filters=[bus.subjects.snapshot_all(end.ledger_seq)])
    parts: dict[str, bytes] = {}
    for stored in chunks:
        tail = stored.subject.rsplit(".", 1)[1]
        if tail == "end":
            continue
        try:
            parts[tail] = decode(stored.data, SnapshotChunk).data
        except DecodeError as error:
            log.warning("snapshot chunk does not decode", subject=stored.subject, reason=error.reason)
    body = body_of_chunks(end, parts)
    if body is None:
        log.warning("snapshot is damaged", ledger_seq=end.ledger_seq)
    return body


def body_of_chunks(end: SnapshotEnd, chunks: Mapping[str, bytes]) -> SnapshotBody | None:
    """A snapshot out of its chunks by number; None if one is missing or damaged, or its digest is of another state.

    So is one that does not decode, or is at another record than its end says.

    Raises:
        VersionError: Only another release reads it.
    """
    joined = b"".join(chunks.get(str(number), b"") for number in range(end.chunks))
    if len(joined) != end.bytes_total or zlib.crc32(joined) != end.checksum:
        return None
    try:
        body = decode(joined, SnapshotBody)
    except DecodeError:
        return None
    if body.ledger_seq != end.ledger_seq:
        return None
    if body.digest and body.digest != state_digest(body.facts, body.ledger):
        return None
    return body


def chunks_of(
    body: bytes, *, ledger_seq: int, facts_seq: int, size: int, at_ms: int
) -> tuple[list[bytes], SnapshotEnd]:
    """Messages of a snapshot: its chunks, and its end, which is stored after them.

    Args:
        body: The encoded snapshot.
        ledger_seq: Its record.
        facts_seq: Its fact.
        size: Bytes of a chunk.
        at_ms: Time in the end.
    """
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    end = SnapshotEnd(
        ledger_seq=ledger_seq,
        facts_seq=facts_seq,
        chunks=len(pieces),
        bytes_total=len(body),
        checksum=zlib.crc32(body),
        at_ms=at_ms,
    )
    return [encode(SnapshotChunk(piece)) for piece in pieces], end


async def snapshot_ends(bus: Bus, log: Logger = DEFAULT_LOG) -> list[SnapshotEnd]:
    """Ends of all complete snapshots, oldest first."""
    ends = []
    for stored in await bus.read(StreamName.SNAPSHOT, filters=[f"{bus.subjects.root}snapshot.*.end"]):
        try:
            ends.append(decode(stored.data, SnapshotEnd))
        except DecodeError as error:
            log.warning("snapshot end does not decode", subject=stored.subject, reason=error.reason)
    return sorted(ends, key=lambda end: end.ledger_seq)
