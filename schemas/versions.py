"""Records and snapshots as they are written: in the version of this release, with their chain value."""

import msgspec

from berth.schemas.chain import FIRST, chained
from berth.schemas.envelope import sealed
from berth.schemas.ledger import Epoch, Round
from berth.schemas.status import SnapshotBody


def encode_record(message: Epoch | Round | SnapshotBody, *, chain: bytes = FIRST, sequence: int = 0) -> bytes:
    """Encode a record or a snapshot.

    Args:
        message: The record or snapshot.
        chain: Digest of the chain before the record.
        sequence: Sequence that the record gets; 0: it gets no chain value, as snapshots and what is only compared.

    Returns:
        The bytes. They depend on the arguments alone.
    """
    envelope = sealed(message)
    if sequence:
        envelope = msgspec.structs.replace(envelope, chain=chained(chain, sequence, envelope))
    return envelope.encode()
