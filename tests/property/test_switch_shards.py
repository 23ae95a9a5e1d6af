"""Jobs with switch affinity: the number of shards changes no decision, also where a leaf's nodes belong to several."""

import asyncio
from typing import Final

import pytest
from hypothesis import given

from berth.core.topologies.switches.placed import switch_of
from tests.support.cells import Cell, a_job
from tests.support.switch_worlds import PLACES, STEPS, WAYS, Step, Way, begin, live

COUNTS: Final = (0, 1, 2, 3, 5)


async def ledger_of(steps: list[Step], way: Way, *, shards: int) -> list[bytes]:
    cell = await Cell(shards=shards, **way.settings).open()
    try:
        await begin(cell, way)
        await cell.turns(2)
        for number, step in enumerate(steps):
            await live(cell, step, number, way)
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


async def test_jobs_are_placed_by_leaf() -> None:
    cell = await Cell(shards=3).open()
    await begin(cell, Way("1.0", 2, parity=False, is_single_layer=False))
    await cell.submit(a_job("j", chips=8, replicas=8, labels={"tor-affinity": "large-model-schema"}))
    await cell.turns(3)
    holding = next(iter(cell.dispatcher.state.fold.holdings.values()))
    part = switch_of(holding.placement)
    assert part is not None
    assert (part.rule, part.leaves) == ("complete-leaves", ["leaf3", "leaf0"])
    assert sorted(holding.placement.names()) == sorted(f"n{leaf}{place}" for leaf in (0, 3) for place in range(PLACES))
    await cell.close()
