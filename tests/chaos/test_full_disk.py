"""The disk of NATS is full, slow, or does not answer, on a real server and with real services."""

import asyncio
from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from tests.chaos.disk.mount import Disk, see_disks_work
from tests.chaos.loaded_cell import LoadedCell
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(120)
_SOME_BYTES = 3000


async def test_a_cell_waits_for_room_and_a_restart_of_nats_and_loses_nothing(cell: str, tmp_path: Path) -> None:
    """A stream of nats-server 2.15 that found no room stores nothing until the server starts again, room or not."""
    see_disks_work()
    server = EmbeddedServer(tmp_path / "nats", sync="always")
    async with Disk(server.store) as disk, server, LoadedCell(tmp_path, [server.url], cell) as loaded:
        async with asyncio.TaskGroup() as group:
            group.create_task(loaded.load.run(), name="load")
            await loaded.worked()
            disk.fill(left_bytes=_SOME_BYTES)
            await until(lambda: disk.figures().refused > 0, deadline_s=20, what="a write without room")
            await until(
                lambda: "no space left" in server.log_path.read_text(), deadline_s=20, what="the server says so"
            )
            acked = len(loaded.load.acked)
            disk.limit(None)
            await server.restart()
            await loaded.worked()
            assert len(loaded.load.acked) > acked
            loaded.load.stop()
        await loaded.judge()


async def test_a_disk_that_is_slow_or_stands_still_delays_a_cell_and_loses_nothing(cell: str, tmp_path: Path) -> None:
    see_disks_work()
    server = EmbeddedServer(tmp_path / "nats", sync="always")
    async with Disk(server.store) as disk, server, LoadedCell(tmp_path, [server.url], cell) as loaded:
        async with asyncio.TaskGroup() as group:
            group.create_task(loaded.load.run(), name="load")
            await loaded.worked()
            disk.delay(write_s=0.01, sync_s=0.02)
            before = disk.figures().syncs
            await until(lambda: disk.figures().syncs > before + 10, deadline_s=20, what="slow syncs")
            disk.delay()
            await loaded.worked(more=8)
            disk.stall()
            await loaded.said("lease not renewed")
            disk.go()
            await loaded.worked()
            loaded.load.stop()
        await loaded.judge()
