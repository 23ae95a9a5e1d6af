"""History: the state of a cell at sequences of the past, from the newest snapshot before them and what came after it.

What is no longer kept is answered with None; nothing here guesses.
"""

import msgspec

from berth.core.ledger import LedgerDump
from berth.core.state import State
from berth.runtime.clock import Clock
from berth.runtime.feeds import Feeds, newest_snapshot, read_snapshot, snapshot_ends
from berth.runtime.port import Bus, Stored
from berth.runtime.stretches import NotKeptError, pieces
from schemas.envelope import DecodeError, body_of, open_envelope
from schemas.ledger import Epoch, Round, Settings, Verdict, facts_known
from schemas.status import SnapshotEnd
from schemas.subjects import StreamName


class Kept(msgspec.Struct):
    """A record with a verdict on a gang."""

    sequence: int
    record: Round
    verdict: Verdict


async def state_at(bus: Bus, *, ledger_seq: int, facts_seq: int) -> State | None:
    """State of the cell when the ledger ended at ``ledger_seq`` and the facts at ``facts_seq``.

    Facts and records are applied in the order in which the dispatcher did: a record after the facts that it knew.

    Returns:
        None when the history is no longer kept.

    Raises:
        TransientError: The bus did not answer.
    """
    for end in reversed(await snapshot_ends(bus)):
        if end.ledger_seq <= ledger_seq and end.facts_seq <= facts_seq:
            state = await _loaded(bus, end)
            if state is not None:
                return await _advanced(bus, state, ledger_seq, facts_seq)
    return await _advanced(bus, State(), ledger_seq, facts_seq)


async def state_now(bus: Bus, clock: Clock) -> State:
    """State of the cell at the end of what is stored.

    Raises:
        FatalError: The bus has less history than the newest snapshot says.
        TransientError: The bus did not answer.
    """
    state = State()
    feeds = Feeds(bus, clock, state)
    try:
        await feeds.start()
    finally:
        await feeds.stop()
    return state


async def settings_now(bus: Bus) -> Settings | None:
    """Settings of the epoch that reigns; None before the first."""
    found: Settings | None = None
    start = 1
    body = await newest_snapshot(bus)
    if body is not None:
        found = msgspec.msgpack.decode(body.ledger, type=LedgerDump).settings
        start = body.ledger_seq + 1
    head = (await bus.state(StreamName.LEDGER)).last_seq
    for stored in await _tail(bus, StreamName.LEDGER, start, head) or ():
        envelope = open_envelope(stored.data)
        if envelope.kind == Epoch.KIND:
            found = body_of(envelope, Epoch).settings
    return found


async def verdict_on(bus: Bus, uid: str, *, hint_seq: int = 0, placed: bool = False) -> Kept | None:
    """The last kept record with a verdict on a gang.

    Args:
        bus: The cell.
        uid: The gang.
        hint_seq: Record to look at first; if it holds a verdict, that is the answer.
        placed: Only verdicts that placed the gang count.
    """
    head = await bus.state(StreamName.LEDGER)
    if head.first_seq <= hint_seq <= head.last_seq:
        found = _verdict_in(await _tail(bus, StreamName.LEDGER, hint_seq, hint_seq) or [], uid, placed=placed)
        if found is not None:
            return found
    stored = await _tail(bus, StreamName.LEDGER, max(head.first_seq, 1), head.last_seq)
    return _verdict_in(stored or [], uid, placed=placed)


def _verdict_in(records: list[Stored], uid: str, *, placed: bool) -> Kept | None:
    for stored in reversed(records):
        try:
            envelope = open_envelope(stored.data)
            record = body_of(envelope, Round) if envelope.kind == Round.KIND else None
        except DecodeError:
            continue
        for verdict in record.verdicts if record is not None else ():
            if verdict.uid == uid and record is not None and (verdict.placement is not None or not placed):
                return Kept(stored.sequence, record, verdict)
    return None


async def _loaded(bus: Bus, end: SnapshotEnd) -> State | None:
    body = await read_snapshot(bus, end)
    if body is None:
        return None
    state = State()
    state.load(body)
    return state


async def _advanced(bus: Bus, state: State, ledger_seq: int, facts_seq: int) -> State | None:
    """``state`` after the records and facts up to the sequences."""
    records = await _tail(bus, StreamName.LEDGER, state.fold.head + 1, ledger_seq)
    facts = await _tail(bus, StreamName.FACTS, state.facts_seq + 1, facts_seq)
    if records is None or facts is None:
        return None
    waiting = iter(facts)
    fact = next(waiting, None)
    for record in records:
        knew = facts_known(record.data)
        while fact is not None and fact.sequence <= knew:
            state.apply_fact(fact.subject, fact.sequence, fact.data)
            fact = next(waiting, None)
        state.apply_record(record.sequence, record.data)
    while fact is not None:
        state.apply_fact(fact.subject, fact.sequence, fact.data)
        fact = next(waiting, None)
    return state


async def _tail(bus: Bus, stream: StreamName, start: int, end: int) -> list[Stored] | None:
    """All messages with sequences ``start`` to ``end``; None when some are not kept any more, or not there yet.

    Raises:
        TransientError: The stream said nothing for a while.
    """
    try:
        return [stored async for piece in pieces(bus, stream, start, end) for stored in piece]
    except NotKeptError:
        return None
