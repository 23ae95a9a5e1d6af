"""Streams that are gone or stuck after the server was: they are created again while the services run."""

import asyncio
from collections.abc import Collection

from berth.runtime.bus.port import Bus
from berth.runtime.bus.stuck_lease import LOOK_S, StuckLease
from berth.runtime.clock import Clock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.logs import Logger
from berth.schemas.subjects import StreamName


class KeptStreams:
    """Creates streams again that the server lost: it does not sync the files of a new view at once.

    With three replicas, that of leases is deleted and created again if it alone has no leader.

    Args:
        bus: The cell.
        replicas: Replicas of each stream. With one, a stream comes back with its server, and is never deleted.
        clock: Of the process.
        log: Logger of the service.
        waits_for: Streams that somebody else makes; that of leases is made again here all the same.
    """

    def __init__(
        self, bus: Bus, replicas: int, clock: Clock, log: Logger, *, waits_for: Collection[StreamName] = ()
    ) -> None:
        self._bus = bus
        self._replicas = replicas
        self._waits_for = frozenset(waits_for) - {StreamName.LEASE}
        self._log = log
        self._lease = StuckLease(bus, clock, log)
        self._seen = bus.link_changes

    async def begin(self) -> None:
        """Create or correct all streams, as often as that of leases is what keeps them from being ready.

        Raises:
            FatalError: A stream exists with a setting that cannot be changed.
            TransientError: The server is not ready after 30 s.
        """
        while True:
            try:
                await self._bus.ensure_streams(replicas=self._replicas, waits_for=self._waits_for)
            except TransientError:
                if not await self._is_stuck():
                    raise
            else:  # it may be there, and have no leader
                if not await self._is_stuck():
                    return
            await asyncio.sleep(LOOK_S)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.create_missing()

    async def create_missing(self) -> None:
        """Create missing streams if the connection changed since the last look that had an answer."""
        await self._is_stuck()
        now = self._bus.link_changes
        if now == self._seen and not self._lease.is_deleted:
            return
        try:
            await self._bus.ensure_streams(replicas=self._replicas, waits_for=self._waits_for)
        except TransientError:
            return  # the bus says so in the log
        except FatalError as error:  # the next start says so, and ends
            self._log.warning("streams cannot be created or changed", reason=str(error))
        self._seen = now
        self._lease.is_deleted = False

    async def _is_stuck(self) -> bool:
        return self._replicas > 1 and await self._lease.delete_if_stuck()
