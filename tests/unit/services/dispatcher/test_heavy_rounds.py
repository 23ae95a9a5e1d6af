"""Rounds with gangs whose tasks all differ: asked for in several requests, and left out when these take too long."""

import msgspec
import pytest

from berth.core.replay.replay import replayed
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import body_of, decode, encode, open_envelope
from berth.schemas.facts import PodPhase
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from berth.schemas.offers import ScoreRequest
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.refusal import NodeReason
from berth.schemas.subjects import StreamName
from berth.services.scorer.loop import Shard
from berth.services.scorer.metrics import ScorerMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.fake_bus import FakeBus

TASKS = 400
NODES = 60


def many_tasks(name: str, *, chips: int = 1, first: int = 0) -> JobRequest:
    tasks = [Task(f"t{n}", 1, chips, cpu_milli=first + n + 1) for n in range(TASKS)]
    return a_job(name, tasks=tasks)


async def a_cell(*, shards: int) -> Cell:
    cell = await Cell(shards=shards, skims_classes=True, corrections=1, plain_pods=True).open()
    await cell.nodes([a_node(f"node-{n:02}", leaf=str(n % 7)) for n in range(NODES)])
    return cell


async def rounds_of(cell: Cell) -> list[Round]:
    envelopes = [open_envelope(data) for data in await cell.ledger()]
    return [body_of(envelope, Round) for envelope in envelopes if envelope.kind == Round.KIND]


async def replay_differs(cell: Cell) -> int:
    """Decisions that a replay makes otherwise, without shards and without a clock."""
    entries = []
    facts = await cell.user.read(StreamName.FACTS)
    applied = 0
    for record in await cell.user.read(StreamName.LEDGER):
        known = body_of(open_envelope(record.data), Round).facts_seq if b"ledger.round" in record.data else 0
        for fact in facts[applied:]:
            if fact.sequence > known:
                break
            applied += 1
            entries.append(Entry(fact.sequence, fact.data, fact.subject))
        entries.append(Entry(record.sequence, record.data))
    found = replayed(BEGINNING, entries)
    assert found.rounds > 0
    return found.differences


async def slow_shard(cell: Cell, takes_s: float, *, least: int = 50) -> list[int]:
    """Replace the last shard by one that takes time for requests with many shapes; returns the sizes of requests."""
    await cell.buses[-1].close()
    bus = FakeBus(cell.server, cell.cell)
    cell.buses.append(bus)
    number, count = cell.config.shards - 1, cell.config.shards
    shard = Shard(bus, cell.clock, shard=number, shards=count, instruments=Instruments.make(ScorerMetrics))
    await shard.start()
    asked: list[int] = []

    async def answer(data: bytes) -> bytes | None:
        request = decode(data, ScoreRequest)
        asked.append(len(request.asks))
        if len(request.asks) >= least:
            cell.clock.advance(takes_s)
        return await shard.answer(encode(msgspec.structs.replace(request, keep_ms=0)))

    await bus.serve(bus.subjects.score(number), answer, queue=f"shard-{number}")
    return asked


@pytest.mark.parametrize("chips", [1, 8], ids=["fits", "larger-than-the-cell"])
async def test_any_number_of_shards_decides_a_gang_with_many_tasks_alike(chips: int) -> None:
    ledgers = []
    for shards in (0, 1, 3, 8):
        cell = await a_cell(shards=shards)
        await cell.submit(many_tasks("many", chips=chips), a_job("other", chips=8, replicas=3))
        await cell.turns(3)
        other, many = await cell.status("other"), await cell.status("many")
        assert other is not None
        assert other.phase == "placed"
        assert many is not None
        assert (many.phase == "placed") == (chips == 1)
        ledgers.append(await cell.ledger())
        await cell.close()
    assert all(ledger == ledgers[0] for ledger in ledgers[1:])


