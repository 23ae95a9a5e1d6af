"""Rounds with gangs whose tasks all differ: scored in several turns, while others are decided."""

import pytest

from berth.core.cluster.node_packing import SWITCHES
from berth.core.replay.replay import replayed
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import Leaf, PodPhase, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from berth.schemas.recording import BEGINNING
from berth.schemas.refusal import NodeReason
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.placed_parts import the_switch
from tests.support.replays import entries_of

TASKS = 400
NODES = 60


def many_tasks(name: str, *, chips: int = 1, first: int = 0) -> JobRequest:
    tasks = [Task(f"t{n}", 1, chips, cpu_milli=first + n + 1) for n in range(TASKS)]
    return a_job(name, tasks=tasks)


async def a_cell(*, shards: int, clock: ManualClock | None = None) -> Cell:
    cell = await Cell(shards=shards, clock=clock).open()
    await cell.nodes([a_node(f"node-{n:02}", leaf=str(n % 7)) for n in range(NODES)])
    return cell


async def rounds_of(cell: Cell) -> list[Round]:
    envelopes = [open_envelope(data) for data in await cell.ledger()]
    return [body_of(envelope, Round) for envelope in envelopes if envelope.kind == Round.KIND]


async def replay_differs(cell: Cell) -> int:
    """Decisions that a replay makes otherwise, without shards and without a clock."""
    facts, records = await cell.user.read(StreamName.FACTS), await cell.user.read(StreamName.LEDGER)
    found = replayed(BEGINNING, entries_of(facts, records))
    assert found.rounds > 0
    return found.differences


async def sound_shard(cell: Cell) -> None:
    """Replace the last shard by one that answers."""
    await cell.buses[-1].close()
    cell.shards.pop()
    await cell.start_shard(cell.config.shards - 1)


