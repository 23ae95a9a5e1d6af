"""The count of dead letters follows DEAD: written, settled, too old, made anew; what becomes one holds up nobody."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from berth.core.requests.dead_reasons import CODES, INVALID, OTHER, UNDECODABLE
from berth.runtime.bus.port import Stored
from berth.runtime.dead_letters.letters import read_letters
from berth.runtime.dead_letters.purges import purge
from berth.runtime.dead_letters.writing import dead_letter
from berth.runtime.errors import PoisonError
from berth.runtime.metrics import MetricsRegistry
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.dead_letters import LetterCount
from berth.services.dispatcher.metrics import DispatcherMetrics
from tests.support.cells import Cell, a_job, a_node


class Counting:
    """A cell, and the count of its letters."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._registry = MetricsRegistry()
        self.count = LetterCount(cell.user, cell.clock, DispatcherMetrics(self._registry))
        self._written = 0

    async def write(self, code: str) -> None:
        self._written += 1
        stored = Stored("berth.cell.intake.request.default.x", self._written, b"{}", 1)
        await dead_letter(self.cell.user, self.cell.clock, StreamName.INTAKE, stored, "why", code=code)

    async def seen(self) -> dict[str, tuple[float, float]]:
        """Number and age by kind of reason, where there are any."""
        await self.cell.settle()
        await self.count.count()
        gauges = self._registry.gauges()
        found = {}
        for code in CODES:
            number = gauges[f'berth_dispatcher_dead_letters{{reason="{code}"}}']
            age_s = gauges[f'berth_dispatcher_dead_letter_age_seconds{{reason="{code}"}}']
            if number or age_s:
                found[code] = (number, age_s)
        return found


@pytest.fixture
async def counting() -> AsyncIterator[Counting]:
    cell = await Cell().open()
    made = Counting(cell)
    yield made
    await made.count.stop()
    await cell.close()


async def test_letters_are_counted_by_reason_with_the_age_of_the_oldest(counting: Counting) -> None:
    assert await counting.seen() == {}
    await counting.write(UNDECODABLE)
    counting.cell.clock.advance(10)
    await counting.write(UNDECODABLE)
    await counting.write(INVALID)
    counting.cell.clock.advance(5)
    assert await counting.seen() == {UNDECODABLE: (2, 15), INVALID: (1, 5)}


async def test_a_letter_that_is_purged_counts_no_more(counting: Counting) -> None:
    for code in (UNDECODABLE, INVALID):
        await counting.write(code)
    assert set(await counting.seen()) == {UNDECODABLE, INVALID}
    letters = (await read_letters(counting.cell.user)).letters
    await purge(counting.cell.user, counting.cell.clock, letters[:1], by="me")
    assert await counting.seen() == {INVALID: (1, 0)}


async def test_letters_that_the_stream_has_dropped_count_no_more(counting: Counting) -> None:
    await counting.write(UNDECODABLE)
    await counting.cell.settle()
    spec = {one.name: one for one in counting.cell.user.subjects.streams()}[StreamName.DEAD]
    counting.cell.clock.advance(spec.max_age_s - 1)
    await counting.write(INVALID)
    assert set(await counting.seen()) == {UNDECODABLE, INVALID}
    counting.cell.clock.advance(2)
    assert await counting.seen() == {INVALID: (1, 2)}


async def test_what_is_no_letter_counts_as_other(counting: Counting) -> None:
    user = counting.cell.user
    await user.publish(user.subjects.dead(StreamName.INTAKE, 9), b"\xff")
    assert await counting.seen() == {OTHER: (1, 0)}


async def test_a_stream_that_was_made_anew_is_counted_anew(counting: Counting) -> None:
    await counting.write(UNDECODABLE)
    assert set(await counting.seen()) == {UNDECODABLE}
    cell = counting.cell
    cell.server.delete(cell.user.subjects.stream(StreamName.DEAD))
    await cell.user.ensure_streams()
    await counting.seen()  # the follower learns of it
    await counting.write(INVALID)
    await counting.seen()
    assert set(await counting.seen()) == {INVALID}


async def test_many_requests_whose_verdicts_no_message_can_hold_cost_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = await Cell().open()
    bus = cell.dispatcher.bus
    submit = bus.submit_wait

    async def submit_unless_large(subject: str, data: bytes) -> asyncio.Future[int]:
        if subject.endswith((".large-1", ".large-2", ".large-3")):
            raise PoisonError("maximum payload exceeded")
        return await submit(subject, data)

    monkeypatch.setattr(bus, "submit_wait", submit_unless_large)
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("large-1"), a_job("large-2"), a_job("large-3"), a_job("small"))
    await cell.turns(9)  # no time goes by
    assert await cell.dead() == [cell.user.subjects.dead(StreamName.INTAKE, number) for number in (1, 2, 3)]
    status = await cell.status("small")
    assert status is not None
    assert status.phase == "placed"
    await cell.close()
