"""How far the stored events go, and the snapshot from which later ones can be derived again."""

from typing import NamedTuple

import msgspec

from berth.runtime.bus.port import Bus, StreamState
from berth.runtime.logs import Logger
from berth.runtime.recording import is_whole, reaching_ends
from berth.runtime.stored_snapshots import newest_snapshot, read_snapshot
from berth.schemas.status import SnapshotBody
from berth.schemas.subjects import StreamName


class Position(msgspec.Struct, frozen=True):
    """Events of all records and facts up to these are stored."""

    ledger_seq: int = 0
    facts_seq: int = 0
    ledger: str = ""
    """Which stream the ledger was: when the server made it ..."""
    facts: str = ""
    """... that of the facts ..."""
    events: str = ""
    """... and that of the events; empty in positions of earlier releases."""
    ledger_ms: int = 0
    """When the server stored that record: one that lost power gives its sequence to another one; 0 if unknown ..."""
    facts_ms: int = 0
    """... and that fact."""

    def covers(self, source: str, sequence: int) -> bool:
        """Whether events of a record (``ledger``) or fact are stored."""
        return sequence <= (self.ledger_seq if source == "ledger" else self.facts_seq)


class Start(NamedTuple):
    """Where the derivation starts.

    Attributes:
        body: The snapshot; None for the beginning of the history.
        position: How far the stored events go.
        is_whole: All events after the position can be derived.
    """

    body: SnapshotBody | None
    position: Position
    is_whole: bool


async def read_position(bus: Bus) -> Position:
    """How far the stored events go.

    That is nowhere if it is not stored, or is about streams that were made again since, or about a record or a fact
    that the server has lost since.

    Raises:
        TransientError: The bus did not answer.
    """
    ledger, facts = await bus.state(StreamName.LEDGER), await bus.state(StreamName.FACTS)
    now = Position(ledger=ledger.created, facts=facts.created, events=(await bus.state(StreamName.EVENTS)).created)
    stored = await bus.last(StreamName.EVENTS, bus.subjects.event_position)
    if stored is None:
        return now
    try:
        found = msgspec.json.decode(stored.data, type=Position)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return now
    if (found.ledger, found.facts, found.events or now.events) != (now.ledger, now.facts, now.events):
        return now
    kept = (
        await _is_kept(bus, StreamName.LEDGER, ledger, found.ledger_seq, found.ledger_ms),
        await _is_kept(bus, StreamName.FACTS, facts, found.facts_seq, found.facts_ms),
    )
    return found if all(kept) else now


async def position_at(bus: Bus, ledger_seq: int, facts_seq: int, *, ledger_ms: int, facts_ms: int) -> Position:
    """Position at sequences of the present streams, and when the server stored their messages.

    Raises:
        TransientError: The bus did not answer.
    """
    ledger, facts = await bus.state(StreamName.LEDGER), await bus.state(StreamName.FACTS)
    events = await bus.state(StreamName.EVENTS)
    return Position(ledger_seq, facts_seq, ledger.created, facts.created, events.created, ledger_ms, facts_ms)


async def _is_kept(bus: Bus, stream: StreamName, state: StreamState, sequence: int, at_ms: int) -> bool:
    """Whether a stream has a message that it had, unless that became too old."""
    if sequence > state.last_seq:
        return False
    if not at_ms or sequence < state.first_seq:
        return True
    stored = await bus.message(stream, sequence)
    return stored is None or stored.at_ms == at_ms


async def start_of(bus: Bus, log: Logger) -> Start:
    """Newest snapshot at or before the position; otherwise the oldest from which the history is kept.

    Raises:
        TransientError: The bus did not answer.
    """
    position = await read_position(bus)
    ledger, facts = await bus.state(StreamName.LEDGER), await bus.state(StreamName.FACTS)
    ends = await reaching_ends(bus, ledger, facts)
    before = [end for end in ends if end.ledger_seq <= position.ledger_seq and end.facts_seq <= position.facts_seq]
    from_beginning = is_whole(ledger, facts)
    later = [end for end in ends if end not in before]
    for end in reversed(before):
        body = await read_snapshot(bus, end, log)
        if body is not None:
            return Start(body, position, is_whole=True)
    if from_beginning:
        return Start(None, position, is_whole=True)
    for end in later:
        body = await read_snapshot(bus, end, log)
        if body is not None:
            return Start(body, position, is_whole=False)
    return Start(await newest_snapshot(bus, log), position, is_whole=False)
