"""History of a cell: its state and its jobs at a point of the past, and explanations of its jobs as they are now.

The state is computed from the newest snapshot before the point and the messages after it. If these were removed, the
result is None; nothing is estimated.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import msgspec

from berth.core.expected.forecast import Forecast
from berth.core.explain.explainer import explain, explain_now, explain_rejection
from berth.core.explain.model import Basis, Explanation
from berth.core.replay.job_history import Life, Look, Point, Trail, View
from berth.core.state.cell import JobKey, State
from berth.runtime.bus.port import Bus, Stored, StreamState
from berth.runtime.clock import Clock
from berth.runtime.feeds import Feeds
from berth.runtime.recording import HistoryRange, When, is_whole, reaching_ends
from berth.runtime.stored_snapshots import read_snapshot, snapshot_ends
from berth.runtime.stream_ranges import NotKeptError, pieces
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.ledger import Round, Verdict, check_readable
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.status import JobStatus, SnapshotBody, SnapshotEnd
from berth.schemas.subjects import StreamName

_RECORDS_AT_ONCE: Final = 4096
"""Records in one read during the search for a verdict."""
Heads = tuple[StreamState, StreamState]
"""State of the streams LEDGER and FACTS."""


class Kept(msgspec.Struct):
    """A stored record and its verdict on a gang."""

    sequence: int
    record: Round
    verdict: Verdict


async def state_at(bus: Bus, *, ledger_seq: int, facts_seq: int) -> State | None:
    """State of the cell when the ledger ended at ``ledger_seq`` and the facts at ``facts_seq``.

    Facts and records are applied in the order of the dispatcher: a record after the facts that its decision used.

    Returns:
        The state; None if a part of the history was removed.

    Raises:
        TransientError: The bus did not answer.
    """
    for end in reversed(await snapshot_ends(bus)):
        if end.ledger_seq <= ledger_seq and end.facts_seq <= facts_seq:
            state = await _loaded(bus, end)
            if state is not None:
                return await advanced(bus, state, ledger_seq, facts_seq)
    return await advanced(bus, State(), ledger_seq, facts_seq)


class Past(NamedTuple):
    """A job at a point of the past.

    Attributes:
        trail: Events of all jobs that had the name.
        life: The job; None if no job had the name, or none with the requested uid.
        look: Its status and explanation; None if ``life`` is None.
    """

    trail: Trail
    life: Life | None
    look: Look | None


async def past_of(bus: Bus, key: JobKey, *, uid: str, until: When | None) -> Past | None:
    """Find a job at a point of the past, or at the end of the stored history.

    Args:
        bus: The cell.
        key: Namespace and name.
        uid: Which of the jobs that had the name; empty for the last one.
        until: The point; facts between two records count by the time at which they were stored.

    Returns:
        The job; None if nothing from before the point is kept.

    Raises:
        NotKeptError: The cell removed a part during the read.
        TransientError: The bus did not answer.
    """
    heads = (await bus.state(StreamName.LEDGER), await bus.state(StreamName.FACTS))
    found: Past | None = None
    async for start in _starts(bus, until, heads):
        trail = Trail(key, start, Point())
        async for entry in _entries(bus, start, until, heads):
            trail.add(entry)
        trail.close()
        life = trail.life(uid)
        found = Past(trail, life, None)
        if life is not None:
            look = await _look(bus, key, found, start, until, heads)
            return Past(trail, life, look)
    return found


async def _look(
    bus: Bus, key: JobKey, past: Past, start: SnapshotBody, until: When | None, heads: Heads
) -> Look | None:
    if past.life is None:
        return None
    view = View(key, past.life, past.trail, start)
    async for entry in _entries(bus, start, until, heads):
        view.add(entry)
    look = view.end()
    if look.status is None or (look.explanation is not None and not look.explanation.basis.is_current):
        return look
    kept = await verdict_on(
        bus,
        past.life.uid,
        hint_seq=look.status.ledger_seq,
        placed=look.status.phase != "waiting",
        up_to=past.trail.ledger_seq,
    )
    then = await state_at(bus, ledger_seq=kept.sequence - 1, facts_seq=kept.record.facts_seq) if kept else None
    explanation = explain(then, kept.record, past.life.uid, ledger_seq=kept.sequence) if kept and then else None
    return look if explanation is None else look._replace(explanation=explanation)


async def _starts(bus: Bus, until: When | None, heads: Heads) -> AsyncIterator[SnapshotBody]:
    """Possible starts of a history up to a point: the newest snapshot before it, then the oldest that is kept."""
    ledger, facts = heads
    ends = await reaching_ends(bus, ledger, facts)
    before = [end for end in ends if until is None or _is_before(end, until)]
    has_all = is_whole(ledger, facts)
    for end in dict.fromkeys([*before[-1:], *([] if has_all else before[:1])]):
        body = await read_snapshot(bus, end)
        if body is not None:
            yield body
    if has_all:
        yield BEGINNING


def _is_before(end: SnapshotEnd, until: When) -> bool:
    return end.ledger_seq <= until.ledger_seq if until.ledger_seq >= 0 else end.at_ms <= until.at_ms


async def _entries(bus: Bus, start: SnapshotBody, until: When | None, heads: Heads) -> AsyncIterator[Entry]:
    async for entry in HistoryRange(bus, start, (heads[0].last_seq, heads[1].last_seq), until).entries():
        yield entry


async def state_now(bus: Bus, clock: Clock) -> State:
    """State of the cell at the end of the stored history.

    Raises:
        FatalError: The bus holds less history than the newest snapshot states.
        TransientError: The bus did not answer.
    """
    state = State()
    feeds = Feeds(bus, clock, state)
    try:
        await feeds.start()
    finally:
        await feeds.stop()
    return state


async def explanation_of(
    bus: Bus, clock: Clock, status: JobStatus, *, expects_start: bool = True, with_nodes: bool = False
) -> Explanation | None:
    """Explanation of a job as it is now: from the state of its decision, or of now while it waits.

    Where the state of its decision is no longer stored, it is explained from the state of now.

    Args:
        bus: The cell.
        clock: Of the process.
        status: Of the job.
        expects_start: Whether to say of one that waits when it is expected to start.
        with_nodes: Whether to say of each node if it could take a pod of one that waits.

    Returns:
        The explanation; None before a decision, or if neither is possible.

    Raises:
        TransientError: The bus did not answer.
    """
    if status.phase == "rejected" and status.refusal is not None:
        basis = Basis(facts_seq=status.facts_seq, at_ms=status.since_ms)
        return explain_rejection(status.namespace, status.name, status.uid, status.refusal, basis=basis)
    if not status.ledger_seq:
        return None
    if status.phase == "waiting" and (status.refusal is not None or status.is_held):
        verdict = Verdict(status.namespace, status.name, status.uid, status.attempt, None, status.refusal)
        state, now_ms = await state_now(bus, clock), clock.now_ms()
        found = explain_now(state, verdict, ledger_seq=status.ledger_seq, at_ms=now_ms, with_nodes=with_nodes)
        if found is not None and expects_start:
            found.expected_start = Forecast(state, now_ms).of(status.uid)
        return found
    kept = await _kept(bus, status)
    if kept is not None:
        then = await state_at(bus, ledger_seq=kept.sequence - 1, facts_seq=kept.record.facts_seq)
        found = explain(then, kept.record, status.uid, ledger_seq=kept.sequence) if then is not None else None
        if found is not None:
            return found
        verdict = kept.verdict
    elif status.placement is None and status.refusal is None:
        return None
    else:
        verdict = Verdict(status.namespace, status.name, status.uid, status.attempt, status.placement, status.refusal)
    now = await state_now(bus, clock)
    return explain_now(now, verdict, ledger_seq=kept.sequence if kept is not None else status.ledger_seq)


async def _kept(bus: Bus, status: JobStatus) -> Kept | None:
    """Record of the verdict in force: the placement if the job ever had one and does not wait again."""
    if status.phase != "waiting":
        kept = await verdict_on(bus, status.uid, hint_seq=status.ledger_seq, placed=True)
        if kept is not None:
            return kept
    return await verdict_on(bus, status.uid, hint_seq=status.ledger_seq)


async def verdict_on(
    bus: Bus, uid: str, *, hint_seq: int, placed: bool = False, up_to: int | None = None
) -> Kept | None:
    """Find the last stored record with a verdict on a gang.

    Args:
        bus: The cell.
        uid: The gang.
        hint_seq: Record to read first; if it holds a verdict, it is the result. 0 for none.
        placed: Whether only verdicts that placed the gang count.
        up_to: Last record that counts; None for no limit.
    """
    head = await bus.state(StreamName.LEDGER)
    if up_to is not None:
        head = head._replace(last_seq=min(head.last_seq, up_to))
    if head.first_seq <= hint_seq <= head.last_seq:
        found = _verdict_in(await _tail(bus, StreamName.LEDGER, hint_seq, hint_seq) or [], uid, placed=placed)
        if found is not None:
            return found
    end = head.last_seq
    while end >= max(head.first_seq, 1):  # newest first: the verdict is usually recent
        begin = max(end - _RECORDS_AT_ONCE + 1, head.first_seq, 1)
        found = _verdict_in(await _tail(bus, StreamName.LEDGER, begin, end) or [], uid, placed=placed)
        if found is not None:
            return found
        end = begin - 1
    return None


def _verdict_in(records: list[Stored], uid: str, *, placed: bool) -> Kept | None:
    for stored in reversed(records):
        if uid.encode() not in stored.data:
            continue
        try:
            envelope = open_envelope(stored.data)
            check_readable(envelope)
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


async def advanced(bus: Bus, state: State, ledger_seq: int, facts_seq: int) -> State | None:
    """Apply records and facts up to the sequences to ``state``; None if some were removed.

    Raises:
        TransientError: The bus did not answer. Nothing was applied.
    """
    records = await _tail(bus, StreamName.LEDGER, state.fold.head + 1, ledger_seq)
    facts = await _tail(bus, StreamName.FACTS, state.facts_seq + 1, facts_seq)
    if records is None or facts is None:
        return None
    waiting = iter(facts)
    fact = next(waiting, None)
    for record in records:
        link = state.fold.link(record.sequence, record.data)
        while fact is not None and fact.sequence <= link.facts_seq:
            state.apply_fact(fact.subject, fact.sequence, fact.data)
            fact = next(waiting, None)
        state.apply_link(link)
    while fact is not None:
        state.apply_fact(fact.subject, fact.sequence, fact.data)
        fact = next(waiting, None)
    return state


async def _tail(bus: Bus, stream: StreamName, start: int, end: int) -> list[Stored] | None:
    """All messages with sequences ``start`` to ``end``; None if some were removed or are not stored yet.

    Raises:
        TransientError: No message came for a while.
    """
    try:
        return [stored async for piece in pieces(bus, stream, start, end) for stored in piece]
    except NotKeptError:
        return None
