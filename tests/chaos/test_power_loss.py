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
from tests.chaos.loaded_cell import LoadedCell
from tests.support.processes import services
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(120)
VIEWS: Final = (StreamName.LATEST, StreamName.STATUS, StreamName.SUMMARY)


async def test_with_each_write_synced_nothing_acknowledged_is_lost(cell: str, tmp_path: Path) -> None:
    """Power fails three times, the second time of all hosts; unsynced pages survive by a seed.

    The cell is new when it fails first: streams that are views are gone then, and the dispatcher makes them again.
    """
    see_disks_work()
    server = EmbeddedServer(tmp_path / "nats", sync="always")
    async with Disk(server.store) as disk, server, LoadedCell(tmp_path, [server.url], cell) as loaded:
        first = await loaded.bus.state(StreamName.STATUS)
        async with asyncio.TaskGroup() as group:
            group.create_task(loaded.load.run(), name="load")
            for seed in (None, 1, 2):
                await loaded.worked()
                if seed == 1:
                    for process in loaded.processes.values():
                        await process.kill()
                await server.kill()
                disk.lose_power(seed)
                await server.start()
            await loaded.worked()
            loaded.load.stop()
        await loaded.judge()
        assert (await loaded.bus.state(StreamName.STATUS)).created != first.created
        assert disk.figures().losses == 3
        assert disk.figures().syncs > len(loaded.load.acked)


async def test_a_view_that_is_gone_is_made_again_while_all_services_live(cell: str, tmp_path: Path) -> None:
    see_disks_work()
    server = EmbeddedServer(tmp_path / "nats", sync="always")
    async with Disk(server.store) as disk, server:
        with services(tmp_path, server.url) as made:
            dispatcher = made.service("dispatcher", cell)
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
