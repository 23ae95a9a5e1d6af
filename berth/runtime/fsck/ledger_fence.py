"""Fence of a repair: no dispatcher leads meanwhile, and none goes on with what it knew of the ledger before.

The lease keeps others from beginning. A dispatcher that leads gives way when it looks at the lease; until then it
answers that it leads. An epoch that is appended behind what was found fences one that does not look: if anything was
appended meanwhile, it is refused, and nothing is changed.
"""

import asyncio
from typing import Final

from berth.core.state.ledger import LedgerFold
from berth.runtime.bus.leaders import ROLE, answering_leader
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import AmbiguousError, ShellError
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch
from berth.schemas.status import LeaseHeld
from berth.schemas.subjects import StreamName
from berth.schemas.versions import encode_record

HOLDER: Final = "berth repair"
"""Holder of the lease during a repair, and of its epoch. A repair that was interrupted is taken over by the next."""
_LEASE_S: Final = 30
_RENEW_S: Final = 5.0
_ANSWER_S: Final = 2.0
_LOOK_S: Final = 0.25
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

    async def take(self) -> None:
        """Take the lease, also from a dispatcher that holds it.

        Raises:
            ConflictError: Another process wrote it at the same moment.
            TransientError: The bus did not answer.
        """
        last = await self._bus.last(StreamName.LEASE, self._subject)
        self._revision = last.sequence if last is not None else 0
        await self._hold(HOLDER, _LEASE_S)

    async def keep(self) -> None:
        """Renew the lease, if it is time.

        Raises:
            ConflictError: Another process has it.
            TransientError: The bus did not answer.
        """
        if self._clock.monotonic_s() - self._held_s >= _RENEW_S:
            await self._hold(HOLDER, _LEASE_S)

    async def release(self) -> None:
        """Give the lease back.

        Raises:
            ConflictError: Another process has it.
            TransientError: The bus did not answer.
        """
        await self._hold("", 1)

    async def _hold(self, holder: str, ttl_s: int) -> None:
        held = encode(LeaseHeld(holder, 0, self._clock.now_ms()))
        self._revision = await self._bus.publish(self._subject, held, expected_subject_seq=self._revision, ttl_s=ttl_s)
        self._held_s = self._clock.monotonic_s()

    async def see_alone(self) -> None:
        """Wait until no dispatcher answers that it leads.

        Raises:
            RepairError: One still does.
            ConflictError: Another process has the lease.
            TransientError: The bus did not answer.
        """
        leader: str | None = ""
        for _ in range(int(_WAIT_S / _LOOK_S)):
            leader = await answering_leader(self._bus, timeout_s=_ANSWER_S)
            if leader is None:
                return
            await asyncio.sleep(_LOOK_S)
            await self.keep()
        raise RepairError(
            f"a dispatcher{f', {leader},' if leader else ''} still leads after {_WAIT_S:g} s with the lease held by"
            f" {HOLDER}; stop it, and start the repair again"
        )

    async def begin_epoch(self, fold: LedgerFold, *, lost: int) -> None:
        """Append an epoch behind the last message that was folded.

        Args:
            fold: The ledger, with what will be skipped.
            lost: How many of the messages that will be skipped were deleted. Each may have been an epoch, and this one
                is greater than all of them: it counts for a process that has read them too, if nothing is chained.

        Raises:
            RepairError: It is unknown whether it was appended.
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
        )
        data = encode_record(record, fold.settings, chain=fold.chain, sequence=fold.head + 1)
        try:
            await self._bus.append(data, expected_seq=fold.head)
        except AmbiguousError as error:
            raise RepairError(f"an epoch may or may not be stored ({error.reason}); start the repair again") from error
