"""Offers that do not belong to the question are no offers."""

from collections.abc import Callable

import msgspec
import pytest

from berth.runtime.instruments import Instruments
from berth.schemas.columns import pack_names
from berth.schemas.envelope import body_of, decode, encode, open_envelope
from berth.schemas.ledger import Round
from berth.schemas.offers import Offer
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus

replace = msgspec.structs.replace


async def a_cell(twist: Callable[[Offer], Offer]) -> Cell:
    """A cell of one shard that says something else than it means."""
    cell = await Cell(shards=1).open()
    await cell.buses[-1].close()
    bus = FakeBus(cell.server, cell.cell)
    cell.buses.append(bus)
    shard = Shard(bus, cell.clock, shard=0, shards=1, instruments=Instruments.make(ScorerMetrics))
    await shard.start()

    async def answer(data: bytes) -> bytes:
        return encode(twist(decode(await shard.answer(data) or b"", Offer)))

    await bus.serve(bus.subjects.score(0), answer, queue="shard-0")
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job"))
    await cell.turns(2)
    return cell


def _each(offer: Offer, **changes: object) -> Offer:
    return replace(offer, shapes=[replace(one, **changes) for one in offer.shapes])


async def missing_of(cell: Cell) -> list[int]:
    envelopes = [open_envelope(data) for data in await cell.ledger()]
    return [body_of(envelope, Round) for envelope in envelopes if envelope.kind == Round.KIND][-1].missing


@pytest.mark.parametrize(
    "twist",
    [
        pytest.param(lambda offer: replace(offer, ledger_seq=offer.ledger_seq - 1), id="older-ledger"),
        pytest.param(lambda offer: replace(offer, ledger_seq=offer.ledger_seq + 1), id="newer-ledger"),
        pytest.param(lambda offer: replace(offer, facts_seq=offer.facts_seq - 1), id="older-facts"),
        pytest.param(lambda offer: replace(offer, facts_seq=offer.facts_seq + 1), id="newer-facts"),
        pytest.param(lambda offer: replace(offer, round=offer.round - 1), id="other-round"),
        pytest.param(lambda offer: replace(offer, shard=offer.shard + 1), id="other-shard"),
        pytest.param(lambda offer: replace(offer, ready=False), id="not-ready"),
        pytest.param(lambda offer: replace(offer, shapes=[]), id="no-shapes"),
        pytest.param(lambda offer: replace(offer, shapes=[*offer.shapes, *offer.shapes]), id="too-many-shapes"),
        pytest.param(lambda offer: _each(offer, runs=[((1 << 64) - 1, 1)]), id="score-without-bounds"),
        pytest.param(lambda offer: _each(offer, total=(1 << 64) - 1), id="more-nodes-than-there-are"),
        pytest.param(lambda offer: _each(offer, names=b"", runs=[], exhausted=False), id="hides-all"),
        pytest.param(lambda offer: _each(offer, names=pack_names(["a", "a"]), runs=[(7, 2)], fit=2), id="node-twice"),
    ],
)
async def test_an_offer_that_does_not_answer_the_question_does_not_count(twist: Callable[[Offer], Offer]) -> None:
    cell = await a_cell(twist)
    status = await cell.status("job")
    assert status is not None
    assert status.refusal is not None
    assert status.refusal.missing_shards == [0]
    assert await missing_of(cell) == [0]
    await cell.close()


async def test_an_offer_that_answers_the_question_counts() -> None:
    cell = await a_cell(lambda offer: offer)
    status = await cell.status("job")
    assert status is not None
    assert status.phase == "placed"
    assert await missing_of(cell) == []
    await cell.close()
