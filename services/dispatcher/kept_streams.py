"""Streams that are gone or stuck after the server was: they are created again while the services run."""

import asyncio
from typing import Final

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.logs import Logger
from berth.schemas.subjects import StreamName

_LOOK_S: Final = 1.0
"""Pause between two looks at the connection."""
_STUCK_S: Final = 30.0
"""How long the stream of leases alone has no leader before it is deleted: an election takes some seconds."""


class KeptStreams:
    """Creates streams again that the server lost: it does not sync the files of a new view at once.

    A stream whose last message expired may stay without a leader after all servers of a cluster lost power: each of
    them lacks messages that its snapshot names, and waits for a leader to get them. That of leases has nothing to lose,
    since the ledger fences, and is deleted then. See decision stuck-lease.

    Args:
        bus: The cell.
        replicas: Replicas of each stream.
        clock: Of the process.
        log: Logger of the service.
    """

    def __init__(self, bus: Bus, replicas: int, clock: Clock, log: Logger) -> None:
        self._bus = bus
        self._replicas = replicas
        self._clock = clock
        self._log = log
        self._seen = bus.link_changes
        self._stuck_since_s: float | None = None
        self._is_deleted = False

    async def begin(self) -> None:
        """Create or correct all streams, as often as that of leases is what keeps them from being ready.

        Raises:
            FatalError: A stream exists with a setting that cannot be changed.
            TransientError: The server is not ready after 30 s.
        """
        while True:
            try:
                return await self._bus.ensure_streams(replicas=self._replicas)
            except TransientError:
                if not await self._free_lease():
                    raise
                await asyncio.sleep(_LOOK_S)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Create missing streams if the connection changed since the last look that had an answer."""
        await self._free_lease()
        now = self._bus.link_changes
        if now == self._seen and not self._is_deleted:
            return
        try:
            await self._bus.ensure_streams(replicas=self._replicas)
        except TransientError:
            return  # the bus says so in the log
        except FatalError as error:  # the next start says so, and ends
            self._log.warning("streams not kept", reason=str(error))
        self._seen = now
        self._is_deleted = False

    async def _free_lease(self) -> bool:
        """Delete the stream of leases once it alone has had no leader for some time; returns whether it has none."""
        if self._replicas == 1:
            return False  # it comes back with its server
        since_s, self._stuck_since_s = self._stuck_since_s, None
        now_s = self._clock.monotonic_s()
        try:
            if not await self._bus.is_stuck(StreamName.LEASE, beside=StreamName.LEDGER):
                return False
        except TransientError:
            return False  # the ledger is not there either
        if since_s is None or now_s - since_s < _STUCK_S:
            self._stuck_since_s = now_s if since_s is None else since_s
            return True
        self._log.warning("stream of leases is deleted, to be created again: it alone has no leader")
        self._is_deleted = True
        try:
            await self._bus.delete_stream(StreamName.LEASE)
        except TransientError as error:
            self._log.info("deletion of the stream of leases has no answer", reason=error.reason)
        return True
