"""Leadership without a lease, for a cell whose dispatcher has no standby: it leads as soon as nobody else does.

Nothing is written and no heartbeat is sent, so the loop that decides needs no second one beside it. Before it leads, a
dispatcher asks on the bus whether another one leads, and reads whether one holds the lease. While it leads it answers
that question, so that one with a lease stands by. If two begin at the same moment, the ledger fences one of them, and
that one finds the other. See decision one-process.
"""

import asyncio
from collections.abc import Callable

from berth.runtime.bus.leaders import ROLE, answering_leader
from berth.runtime.bus.port import Bus, Served
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.inboxes import CALLERS
from berth.runtime.instruments import Instruments
from berth.runtime.waits import pause
from berth.schemas.envelope import encode
from berth.schemas.status import RESTORE_HOLDER, Heartbeat
from berth.services.dispatcher.leadership import RENEWALS, RESTORING, Standing, Terms, do_nothing
from berth.services.dispatcher.lease import Lease
from berth.services.dispatcher.metrics import DispatcherMetrics


class SoleLeader:
    """Lets a dispatcher lead while no other does.

    Args:
        bus: The cell.
        clock: Of the process.
        terms: Settings.
        standing: What is shared with the loop that decides.
        process: Identity of this process, which it answers with.
        instruments: Of the process.
        changed: Called when :attr:`Standing.is_leader` or :attr:`Standing.barred` changes.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        terms: Terms,
        standing: Standing,
        *,
        process: str,
        instruments: Instruments[DispatcherMetrics],
        changed: Callable[[], object],
    ) -> None:
        self._bus = bus
        self._terms = terms
        self._standing = standing
        self._process = process
        self._log = instruments.log
        self._changed = changed
        self._lease = Lease(bus, clock, role=ROLE, holder=process, lease_s=terms.lease_s, instruments=instruments)
        self._is_due = asyncio.Event()
        self._answering: Served | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Lead or wait for the end of another leader, until asked to stop."""
        loop = asyncio.get_running_loop()
        self._standing.wake = lambda: loop.call_soon_threadsafe(self._is_due.set)
        async with asyncio.TaskGroup() as group:
            waking = group.create_task(self._wake_on(stop), name="wake on stop")
            while not stop.is_set():
                await self.lead_or_end()
                await pause(self._is_due, self._terms.lease_s / RENEWALS)
                self._is_due.clear()
            waking.cancel()
        self._standing.wake = do_nothing
        await self._set(is_leader=False)

    async def lead_or_end(self) -> None:
        """Lead if nobody else does; end to lead if another dispatcher holds the lease or has begun an epoch."""
        standing = self._standing
        if standing.refuses or standing.is_doubted:
            await self._set(is_leader=False)
        if not (standing.is_leader or standing.is_candidate):
            return
        try:
            barred = await self._holder() or ("" if standing.is_leader else await self._other())
        except TransientError as error:
            self._log.debug("other leaders not known", reason=error.reason)
            return
        if standing.is_doubted:  # while it asked
            await self._set(is_leader=False, barred=barred)
        else:
            await self._set(is_leader=not barred and (standing.is_leader or standing.is_candidate), barred=barred)

    async def _holder(self) -> str:
        """Why the lease keeps this dispatcher from leading; empty if it does not."""
        holder = await self._lease.other_holder()
        if holder == RESTORE_HOLDER:
            return RESTORING
        return f"{holder} holds the lease of this cell" if holder else ""

    async def _other(self) -> str:
        """Why another dispatcher keeps this one from leading; empty if none answers."""
        other = await answering_leader(self._bus, timeout_s=self._terms.answer_s)
        if other is None:
            return ""
        return f"another dispatcher leads this cell{f': {other}' if other else ''}; a cell has one, stop one of the two"

    async def _set(self, *, is_leader: bool, barred: str = "") -> None:
        standing = self._standing
        before = (standing.leads, standing.barred)
        standing.is_leader, standing.barred = is_leader, barred
        standing.is_doubted = False
        if (standing.leads, standing.barred) != before:
            self._changed()
        # Only a leader listens: if none is connected, the server says so at once.
        if is_leader and self._answering is None:
            self._answering = await self._bus.serve(
                self._bus.subjects.heartbeat_question(ROLE), self._answer, callers=CALLERS[ROLE]
            )
        elif not is_leader and self._answering is not None:
            answering, self._answering = self._answering, None
            await answering.stop()

    async def _answer(self, _: bytes) -> bytes | None:
        return encode(Heartbeat(self._process)) if self._standing.leads else None

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._is_due.set()
