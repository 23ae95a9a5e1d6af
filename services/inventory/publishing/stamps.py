"""Times in messages: of the clock of the host, although the inventory waits by one that does not jump."""

from typing import Final

import msgspec

from berth.schemas.columns import pack, unpack
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.message import Message

_TIME_BYTES: Final = 8
_AGREES_MS: Final = 1_000
"""Clocks that differ by less agree: both are read one after the other."""


def restamped(message: Message, ahead_ms: int) -> Message:
    """A message with the times of the clock of the host, with which other services compare theirs.

    Args:
        message: It has times of a clock that does not jump; 0 stays 0.
        ahead_ms: How far that clock is ahead.
    """
    at_ms = getattr(message, "at_ms", 0)
    if abs(ahead_ms) < _AGREES_MS or not at_ms:
        return message
    changed: dict[str, object] = {"at_ms": max(at_ms - ahead_ms, 1)}
    if isinstance(message, ReplacementsSeen):
        since = unpack(message.since_ms, _TIME_BYTES)
        changed["since_ms"] = pack([max(since_ms - ahead_ms, 1) for since_ms in since], _TIME_BYTES)
    elif isinstance(message, GroupSeen) and message.recover_ms:
        changed["recover_ms"] = max(message.recover_ms - ahead_ms, 1)
    return msgspec.structs.replace(message, **changed)
