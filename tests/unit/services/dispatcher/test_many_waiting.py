"""Thousands of gangs that wait cost nothing until something changes, and hold up nobody."""

import asyncio

from berth.services.dispatcher.loop import Dispatcher
from tests.support.cells import Cell, a_job, a_node
from tests.support.waiting import SLACK

NODES = 20
WAITING = 4_000


async def until_gangs(dispatcher: Dispatcher, count: int) -> None:
    """Turn until so many gangs have a verdict."""
    async with asyncio.timeout(50 * SLACK):
        while len(dispatcher.state.fold.gangs) < count:
            await dispatcher.turn()
            await asyncio.sleep(0)


async def test_a_job_that_fits_is_placed_at_once_beside_thousands_that_wait() -> None:
    cell = await Cell().open()
    await cell.nodes([a_node(f"n{number:02}") for number in range(NODES)])
    await cell.submit(*(a_job(f"run-{number}", chips=8) for number in range(NODES - 1)))
    await cell.settle()
    dispatcher = cell.dispatcher
    await until_gangs(dispatcher, NODES - 1)
    await cell.submit(*(a_job(f"wait-{number}", chips=8, replicas=2 + number % 5) for number in range(WAITING)))
    await until_gangs(dispatcher, NODES - 1 + WAITING)
    fold = dispatcher.state.fold
    assert len(fold.holdings) == NODES - 1
    head = fold.head
    await cell.turns(3)
    assert fold.head == head, "nothing has changed, so nobody is tried again"
    await cell.submit(a_job("fits", chips=8))
    await cell.turns(2)
    assert ("uid-fits", 1) in fold.holdings
    assert fold.head == head + 1, "only the new job was decided"
    await cell.close()
