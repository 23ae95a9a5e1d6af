"""Outcomes that the server would forget are stored again while their attempts hold chips."""

import asyncio

from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.envelope import decode
from berth.schemas.facts import OutcomeSeen
from berth.schemas.subjects import StreamName
from berth.services.binder.renewal import renew_due, renew_outcomes
from tests.support.waiting import until
from tests.unit.services.binder.test_loop import KEY, Binder

HALF_S = 4 * 86_400


async def bound() -> Binder:
    binder = await Binder().open()
    binder.record("a")
    await binder.loop._advance(KEY)
    return binder


async def renewed(binder: Binder) -> int:
    return await renew_due(binder.bus, binder.server.clock, binder.loop, DEFAULT_LOG)


async def latest(binder: Binder) -> list[OutcomeSeen]:
    return [decode(stored.data, OutcomeSeen) for stored in await binder.bus.read(StreamName.LATEST)]


async def test_an_outcome_is_stored_again_when_half_of_its_time_is_over() -> None:
    binder = await bound()
    (first,) = await binder.outcomes()
    binder.server.clock.advance(HALF_S - 1)
    assert await renewed(binder) == 0
    binder.server.clock.advance(1)
    assert await renewed(binder) == 1
    (second,) = await latest(binder)
    assert (second.uid, second.attempt, second.state, second.bound) == (
        first.uid,
        first.attempt,
        first.state,
        first.bound,
    )
    assert second.at_ms == first.at_ms + HALF_S * 1000
    assert await renewed(binder) == 0
    await binder.bus.close()


async def test_an_outcome_lasts_as_long_as_its_attempt_and_goes_after_it() -> None:
    binder = await bound()
    for _ in range(6):
        binder.server.clock.advance(HALF_S)
        await renewed(binder)
        assert await latest(binder)
    binder.record(freed=(0, 1))
    binder.work._drop(binder.work.attempts[KEY].holding)
    for _ in range(2):
        binder.server.clock.advance(HALF_S)
        assert await renewed(binder) == 0
    assert await latest(binder) == []
    await binder.bus.close()


async def test_an_attempt_in_hand_is_left_alone() -> None:
    binder = await bound()
    binder.server.clock.advance(HALF_S)
    binder.loop._busy.add(KEY)
    assert await renewed(binder) == 0
    binder.loop._busy.clear()
    assert await renewed(binder) == 1
    await binder.bus.close()


async def test_a_bus_that_does_not_answer_is_asked_again() -> None:
    binder = await bound()
    binder.server.clock.advance(HALF_S)
    binder.server.is_down = True
    assert await renewed(binder) == 0
    binder.server.is_down = False
    assert await renewed(binder) == 1
    await binder.bus.close()


async def test_outcomes_are_looked_at_from_the_start_on() -> None:
    binder = await bound()
    binder.server.clock.advance(HALF_S)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(renew_outcomes(binder.bus, binder.server.clock, binder.loop, DEFAULT_LOG, stop))
        await until(
            lambda: len(binder.server.streams["FACTS_cell"].messages) == 2, deadline_s=10, what="a second outcome"
        )
        stop.set()
    await binder.bus.close()
