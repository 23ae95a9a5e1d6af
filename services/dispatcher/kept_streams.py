"""Streams that are gone after the server was: they are created again while the services run."""

import asyncio
from typing import Final

from berth.runtime.bus.port import Bus
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.logs import Logger

_LOOK_S: Final = 1.0
"""Pause between two looks at the connection."""


class KeptStreams:
    """Creates streams again that the server lost: it does not sync the files of a new view at once.

    Args:
        bus: The cell.
        replicas: Replicas of each stream.
        log: Logger of the service.
    """

    def __init__(self, bus: Bus, replicas: int, log: Logger) -> None:
        self._bus = bus
        self._replicas = replicas
        self._log = log
        self._seen = bus.link_changes

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Create missing streams if the connection changed since the last look that had an answer."""
        now = self._bus.link_changes
        if now == self._seen:
            return
        try:
            await self._bus.ensure_streams(replicas=self._replicas)
        except TransientError:
            return  # the bus says so in the log
        except FatalError as error:  # the next start says so, and ends
            self._log.warning("streams not kept", reason=str(error))
        self._seen = now
