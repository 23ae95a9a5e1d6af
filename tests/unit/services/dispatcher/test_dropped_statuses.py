"""Statuses that a server drops or refuses for lack of room are written again."""

import asyncio
from collections.abc import Sequence

from berth.runtime.errors import DEFAULT_RETRY_AFTER_S, PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import decode
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.views import Views
from tests.support.cells import Cell, a_job
from tests.support.fake_bus import FakeBus

NAMES = ("first", "second", "third")


class DroppingBus(FakeBus):
    """Drops all messages of a batch but the last one, which it acknowledges, as a server with a full queue may."""

    drops = True

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        return await super().submit_batch(messages[-1:] if self.drops else messages)


class FullBus(FakeBus):
    """Refuses batches forever, and single messages for now."""

    is_full = True

    async def submit_batch(self, messages: Sequence[tuple[str, bytes]]) -> asyncio.Future[int]:
        if not self.is_full:
            return await super().submit_batch(messages)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(PoisonError("one of them is too large"))
        return future

    def submit(self, subject: str, data: bytes, *, sequence: int = 0) -> asyncio.Future[int]:
        if self.is_full:
            raise TransientError("16384 publishes are outstanding")
        return super().submit(subject, data, sequence=sequence)


async def a_cell() -> Cell:
    cell = await Cell().open()
    await cell.submit(*(a_job(name, chips=8) for name in NAMES))
    await cell.turns(2)
    return cell


def views_of(cell: Cell, bus: FakeBus) -> Views:
    cell.buses.append(bus)
    views = Views(bus, cell.clock, cell.dispatcher.state, Instruments.make(DispatcherMetrics))
    views.all_jobs()
    return views


async def head_of(cell: Cell) -> int:
    return (await cell.user.state(StreamName.STATUS)).last_seq


async def written_after(cell: Cell, head: int) -> set[str]:
    stored = await cell.user.read(StreamName.STATUS, start_seq=head + 1)
    return {decode(one.data, JobStatus).name for one in stored}


async def test_statuses_that_were_dropped_before_the_acknowledged_one_are_written_again() -> None:
    cell = await a_cell()
    bus = DroppingBus(cell.server, cell.cell)
    views = views_of(cell, bus)
    head = await head_of(cell)
    views._others.begin(head)
    await views.publish()
    await cell.settle()
    assert len(await written_after(cell, head)) == 1
    assert (views.has_work, views.is_paused) == (False, True), "not before a moment has passed"
    cell.clock.advance(DEFAULT_RETRY_AFTER_S)
    assert views.has_work
    bus.drops = False
    await views.publish()
    await cell.settle()
    assert await written_after(cell, head) == set(NAMES)
    assert not views.has_work
    await cell.close()


async def test_statuses_of_a_refused_batch_that_cannot_be_sent_alone_now_stay_due() -> None:
    cell = await a_cell()
    bus = FullBus(cell.server, cell.cell)
    views = views_of(cell, bus)
    head = await head_of(cell)
    await views.publish()
    await cell.settle()
    cell.clock.advance(DEFAULT_RETRY_AFTER_S)
    assert views.has_work
    bus.is_full = False
    await views.publish()
    await cell.settle()
    assert await written_after(cell, head) == set(NAMES)
    await cell.close()
