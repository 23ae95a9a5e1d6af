"""The number of shards changes no step of a recovery."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.state.invariants import check
from berth.schemas.envelope import decode, open_envelope
from berth.schemas.ledger import Round
from tests.support.cells import Cell
from tests.support.recovering_worlds import VERBS, RecoveringWorld

COUNTS = (0, 1, 3, 8)
PRODUCTS = ("module910bx8", "superpod910a3x16", "superpod950x8")
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 40), st.integers(0, 40)), min_size=20, max_size=40)


async def ledger_of(steps: list[tuple[str, int, int]], *, shards: int, product: str) -> list[bytes]:
    cell = await Cell(shards=shards).open()
    world = RecoveringWorld(cell, product)
    try:
        await world.begin()
        await cell.turns(2)
        for verb, one, two in steps:
            await world.act(verb, one, two)
            await cell.turns(2)
        check(cell.dispatcher.state)
        assert await cell.dead() == []
        return await cell.ledger()
    finally:
        await cell.close()


def hows_in(ledger: list[bytes]) -> Counter[str]:
    """Steps of recoveries in a ledger, by how, and how many of them have places."""
    found: Counter[str] = Counter()
    for data in ledger:
        if open_envelope(data).kind == Round.KIND:
            for one in decode(data, Round).recoveries:
                found[one.how] += 1
                found["placed"] += one.placement is not None
    return found


@pytest.mark.timeout(120)
@settings(max_examples=25)
@given(steps=STEPS, product=st.sampled_from(PRODUCTS))
def test_any_number_of_shards_writes_the_same_recoveries_to_the_byte(
    steps: list[tuple[str, int, int]], product: str
) -> None:
    ledgers = [asyncio.run(ledger_of(steps, shards=shards, product=product)) for shards in COUNTS]
    assert all(ledger == ledgers[0] for ledger in ledgers[1:])


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_long_history_with_places_and_restarts_is_the_same_with_any_number_of_shards(product: str) -> None:
    steps = [(VERBS[number * 7 % len(VERBS)], number * 11 % 41, number * 17 % 41) for number in range(160)]
    ledgers = [asyncio.run(ledger_of(steps, shards=shards, product=product)) for shards in COUNTS]
    found = hows_in(ledgers[0])
    assert min(found[what] for what in ("grace", "force", "placed")) >= 1, found
    assert all(ledger == ledgers[0] for ledger in ledgers[1:])
