"""The number of shards changes no decision."""

import asyncio

import msgspec
import pytest
from hypothesis import given

from tests.support.cells import Cell
from tests.support.worlds import STEPS, Step, World, nodes_of_a_small_cell

COUNTS = (0, 1, 2, 3, 5, 8)


async def ledger_of(steps: list[Step], *, shards: int) -> list[bytes]:
    """Ledger of a cell that lives through ``steps``; the invariants are looked at after every round."""
    wary = steps[0].flag and steps[1].flag  # in one history of four, nodes wait for a word of their health
    cell = await Cell(shards=shards, round_gangs_max=3, attempts_max=2, needs_health=wary).open()
    world = World(cell)
    try:
        await world.begin(nodes_of_a_small_cell())
        await world.live(steps)
        assert await cell.dead() == []
        assert not any(shard.late for shard in cell.shards)
        return await cell.ledger()
    finally:
        await cell.close()


@pytest.mark.timeout(120)
@given(steps=STEPS)
def test_any_number_of_shards_writes_the_same_ledger_to_the_byte(steps: list[Step]) -> None:
    ledgers = [asyncio.run(ledger_of(steps, shards=shards)) for shards in COUNTS]
    assert all(ledger == ledgers[0] for ledger in ledgers[1:])


async def test_one_chip_more_on_one_node_makes_another_ledger() -> None:
    steps = [Step("submit", one=0, two=3, three=0) for _ in range(5)]
    ledgers = []
    for chips in (0xFF, 0x7F):
        cell = await Cell(shards=3).open()
        world = World(cell)
        nodes = nodes_of_a_small_cell()
        name = next(name for name in sorted(nodes) if nodes[name].product == "module910bx8")
        nodes[name] = msgspec.structs.replace(nodes[name], chips=chips, allocatable=chips.bit_count())
        await world.begin(nodes)
        await world.live(steps)
        ledgers.append(await cell.ledger())
        await cell.close()
    assert ledgers[0] != ledgers[1]
