"""Leadership: holds the lease and sends heartbeats while this dispatcher leads, and takes over from a silent leader.

The keeper runs beside the loop that decides, on an event loop and a connection of its own
(:mod:`berth.runtime.beside`): a turn that computes for seconds delays no heartbeat. The two share a few plain values,
each written by one of them.

A candidate takes the lease of another only after three signs: no heartbeat for as long as the holder allows, no answer
to a question, and a lease that is unchanged since it was read. See decision heartbeat.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from berth.runtime.bus.leaders import ROLE, answering_leader
from berth.runtime.bus.port import Bus, Served
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.inboxes import CALLERS
from berth.runtime.instruments import Instruments
from berth.runtime.waits import pause
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.status import RESTORE_HOLDER, Heartbeat
from berth.services.dispatcher.lease import Lease
from berth.services.dispatcher.metrics import DispatcherMetrics

RENEWALS: Final = 3
"""Times that a lease is renewed in its length."""
_MARGIN: Final = 2
"""Longest pause that was seen, times this, is the silence that a leader asks for."""
_FORGET: Final = 0.9999
"""What is left of the longest pause after a heartbeat without one: half of it after some 7,000."""
RESTORING: Final = (
    "berth restore holds the lease: it is running, or it was interrupted, or its end was lost with the power. If it is"
    " not running, use: berth restore"
)
_LATE: Final = 2
"""A look that comes later than so many intervals was delayed: what lay between is no silence of the leader."""


HEARTBEAT_S: Final = 0.1
"""Pause between two heartbeats of the leader."""
_STALLED_S: Final = 30.0
"""A leader that computes for so long without a pause sends no heartbeats."""


class Terms(NamedTuple):
    """Times of the lease and of heartbeats, in seconds; settings of the dispatcher."""

    lease_s: int
    lost_s: float
    answer_s: float


class Progress(NamedTuple):
    """How far a leader is: every later record is based on at least these facts."""

    ledger_seq: int = 0
    facts_seq: int = 0


def do_nothing() -> None:
    """Stand for a keeper that does not run."""


class Standing:
    """What the keeper of the lease and the loop that decides share.

    Attributes:
        is_leader: Whether the lease is held. Written by the keeper.
        heard: Progress in the last heartbeat of another leader. Written by the keeper.
        barred: Why the lease cannot be taken before a person acts; empty if nothing is known. Written by the keeper.
        is_candidate: Whether to take the lease when it is free. Written by the loop that decides.
        refuses: Whether to give the lease back: this dispatcher must not lead. Written by the loop that decides.
        is_doubted: Whether another dispatcher has begun an epoch since the lease was renewed. Set by the loop that
            decides, cleared by the keeper.
        wake: Makes the keeper look at once. Written by the keeper.
        progress: Own progress. Written by the loop that decides.
        alive_s: When the loop that decides ran last, in monotonic seconds. Written by that loop.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_leader = False
        self.heard = Progress()
        self.barred = ""
        self.is_candidate = False
        self.refuses = False
        self.is_doubted = False
        self.progress = Progress()
        self.alive_s = clock.monotonic_s()
        self.wake: Callable[[], object] = do_nothing

    @property
    def leads(self) -> bool:
        """Whether the lease is held, as far as is known."""
        return self.is_leader and not self.is_doubted

    def stand(self, *, is_candidate: bool, refuses: bool = False) -> None:
        """Say whether to take the lease when it is free, and whether to give it back if it is held."""
        self.is_candidate = is_candidate
        self.refuses = refuses
        self.wake()

    def doubt(self) -> None:
        """Let the keeper see whether another holds the lease."""
        self.is_doubted = True
        self.wake()


