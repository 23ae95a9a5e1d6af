"""An observer that keeps all that a cell ever stored, and judges it when the cell has come to rest."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from berth.core.explain.job_status import digest, status_of
from berth.core.replay.replay import Replayed
from berth.core.state.cell import State
from berth.core.state.invariants import check
from berth.core.state.ledger import Holding, LedgerFold
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Follower, Gap, Stored
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.feeds import Feeds
from berth.schemas.envelope import DecodeError, body_of, decode, open_envelope
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from tests.support.replays import entries_of, see_same
from tests.support.waiting import pause, until

RUBBISH: Final = b"no request at all"
RETRY_S: Final = 0.05
_QUIET_S: Final = 0.7
Acked = Sequence[tuple[int, JobRequest | JobCancel | None]]
"""Sequence and content of requests of which a client was told that they are stored; None for rubbish."""


async def head_of(bus: NatsBus, stream: StreamName) -> int:
    """Last sequence of a stream, however often it takes to learn it."""
    while True:
        try:
            return (await bus.state(stream)).last_seq
        except TransientError:
            await pause(RETRY_S)


class Watch:
    """All facts and records of a cell, kept from the first on."""

    def __init__(self, bus: NatsBus) -> None:
        self.bus = bus
        self.facts: list[Stored] = []
        self.records: list[Stored] = []
        self.fold = LedgerFold()
        self.judged = 0
        """Highest INTAKE sequence that some verdict names."""
        self.placed: Counter[tuple[str, int]] = Counter()
        self.history: list[Holding] = []
        """All that was ever placed."""
        self.ending: deque[Holding] = deque()
        self.moved = asyncio.Event()
        self._gap: Gap | None = None
        self._followers: list[Follower] = []

    def start(self) -> None:
        """Keep what comes from now on; nothing may have been removed before."""
        for stream, take in ((StreamName.FACTS, self._fact), (StreamName.LEDGER, self._record)):
            self._followers.append(self.bus.follow(stream, on_message=take, on_gap=self._on_gap))

    async def stop(self) -> None:
        """Keep nothing more."""
        for follower in self._followers:
            await follower.stop()

    async def reach_heads(self) -> None:
        """Wait until all that is stored now has been seen.

        Raises:
            AssertionError: It is not, in time; shows how far the followers are.
        """
        heads = [await head_of(self.bus, stream) for stream in (StreamName.FACTS, StreamName.LEDGER)]
        try:
            await until(
                lambda: all(follower.applied >= head for follower, head in zip(self._followers, heads, strict=True)),
                deadline_s=20,
                what=f"the observer at {heads}",
            )
        except AssertionError as error:
            at = [
                (one.applied, one.covered, one.recreations, str(getattr(one, "trouble", ""))) for one in self._followers
            ]
            raise AssertionError(f"{error}; it is at {at}") from error
        assert self._gap is None, self._gap

    def decide_again(self) -> Replayed:
        """Decide the whole history again; every decision must be the recorded one."""
        return see_same(entries_of(self.facts, self.records))

    def replay(self) -> State:
        """State at the end of history; every rule is checked after every record."""
        state = State(keeps=True)
        facts = deque(self.facts)
        for record in self.records:
            link = state.fold.link(record.sequence, record.data)
            while facts and facts[0].sequence <= link.facts_seq:
                _apply(state, facts.popleft())
            state.apply_link(link)
            check(state)
        while facts:
            _apply(state, facts.popleft())
        check(state)
        return state

    def verdicts(self) -> dict[int, JobSeen]:
        """First verdict on each INTAKE sequence, tombstones left out."""
        found: dict[int, JobSeen] = {}
        for fact in self.facts:
            envelope = open_envelope(fact.data)
            if envelope.kind == JobSeen.KIND:
                seen = body_of(envelope, JobSeen)
                if seen.state != "tombstone":
                    found.setdefault(seen.intake_seq, seen)
        return found

    def _fact(self, message: Stored) -> None:
        self.facts.append(message)
        try:
            envelope = open_envelope(message.data)
            if envelope.kind == JobSeen.KIND:
                self.judged = max(self.judged, body_of(envelope, JobSeen).intake_seq)
        except DecodeError:
            pass
        self.moved.set()

    def _record(self, message: Stored) -> None:
        self.records.append(message)
        folded = self.fold.apply(message.sequence, message.data)
        self.placed.update(holding.key for holding in folded.taken)
        self.history.extend(folded.taken)
        self.ending.extend(folded.ending)
        self.moved.set()

    def _on_gap(self, gap: Gap) -> None:
        self._gap = gap
        self.moved.set()


def _apply(state: State, fact: Stored) -> None:
    assert state.apply_fact(fact.subject, fact.sequence, fact.data).error == "" or fact.data == RUBBISH


async def at_rest(watch: Watch) -> None:
    """Wait until a cell says nothing new for a while."""
    before = (-1, -1)
    while before != (now := (len(watch.facts), len(watch.records))):
        before = now
        await pause(_QUIET_S)


async def verify(watch: Watch, acked: Acked) -> State:
    """Judge a cell that has come to rest, from its streams alone; returns the state that they make.

    No job lost, none placed twice, no chip with two owners at any point, every decision made again as it was, from
    facts, times and settings alone, statuses as the ledger says, dead letters once, and a start from what is stored
    comes to the same state.
    """
    bus = watch.bus
    await watch.reach_heads()
    state = watch.replay()
    watch.decide_again()
    assert [key for key, count in watch.placed.items() if count > 1] == []
    await _verify_requests(watch, state, acked)
    await _verify_statuses(bus, state)
    await _verify_dead(bus, acked)
    await verify_start(bus, state)
    return state


async def _verify_requests(watch: Watch, state: State, acked: Acked) -> None:
    """Every acknowledged request has its verdict, and every accepted job its place in the ledger or its end."""
    kept = {message.sequence: message for message in await watch.bus.read(StreamName.INTAKE)}
    verdicts = watch.verdicts()
    for sequence, message in acked:
        assert sequence in kept, f"request {sequence} is gone"
        if isinstance(message, JobRequest):
            assert sequence in verdicts, f"request {sequence} of {message.name} has no verdict"
            verdict = verdicts[sequence]
            assert (verdict.namespace, verdict.name) == (message.namespace, message.name)
    for key, job in state.jobs.items():
        if job.state == "accepted":
            gang = state.fold.gangs.get(job.uid)
            assert gang is not None, f"{key} has no word in the ledger"
            assert gang.phase != "waiting" or gang.refusal is not None, f"{key} waits without a reason"


async def _verify_statuses(bus: NatsBus, state: State) -> None:
    told = {}
    for message in await bus.read(StreamName.STATUS):
        said = decode(message.data, JobStatus)
        told[said.namespace, said.name] = said
    for key in state.jobs:
        now = status_of(state, key, at_ms=0)
        assert now is not None
        assert key in told, f"{key} has no status"
        assert digest(told[key]) == digest(now), f"status of {key}: {told[key]} instead of {now}"
        assert told[key].placement == now.placement


async def _verify_dead(bus: NatsBus, acked: Acked) -> None:
    rubbish = {
        message.sequence for message in await bus.read(StreamName.INTAKE) if message.data == RUBBISH
    }  # more than acknowledged when an acknowledgement was lost
    assert rubbish >= {sequence for sequence, message in acked if message is None}
    dead = await bus.read(StreamName.DEAD)
    assert sorted(message.subject for message in dead) == sorted(
        bus.subjects.dead(StreamName.INTAKE, sequence) for sequence in rubbish
    )
    assert (await bus.state(StreamName.DEAD)).last_seq == len(rubbish), "a dead letter was written twice"


async def verify_start(bus: NatsBus, state: State, *, but: Sequence[str] = ()) -> State:
    """A start from what is stored now comes to ``state``, ``but`` for some parts."""
    started = State(keeps=True)
    feeds = Feeds(bus, SystemClock(), started)
    await feeds.start()
    await feeds.stop()
    check(started)
    found, wanted = summary(started), summary(state)
    for name in but:
        found[name] = wanted[name]
    assert found == wanted, "\n".join(_differences(found, wanted))
    return started


def _differences(found: dict[str, object], wanted: dict[str, object]) -> list[str]:
    words = []
    for name, value in wanted.items():
        other = found[name]
        if isinstance(value, dict) and isinstance(other, dict):
            keys = [key for key in {**value, **other} if value.get(key) != other.get(key)]
            words += [f"{name} {key}: {other.get(key)} instead of {value.get(key)}" for key in keys]
        elif value != other:
            words.append(f"{name}: {other} instead of {value}")
    return words


def summary(state: State) -> dict[str, object]:
    """What two states must share to decide alike from now on."""
    table = state.table
    return {
        "head": state.fold.head,
        "facts": state.facts_seq,
        "nodes": state.nodes_seq,
        "intake": state.intake_seq,
        "epoch": (state.fold.epoch, state.fold.holder, state.fold.settings, state.fold.rounds),
        "holdings": state.fold.holdings,
        "gangs": state.fold.gangs,
        "jobs": state.jobs,
        "free": {name: int(table.free[row]) for row, name in enumerate(table.names) if table.present[row]},
    }
