"""Chain of the ledger: which messages of its stream count, as far as their first fields say.

Each record has a digest over the one before it, its sequence and its bytes. A message that does not have the right one
is void: it moves the head, and changes nothing. So are records of a past epoch and those that were decided on another
record than the last. Void messages are left out of the chain. ``docs/decisions/ledger-chain.md`` gives the reasons.
"""

import hashlib
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from berth.schemas.envelope import (
    LEDGER,
    DecodeError,
    Envelope,
    body_of,
    check_not_older,
    encode,
    open_envelope,
    sealed,
)
from berth.schemas.ledger import RECORDS, Epoch, RecordHead, Round, check_readable, head_of
from berth.schemas.rules import check_rules
from berth.schemas.status import KeptFact, Skip, SnapshotBody

DIGEST_BYTES: Final = 16
FIRST: Final = bytes(DIGEST_BYTES)
"""Digest before the first record."""
UNREADABLE: Final = "it is no message of Berth"
OTHER_KIND: Final = "it is no record"
UNSIGNED: Final = "it has no valid signature"
"""Reason of the skip that a reader which checks signatures puts in place of a message."""
UNCHAINED: Final = "its chain value is missing or wrong"
PAST_EPOCH: Final = "its writer does not lead"
OTHER_BASE: Final = "it was decided on another record than the last"
_RAW: Final = msgspec.Raw()
_VERSION_MAX: Final = (1 << 32) - 1


class Position(NamedTuple):
    """How far a reader of the ledger is.

    Attributes:
        base_seq: Sequence of the last message that it read, void ones included; a record names it.
        epoch: Leading epoch.
        digest: Digest of the last record that counted.
    """

    base_seq: int = 0
    epoch: int = 0
    digest: bytes = FIRST

    def after(self, link: "Link") -> "Position":
        """Position after a message."""
        if link.void or link.head is None:
            return self._replace(base_seq=link.sequence)
        return Position(link.sequence, link.head.epoch, link.digest)


class Link(NamedTuple):
    """A message of the ledger's stream, before its body is read.

    Attributes:
        sequence: Its sequence.
        digest: Digest of the chain after it.
        void: Why it counts for nothing; empty if it counts.
        envelope: Its envelope; None if it has none.
        head: First fields of the record; None if they were not read.
        epoch: The record, if it begins an epoch.
        facts_seq: Facts that are applied before it.
    """

    sequence: int
    digest: bytes
    void: str = ""
    envelope: Envelope | None = None
    head: RecordHead | None = None
    epoch: Epoch | None = None
    facts_seq: int = 0


def chained(digest: bytes, sequence: int, envelope: Envelope) -> bytes:
    """Digest of a record: over the digest before it, its sequence, kind, version and body."""
    kind = envelope.kind.encode()
    hashed = hashlib.blake2b(digest, digest_size=DIGEST_BYTES)
    hashed.update(struct.pack("<QII", sequence, envelope.version, len(kind)) + kind)
    hashed.update(envelope.body)
    return hashed.digest()


def encode_record(record: Epoch | Round, *, chain: bytes = FIRST, sequence: int) -> bytes:
    """Encode a record with its chain value.

    Args:
        record: The record.
        chain: Digest of the chain before it.
        sequence: Sequence that it gets.

    Returns:
        The bytes. They depend on the arguments alone.
    """
    envelope = sealed(record)
    return msgspec.structs.replace(envelope, chain=chained(chain, sequence, envelope)).encode()


def follows(digest: bytes, sequence: int, envelope: Envelope) -> bool:
    """Whether a message has the chain value of a record at this sequence, behind the record with a digest."""
    is_version = 0 < envelope.version <= _VERSION_MAX  # of a larger one there is no chain value
    return is_version and envelope.chain == chained(digest, sequence, envelope)


