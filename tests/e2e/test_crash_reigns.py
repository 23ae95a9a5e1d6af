"""Two dispatchers that both believe they lead: one history all the same."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from berth.core.state.invariants import check
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import ConflictError
from berth.schemas.envelope import encode
from berth.schemas.ledger import Round, Verdict
from berth.schemas.subjects import StreamName
from berth.services.binder.work import Work
from berth.services.dispatcher.config import DecisionConfig, DispatcherConfig
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.standby import FencedError
from tests.support.cells import a_job, a_node
from tests.support.dispatchers import Dispatchers, turns
from tests.support.load import Load, give_jobs, give_nodes
from tests.support.processes import services
from tests.support.waiting import SLACK, until
from tests.support.watch import Watch, verify, verify_start

CONFIG: Final = DispatcherConfig(
    lease_s=1, tick_s=0.05, snapshot_records=10, intake_batch_max=4, decisions=DecisionConfig(round_gangs_max=2)
)


@pytest.fixture
async def reigns(nats_server: str, cell: str) -> AsyncIterator[Dispatchers]:
    """Maker of dispatchers."""
    made = Dispatchers(nats_server, cell, CONFIG)
    yield made
    await made.end()


async def work(dispatcher: Dispatcher, until_set: asyncio.Event) -> bool:
    """Work without looking at any lease; says whether it was deposed."""
    while not until_set.is_set():
        try:
            await dispatcher.turn()
        except FencedError:
            return True
        check(dispatcher.state)
        await asyncio.sleep(0)
    return False


async def test_of_two_that_begin_together_one_reigns(real_bus: NatsBus, reigns: Dispatchers) -> None:
    await give_nodes(real_bus, [a_node(f"node-{index}") for index in range(4)])
    await give_jobs(real_bus, *(a_job(f"job-{index}", chips=2) for index in range(16)))
    watch = Watch(real_bus)
    watch.start()
    first = await reigns.begin()
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        old = group.create_task(work(first, done))
        await until(lambda: watch.placed.total() >= 4, deadline_s=10, what="some placements of the first")
        second = await reigns.begin()
        new = group.create_task(work(second, done))
        await until(lambda: watch.placed.total() >= 16, deadline_s=10, what="all placements")
        await asyncio.wait([old], timeout=SLACK * 10)
        done.set()
    assert (old.result(), new.result()) == (True, False)
    await watch.reach_heads()
    assert set(watch.placed.values()) == {1}
    assert len(watch.placed) == 16
    state = watch.replay()
    assert state.fold.holder == "holder-2"
    await verify_start(real_bus, state)


async def test_a_late_record_of_a_past_reign_is_void_for_all_readers(real_bus: NatsBus, reigns: Dispatchers) -> None:
    await give_nodes(real_bus, [a_node("node-0")])
    await give_jobs(real_bus, a_job("job", chips=8))
    watch = Watch(real_bus)
    watch.start()
    zombie = await reigns.begin()
    await turns(zombie, lambda: watch.placed.total() == 1)
    placed = zombie.state.fold.holdings["uid-job", 1]
    heir = await reigns.begin()
    # The zombie's own append is refused: it does not know the head.
    await give_jobs(real_bus, a_job("next", chips=1))
    with pytest.raises(FencedError):
        await turns(zombie, lambda: False)
    # As if it had sent its record long ago, and it landed now at the head that it names by chance.
    head = (await real_bus.state(StreamName.LEDGER)).last_seq
    late = Round(
        epoch=zombie.epoch,
        base_seq=head,
        facts_seq=heir.state.facts_seq,
        at_ms=0,
        number=99,
        verdicts=[Verdict("default", "ghost", "uid-ghost", 1, placed.placement)],
    )
    stolen = encode(late)
    with pytest.raises(ConflictError):
        await real_bus.append(stolen, expected_seq=head - 1)
    at = await real_bus.append(stolen, expected_seq=head)
    await turns(heir, lambda: heir.state.fold.head >= at)
    assert heir.state.fold.voided == 1
    await watch.reach_heads()
    state = watch.replay()
    binder = Work()
    for record in watch.records:
        binder.apply_record(record.sequence, record.data)
    assert (state.fold.voided, binder.voided) == (1, 1)
    assert state.fold.holdings["uid-job", 1] == placed
    assert "uid-ghost" not in state.fold.gangs
    assert set(binder.attempts) == set(state.fold.holdings)
    await verify_start(real_bus, state)


async def test_many_reigns_in_a_race_make_one_history(real_bus: NatsBus, reigns: Dispatchers) -> None:
    watch = Watch(real_bus)
    watch.start()
    load = Load(watch, seed=7, pace_s=0.001)
    done = asyncio.Event()
    deposed = 0
    async with asyncio.TaskGroup() as group:
        loading = group.create_task(load.run())
        current = group.create_task(work(await reigns.begin(), done))
        for number in range(1, 6):
            await until(lambda goal=30 * number: watch.judged >= goal, deadline_s=20, what="verdicts")  # type: ignore[misc]  # bound now
            heir = group.create_task(work(await reigns.begin(), done))
            await asyncio.wait([current], timeout=SLACK * 10)
            deposed += current.done() and current.result()
            current = heir
        load.stop()
        await loading
        await load.settle()
        done.set()
    assert deposed == 5
    await verify(watch, load.acked)


@pytest.mark.timeout(60)
async def test_a_standby_process_takes_over_when_the_leader_dies(nats_server: str, cell: str, tmp_path: Path) -> None:
    with services(tmp_path, nats_server) as made:
        rivals = [
            made.service("dispatcher", cell, label=str(number), lease_s=1, tick_s=0.1, snapshot_records=10)
            for number in range(2)
        ]
        async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            load = Load(watch, seed=3)
            for rival in rivals:
                rival.start()
            async with asyncio.TaskGroup() as group:
                working = group.create_task(load.run())
                for turn in range(4):
                    goal = watch.judged + 20
                    await until(lambda goal=goal: watch.judged >= goal, deadline_s=20, what="verdicts")  # type: ignore[misc]  # bound now
                    leader = next(rival for rival in rivals if f"{rival.pid}-" in watch.fold.holder)
                    before = watch.fold.epoch
                    await leader.kill()
                    await until(lambda before=before: watch.fold.epoch > before, deadline_s=20, what=f"heir {turn}")  # type: ignore[misc]  # bound now
                    leader.start()
                load.stop()
                await working
            await load.settle()
            for rival in rivals:
                await rival.stop()
            await verify(watch, load.acked)
