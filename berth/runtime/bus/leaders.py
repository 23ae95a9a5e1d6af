"""Who leads the dispatchers of a cell, asked on the bus: a leader answers also if it uses no lease."""

from typing import Final

from berth.runtime.bus.port import Bus
from berth.runtime.errors import NoStreamError, TransientError
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.status import Heartbeat, LeaseHeld
from berth.schemas.subjects import StreamName

ROLE: Final = "dispatcher"
"""Role of the leader, in subjects."""


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


def held_by(data: bytes) -> LeaseHeld:
    """Who holds a lease; one without a holder if the message does not decode."""
    try:
        return decode(data, LeaseHeld)
    except DecodeError:
        return LeaseHeld("", 0, 0)


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