def link_of(position: Position, sequence: int, data: bytes) -> Link:
    """Find out whether a message counts.

    Args:
        position: Of the reader, just before it.
        sequence: Its sequence.
        data: The message.

    Raises:
        DecodeError: It does not decode, and its chain value is right: its writer led.
        VersionError: Only another release reads it, and its chain value is right; or no record counted before it, and a
            release before 0.5 wrote it.
    """
    digest = position.digest
    try:
        envelope = open_envelope(data)
    except DecodeError:
        return Link(sequence, digest, UNREADABLE)
    if not envelope.kind.startswith(LEDGER):
        return Link(sequence, digest, UNSIGNED if _is_unsigned(envelope) else OTHER_KIND, envelope)
    if not follows(digest, sequence, envelope):
        # Releases before 0.5 may have had no chain: their streams are not passed over.
        if not position.epoch and envelope.kind in RECORDS:
            check_not_older(envelope, sequence=sequence)
        return Link(sequence, digest, UNCHAINED, envelope)
    check_readable(envelope, sequence=sequence)
    return _link(position, sequence, envelope)


def _link(position: Position, sequence: int, envelope: Envelope) -> Link:
    """A record whose chain value is right.

    Raises:
        DecodeError: It does not decode.
        UnknownRuleError: It begins an epoch with a rule that this release lacks.
    """
    head = head_of(envelope)
    epoch = body_of(envelope, Epoch) if envelope.kind == Epoch.KIND else None
    void = ""
    if head.epoch <= position.epoch if epoch is not None else head.epoch != position.epoch:
        void = PAST_EPOCH
    elif head.base_seq != position.base_seq:
        void = OTHER_BASE
    if void:
        return Link(sequence, position.digest, void, envelope, head, epoch)
    if epoch is not None:
        check_rules(epoch.rules, sequence=sequence)
    return Link(sequence, envelope.chain, "", envelope, head, epoch, head.facts_seq)


def stored_digest(data: bytes) -> str:
    """Digest of a message as a skip contains it."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def unsigned(sequence: int, data: bytes) -> bytes:
    """What takes the place of a message of the ledger without a valid signature: the same bytes for each reader."""
    return encode(Skip(sequence, sequence, stored_digest(data), UNSIGNED, was_void=True))


def _is_unsigned(envelope: Envelope) -> bool:
    """Whether what was stored there had no valid signature, so that its reader put a skip in its place."""
    try:
        return envelope.kind == Skip.KIND and body_of(envelope, Skip).reason == UNSIGNED
    except DecodeError:
        return False


class ChainReader:
    """Follows the ledger without folding it.

    Attributes:
        position: How far it is.
    """

    def __init__(self, position: Position) -> None:
        self.position = position

    def read(self, sequence: int, data: bytes) -> Link:
        """Read the next message.

        Raises:
            DecodeError: See :func:`link_of`.
            VersionError: As before.
        """
        link = link_of(self.position, sequence, data)
        self.position = self.position.after(link)
        return link


class _Folded(msgspec.Struct, array_like=True, gc=False):
    """Where the ledger was, out of the folded ledger of a snapshot; fields as in the core's ``LedgerDump``."""

    head: int
    epoch: int
    holder: msgspec.Raw
    settings: msgspec.Raw
    facts_seq: msgspec.Raw
    at_ms: msgspec.Raw
    rounds: msgspec.Raw
    holdings: msgspec.Raw
    gangs: msgspec.Raw
    intake_seq: msgspec.Raw = _RAW
    nodes_seq: msgspec.Raw = _RAW
    leaving: msgspec.Raw = _RAW
    waiting: msgspec.Raw = _RAW
    run_times: msgspec.Raw = _RAW
    held: msgspec.Raw = _RAW
    epoch_ms: msgspec.Raw = _RAW
    lost: msgspec.Raw = _RAW
    chain: bytes = FIRST


_FOLDED: Final = msgspec.msgpack.Decoder(_Folded)


def position_of(body: SnapshotBody) -> Position:
    """Position of a reader that starts from a snapshot.

    Raises:
        DecodeError: Its folded ledger does not decode.
    """
    if not body.ledger:
        return Position(base_seq=body.ledger_seq)
    try:
        found = _FOLDED.decode(body.ledger)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the folded ledger does not decode: {error}", kind=SnapshotBody.KIND) from error
    return Position(found.head, found.epoch, found.chain)


def state_digest(facts: Iterable[KeptFact], ledger: bytes) -> bytes:
    """Digest of what a snapshot contains: the facts kept and the folded ledger."""
    hashed = hashlib.blake2b(ledger, digest_size=DIGEST_BYTES)
    hashed.update(msgspec.msgpack.encode(list(facts)))
    return hashed.digest()