class SlowClock(ManualClock):
    """A clock that goes on by itself whenever the time that passes is read: so scoring takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.step_s = 0.0

    def monotonic_s(self) -> float:
        self.advance(self.step_s)
        return super().monotonic_s()


async def a_slow_cell(*, shards: int = 2) -> tuple[Cell, SlowClock]:
    """A cell in which a gang with many tasks takes several rounds to score."""
    clock = SlowClock()
    cell = await a_cell(shards=shards, clock=clock)
    clock.step_s = 0.01
    return cell, clock


async def refusal_of(cell: Cell, name: str) -> str:
    """Code of the refusal of a job that waits; empty once it is placed."""
    found = await cell.status(name)
    assert found is not None
    assert (found.refusal is None) == (found.phase == "placed")
    return found.refusal.code if found.refusal is not None else ""


async def tries_of(cell: Cell, name: str, *, most: int = 30) -> int:
    """Let time go by until a job is placed; returns how often it was refused as late."""
    tries = 0
    while await refusal_of(cell, name):
        assert await refusal_of(cell, name) == "late"
        tries += 1
        assert tries <= most
        await cell.submit(a_job(f"beside-{name}-{tries}", chips=1))
        await cell.turns(2)
        assert not await refusal_of(cell, f"beside-{name}-{tries}"), "others are placed meanwhile"
        await cell.pods(f"beside-{name}-{tries}", PodPhase.SUCCEEDED)
        cell.clock.advance(10.1)
        await cell.turns(2)
    return tries


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


@pytest.mark.parametrize("shards", [0, 2])
async def test_a_gang_that_takes_longer_than_a_round_is_placed_in_the_end_and_others_meanwhile(shards: int) -> None:
    cell, _ = await a_slow_cell(shards=shards)
    await cell.submit(many_tasks("many"), a_job("other"))
    await cell.turns(2)
    assert not await refusal_of(cell, "other")
    tries = await tries_of(cell, "many")
    assert 3 < tries < 20
    assert not any(record.missing or record.work_max for record in await rounds_of(cell))
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_a_gang_with_switch_affinity_that_takes_longer_than_a_round_is_placed_in_the_end() -> None:
    cell, clock = await a_slow_cell()
    leaves = [Leaf(f"leaf-{n}", "", [f"node-{m:03}" for m in range(n * 20, n * 20 + 20)]) for n in range(10)]
    topology = TopologySeen(SWITCHES, leaves, level="double_layer", places=20)
    await cell.nodes([a_node(name, leaf=leaf.name) for leaf in leaves for name in leaf.nodes])
    await cell.user.publish(cell.user.subjects.fact_topology(SWITCHES), encode(topology))
    clock.advance(10.1)
    await cell.turns(2)
    tasks = [Task(f"t{n}", 1, 8, cpu_milli=n + 1) for n in range(150)]
    await cell.submit(a_job("many", tasks=tasks, labels={"tor-affinity": "large-model-schema"}))
    await cell.turns(2)
    assert 1 < await tries_of(cell, "many") < 20
    many = await cell.status("many")
    assert many is not None
    assert the_switch(many.placement).pods == 150
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_no_shard_is_asked_for_the_shapes_of_a_gang_with_many_tasks() -> None:
    cell = await a_cell(shards=2)
    await cell.submit(many_tasks("many"), a_job("other"))
    await cell.turns(2)
    assert not await refusal_of(cell, "many")
    assert cell.dispatcher.scatter.shapes_asked == 1
    await cell.close()


async def test_nodes_that_change_while_a_gang_is_scored_are_used_as_they_are_then() -> None:
    cell, _ = await a_slow_cell()
    await cell.submit(many_tasks("many"))
    await cell.turns(2)
    assert await refusal_of(cell, "many") == "late"
    changed = [a_node(f"node-{n:02}", leaf=str(n % 7), cordoned=n < 10) for n in range(1, NODES)]
    await cell.nodes([*changed, a_node("new", leaf="0")])
    await tries_of(cell, "many")
    many = await cell.status("many")
    assert many is not None
    assert many.placement is not None
    names = set(many.placement.names())
    assert not names & {f"node-{n:02}" for n in range(10)}
    assert "new" in names
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_a_gang_that_finds_no_room_when_it_is_scored_is_told_the_nodes_as_they_are_then() -> None:
    cell, clock = await a_slow_cell()
    await cell.submit(many_tasks("many"))
    await cell.turns(2)
    cordoned = [a_node(f"node-{n:02}", leaf=str(n % 7), cordoned=n < 12) for n in range(NODES)]
    await cell.nodes(cordoned)
    for _ in range(30):
        clock.advance(10.1)
        await cell.turns(2)
        if await refusal_of(cell, "many") != "late":
            break
    many = await cell.status("many")
    assert many is not None
    assert many.refusal is not None
    assert many.refusal.code == "no-room"
    counts = {one.reason: one.nodes for one in many.refusal.counts}
    assert counts[NodeReason.CORDONED] == 12
    assert sum(counts.values()) + many.refusal.nodes_fit == NODES
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_of_two_gangs_that_take_longer_than_a_round_the_second_is_scored_after_the_first() -> None:
    cell, _ = await a_slow_cell()
    await cell.submit(many_tasks("first"))
    await cell.turns(2)
    await cell.submit(many_tasks("second", first=1_000))
    tries = await tries_of(cell, "first")
    await cell.pods("first", PodPhase.SUCCEEDED)
    assert 0 < await tries_of(cell, "second") < 3 * tries
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_a_gang_waits_for_one_that_was_cancelled_no_longer_than_that_may_come_back() -> None:
    cell, _ = await a_slow_cell()
    await cell.submit(many_tasks("first"))
    await cell.turns(2)
    await cell.cancel("first")
    await cell.submit(many_tasks("second", first=1_000))
    await cell.turns(2)
    assert await refusal_of(cell, "second") == "late"
    assert await tries_of(cell, "second") < 20
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_what_was_scored_for_a_gang_that_was_cancelled_beside_another_is_forgotten(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def kept() -> int:
        return int(capsys.readouterr().out.rpartition("scored=")[2].split()[0])

    cell, clock = await a_slow_cell()
    clock.step_s = 0.0015
    await cell.submit(many_tasks("first"), many_tasks("second", first=1_000))
    await cell.turns(2)
    while (scored := kept()) <= TASKS:
        clock.advance(10.1)
        await cell.turns(2)
    assert scored < 2 * TASKS
    await cell.cancel("first")
    clock.step_s = 0.02
    clock.advance(10.1)
    await cell.turns(2)
    assert 0 < kept() < TASKS
    await cell.close()


async def test_after_a_change_of_the_leader_a_gang_is_scored_anew_and_placed() -> None:
    cell, _ = await a_slow_cell()
    await cell.submit(many_tasks("many"))
    await cell.turns(2)
    for _ in range(3):
        cell.clock.advance(10.1)
        await cell.turns(2)
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns(2)
    assert await refusal_of(cell, "many") == "late"
    assert await tries_of(cell, "many") > 3
    await cell.close()


async def test_a_gang_that_is_scored_when_a_shard_falls_silent_is_refused_for_it_and_placed_when_it_answers() -> None:
    cell, clock = await a_slow_cell()
    await cell.submit(many_tasks("many", chips=8))
    await cell.turns(2)
    assert await refusal_of(cell, "many") == "late"
    await cell.buses[-1].close()
    for _ in range(30):
        clock.advance(10.1)
        await cell.turns(2)
        if await refusal_of(cell, "many") != "late":
            break
    many = await cell.status("many")
    assert many is not None
    assert many.refusal is not None
    assert (many.refusal.code, many.refusal.missing_shards) == ("no-room", [1])
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_after_a_round_with_a_heavy_gang_others_are_decided_without_one_for_a_while() -> None:
    cell = await a_cell(shards=2, clock=(clock := SlowClock()))
    clock.step_s = 0.001
    await cell.submit(many_tasks("first"))
    await cell.turns(3)
    assert not await refusal_of(cell, "first")
    clock.step_s = 0.0
    await cell.submit(many_tasks("second", first=1_000), a_job("other"))
    await cell.turns(2)
    assert not await refusal_of(cell, "other")
    assert await refusal_of(cell, "second") == "late"
    await cell.pods("first", PodPhase.SUCCEEDED)
    await cell.turns(2)
    clock.advance(10.1)
    await cell.turns(3)
    assert not await refusal_of(cell, "second")
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
    asked: list[int] = []
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
            await sound_shard(cell)
            cell.clock.advance(11.0)
        await cell.turns(1)
    most = 4_000_000
    assert bounds == [0, 0, most // 2, 0]
    assert {record.work_max for record in await rounds_of(cell)} == {0, most // 2}
    assert await replay_differs(cell) == 0
    await cell.close()


async def test_gangs_that_never_fit_keep_no_other_one_from_being_scored() -> None:
    """The tries of two gangs, with the same pauses, keep their distance: one came in the rest after the other's."""
    cell, clock = await a_slow_cell(shards=0)
    clock.step_s = 0.001
    await cell.submit(a_job("filler", chips=8, replicas=20))
    await cell.turns(2)
    await cell.submit(many_tasks("first"))
    await cell.turns(2)
    assert await refusal_of(cell, "first") == "no-room"
    await cell.submit(many_tasks("second", first=TASKS))
    await cell.turns(2)
    assert await refusal_of(cell, "second") == "late"
    scored = {"first": 0, "second": 0}
    for _ in range(120):
        cell.clock.advance(0.5)
        await cell.turns(1)
        for name in scored:
            scored[name] += await refusal_of(cell, name) != "late"
    assert min(scored.values()) > 20
    await cell.close()
