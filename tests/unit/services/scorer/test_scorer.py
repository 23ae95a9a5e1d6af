"""A scorer answers at the sequences that are asked, or says that it cannot."""

import asyncio

import msgspec
import pytest

from berth.core.cluster.domains import shard_of
from berth.runtime.errors import PoisonError
from berth.runtime.instruments import Instruments
from berth.schemas.columns import unpack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import PodPhase, TimerSeen
from berth.schemas.ledger import Settings
from berth.schemas.offers import Advance, Ask, Offer, ScoreRequest, Shape
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer

VOID = encode(TimerSeen(0))
"""A message that is no record of the ledger."""
SHAPE = Shape(form="module910bx8", resource="huawei.com/Ascend910", chips=8, gang_pods=1)


async def a_cell(*, nodes: int = 3) -> Cell:
    """A cell whose shard 0 of 1 has received nodes in as many facts, and applied none of them."""
    cell = await Cell(shards=1).open()
    for number in range(nodes):
        await cell.nodes([a_node(f"n{number}", leaf=f"leaf{number}")])
    await cell.settle()
    return cell


async def ask(shard: Shard, facts_seq: int, ledger_seq: int = 1, *, wait_ms: int = 1) -> Offer:
    request = ScoreRequest(5, 1, facts_seq, ledger_seq, [Ask(SHAPE, 10)], wait_ms)
    return decode(await shard.answer(encode(request)) or b"", Offer)


def names(offer: Offer) -> list[str]:
    return unpack_names(offer.shapes[0].names)


async def test_an_answer_is_of_exactly_the_sequences_asked_though_more_has_come() -> None:
    cell = await a_cell()
    shard = cell.shards[0]
    for facts_seq, expected in ((1, ["n0"]), (2, ["n0", "n1"]), (3, ["n0", "n1", "n2"])):
        offer = await ask(shard, facts_seq)
        assert (offer.ready, offer.round, offer.facts_seq, offer.ledger_seq) == (True, 5, facts_seq, 1)
        assert names(offer) == expected
    assert (shard.answered, shard.late) == (3, 0)
    await cell.close()


async def test_a_scorer_that_is_behind_is_not_ready() -> None:
    cell = await a_cell()
    shard = cell.shards[0]
    for facts_seq, ledger_seq in ((4, 1), (3, 2)):
        offer = await ask(shard, facts_seq, ledger_seq)
        assert (offer.ready, offer.shapes, offer.facts_seq, offer.ledger_seq) == (False, [], 3, 1)
    assert shard.late == 2
    await cell.close()


async def test_a_scorer_that_is_beyond_is_not_ready() -> None:
    cell = await a_cell()
    shard = cell.shards[0]
    assert (await ask(shard, 2)).ready
    offer = await ask(shard, 1)
    assert (offer.ready, offer.facts_seq) == (False, 2)
    assert (await ask(shard, 2)).ready, "it answers what it can"
    await cell.close()


async def test_what_is_asked_before_it_has_come_is_awaited() -> None:
    cell = await a_cell(nodes=1)
    shard = cell.shards[0]
    await cell.nodes([a_node("late", leaf="leaf9")])  # stored, and not received yet
    offer = await ask(shard, 2, wait_ms=5_000)
    assert offer.ready
    assert names(offer) == ["late", "n0"]
    await cell.close()


async def test_a_record_that_is_asked_before_it_has_come_is_awaited() -> None:
    cell = await a_cell(nodes=1)
    await cell.user.publish(cell.user.subjects.ledger, VOID)  # stored, and not received yet
    offer = await ask(cell.shards[0], 1, 2, wait_ms=5_000)
    assert (offer.ready, offer.ledger_seq) == (True, 2)
    await cell.close()


async def test_records_that_nobody_named_wait() -> None:
    cell = await a_cell(nodes=1)
    await cell.user.publish(cell.user.subjects.ledger, VOID)
    await cell.settle()
    assert (await ask(cell.shards[0], 1, 1)).ready
    assert (await ask(cell.shards[0], 1, 2)).ready
    await cell.close()


async def test_an_advance_lets_a_scorer_apply_what_it_names_and_no_more() -> None:
    cell = await a_cell()
    shard = cell.shards[0]
    await shard.advance(encode(Advance(1, 2, 1)))
    assert shard.state.nodes_seq == 2
    assert (await ask(shard, 2)).ready
    await shard.advance(encode(Advance(1, 1, 0)))
    assert shard.state.nodes_seq == 2
    await cell.close()


async def test_a_record_is_applied_when_a_request_names_it() -> None:
    cell = await Cell(shards=1).open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("job", chips=8))
    await cell.turns(2)
    shard, state = cell.shards[0], cell.dispatcher.state
    offer = await ask(shard, state.nodes_seq, state.fold.head)
    assert offer.ready
    assert names(offer) == ["b"]
    await cell.pods("job", PodPhase.TERMINATING)
    await cell.turns(2)
    offer = await ask(shard, state.nodes_seq, state.fold.head)
    assert names(offer) == ["b"], "a chip whose pod is terminating is not free"
    await cell.close()


async def test_scorers_own_disjoint_domains_and_all_of_them() -> None:
    cell = await Cell(shards=3).open()
    await cell.nodes([a_node(f"n{number}", leaf=f"leaf{number}") for number in range(12)])
    await cell.settle()
    offers = [await ask(shard, 12) for shard in cell.shards]
    found = [names(offer) for offer in offers]
    assert sorted(name for part in found for name in part) == sorted(f"n{number}" for number in range(12))
    for shard, part in enumerate(found):
        assert all(shard_of(f"leaf-leaf{name[1:]}", 3) == shard for name in part)
    assert sum(offer.shapes[0].total for offer in offers) == 12
    await cell.close()


