"""The host of NATS loses power: what was not synced is gone, on a real server and with real services."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.runtime.local.nats_server import EmbeddedServer
from berth.schemas.subjects import StreamName
from tests.chaos.disk.mount import Disk, see_disks_work
from tests.support.load import Load
from tests.support.processes import Service, Services, services
from tests.support.waiting import until, until_true
from tests.support.watch import Watch, verify

pytestmark = pytest.mark.timeout(120)
SHARDS: Final = 1
VIEWS: Final = (StreamName.LATEST, StreamName.STATUS, StreamName.SUMMARY)


def services_of(made: Services, cell: str) -> list[Service]:
    """A dispatcher with a standby, and a scorer."""
    settings: dict[str, object] = {
        "shards": SHARDS,
        "lease_s": 1,
        "snapshot_records": 10,
        "intake_batch_max": 8,
        "tick_s": 0.1,
        "gather_timeout_s": 0.5,
        "decisions": {"round_gangs_max": 4, "shard_retry_ms": 100, "tombstone_after_ms": 300},
    }
    dispatchers = [made.service("dispatcher", cell, label=label, **settings) for label in ("", "-2")]
    return [*dispatchers, made.service("scorer", cell, shard=0, shards=SHARDS)]


async def worked(load: Load, processes: list[Service], *, more: int) -> None:
    """Wait until some more requests have their verdict; a process that ended is started again meanwhile."""
    goal = load.watch.judged + more

    def is_reached() -> bool:
        for process in processes:
            if not process.is_running:
                assert process.returncode in {0, 1, -9}, process.log()
                process.start()
        return load.watch.judged >= goal

    await until(is_reached, deadline_s=30, what=f"verdicts up to {goal}, at {load.watch.judged}")


async def test_with_each_write_synced_nothing_acknowledged_is_lost(cell: str, tmp_path: Path) -> None:
    """Power fails three times, the second time of all hosts; unsynced pages survive by a seed.

    The cell is new when it fails first: streams that are views are gone then, and the dispatcher makes them again.
    """
    see_disks_work()
    server = EmbeddedServer(tmp_path / "nats", sync="always")
    async with Disk(server.store) as disk, server:
        with services(tmp_path, server.url) as made:
            processes = services_of(made, cell)
            bus = await NatsBus.connect(server.url, cell, name="power")
            await bus.ensure_streams()
            first = await bus.state(StreamName.STATUS)
            watch = Watch(bus)
            watch.start()
            load = Load(watch, seed=1)
            for process in processes:
                process.start()
            async with asyncio.TaskGroup() as group:
                group.create_task(load.run(), name="load")
                for seed in (None, 1, 2):
                    await worked(load, processes, more=40)
                    if seed == 1:
                        for process in processes:
                            await process.kill()
                    await server.kill()
                    disk.lose_power(seed)
                    await server.start()
                await worked(load, processes, more=40)
                load.stop()
            await load.settle()
            assert (await bus.state(StreamName.STATUS)).created != first.created
            assert disk.figures().losses == 3
            assert disk.figures().syncs > len(load.acked)
            for process in processes:
                await process.stop()
            await verify(watch, load.acked)
            await watch.stop()
            await bus.close()


async def test_a_view_that_is_gone_is_made_again_while_all_services_live(cell: str, tmp_path: Path) -> None:
    see_disks_work()
    server = EmbeddedServer(tmp_path / "nats", sync="always")
    async with Disk(server.store) as disk, server:
        with services(tmp_path, server.url) as made:
            dispatcher, *_ = services_of(made, cell)
            async with await NatsBus.connect(server.url, cell, name="power") as bus:
                dispatcher.start()
                await until(lambda: "became leader" in dispatcher.log(), deadline_s=30, what="a leader")
                first = {name: (await bus.state(name)).created for name in VIEWS}
                await server.kill()
                disk.lose_power()
                await server.start()

                async def are_new() -> bool:
                    try:
                        return all([(await bus.state(name)).created != first[name] for name in VIEWS])
                    except TransientError:
                        return False

                await until_true(are_new, deadline_s=20, what="new views")
                assert dispatcher.starts == 1
                assert dispatcher.is_running
