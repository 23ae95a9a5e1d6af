"""Who leads the dispatchers of a cell, asked on the bus: a leader answers also if it uses no lease."""

from typing import Final

from berth.runtime.bus.port import Bus, Stored
from berth.runtime.errors import NoStreamError, TransientError
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.status import Heartbeat, LeaseHeld
from berth.schemas.subjects import StreamName

ROLE: Final = "dispatcher"
"""Role of the leader, in subjects."""
_CLOCKS_APART_MS: Final = 600_000
"""Difference between the clocks of a server and of a holder, in milliseconds, that is taken for one."""


async def answering_leader(bus: Bus, *, timeout_s: float) -> str | None:
    """Ask whether a dispatcher leads.

    Args:
        bus: The cell.
        timeout_s: How long to wait for an answer. If none is connected, the server says so at once.

    Returns:
        The process that leads, empty if it does not name itself; None if none answers.
    """
    try:
        answer = await bus.request(bus.subjects.heartbeat_question(ROLE), b"", timeout_s=timeout_s)
    except TransientError:
        return None
    try:
        return decode(answer, Heartbeat).process if answer else ""
    except DecodeError:
        return ""


def held_by(bus: Bus, stored: Stored | None) -> LeaseHeld:
    """Who holds a lease; one without a holder if there is no message, it does not decode, or it has no valid signature.

    A signed one that was stored long after it was written is an old one that somebody published again.
    """
    free = LeaseHeld("", 0, 0)
    if stored is None or not bus.signatures.counts(stored):
        return free
    try:
        held = decode(stored.data, LeaseHeld)
    except DecodeError:
        return free
    is_old = bus.signatures.is_on and abs(stored.at_ms - held.at_ms) > _CLOCKS_APART_MS
    return free if is_old else held


async def is_restored(bus: Bus, held: LeaseHeld) -> bool:
    """Whether a dispatcher has led since the restore that holds a lease: it was complete, only its release is lost.

    Raises:
        TransientError: The bus did not answer.
    """
    if not held.ledger:
        return False
    try:
        ledger = await bus.state(StreamName.LEDGER)
    except NoStreamError:
        return False
    return ledger.created == held.ledger and ledger.last_seq > held.ledger_seq