class Keeper:
    """Keeps the lease, or waits for it.

    Args:
        bus: The cell; a connection that the loop that decides does not use.
        clock: Of the process.
        terms: Settings.
        standing: What is shared.
        holder: Name in the lease. A process that finds its own name in it takes the lease back at once, as after a
            restart.
        process: Identity of this process, in its heartbeats.
        instruments: Of the process.
        changed: Called when :attr:`Standing.is_leader` or :attr:`Standing.heard` changes.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        terms: Terms,
        standing: Standing,
        *,
        holder: str,
        process: str,
        instruments: Instruments[DispatcherMetrics],
        changed: Callable[[], object],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._terms = terms
        self._standing = standing
        self._process = process
        self._log = instruments.log
        self._changed = changed
        self._lease = Lease(
            bus,
            clock,
            role=ROLE,
            holder=holder,
            lease_s=terms.lease_s,
            silence_ms=round(terms.lost_s * 1000),
            instruments=instruments,
        )
        self._heard_s = self._looked_s = clock.monotonic_s()
        self._links = bus.link_changes
        self._is_new = True
        """Nothing was heard since the start, and the lease was not looked at."""
        self._is_stalled = False
        self._longest_s = 0.0
        """Longest pause of this process, fading: a call of a library may hold the lock of the interpreter."""
        self._is_due = asyncio.Event()
        self._hearing: Served | None = None
        self._answering: Served | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the lease, or wait for it, until asked to stop; then release it."""
        loop = asyncio.get_running_loop()
        await self.begin()
        self._standing.wake = lambda: loop.call_soon_threadsafe(self._is_due.set)
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(self._beat_forever(), name="send heartbeats"),
                group.create_task(self._wake_on(stop), name="wake on stop"),
            ]
            while not stop.is_set():
                pause_s = await self.renew_or_take()
                await pause(self._is_due, pause_s)
                self._is_due.clear()
            self._standing.wake = do_nothing
            for task in beside:
                task.cancel()
        await self.end()

    async def begin(self) -> None:
        """Start to listen."""
        self._hearing = await self._bus.serve(self._bus.subjects.heartbeat(ROLE), self._hear)
        self._restart_silence()

    async def end(self) -> None:
        """Release the lease and inform standbys."""
        await self._give_back()
        if self._hearing is not None:
            await self._hearing.stop()

    async def _give_back(self) -> None:
        """Release the lease, if it is held, and inform standbys."""
        if self._standing.is_leader:
            await self._lose()
            await self._lease.release()
            await self._send(Heartbeat(self._process, is_over=True))

    async def renew_or_take(self) -> float:
        """Renew the lease, or take it if it is free; returns the seconds until the next call."""
        if self._standing.refuses:
            await self._give_back()
        if self._standing.is_leader:
            return await self._renew()
        self._note_delay()
        return await self._try() if self._standing.is_candidate else HEARTBEAT_S

    async def _renew(self) -> float:
        """Renew the own lease; returns the seconds until the next look."""
        terms, standing = self._terms, self._standing
        self._restart_silence()
        if self._is_stalled:
            return HEARTBEAT_S
        was_doubted = standing.is_doubted
        self._lease.silence_ms = self._silence_ms()
        if not await self._lease.acquire():
            self._log.warning("lease lost")
            await self._lose()
            return HEARTBEAT_S
        if was_doubted:
            standing.is_doubted = False
            self._changed()
        return terms.lease_s / RENEWALS

    async def _try(self) -> float:
        """Take the lease if it is free or its holder is silent; returns the seconds until the next look."""
        terms = self._terms
        quiet_s = self._clock.monotonic_s() - self._heard_s
        if quiet_s < terms.lost_s and not self._is_new:
            return min(HEARTBEAT_S, terms.lost_s - quiet_s)
        self._is_new = False
        if await self._is_answered():
            self._note_holder("")
            self._restart_silence()
            return HEARTBEAT_S
        silence_s = self._clock.monotonic_s() - self._heard_s
        self._lease.silence_ms = self._silence_ms()
        if silence_s < quiet_s or not await self._lease.acquire(silence_ms=int(silence_s * 1000)):
            self._note_holder(self._lease.other)
            left_s = max(terms.lost_s, self._lease.allowed_ms / 1000) - silence_s
            return min(HEARTBEAT_S, left_s) if left_s > 0 else terms.lease_s / RENEWALS
        await self._win()
        return terms.lease_s / RENEWALS

    def _note_holder(self, holder: str) -> None:
        barred = RESTORING if holder == RESTORE_HOLDER else ""
        if barred != self._standing.barred:
            self._standing.barred = barred
            self._changed()

    async def beat(self) -> None:
        """Send a heartbeat, if it leads and the loop that decides makes progress."""
        is_stalled = self._clock.monotonic_s() - self._standing.alive_s > _STALLED_S
        if is_stalled != self._is_stalled:
            self._is_stalled = is_stalled
            self._log.warning("heartbeats stopped: no progress" if is_stalled else "heartbeats resumed")
        said = self._standing.progress
        if self._standing.is_leader and not is_stalled:
            await self._send(
                Heartbeat(self._process, is_over=False, ledger_seq=said.ledger_seq, facts_seq=said.facts_seq)
            )

    async def _beat_forever(self) -> None:
        while True:
            began_s = self._clock.monotonic_s()
            await self.beat()
            await asyncio.sleep(HEARTBEAT_S)
            passed_s = self._clock.monotonic_s() - began_s
            self.note_pause(passed_s - HEARTBEAT_S)
            if passed_s > self._terms.lost_s:
                self._is_due.set()  # it was paused for so long that another may have the lease

    def note_pause(self, pause_s: float) -> None:
        """Note how much later than it was due a heartbeat can be sent."""
        self._longest_s = max(pause_s, self._longest_s * _FORGET)

    def _silence_ms(self) -> int:
        """Silence to ask for: pauses grow with the state, so the next one may be longer than the last.

        The lease expires after its length anyway.
        """
        wanted_s = _MARGIN * (HEARTBEAT_S + self._longest_s)
        return round(1000 * min(max(self._terms.lost_s, wanted_s), self._terms.lease_s))

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._is_due.set()

    async def _win(self) -> None:
        self._standing.is_doubted = False
        self._standing.is_leader = True
        self._standing.barred = ""
        self._changed()
        await self.beat()
        self._answering = await self._bus.serve(
            self._bus.subjects.heartbeat_question(ROLE), self._answer, callers=CALLERS[ROLE]
        )

    async def _lose(self) -> None:
        self._standing.is_leader = self._standing.is_doubted = False
        self._changed()
        self._restart_silence()
        if self._answering is not None:
            await self._answering.stop()
            self._answering = None

    async def _send(self, beat: Heartbeat) -> None:
        try:
            await self._bus.send(self._bus.subjects.heartbeat(ROLE), encode(beat))
        except TransientError as error:
            self._log.debug("heartbeat not sent", reason=error.reason)

    async def _hear(self, data: bytes) -> None:
        try:
            beat = decode(data, Heartbeat)
        except DecodeError as error:
            self._log.warning("heartbeat does not decode", reason=str(error))
            return
        if beat.process == self._process:
            return
        self._is_new = False
        now_s = self._clock.monotonic_s()
        if beat.is_over:
            self._heard_s = now_s - self._terms.lost_s
            self._is_due.set()
            return
        self._note_holder("")
        self._heard_s = now_s
        said = Progress(beat.ledger_seq, beat.facts_seq)
        if said != self._standing.heard:
            self._standing.heard = said
            self._changed()

    async def _is_answered(self) -> bool:
        """Whether a leader is alive. A process that has ended has no connection: the server says so at once."""
        return await answering_leader(self._bus, timeout_s=self._terms.answer_s) is not None

    async def _answer(self, _: bytes) -> bytes | None:
        return encode(Heartbeat(self._process)) if self._standing.is_leader and not self._is_stalled else None

    def _restart_silence(self) -> None:
        self._links = self._bus.link_changes
        self._heard_s = self._looked_s = self._clock.monotonic_s()

    def _note_delay(self) -> None:
        """Check that only silence counts during which this process was connected and listened."""
        now_s = self._clock.monotonic_s()
        delay_s = now_s - self._looked_s - HEARTBEAT_S
        self._looked_s = now_s
        if self._bus.link_changes != self._links:
            self._restart_silence()
        elif delay_s > (_LATE - 1) * HEARTBEAT_S:
            self._heard_s += delay_s
