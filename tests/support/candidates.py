"""Dispatchers as their keepers see them: candidates for one lease, on a clock that moves when told."""

import asyncio

from berth.runtime.bus.leaders import ROLE
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode
from berth.schemas.status import LeaseHeld
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.leadership import Keeper, Standing, Terms
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer

TERMS = Terms(lease_s=5, lost_s=0.4, answer_s=0.05)


class Candidate:
    """A dispatcher as its keeper sees it."""

    def __init__(self, server: FakeServer, name: str, *, holder: str = "", clock: ManualClock | None = None) -> None:
        self.clock = clock or server.clock
        self.bus = FakeBus(server, "cell")
        self.standing = Standing(self.clock)
        self.standing.is_candidate = True
        self.changes = 0
        self.keeper = Keeper(
            self.bus,
            self.clock,
            TERMS,
            self.standing,
            holder=holder or name,
            process=name,
            instruments=Instruments.make(DispatcherMetrics),
            changed=self._note,
        )

    def _note(self) -> None:
        self.changes += 1

    @property
    def leads(self) -> bool:
        return self.standing.leads


class Rivals:
    """Candidates of one cell, which look and send heartbeats ten times a second."""

    def __init__(self) -> None:
        self.server = FakeServer(ManualClock())
        self.paused: set[Candidate] = set()
        self.stalled: set[Candidate] = set()
        """Those whose loop that decides makes no progress."""
        self.all: list[Candidate] = []

    async def join(self, name: str, *, holder: str = "") -> Candidate:
        one = Candidate(self.server, name, holder=holder)
        await one.bus.ensure_streams()
        await one.keeper.begin()
        self.all.append(one)
        return one

    async def pass_time(self, seconds: float) -> None:
        """Let time go by in steps of a tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.server.clock.advance(0.1)
            for one in self.all:
                if one not in self.stalled:
                    one.standing.alive_s = self.server.clock.monotonic_s()
                if one not in self.paused:
                    await one.keeper.beat()
            await settled()
            for one in self.all:
                if one not in self.paused:
                    await one.keeper.renew_or_take()
            await settled()

    async def kill(self, one: Candidate) -> None:
        """End one as kill -9 does: its connection closes, and nothing is released."""
        self.all.remove(one)
        await one.bus.close()

    async def lease(self) -> LeaseHeld:
        bus = self.all[0].bus
        stored = await bus.last(StreamName.LEASE, bus.subjects.lease(ROLE))
        assert stored is not None
        return decode(stored.data, LeaseHeld)

    async def close(self) -> None:
        for one in self.all:
            await one.bus.close()


async def settled() -> None:
    """Let everything that was sent arrive."""
    for _ in range(20):
        await asyncio.sleep(0)