async def test_settings_of_a_new_epoch_are_those_of_the_next_answer() -> None:
    cell = await Cell(shards=1).open()
    await cell.nodes([a_node("a")])
    await cell.dispatcher.stop()
    cell.config = Cell(shards=1, health_first=True, server=cell.server).config
    await cell.start_dispatcher()
    await cell.turns()
    shard = cell.shards[0]
    assert (await ask(shard, 1, cell.dispatcher.state.fold.head)).ready
    assert shard.scorer.settings == Settings(health_first=True)
    await cell.close()


async def test_a_scorer_that_starts_late_answers_as_one_that_was_there() -> None:
    cell = await Cell(shards=1).open()
    await cell.nodes([a_node("a"), a_node("b")])
    await cell.submit(a_job("one", chips=8))
    await cell.turns(2)
    await cell.start_shard(0)
    state = cell.dispatcher.state
    old, new = [await ask(shard, state.nodes_seq, state.fold.head) for shard in cell.shards]
    assert old == new
    assert old.ready
    await cell.close()


async def test_a_shard_keeps_only_gangs_that_hold_chips() -> None:
    cell = await Cell(shards=1).open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("runs", chips=4), a_job("ends", chips=4), a_job("waits", chips=8))
    await cell.turns(2)
    await cell.pods("ends", PodPhase.SUCCEEDED)
    await cell.turns(3)
    shard, state = cell.shards[0], cell.dispatcher.state
    assert (await ask(shard, state.nodes_seq, state.fold.head)).ready
    assert list(shard.state.fold.gangs) == ["uid-runs"]
    await cell.close()


async def test_facts_that_are_none_are_the_dispatchers_to_report_and_are_not_kept() -> None:
    cell = await a_cell(nodes=1)
    await cell.user.publish(cell.user.subjects.fact_node("leaf-x"), b"rubbish")
    await cell.settle()
    shard = cell.shards[0]
    await ask(shard, 2)
    assert shard.feeds.facts.waiting == 0
    assert shard.feeds.dead == {}
    assert await cell.dead() == []
    await cell.close()


@pytest.mark.parametrize("data", [b"rubbish", encode(Advance(1, 1, 1))])
async def test_what_is_no_request_is_poison(data: bytes) -> None:
    cell = await a_cell(nodes=1)
    with pytest.raises(PoisonError):
        await cell.shards[0].answer(data)
    with pytest.raises(PoisonError):
        await cell.shards[0].advance(b"rubbish")
    await cell.close()


async def answers(shard: Shard, *requests: bytes) -> list[bytes | None]:
    """Answers to requests that come at the same time."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(shard.answer(request)) for request in requests]
    return [task.result() for task in tasks]


class TickingClock(ManualClock):
    """A clock on which each look takes a while, as scoring does."""

    tick_s = 0.0

    def monotonic_s(self) -> float:
        self.advance(self.tick_s)
        return super().monotonic_s()


async def test_a_request_for_which_nobody_waits_any_more_is_dropped() -> None:
    cell = await a_cell()
    shard = cell.shards[0]
    clock = shard.clock = TickingClock()
    asks = [Ask(msgspec.structs.replace(SHAPE, cpu_milli=cpu), 10) for cpu in range(1, 101)]
    request = encode(ScoreRequest(5, 1, 3, 1, asks, 1, keep_ms=500))
    answer = await shard.answer(request)
    assert answer is not None
    clock.tick_s = 0.02
    began_s = clock.monotonic_s()
    assert await shard.answer(request) is None, "it ends in the middle"
    assert clock.monotonic_s() - began_s < 1.0
    following = encode(ScoreRequest(6, 1, 3, 1, asks[:3], 1, keep_ms=2_000))
    late, answer = await answers(shard, request, following)
    assert late is None
    assert answer is not None
    assert decode(answer, Offer).round == 6
    assert (shard.answered, shard.late) == (4, 0), "the last one was asked within its time"
    await cell.close()


async def test_a_request_that_waited_longer_than_its_time_is_not_begun() -> None:
    cell = await a_cell()
    shard = cell.shards[0]
    clock = shard.clock = TickingClock()
    clock.tick_s = 0.02
    asks = [Ask(msgspec.structs.replace(SHAPE, cpu_milli=cpu), 10) for cpu in range(1, 101)]
    requests = (ScoreRequest(5, 1, 3, 1, asks, 1, keep_ms=60_000), ScoreRequest(6, 1, 3, 1, asks[:1], 1, keep_ms=100))
    first, second = await answers(shard, *map(encode, requests))
    assert first is not None
    assert second is None
    assert shard.answered == 1
    await cell.close()


async def test_requests_are_counted_by_how_they_were_answered() -> None:
    instruments = Instruments.make(ScorerMetrics)
    bus, clock = FakeBus(FakeServer(), "c"), TickingClock()
    await bus.ensure_streams()
    shard = Shard(bus, clock, shard=0, shards=1, instruments=instruments)
    await shard.start()
    for request in (
        ScoreRequest(1, 1, 0, 0, []),
        ScoreRequest(2, 1, 9, 9, [], wait_ms=1),
        ScoreRequest(3, 1, 9, 9, [], wait_ms=1),
    ):
        await shard.answer(encode(request))
    clock.tick_s = 1.0
    await shard.answer(encode(ScoreRequest(4, 1, 0, 0, [], keep_ms=1)))
    counted = {
        ready: instruments.registry.collectors.get_sample_value("berth_scorer_requests_total", {"ready": ready})
        for ready in ("yes", "no", "dropped")
    }
    assert counted == {"yes": 1, "no": 2, "dropped": 1}
    await bus.close()
