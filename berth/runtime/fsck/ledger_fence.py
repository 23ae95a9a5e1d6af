"""Fence of a repair: no dispatcher leads meanwhile, and none goes on with what it knew of the ledger before.

The lease keeps others from beginning. A dispatcher that leads gives way when it looks at the lease; until then it
answers that it leads. An epoch that is appended behind what was found fences one that does not look: if anything was
appended meanwhile, it is refused, and nothing that may have counted is skipped. A restore keeps its lease, which has no
end: as long as it is not complete, what there is of the cell is not to be repaired.

The lease is renewed beside the work, however long that takes, as long as the work lets the event loop run. If it is
lost, the work ends.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from berth.core.state.ledger import LedgerFold
from berth.runtime.bus.leaders import ROLE, answering_leader, held_by, is_restored
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, ConflictError, ShellError
from berth.runtime.waits import pause
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName

HOLDER: Final = "berth repair"
"""Holder of the lease during a repair, and of its epoch. A repair that was interrupted is taken over by the next."""
_LEASE_S: Final = 30
_RENEW_S: Final = _LEASE_S / 3
"""Time for a renewal that is slow, or for a part of the work during which the loop does not run."""
_ANSWER_S: Final = 2.0
_LOOK_S: Final = 0.25
_TRIES: Final = 5
"""Times that the lease is read and taken, until nobody wrote it in between."""
_WAIT_S: Final = 60.0
"""How long a dispatcher that leads may take to look at the lease: with the default settings it does every 2 s."""


class RepairError(ShellError):
    """The ledger cannot be repaired; the message says why, and what helps."""


class Fence:
    """Holds the lease of the dispatchers.

    Args:
        bus: The cell.
        clock: Source of time.
    """

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._subject = bus.subjects.lease(ROLE)
        self._revision = 0
        self._held_s = 0.0

    async def check_no_restore(self) -> None:
        """Check that no restore holds the lease. What is written without it is written within its length from now on.

        Raises:
            RepairError: One does; it runs, or it was interrupted and has left a part of a cell.
            TransientError: The bus did not answer.
        """
        self._held_s = self._clock.monotonic_s()
        last = await self._bus.last(StreamName.LEASE, self._subject)
        self._revision = last.sequence if last is not None else 0
        held = held_by(self._bus, last)
        if held.holder == RESTORE_HOLDER and not await is_restored(self._bus, held):
            raise RepairError(
                "berth restore holds the lease: it is running, or it was interrupted. If it is not running, use: berth"
                " restore. Nothing was changed"
            )

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lease during the block; it is taken also from a dispatcher that holds it, see :meth:`look`.

        If it cannot be renewed, the block is cancelled where it is, and the error is raised.

        Raises:
            RepairError: A restore holds it.
            ConflictError: Another process has it, or it expired.
            TransientError: The bus did not answer.
        """
        await self._take()
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                done = asyncio.Event()
                renewing = group.create_task(self._renew(done), name="renew the lease")
                try:
                    yield
                except Exception as error:
                    failure = error
                    raise
                finally:
                    done.set()
                    # Not cancelled: of a renewal on its way the revision would be unknown, and so no release possible.
                    await asyncio.wait([renewing])
        except BaseException as error:
            with suppress(ShellError):  # it expires
                await self._hold("", 1)
            if isinstance(error, ExceptionGroup):
                cause = failure or error.exceptions[-1]  # that of the block says more than that of a renewal
                raise cause from cause.__cause__
            raise
        await self._hold("", 1)

    async def _take(self) -> None:
        """Take the lease, also if its holder renews it at this moment.

        Raises:
            ConflictError: The holder renewed the lease during each try.
        """
        for _ in range(_TRIES - 1):
            await self.check_no_restore()
            with suppress(ConflictError):
                return await self._hold(HOLDER, _LEASE_S)
        await self.check_no_restore()
        return await self._hold(HOLDER, _LEASE_S)

    def check_held(self) -> None:
        """Check that the lease has not expired, right before something is written.

        Its renewal may not have had a turn yet, if the process was paused or computed for too long.

        Raises:
            RepairError: The lease has expired.
        """
        if self._clock.monotonic_s() - self._held_s >= _LEASE_S:
            raise RepairError(f"{HOLDER} did not hold or renew the lease within {_LEASE_S} s; start the repair again")

    async def _renew(self, done: asyncio.Event) -> None:
        while not await pause(done, _LOOK_S):
            if self._clock.monotonic_s() - self._held_s >= _RENEW_S:
                await self._hold(HOLDER, _LEASE_S)

    async def _hold(self, holder: str, ttl_s: int) -> None:
        started_s = self._clock.monotonic_s()  # before the server counts
        held = encode(LeaseHeld(holder, 0, self._clock.now_ms()))
        self._revision = await self._bus.publish(self._subject, held, expected_subject_seq=self._revision, ttl_s=ttl_s)
        self._held_s = started_s

    async def wait_until_alone(self) -> None:
        """Wait until no dispatcher answers that it leads.

        Raises:
            RepairError: A dispatcher still answers that it leads.
        """
        leader: str | None = ""
        for _ in range(int(_WAIT_S / _LOOK_S)):
            leader = await answering_leader(self._bus, timeout_s=_ANSWER_S)
            if leader is None:
                return
            await asyncio.sleep(_LOOK_S)
        raise RepairError(
            f"a dispatcher{f', {leader},' if leader else ''} still leads after {_WAIT_S:g} s with the lease held by"
            f" {HOLDER}; stop it, and start the repair again"
        )

    async def begin_epoch(self, fold: LedgerFold, *, lost: int) -> None:
        """Append an epoch behind the last message that was folded.

        Args:
            fold: The ledger, with what will be skipped.
            lost: How many of the messages that will be skipped were deleted. Each may have been an epoch, and this one
                is greater than all of them.

        Raises:
            RepairError: It is unknown whether it was appended; or the lease expired, and it was not.
            ConflictError: Another process appended something.
            TransientError: The bus did not answer.
        """
        record = Epoch(
            epoch=fold.epoch + lost + 1,
            base_seq=fold.base_seq,
            facts_seq=fold.facts_seq,
            at_ms=max(fold.at_ms, self._clock.now_ms()),
            holder=HOLDER,
            settings=fold.settings,
            rules=list(fold.rules),
        )
        data = fold.encoded(record)
        self.check_held()
        try:
            await self._bus.append(data, expected_seq=fold.head)
        except AmbiguousError as error:
            raise RepairError(f"an epoch may or may not be stored ({error.reason}); start the repair again") from error
