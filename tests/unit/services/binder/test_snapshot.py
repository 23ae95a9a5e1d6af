"""The binder starts from the newest snapshot; records before it need not be kept."""

import asyncio

from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode
from berth.schemas.facts import OutcomeSeen
from berth.schemas.subjects import StreamName
from berth.services.binder.app import bind_on
from berth.services.binder.cluster import BindResult, FactlessCluster, Gang, Manner
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus
from tests.support.waiting import until


class TakesAll(FactlessCluster):
    def __init__(self) -> None:
        self.bound: list[str] = []

    async def bind(self, gang: Gang) -> BindResult:
        self.bound.append(gang.uid)
        return BindResult(gang.placement.pods())

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        assert manner == "plain"
        raise AssertionError(f"nothing is to be evicted, {gang.uid} was: {reason}")


async def test_an_attempt_that_only_the_snapshot_still_knows_is_bound() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node("n0")])
    await cell.submit(a_job("old"))
    await cell.turns(2)
    await cell.dispatcher.snapshots.write()
    head = (await cell.user.state(StreamName.LEDGER)).last_seq
    await cell.submit(a_job("new"))
    await cell.turns(2)
    await cell.user.purge(StreamName.LEDGER, keep_from_seq=head + 1)
    assert (await cell.user.state(StreamName.LEDGER)).first_seq > 1
    cluster = TakesAll()
    stop = asyncio.Event()
    bus = FakeBus(cell.server, cell.cell)
    async with asyncio.TaskGroup() as group:
        group.create_task(
            bind_on(cluster, bus, cell.clock, BinderConfig(), Instruments.make(BinderMetrics), stop), name="binder"
        )
        await until(lambda: len(cluster.bound) == 2, deadline_s=10, what="both are bound")
        await cell.settle()
        stop.set()
    await bus.close()
    assert sorted(cluster.bound) == ["uid-new", "uid-old"]
    told = await cell.user.last(StreamName.FACTS, cell.user.subjects.fact_outcome("default", "old"))
    assert told is not None
    assert decode(told.data, OutcomeSeen).state == "bound"
    await cell.close()
