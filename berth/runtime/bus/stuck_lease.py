"""The stream of leases when no server can lead it: it is deleted, so that it can be created again.

A stream whose last message expired may stay without a leader after all servers of a cluster lost power: each of them
lacks messages that its snapshot names, and waits for a leader to get them. That of leases has nothing to lose, since
the ledger fences. See decision stuck-lease.
"""

import asyncio
from typing import Final

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.logs import Logger
from berth.schemas.subjects import StreamName

LOOK_S: Final = 1.0
"""Pause between two looks."""
_STUCK_S: Final = 30.0
"""How long the stream of leases alone has no leader before it is deleted: an election takes some seconds."""
_LOOKS_MAX: Final = 90
"""Looks of who waits for it; each takes some seconds while servers do not answer."""
_BESIDE: Final = (StreamName.LEDGER, StreamName.FACTS)
"""One of them must work, with all its replicas: then no server is missing."""


class StuckLease:
    """Deletes the stream of leases once it alone has had no leader for half a minute.

    Args:
        bus: The cell; it needs the right to delete the stream.
        clock: Of the process.
        log: Logger of the process.

    Attributes:
        is_deleted: Whether it was deleted; set to False by who creates it again.
    """

    def __init__(self, bus: Bus, clock: Clock, log: Logger) -> None:
        self._bus = bus
        self._clock = clock
        self._log = log
        self._since_s: float | None = None
        self.is_deleted = False

    async def delete_if_stuck(self) -> bool:
        """Look whether it has a leader; returns whether it has none, and another look is due after :data:`LOOK_S`."""
        since_s, self._since_s = self._since_s, None
        now_s = self._clock.monotonic_s()
        if not await self._is_stuck():
            return False
        if since_s is None or now_s - since_s < _STUCK_S:
            self._since_s = now_s if since_s is None else since_s
            return True
        self._log.warning("stream of leases is deleted, to be created again: it alone has no leader")
        self.is_deleted = True
        try:
            await self._bus.delete_stream(StreamName.LEASE)
        except TransientError as error:
            self._log.info("deletion of the stream of leases has no answer", reason=error.reason)
        return True

    async def free(self) -> None:
        """Look until it has a leader, or is deleted.

        Raises:
            TransientError: Neither is so after many looks.
        """
        for _ in range(_LOOKS_MAX):
            if not await self.delete_if_stuck():
                return
            await asyncio.sleep(LOOK_S)
        raise TransientError("the stream of leases has no leader, and was not deleted")

    async def _is_stuck(self) -> bool:
        for beside in _BESIDE:
            try:
                return await self._bus.is_stuck(StreamName.LEASE, beside=beside)
            except TransientError:
                continue  # this one is not there either
        return False