async def test_a_round_goes_on_without_a_gang_for_which_a_shard_takes_too_long() -> None:
    cell = await a_cell(shards=3)
    asked = await slow_shard(cell, 1.1)
    await cell.submit(many_tasks("many"), a_job("other"))
    await cell.turns(2)
    other, many = await cell.status("other"), await cell.status("many")
    assert other is not None
    assert other.phase == "placed"
    assert many is not None
    assert many.refusal is not None
    assert many.refusal.code == "late"
    assert asked[0] <= 1, "the shapes of others come first"
    assert not any(record.missing or record.work_max for record in await rounds_of(cell))
    await cell.submit(a_job("next"))
    await cell.turns(2)
    following = await cell.status("next")
    assert following is not None
    assert following.phase == "placed", "no shard is thought to be late"
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_after_a_round_with_a_heavy_gang_others_are_decided_without_one_for_a_while() -> None:
    cell = await a_cell(shards=2)
    asked = await slow_shard(cell, 0.2)
    await cell.submit(many_tasks("first"))
    await cell.turns(3)
    first = await cell.status("first")
    assert first is not None
    assert first.phase == "placed"
    assert max(asked) > 1
    asked.clear()
    await cell.submit(many_tasks("second", first=1_000), a_job("other"))
    await cell.turns(2)
    other, second = await cell.status("other"), await cell.status("second")
    assert other is not None
    assert other.phase == "placed"
    assert second is not None
    assert second.refusal is not None
    assert second.refusal.code == "late"
    assert max(asked) <= 1
    await cell.pods("first", PodPhase.SUCCEEDED)
    await cell.turns(2)
    cell.clock.advance(2)
    await cell.turns(3)
    second = await cell.status("second")
    assert second is not None
    assert second.phase == "placed", second.refusal
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_a_gang_that_was_late_is_placed_when_shards_are_quick_again() -> None:
    cell = await a_cell(shards=2)
    asked = await slow_shard(cell, 1.1)
    await cell.submit(many_tasks("many"))
    await cell.turns(2)
    many = await cell.status("many")
    assert many is not None
    assert many.refusal is not None
    assert asked[0] == 0, "who answers at all is asked first"
    await slow_shard(cell, 0.0)
    cell.clock.advance(1.5)
    await cell.turns(3)
    many = await cell.status("many")
    assert many is not None
    assert many.phase == "placed"
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_a_gang_with_many_tasks_is_refused_for_a_shard_without_a_process_as_any_other() -> None:
    cell = await a_cell(shards=2)
    await cell.buses[-1].close()
    await cell.submit(many_tasks("many"))
    await cell.turns(2)
    many = await cell.status("many")
    assert many is not None
    refusal = many.refusal
    assert refusal is not None
    assert (refusal.code, refusal.missing_shards) == ("no-room", [1])
    assert await replay_differs(cell) == 0
    await cell.close()


@pytest.mark.parametrize("shards", [0, 1, 3])
async def test_a_gang_whose_pods_name_a_node_each_is_one_shape_for_any_number_of_shards(shards: int) -> None:
    cell = await a_cell(shards=shards)
    pins = [Task(f"t{n}", 1, 1, node_selector={"kubernetes.io/hostname": f"node-{n:02}"}) for n in range(NODES)]
    await cell.submit(a_job("pins", tasks=pins))
    await cell.turns(2)
    pinned = await cell.status("pins")
    assert pinned is not None
    assert pinned.placement is not None
    assert pinned.placement.names() == [f"node-{n:02}" for n in range(NODES)]
    assert cell.dispatcher.scatter.shapes_asked == 1
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_a_pod_that_names_a_node_of_a_shard_without_a_process_is_refused_as_when_it_was_asked_for_alone() -> None:
    cell = await a_cell(shards=2)
    await cell.buses[-1].close()
    pins = [Task(f"t{n}", 1, 1, node_selector={"kubernetes.io/hostname": f"node-{n:02}"}) for n in range(NODES)]
    await cell.submit(a_job("pins", tasks=pins))
    await cell.turns(2)
    pinned = await cell.status("pins")
    assert pinned is not None
    refusal = pinned.refusal
    assert refusal is not None
    assert refusal.missing_shards == [1]
    counts = {one.reason: one.nodes for one in refusal.counts}
    silent = counts[NodeReason.SHARD_MISSING]
    assert 0 < silent < NODES
    assert counts == {NodeReason.SHARD_MISSING: silent, NodeReason.SELECTOR: NODES - silent}
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_after_a_late_round_the_next_takes_half_until_one_is_in_time() -> None:
    cell = await a_cell(shards=2)
    asked = await slow_shard(cell, 0.0)
    bounds = []
    for number in range(4):
        bounds.append(cell.dispatcher.scatter.work_max)
        await cell.submit(a_job(f"job-{number}"))
        if number == 1:
            await cell.buses[-1].close()
            bus = FakeBus(cell.server, cell.cell)
            cell.buses.append(bus)

            async def never(data: bytes) -> None:
                """No answer in time."""
                asked.append(len(data))
                cell.clock.advance(2.0)

            await bus.serve(bus.subjects.score(1), never, queue="shard-1")
        elif number == 2:
            await slow_shard(cell, 0.0)
            cell.clock.advance(11.0)
        await cell.turns(1)
    most = 4_000_000
    assert bounds == [0, 0, most // 2, 0]
    assert {record.work_max for record in await rounds_of(cell)} == {0, most // 2}
    assert await replay_differs(cell) == 0
    await cell.close()
