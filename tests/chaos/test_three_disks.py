"""Three nats-servers: one gets a new disk, two are gone, all lose power."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.chaos.disk.mount import Disk, see_disks_work
from tests.chaos.loaded_cell import LoadedCell
from tests.chaos.replicas import are_whole
from tests.chaos.three_servers import start, three_servers
from tests.support.waiting import until_true

_WITHOUT_MAJORITY = ("lease not renewed", "leadership not taken")
"""What a leader says, and what one says that is none, again and again, while the streams have no leader."""


@pytest.mark.timeout(180)
async def test_a_cell_outlives_a_lost_disk_waits_without_a_majority_and_loses_nothing(
    cell: str, tmp_path: Path
) -> None:
    see_disks_work()
    servers = three_servers(tmp_path)
    async with AsyncExitStack() as stack:
        disks = [await stack.enter_async_context(Disk(server.store)) for server in servers]
        for server in servers:
            stack.push_async_callback(server.kill)
        await start(servers)
        urls = [server.url for server in servers]
        loaded = await stack.enter_async_context(LoadedCell(tmp_path, urls, cell, replicas=3))

        async def is_whole() -> bool:
            loaded.keep_alive()
            return await are_whole(loaded.bus, 3)

        async with asyncio.TaskGroup() as group:
            group.create_task(loaded.load.run(), name="load")
            await loaded.worked(more=30)
            await until_true(is_whole, deadline_s=40, what="all replicas are current")
            await servers[0].kill()
            disks[0].erase()
            await loaded.worked(more=30)
            await servers[0].start()
            await until_true(is_whole, deadline_s=60, what="the new disk has everything")

            # A majority that counts the server with the new disk.
            await servers[1].kill()
            await loaded.worked(more=30)
            await servers[2].kill()
            await loaded.said(*_WITHOUT_MAJORITY)
            acked = len(loaded.load.acked)
            await loaded.said(*_WITHOUT_MAJORITY)
            assert len(loaded.load.acked) == acked, "a request was acknowledged by one of three servers"
            await start(servers)
            await loaded.worked(more=30)

            for server in servers:
                await server.kill()
            for disk in disks:
                disk.lose_power(1)
            await start(servers)
            await loaded.worked(more=30)
            loaded.load.stop()
        await loaded.judge()
