"""The server dies under running services: they go on, and nothing is lost."""

import asyncio
from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from tests.support.load import Load
from tests.support.processes import Service, Services, services, until_started
from tests.support.waiting import pause, until
from tests.support.watch import Watch, verify

AWAY_S = (0.0, 0.3, 2.5, 0.0)
"""How long the server stays away; the third time the lease runs out meanwhile."""


def services_of(made: Services, cell: str, *, shards: int) -> list[Service]:
    dispatcher = made.service(
        "dispatcher",
        cell,
        shards=shards,
        lease_s=1,
        snapshot_records=10,
        intake_batch_max=8,
        tick_s=0.1,
        gather_timeout_s=0.5,
        decisions={"round_gangs_max": 4, "shard_retry_ms": 100, "tombstone_after_ms": 300},
    )
    scorers = [made.service("scorer", cell, label=str(shard), shard=shard, shards=shards) for shard in range(shards)]
    return [dispatcher, *scorers]


async def worked(load: Load, *, more: int) -> None:
    """Wait until some more requests have their verdict."""
    goal = load.watch.judged + more
    await until(lambda: load.watch.judged >= goal, deadline_s=30, what=f"verdicts up to {goal}, at {load.watch.judged}")


@pytest.mark.timeout(120)
async def test_services_outlive_the_server_and_nothing_is_lost(own_server: EmbeddedServer, tmp_path: Path) -> None:
    with services(tmp_path, own_server.url) as made:
        cells = {f"away-{shards}": services_of(made, f"away-{shards}", shards=shards) for shards in (0, 2)}
        loads: list[Load] = []
        for cell, processes in cells.items():
            bus = await NatsBus.connect(own_server.url, cell, name="away")
            await bus.ensure_streams()
            watch = Watch(bus)
            watch.start()
            loads.append(Load(watch, seed=len(loads)))
            for process in processes:
                process.start()
        await until_started(process for processes in cells.values() for process in processes)
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(load.run()) for load in loads]
            for away_s in AWAY_S:
                for load in loads:
                    await worked(load, more=40)
                await own_server.kill()
                await pause(away_s)
                await own_server.start()
            for load in loads:
                await worked(load, more=40)
                load.stop()
            await asyncio.wait(working)
        for load, processes in zip(loads, cells.values(), strict=True):
            await load.settle()
            assert [process.log() for process in processes if not process.is_running] == []
            for process in processes:
                await process.stop()
            await verify(load.watch, load.acked)
            await load.watch.stop()
            await load.bus.close()
