"""The host of NATS loses power: what was not synced is gone, on a real server and with real services."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.envelope import encode
from berth.schemas.facts import LedgerSeen
from berth.schemas.subjects import StreamName
from tests.chaos.disk.mount import Disk, see_disks_work
from tests.chaos.loaded_cell import LoadedCell
from tests.support.cells import a_job, a_node
from tests.support.load import give_jobs, give_nodes, status
from tests.support.processes import Service, services
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

                await until_true(are_new, deadline_s=40, what="new views")
                assert dispatcher.starts == 1
                assert dispatcher.is_running


async def until_placed(bus: NatsBus, name: str) -> None:
    async def is_placed() -> bool:
        found = await status(bus, name)
        return found is not None and found.phase == "placed"

    await until_true(is_placed, deadline_s=30, what=f"{name} has its place")


async def until_refuses(dispatcher: Service, lost: int) -> None:
    """Wait until the dispatcher says, since its last start, that it does not lead.

    Which epoch has the record is left open: where the disk was slow, more than one began before the power went.
    """
    start, words = f"--- start {dispatcher.starts}", f"record {lost} of the ledger is of epoch "
    await until(lambda: words in dispatcher.whole_log().partition(start)[2], deadline_s=30, what="it does not lead")


async def test_without_syncs_a_dispatcher_that_led_too_early_stops_when_it_hears_of_the_lost_record(
    cell: str, tmp_path: Path
) -> None:
    """Facts and ledger lose their ends, and the next leader begins its epoch with the sequence of a lost record."""
    see_disks_work()
    server = EmbeddedServer(tmp_path / "nats")
    async with Disk(server.store) as disk, server:
        with services(tmp_path, server.url) as made:
            dispatcher = made.service("dispatcher", cell, lease_s=1)
            async with await NatsBus.connect(server.url, cell, name="power") as bus:
                dispatcher.start()
                await bus.ensure_streams()
                await give_nodes(bus, [a_node("a"), a_node("b")])
                await give_jobs(bus, a_job("first", chips=8))
                await until_placed(bus, "first")
                disk.write_back()
                kept = await bus.state(StreamName.LEDGER)
                await give_jobs(bus, a_job("second", chips=8))
                await until_placed(bus, "second")
                lost = (await bus.state(StreamName.LEDGER)).last_seq
                assert lost > kept.last_seq
                await dispatcher.kill()
                await server.kill()
                disk.lose_power()
                await server.start()
                await until(lambda: bus.connected, deadline_s=20, what="a connection to the bus")
                assert await bus.state(StreamName.LEDGER) == kept

                dispatcher.start()
                await give_jobs(bus, *(a_job(f"early-{number}", chips=4) for number in range(2)))
                await until_placed(bus, "early-1")
                assert (await bus.state(StreamName.LEDGER)).last_seq >= lost
                seen = LedgerSeen(kept.created, 1, lost)
                await bus.publish(bus.subjects.fact_ledger, encode(seen))
                await until_refuses(dispatcher, lost)
                assert "Use: berth restore" in dispatcher.log()
                await dispatcher.kill()
                dispatcher.start()
                await until_refuses(dispatcher, lost)
                assert "became leader" not in dispatcher.whole_log().partition("--- start 3")[2]
