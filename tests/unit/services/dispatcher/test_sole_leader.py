"""Leadership without a lease: one leads at once, and nobody leads beside another."""

import asyncio

from berth.runtime.bus.leaders import ROLE, answering_leader
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.leadership import Standing
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.sole_leader import SoleLeader
from tests.support.candidates import TERMS, Candidate
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.waiting import until


class Alone:
    """A dispatcher without a lease, as its leadership sees it."""

    def __init__(self, server: FakeServer, name: str) -> None:
        self.bus = FakeBus(server, "cell")
        self.standing = Standing(server.clock)
        self.changes = 0
        self.stop = asyncio.Event()
        self.leader = SoleLeader(
            self.bus,
            server.clock,
            TERMS._replace(lease_s=1, answer_s=0.2),
            self.standing,
            process=name,
            instruments=Instruments.make(DispatcherMetrics),
            changed=self._note,
        )

    def _note(self) -> None:
        self.changes += 1

    @property
    def leads(self) -> bool:
        return self.standing.leads

    def start(self, group: asyncio.TaskGroup) -> None:
        self.standing.stand(is_candidate=True)
        group.create_task(self.leader.run(self.stop))

    async def end(self) -> None:
        self.stop.set()
        await until(lambda: not self.leads, deadline_s=2, what="its end")
        await self.bus.close()


async def a_server() -> FakeServer:
    server = FakeServer(ManualClock())
    await FakeBus(server, "cell").ensure_streams()
    return server


async def test_it_leads_at_once_says_so_when_asked_and_writes_no_lease() -> None:
    server = await a_server()
    one = Alone(server, "one")
    async with asyncio.TaskGroup() as group:
        one.start(group)
        await until(lambda: one.leads, deadline_s=2, what="the leader")
        user = FakeBus(server, "cell")
        assert await answering_leader(user, timeout_s=1) == "one"
        assert await user.last(StreamName.LEASE, user.subjects.lease(ROLE)) is None
        await one.end()
        assert await answering_leader(user, timeout_s=1) is None


async def test_one_that_is_not_a_candidate_does_not_lead_and_does_not_answer() -> None:
    server = await a_server()
    one = Alone(server, "one")
    await one.leader.lead_or_end()
    assert (one.leads, one.changes) == (False, 0)
    one.standing.stand(is_candidate=True)
    await one.leader.lead_or_end()
    assert (one.leads, one.changes) == (True, 1)
    one.standing.stand(is_candidate=False, refuses=True)
    await one.leader.lead_or_end()
    assert (one.leads, one.changes) == (False, 2)


async def test_a_second_one_names_the_first_and_follows_it_when_that_ends() -> None:
    server = await a_server()
    first, second = Alone(server, "first"), Alone(server, "second")
    async with asyncio.TaskGroup() as group:
        first.start(group)
        await until(lambda: first.leads, deadline_s=2, what="the first")
        second.start(group)
        await until(lambda: second.standing.barred, deadline_s=2, what="the second to see the first")
        assert second.standing.barred == (
            "another dispatcher leads this cell: first; a cell has one, stop one of the two"
        )
        assert (first.leads, second.leads) == (True, False)
        await first.end()
        await until(lambda: second.leads, deadline_s=3, what="the second")
        assert not second.standing.barred
        await second.end()


async def test_the_one_of_two_that_the_ledger_fences_finds_the_other() -> None:
    server = await a_server()
    first, second = Alone(server, "first"), Alone(server, "second")
    for one in (first, second):
        one.standing.stand(is_candidate=True)
    async with asyncio.TaskGroup() as both:  # they ask at the same moment
        for one in (first, second):
            both.create_task(one.leader.lead_or_end())
    assert (first.leads, second.leads) == (True, True)
    async with asyncio.TaskGroup() as group:
        for one in (first, second):
            group.create_task(one.leader.run(one.stop))
        await asyncio.sleep(0)
        first.standing.doubt()
        assert not first.leads
        await until(lambda: first.standing.barred, deadline_s=2, what="the first to see the second")
        assert (first.leads, second.leads) == (False, True)
        assert "second" in first.standing.barred
        for one in (first, second):
            await one.end()


async def test_a_lease_of_another_dispatcher_is_respected_before_and_while_it_leads() -> None:
    server = await a_server()
    one = Alone(server, "one")
    one.standing.stand(is_candidate=True)
    lease = one.bus.subjects.lease(ROLE)
    held = await one.bus.publish(lease, encode(LeaseHeld("other", 0, 0)))
    await one.leader.lead_or_end()
    assert (one.leads, one.standing.barred) == (False, "other holds the lease of this cell")
    released = await one.bus.publish(lease, encode(LeaseHeld("", 0, 0)), expected_subject_seq=held)
    await one.leader.lead_or_end()
    assert (one.leads, one.standing.barred) == (True, "")
    await one.bus.publish(lease, encode(LeaseHeld("repair", 0, 0)), expected_subject_seq=released)
    await one.leader.lead_or_end()
    assert (one.leads, one.standing.barred) == (False, "repair holds the lease of this cell")


async def test_the_lease_of_a_restore_bars_it_and_is_named() -> None:
    server = await a_server()
    one = Alone(server, "one")
    one.standing.stand(is_candidate=True)
    await one.bus.publish(one.bus.subjects.lease(ROLE), encode(LeaseHeld(RESTORE_HOLDER, 0, 0)))
    await one.leader.lead_or_end()
    assert not one.leads
    assert one.standing.barred.endswith("use: berth restore")


async def test_a_bus_that_does_not_answer_changes_nothing() -> None:
    server = await a_server()
    one = Alone(server, "one")
    one.standing.stand(is_candidate=True)
    server.is_down = True
    await one.leader.lead_or_end()
    assert not one.leads
    server.is_down = False
    await one.leader.lead_or_end()
    server.is_down = True
    await one.leader.lead_or_end()
    assert one.leads, "the ledger fences it if another leads meanwhile"


async def test_a_dispatcher_with_a_lease_stands_by_while_it_leads() -> None:
    server = await a_server()
    one = Alone(server, "one")
    async with asyncio.TaskGroup() as group:
        one.start(group)
        await until(lambda: one.leads, deadline_s=2, what="the leader")
        other = Candidate(server, "other")
        await other.keeper.begin()
        for _ in range(30):
            server.clock.advance(0.1)
            await other.keeper.renew_or_take()
        assert (one.leads, other.leads) == (True, False)
        await one.end()
        for _ in range(30):
            server.clock.advance(0.1)
            await other.keeper.renew_or_take()
        assert other.leads
        await other.bus.close()
