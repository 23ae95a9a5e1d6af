"""Follows which pods have which ranks, and what the binder has done; reads the decision about a job when asked.

After a gap in the history everything is read again.
"""

import asyncio
from typing import Final

from berth.runtime.bus.port import Bus, Gap, Stored
from berth.runtime.errors import TransientError
from berth.runtime.logs import Logger
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import MembersSeen, OutcomeSeen
from berth.schemas.status import stored_status
from berth.schemas.subjects import StreamName
from berth.services.gateway.extender.places import Place, Pods, not_known

_MIRROR_S: Final = 30.0
_AGAIN_S: Final = 1.0


class Decisions:
    """Decisions of Berth about pods.

    Args:
        bus: The cell.
        log: Of the process.
    """

    def __init__(self, bus: Bus, log: Logger) -> None:
        self._bus = bus
        self._log = log
        self._pods = Pods()
        self._changed = asyncio.Event()
        """Set at the next fact, and then replaced."""
        self.known = asyncio.Event()
        """Set while all that is stored is known."""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except TransientError as error:
                self._log.warning("pods are read again", reason=error.reason)
            self.known.clear()
            await asyncio.sleep(_AGAIN_S)

    async def place_of(self, namespace: str, uid: str) -> Place:
        """Where a pod is to be, and whether it is bound.

        Raises:
            TransientError: It is not known now.
        """
        if not self.known.is_set():
            raise TransientError("facts about pods are being read")
        rank = self._pods.rank_of(namespace, uid)
        if rank is None:
            return not_known()
        stored = None
        if rank.uid:
            stored = await self._bus.last(StreamName.STATUS, self._bus.subjects.status(namespace, rank.job))
        try:
            status = stored_status(stored.subject, stored.data) if stored is not None else None
        except DecodeError as error:
            raise TransientError(f"status of job {rank.job} is unreadable: {error.reason}") from error
        return self._pods.place_of(rank, status)

    async def bound(self, namespace: str, uid: str, node: str, *, timeout_s: float) -> Place:
        """Wait until the binder has bound a pod to its node, or it is clear that it does not bind it there now.

        Returns:
            Where it is to be then, or after ``timeout_s``.

        Raises:
            TransientError: It is not known.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while True:
            changed = self._changed  # of before the look: what comes during it wakes this call
            place = await self.place_of(namespace, uid)
            if place.is_bound or place.node != node:
                return place
            try:
                async with asyncio.timeout_at(until_s):
                    await changed.wait()
            except TimeoutError:
                return place

    async def _follow(self) -> None:
        """Take what there is and what comes, until the history has a gap.

        Raises:
            TransientError: The bus did not answer.
        """
        bus, subjects = self._bus, self._bus.subjects
        filters = (subjects.facts("member"), subjects.facts("outcome"))
        facts = await bus.state(StreamName.FACTS)
        await bus.wait_mirror(StreamName.LATEST, at_least=facts.last_seq, timeout_s=_MIRROR_S)
        self._pods.clear()
        for wanted in filters:  # pods first: outcomes of jobs without pods are not kept
            for stored in await bus.read(StreamName.LATEST, filters=[wanted]):
                self._take(stored)
        broken: asyncio.Future[Gap] = asyncio.get_running_loop().create_future()

        def on_gap(gap: Gap) -> None:
            if not broken.done():
                broken.set_result(gap)

        follower = bus.follow(
            StreamName.FACTS,
            on_message=self._take,
            on_gap=on_gap,
            start_seq=facts.last_seq + 1,
            filters=filters,
            created=facts.created,
        )
        try:
            self.known.set()
            gap = await broken
            self._log.warning("pods are read again", reason=f"{gap.stream}: {gap.reason.value}")
        finally:
            await follower.stop()

    def _take(self, stored: Stored) -> None:
        try:
            if stored.subject.startswith(f"{self._bus.subjects.root}fact.member."):
                self._pods.take_members(decode(stored.data, MembersSeen))
            else:
                self._pods.take_outcome(decode(stored.data, OutcomeSeen))
        except (DecodeError, ValueError) as error:
            self._log.warning("fact about pods unreadable", subject=stored.subject, reason=str(error))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
