"""The connection to a server that ends and starts again: both are told at once."""

import asyncio

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.access import Access
from berth.runtime.bus.client import NatsConnection
from berth.runtime.logs import DEFAULT_LOG
from tests.support.waiting import SLACK


async def test_a_break_and_a_return_are_told(own_server: EmbeddedServer) -> None:
    broken, returned = asyncio.Event(), asyncio.Event()
    connection = NatsConnection(broken.set, returned.set, DEFAULT_LOG)
    await connection.open([own_server.url], "test", "_INBOX.test", Access())
    epoch = connection.epoch
    async with asyncio.timeout(20 * SLACK):
        await own_server.stop()
        await broken.wait()
        assert not connection.connected
        assert not returned.is_set()
        await own_server.start()
        await returned.wait()
    assert connection.connected
    assert connection.epoch > epoch
    await connection.close()
