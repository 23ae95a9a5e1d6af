"""Gangs whose tasks all differ are placed, and others beside them, which wait for no scorer because of them."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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


@contextlib.asynccontextmanager
async def a_cell(
    folder: Path,
    nats_server: str,
    cell: str,
    *,
    shards: int,
    **settings: Any,  # noqa: ANN401  # as the configuration has them
) -> AsyncIterator[NatsBus]:
    """A dispatcher and its scorers with nodes; when the block ends they are stopped, and what they did is verified."""
    with services(folder, nats_server) as made:
        scorers = [made.service("scorer", cell, label=str(n), shard=n, shards=shards) for n in range(shards)]
        running = [made.service("dispatcher", cell, shards=shards, tick_s=0.1, **settings), *scorers]
        async with await NatsBus.connect(nats_server, cell, name="test") as bus:
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            await give_nodes(bus, [a_node(f"node-{n:03}", leaf=f"{n // 10}") for n in range(NODES)])
            for service in running:
                service.start()
            yield bus
            for service in running:
                await service.stop()
            await verify(watch, [])


async def placed(bus: NatsBus, name: str, codes: set[str], *, deadline_s: float) -> None:
    """Wait until a job is placed; the codes of its refusals until then are added to ``codes``.

    Those are left out for which a scorer did not answer, as before it is ready.
    """

    async def is_placed() -> bool:
        found = await status(bus, name)
        if found is not None and found.refusal is not None and not found.refusal.missing_shards:
            codes.add(found.refusal.code)
        return found is not None and found.phase == "placed"

    await until_true(is_placed, deadline_s=deadline_s, what=f"{name} is placed")


async def others_are_placed(bus: NatsBus, codes: set[str]) -> None:
    """Give small jobs, each when the one before is placed."""
    for number in range(OTHERS):
        await give_jobs(bus, a_job(f"other-{number}"))
        await placed(bus, f"other-{number}", codes, deadline_s=10)


@pytest.mark.timeout(120)
async def test_a_job_is_placed_while_gangs_wait_whose_tasks_all_differ(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    async with a_cell(tmp_path, nats_server, cell, shards=2, gather_timeout_s=0.4) as bus:
        await give_jobs(bus, *(many_tasks(n) for n in range(GANGS)))
        codes: set[str] = set()
        await others_are_placed(bus, codes)
        assert not codes, "none of them waits, not even once"
        for number in range(GANGS):
            found = await status(bus, f"many-{number}")
            assert found is not None
            assert found.refusal is not None
            assert not found.refusal.missing_shards


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.timeout(120)
async def test_a_gang_with_as_many_different_tasks_as_there_may_be_is_placed_and_others_meanwhile(
    nats_server: str, cell: str, tmp_path: Path, shards: int
) -> None:
    async with a_cell(tmp_path, nats_server, cell, shards=shards) as bus:
        codes: set[str] = set()
        await give_jobs(bus, many_tasks(0, replicas=1))
        await others_are_placed(bus, codes)
        await placed(bus, "many-0", codes, deadline_s=40)
        assert codes <= {"late"}, "on a busy machine it may take several rounds"
