"""Ids of traces: that of a job follows from its uid."""

import hashlib
from typing import Final

_TRACE_BYTES: Final = 16


def trace_id(uid: str) -> str:
    """Id of the trace of a job: 32 hexadecimal digits, the BLAKE2b hash (16 bytes) of its uid."""
    return hashlib.blake2b(uid.encode(), digest_size=_TRACE_BYTES).hexdigest()
