"""Lease for liveness: it selects the leader among several dispatchers. Correctness does not depend on it."""

from typing import Final

from berth.runtime.bus.leaders import held_by, is_restored
from berth.runtime.bus.port import Bus, Stored
from berth.runtime.clock import Clock
from berth.runtime.errors import ConflictError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.metrics import DispatcherMetrics

_WRITES_MAX: Final = 5
"""Times that a lease is written in place of messages that are none."""


class Lease:
    """A lease of the cell.

    Args:
        bus: The cell.
        clock: Source of time.
        role: The leased role.
        holder: Name of this candidate; candidates that run at the same time have different names.
        lease_s: Duration without renewal, in seconds.
        silence_ms: How long this candidate may send no heartbeat while it holds the lease, in milliseconds; 0 if it
            sends none.
        instruments: Of the process.

    Attributes:
        silence_ms: As above; a change counts from the next renewal.
        allowed_ms: Silence that the other holder allows, when the lease was last read; 0 if it sends no heartbeats.
        other: The other holder then; empty if there was none.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        *,
        role: str,
        holder: str,
        lease_s: int,
        silence_ms: int = 0,
        instruments: Instruments[DispatcherMetrics],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._subject = bus.subjects.lease(role)
        self._holder = holder
        self._lease_s = lease_s
        self.silence_ms = silence_ms
        self.allowed_ms = 0
        self.other = ""
        self._faults = instruments.faults
        self._log = instruments.log
        self._revision = 0
        self._until_s = 0.0

    @property
    def is_held(self) -> bool:
        """Whether it was acquired or renewed less than ``lease_s`` ago."""
        return self._clock.monotonic_s() < self._until_s

    async def acquire(self, *, silence_ms: int = 0) -> bool:
        """Try to acquire or renew it.

        Args:
            silence_ms: How long no heartbeat of another holder came, in milliseconds. A holder that promised to send
                one more often than that has lost the lease; it is overwritten.
        """
        started_s = self._clock.monotonic_s()
        self.other = ""
        try:
            if not self.is_held:
                last = await self._bus.last(StreamName.LEASE, self._subject)
                if not await self._is_free(held := held_by(self._bus, last), silence_ms):
                    self.other = held.holder
                    return False
                self._revision = last.sequence if last is not None else 0
            self._faults.hit("lease.before")
            await self._write()
            self._faults.hit("lease.after")
        except ConflictError:
            self._until_s = 0.0
            return False
        except TransientError as error:
            self._log.warning("lease not renewed", reason=error.reason)
            return self.is_held
        self._until_s = started_s + self._lease_s
        return True

    async def _write(self) -> None:
        """Write it behind the message that was read or written last; behind one that is none, the same again.

        Raises:
            ConflictError: Another holder has taken it.
            TransientError: The bus did not answer.
        """
        for left in reversed(range(_WRITES_MAX)):
            held = LeaseHeld(self._holder, 0, self._clock.now_ms(), self.silence_ms)
            try:
                self._revision = await self._bus.publish(
                    self._subject,
                    encode(held),
                    expected_subject_seq=self._revision,
                    ttl_s=self._lease_s,
                    timeout_s=self._lease_s,
                )
            except ConflictError:
                last = await self._bus.last(StreamName.LEASE, self._subject)
                if not left or not self._is_forged(last):
                    raise
                self._log.warning("lease written again: a message without a valid signature had its place")
                self._revision = last.sequence if last is not None else 0
            else:
                return

    def _is_forged(self, last: Stored | None) -> bool:
        """Whether what is there in place of the own lease is none: nobody who may hold it has replaced the own one.

        A message that replaced an older one was valid once, and was published again. None at all: one that was not
        valid has expired, for a valid one outlives the own.
        """
        signatures = self._bus.signatures
        if not signatures.is_on:
            return False
        number = None if last is None else signatures.number_of(last)
        return number is None or number < self._revision

    async def other_holder(self) -> str:
        """Read who else holds it; empty if nobody does.

        Raises:
            TransientError: The bus did not answer.
        """
        last = await self._bus.last(StreamName.LEASE, self._subject)
        if await self._is_free(held := held_by(self._bus, last), 0):
            return ""
        return held.holder

    async def release(self) -> None:
        """Release it, so that another dispatcher need not wait until it expires."""
        if not self.is_held:
            return
        self._until_s = 0.0
        released = LeaseHeld("", 0, self._clock.now_ms())
        try:
            await self._bus.publish(
                self._subject, encode(released), expected_subject_seq=self._revision, ttl_s=1, timeout_s=1.0
            )
        except (ConflictError, TransientError) as error:
            self._log.warning("lease not released", reason=error.reason)

    def drop(self) -> None:
        """Stop acting as leader; the lease expires by its time to live."""
        self._until_s = 0.0

    async def _is_free(self, held: LeaseHeld, silence_ms: int) -> bool:
        self.allowed_ms = held.silence_ms
        if held.holder == RESTORE_HOLDER:
            return await is_restored(self._bus, held)
        return held.holder in {"", self._holder} or 0 < held.silence_ms <= silence_ms
