"""Which messages of the ledger count, computed anew from their bytes.

Nothing here is the product's: an error in the code by which all readers agree which records count would make all of
them agree on something wrong. A message counts if it is a record, has the right digest, is of the leading epoch or
begins a later one, and names the message before it. ``docs/decisions/ledger-chain.md`` has the rule.
"""

import hashlib
import struct
from typing import Any, Final, NamedTuple

import msgspec

_EPOCH: Final = "ledger.epoch"
_ROUND: Final = "ledger.round"
_DIGEST_BYTES: Final = 16


class Position(NamedTuple):
    """Where a reader is after a message: its sequence, the leading epoch, and the chain so far."""

    sequence: int = 0
    epoch: int = 0
    digest: bytes = bytes(_DIGEST_BYTES)


_BEGINNING: Final = Position()


class _Message(msgspec.Struct, array_like=True):
    kind: str
    version: int
    body: msgspec.Raw
    release: str = ""
    digest: bytes = b""


class LedgerOracle:
    """Reads each message of the ledger as it is stored.

    Args:
        base: Where it begins.

    Attributes:
        position: After the last message.
    """

    def __init__(self, base: Position = _BEGINNING) -> None:
        self.position = base
        self._after = {base.sequence: base}

    def read(self, sequence: int, data: bytes) -> bool:
        """Whether a message counts; one with a sequence that was read before takes its place, and all after it go.

        Raises:
            ValueError: Messages are missing before it.
        """
        before = self._after.get(sequence - 1)
        if before is None:
            raise ValueError(f"message {sequence} follows on {self.position.sequence}")
        after = _after(before, sequence, data)
        self.position = after if after is not None else before._replace(sequence=sequence)
        self._after[sequence] = self.position
        return after is not None


def _after(before: Position, sequence: int, data: bytes) -> Position | None:
    """Position after a message that counts; None if it does not."""
    try:
        message = msgspec.msgpack.decode(data, type=_Message)
        fields = msgspec.msgpack.decode(message.body, type=list[Any])
        epoch, base = fields[0], fields[1]
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError):
        return None
    if message.kind not in {_EPOCH, _ROUND}:
        return None
    begins = message.kind == _EPOCH
    digest = digest_of(before.digest, sequence, message)
    if message.digest != digest:
        return None
    is_next = epoch > before.epoch if begins else epoch == before.epoch
    if not is_next or base != sequence - 1:
        return None
    return Position(sequence, epoch, digest)


def digest_of(before: bytes, sequence: int, message: _Message) -> bytes:
    """Digest of a record: over the one before it, its sequence, its version, its kind and its body."""
    name = message.kind.encode()
    whole = before + struct.pack("<QII", sequence, message.version, len(name)) + name + bytes(message.body)
    return hashlib.blake2b(whole, digest_size=_DIGEST_BYTES).digest()
