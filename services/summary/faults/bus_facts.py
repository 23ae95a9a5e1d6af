"""Follows what the bus reports about faults: statuses of jobs, health of nodes, and requests of PodGroups.

After a gap in the history everything is read again.
"""

import asyncio
from typing import Final, Protocol

from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.errors import TransientError
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import HealthSeen
from berth.schemas.fault_facts import GroupSeen
from berth.schemas.status import JobStatus, stored_status
from berth.schemas.subjects import StreamName

_MIRROR_S: Final = 30.0
_AGAIN_S: Final = 5.0


class Taker(Protocol):
    """Takes messages."""

    def begin(self) -> None:
        """Forget all statuses: all that there are follow."""

    def take_status(self, status: JobStatus) -> None:
        """Take a status."""

    def take_group(self, fact: GroupSeen) -> None:
        """Take the requests of a PodGroup."""

    def take_health(self, fact: HealthSeen) -> None:
        """Take the health of a domain.

        Raises:
            ValueError: A column is damaged.
            IndexError: An index is outside its table.
        """


class BusFacts:
    """Reads and follows messages.

    Args:
        bus: The cell.
        taker: Takes them.
        log: Logger of the service.
    """

    def __init__(self, bus: Bus, taker: Taker, log: Logger) -> None:
        self._bus = bus
        self._taker = taker
        self._log = log
        self.known = asyncio.Event()
        """Set once all messages that there were have been taken."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._follow()
            except TransientError as error:
                self._log.warning("facts about faults are read again", reason=error.reason)
            await asyncio.sleep(_AGAIN_S)

    async def _follow(self) -> None:
        """Take what there is and what comes, until the history has a gap.

        Raises:
            TransientError: The bus did not answer.
        """
        bus, subjects = self._bus, self._bus.subjects
        filters = (subjects.facts("health"), subjects.facts("group"))
        facts, statuses = await bus.state(StreamName.FACTS), await bus.state(StreamName.STATUS)
        await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=_MIRROR_S)
        found = await bus.read(StreamName.LATEST, filters=filters)
        self._taker.begin()
        for stored in [*found, *await bus.read(StreamName.STATUS)]:
            self._take(stored)
        self.known.set()
        broken: asyncio.Future[Gap] = asyncio.get_running_loop().create_future()

        def on_gap(gap: Gap) -> None:
            if not broken.done():
                broken.set_result(gap)

        followers = [
            bus.follow(
                stream,
                on_message=self._take,
                on_gap=on_gap,
                start_seq=state.last_seq + 1,
                filters=wanted,
                created=state.created,
            )
            for stream, state, wanted in (
                (StreamName.FACTS, facts, filters),
                (StreamName.STATUS, statuses, ()),
            )
        ]
        try:
            gap = await broken
            self._log.warning("facts about faults are read again", reason=f"{gap.stream}: {gap.reason.value}")
        finally:
            for follower in followers:
                await follower.stop()

    def _take(self, stored: Stored) -> None:
        kind = stored.subject.removeprefix(self._bus.subjects.root)
        try:
            if kind.startswith("status."):
                self._taker.take_status(stored_status(stored.subject, stored.data))
            elif kind.startswith("fact.group."):
                self._taker.take_group(decode(stored.data, GroupSeen))
            else:
                self._taker.take_health(decode(stored.data, HealthSeen))
        except (DecodeError, ValueError, IndexError) as error:
            self._log.warning("message about faults unreadable", subject=stored.subject, reason=str(error))
