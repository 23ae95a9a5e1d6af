"""A name is used again, the server is killed: no old request comes back to life, wherever a start begins."""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, PodPhase
from berth.schemas.intake import JobCancel
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.config import DecisionConfig, DispatcherConfig
from berth.services.dispatcher.loop import Dispatcher
from tests.support.cells import a_job, a_node
from tests.support.dispatchers import Dispatchers, turns
from tests.support.load import give_jobs, give_nodes, pods_of, stored
from tests.support.watch import Watch, verify_start

pytestmark = pytest.mark.timeout(60)
CONFIG: Final = DispatcherConfig(
    tick_s=0.01, snapshot_records=10, decisions=DecisionConfig(tombstone_after_ms=50, round_gangs_max=4)
)
CELL: Final = "names"
FACTS_KEPT_BYTES: Final = 300


class Names:
    """A cell on a server that is killed, and who works there."""

    def __init__(self, server: EmbeddedServer, bus: NatsBus) -> None:
        self.server = server
        self.bus = bus
        self.reigns = Dispatchers(server.url, CELL, CONFIG)
        self.watch = Watch(bus)
        self.dispatcher: Dispatcher

    async def begin(self) -> None:
        self.dispatcher = await self.reigns.begin()

    async def run_to_end(self, name: str, uid: str) -> None:
        """Place a job, let it end, and wait for its tombstone."""
        await give_jobs(self.bus, a_job(name, uid=uid))
        holdings = self.dispatcher.state.fold.holdings
        await turns(self.dispatcher, lambda: (uid, 1) in holdings)
        fact = encode(pods_of(holdings[uid, 1], PodPhase.SUCCEEDED))
        await stored(self.bus, self.bus.subjects.fact_pod("default", name), fact)
        await self.gone(name)

    async def cancel_waiting(self, name: str, uid: str) -> None:
        """Refuse a job, cancel it, and wait for its tombstone."""
        await give_jobs(self.bus, a_job(name, uid=uid, chips=8, replicas=2))
        await turns(self.dispatcher, lambda: uid in self.dispatcher.state.fold.gangs)
        wish = encode(JobCancel("default", name))
        await stored(self.bus, self.bus.subjects.intake_cancel("default", name), wish)
        await self.gone(name)

    async def gone(self, name: str) -> None:
        jobs = self.dispatcher.state.jobs
        judged = (await self.bus.state(StreamName.INTAKE)).last_seq
        await turns(
            self.dispatcher, lambda: self.dispatcher.state.intake_seq >= judged and ("default", name) not in jobs
        )

    async def idle(self) -> None:
        """Turn until everything stored is applied, and some more."""
        await self.watch.reach_heads()
        seen = len(self.watch.facts)
        await turns(self.dispatcher, lambda: self.dispatcher.state.facts_seq >= seen)
        for _ in range(20):
            await self.dispatcher.turn()

    async def latest(self, name: str) -> JobSeen:
        found = await self.bus.last(StreamName.LATEST, self.bus.subjects.fact_job("default", name))
        assert found is not None
        return decode(found.data, JobSeen)


@pytest.fixture
async def names(own_server: EmbeddedServer) -> AsyncIterator[Names]:
    """One node of 8 chips."""
    async with await NatsBus.connect(own_server.url, CELL, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        made = Names(own_server, bus)
        made.watch.start()
        await give_nodes(bus, [a_node("node-0")])
        await made.begin()
        yield made
        await made.reigns.end()


@pytest.mark.parametrize("start", ["snapshot", "scratch", "latest and snapshot", "latest alone"])
async def test_no_old_request_comes_back_to_life(names: Names, start: str) -> None:
    await names.run_to_end("again", "one")
    await names.cancel_waiting("never", "two")
    await names.dispatcher.snapshots.write()
    await names.run_to_end("again", "three")
    await names.cancel_waiting("never", "four")
    await names.watch.reach_heads()
    alive = names.dispatcher.state
    assert alive.jobs == {}
    placed = dict(names.watch.placed)
    await names.reigns.end()
    # Everything of what the start may use is taken away but what the case names; then the power goes.
    if start in {"scratch", "latest alone"}:
        await names.bus.purge(StreamName.SNAPSHOT, subject=f"{names.bus.subjects.root}snapshot.>")
    if start.startswith("latest"):
        await names.bus.ensure_streams(max_bytes={StreamName.FACTS: FACTS_KEPT_BYTES})
        assert (await names.bus.state(StreamName.FACTS)).first_seq > 1
    await names.server.restart()
    await names.watch.reach_heads()
    for name in ("again", "never"):
        assert (await names.latest(name)).state == "tombstone"
    # From LATEST alone a gang that waited is forgotten with the next record, the epoch.
    state = await verify_start(names.bus, names.watch.replay(), but=["gangs"] if start.startswith("latest") else [])
    assert state.jobs == {}
    await names.begin()
    await names.idle()
    assert names.dispatcher.state.fold.gangs == {}
    await names.watch.reach_heads()
    assert dict(names.watch.placed) == placed
    assert names.dispatcher.state.jobs == {}
    assert names.dispatcher.state.intake_seq == alive.intake_seq
    # The names are as good as new.
    await names.run_to_end("again", "five")
    await names.run_to_end("never", "six")
    assert {uid for uid, _ in names.watch.placed} == {"one", "three", "five", "six"}
