"""Gangs whose tasks all differ are placed, and others beside them, which wait for no scorer because of them."""

import functools
from pathlib import Path

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.intake import JobRequest, Task
from tests.support.cells import a_job, a_node
from tests.support.load import give_jobs, give_nodes, status
from tests.support.processes import services
from tests.support.waiting import until_true
from tests.support.watch import Watch, verify

TASKS = 1_024
"""As many as a request may have."""
GANGS = 6
OTHERS = 12
NODES = 400


def many_tasks(number: int, *, replicas: int = 4) -> JobRequest:
    """No two have a task alike; with four pods each it is larger than the cell, so that it waits."""
    tasks = [Task(f"t{i}", replicas, 1, cpu_milli=number * TASKS + i + 1) for i in range(TASKS)]
    return a_job(f"many-{number}", tasks=tasks)


@pytest.mark.timeout(120)
async def test_a_job_is_placed_while_gangs_wait_whose_tasks_all_differ(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    with services(tmp_path, nats_server) as made:
        dispatcher = made.service("dispatcher", cell, shards=2, tick_s=0.1, gather_timeout_s=0.4)
        scorers = [made.service("scorer", cell, label=str(shard), shard=shard, shards=2) for shard in range(2)]
        async with await NatsBus.connect(nats_server, cell, name="test") as bus:
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            await give_nodes(bus, [a_node(f"node-{n:03}", leaf=f"{n // 10}") for n in range(NODES)])
            for service in (dispatcher, *scorers):
                service.start()
            await give_jobs(bus, *(many_tasks(n) for n in range(GANGS)))
            refusals = []
            for number in range(OTHERS):
                name = f"other-{number}"
                await give_jobs(bus, a_job(name))

                async def is_placed(name: str = name) -> bool:
                    found = await status(bus, name)
                    if found is not None and found.refusal is not None:
                        refusals.append(found.refusal)
                    return found is not None and found.phase == "placed"

                await until_true(is_placed, deadline_s=10, what=f"{name} is placed")
            assert not refusals, "none of them waits, not even once"
            for number in range(GANGS):
                found = await status(bus, f"many-{number}")
                assert found is not None
                assert found.refusal is not None
                assert not found.refusal.missing_shards
            for service in (dispatcher, *scorers):
                await service.stop()
            await verify(watch, [])


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.timeout(120)
async def test_a_gang_with_as_many_different_tasks_as_there_may_be_is_placed_and_others_meanwhile(
    nats_server: str, cell: str, tmp_path: Path, shards: int
) -> None:
    with services(tmp_path, nats_server) as made:
        dispatcher = made.service("dispatcher", cell, shards=shards, tick_s=0.1)
        scorers = [made.service("scorer", cell, label=str(n), shard=n, shards=shards) for n in range(shards)]
        async with await NatsBus.connect(nats_server, cell, name="test") as bus:
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            await give_nodes(bus, [a_node(f"node-{n:03}", leaf=f"{n // 10}") for n in range(NODES)])
            for service in (dispatcher, *scorers):
                service.start()
            codes = set()

            async def is_placed(name: str) -> bool:
                found = await status(bus, name)
                if found is not None and found.refusal is not None:
                    codes.add(found.refusal.code)
                return found is not None and found.phase == "placed"

            await give_jobs(bus, many_tasks(0, replicas=1))
            for number in range(OTHERS):
                name = f"other-{number}"
                await give_jobs(bus, a_job(name))
                await until_true(functools.partial(is_placed, name), deadline_s=10, what=f"{name} is placed")
            await until_true(functools.partial(is_placed, "many-0"), deadline_s=40, what="the gang is placed")
            assert codes <= {"late"}, "on a busy machine it may take several rounds"
            for service in (dispatcher, *scorers):
                await service.stop()
            await verify(watch, [])
