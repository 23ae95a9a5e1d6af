"""Records as leaders store them: each with the chain value of its place."""

from collections.abc import Iterable

import msgspec

from berth.runtime.bus.port import Bus
from berth.schemas.chain import FIRST, chained, position_of
from berth.schemas.envelope import LEDGER, open_envelope
from berth.schemas.ledger import Epoch, Round
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName
from berth.schemas.versions import encode_record


class ChainedRecords:
    """Records of a ledger in which each message counts."""

    def __init__(self) -> None:
        self.head = 0
        self._digest = FIRST

    def encoded(self, record: Epoch | Round) -> bytes:
        """The next record."""
        self.head += 1
        data = encode_record(record, chain=self._digest, sequence=self.head)
        self._digest = open_envelope(data).chain
        return data


async def append(bus: Bus, record: Epoch | Round) -> int:
    """Append a record behind the newest one that is stored; its sequence."""
    head, digest = await _end(bus)
    return await bus.append(encode_record(record, chain=digest, sequence=head + 1), expected_seq=head)


async def _end(bus: Bus) -> tuple[int, bytes]:
    """Last sequence of the ledger, and the newest chain value."""
    envelopes = [open_envelope(one.data) for one in await bus.read(StreamName.LEDGER)]
    digest = next((one.chain for one in reversed(envelopes) if one.kind.startswith(LEDGER) and one.chain), FIRST)
    return (await bus.state(StreamName.LEDGER)).last_seq, digest


def broken(sequence: int, before: bytes) -> bytes:
    """A record with the right chain value that does not decode.

    Args:
        sequence: Its sequence.
        before: Chain value of the record before it.
    """
    envelope = open_envelope(msgspec.msgpack.encode((Round.KIND, Round.VERSION, [], "0.5")))
    return msgspec.structs.replace(envelope, chain=chained(before, sequence, envelope)).encode()


async def append_broken(bus: Bus) -> int:
    """Append a record that its leader wrote and that does not decode; its sequence."""
    head, digest = await _end(bus)
    return await bus.append(broken(head + 1, digest), expected_seq=head)


def rechained(entries: Iterable[Entry], start: SnapshotBody = BEGINNING) -> list[Entry]:
    """Entries of a recording whose records are chained anew, each on the one before it.

    Args:
        entries: The entries; records need no chain value.
        start: Where the recording begins.
    """
    found, digest = [], position_of(start).digest
    for entry in entries:
        envelope = None if entry.subject else open_envelope(entry.data)
        if envelope is None or not envelope.kind.startswith(LEDGER):
            found.append(entry)
            continue
        digest = chained(digest, entry.sequence, envelope)
        data = msgspec.structs.replace(envelope, chain=digest).encode()
        found.append(msgspec.structs.replace(entry, data=data))
    return found
