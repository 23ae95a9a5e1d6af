"""Writing of dead letters, by whoever meets a message that can never be handled."""

from collections.abc import Mapping
from typing import Final

from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import ConflictError
from berth.runtime.logs import DEFAULT_LOG, Logger
from berth.schemas.envelope import encode
from berth.schemas.status import DeadLetter
from berth.schemas.subjects import StreamName

DATA_MAX: Final = 64_000
"""Bytes of a message that a dead letter contains."""
_HEADERS_MAX: Final = 4_096
"""Characters of its headers, names included."""


async def dead_letter(
    bus: Bus,
    clock: Clock,
    stream: StreamName,
    stored: Stored,
    reason: str,
    *,
    code: str,
    log: Logger = DEFAULT_LOG,
) -> None:
    """Write a message that can never be handled to DEAD, once for all followers of the stream.

    Args:
        bus: The cell.
        clock: Of the process.
        stream: Stream of the message.
        stored: The message.
        reason: Why it can never be handled.
        code: Kind of the reason (:mod:`berth.core.requests.dead_reasons`).
        log: Logger of the service.

    Raises:
        TransientError: It may not be written; try again.
    """
    letter = DeadLetter(
        stream=stream.value,
        sequence=stored.sequence,
        subject=stored.subject,
        reason=reason,
        data=stored.data[:DATA_MAX],
        at_ms=clock.now_ms(),
        code=code,
        stored_ms=stored.at_ms,
        size_bytes=len(stored.data),
        headers=_first_of(stored.headers or {}),
    )
    log.warning("dead letter", stream=stream.value, sequence=stored.sequence, subject=stored.subject, reason=reason)
    try:
        await bus.publish(bus.subjects.dead(stream, stored.sequence), encode(letter), expected_subject_seq=0)
    except ConflictError:
        return  # another follower has written it


def _first_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The first headers, up to the limit."""
    found: dict[str, str] = {}
    left = _HEADERS_MAX
    for name, value in headers.items():
        left -= len(name) + len(value)
        if left < 0:
            break
        found[name] = value
    return found
