"""Jobs with SuperPoD affinity: the number of shards changes no decision."""

import asyncio
from typing import Final

import pytest
from hypothesis import given

from tests.support.cells import Cell
from tests.support.superpod_worlds import CONFIG, PRODUCTS, STEPS, WAYS, Step, Way, a_request, live, nodes

COUNTS: Final = (0, 1, 2, 3, 5)


async def ledger_of(steps: list[Step], way: Way, *, shards: int) -> list[bytes]:
    cell = await Cell(shards=shards, **way.settings).open()
    try:
        await cell.nodes(nodes())
        await cell.turns()
        for number, step in enumerate(steps):
            await live(cell, step, number)
            if number % 2:
                await cell.turns()
        await cell.turns(3)
        assert await cell.dead() == []
        assert not any(shard.late for shard in cell.shards)
        return await cell.ledger()
    finally:
        await cell.close()


@pytest.mark.timeout(120)
@given(steps=STEPS, way=WAYS)
def test_any_number_of_shards_writes_the_same_ledger(steps: list[Step], way: Way) -> None:
    ledgers = [asyncio.run(ledger_of(steps, way, shards=shards)) for shards in COUNTS]
    assert all(ledger == ledgers[0] for ledger in ledgers[1:])


async def test_every_kind_of_job_finds_its_nodes() -> None:
    for verb in ("hard", "soft", "service", "mindie", "levels", "plain"):
        for two in range(len(PRODUCTS)):
            cell = await Cell(shards=2, reserve_nodes=0, resource_levels=CONFIG).open()
            await cell.nodes(nodes())
            await cell.submit(a_request(0, Step(verb, two=two)))
            await cell.turns(3)
            status = await cell.status("j0")
            assert status is not None
            assert status.phase == "placed", (verb, PRODUCTS[two], status.sentence)
            await cell.close()
