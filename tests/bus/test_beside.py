"""Work on a thread of its own goes on while the event loop of the service computes, and ends with the service."""

import asyncio

import pytest

from berth.runtime.beside import beside
from berth.runtime.bus.port import Bus
from berth.runtime.config import BusConfig
from berth.runtime.errors import FatalError
from berth.runtime.logs import DEFAULT_LOG
from tests.support.waiting import SLACK, block, until


class Counting:
    """Work that counts messages that it sends to itself."""

    def __init__(self) -> None:
        self.count = 0
        self.has_ended = False

    async def work(self, bus: Bus, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await bus.send(bus.subjects.heartbeat("test"), b"")
            self.count += 1
            await asyncio.sleep(0.01)
        self.has_ended = True


def config(url: str, cell: str) -> BusConfig:
    return BusConfig(url=url, cell=cell)


async def test_the_work_goes_on_while_the_service_computes(nats_server: str, cell: str) -> None:
    counting = Counting()
    async with beside("test", config(nats_server, cell), counting.work, DEFAULT_LOG):
        await until(lambda: counting.count > 0, deadline_s=10, what="the first message")
        before = counting.count
        total = 0
        while counting.count < before + 3:  # the event loop of the service has no turn in here
            total += sum(range(1_000))
        assert total
        before = counting.count
        while counting.count == before:
            block(0.02)
    assert counting.has_ended


async def test_an_error_of_the_work_ends_the_service(nats_server: str, cell: str) -> None:
    async def fail(_: Bus, __: asyncio.Event) -> None:
        raise FatalError("no more")

    with pytest.raises(ExceptionGroup) as caught:
        async with beside("test", config(nats_server, cell), fail, DEFAULT_LOG):
            await asyncio.Event().wait()
    assert caught.group_contains(FatalError, match="no more")


async def test_work_that_ends_unasked_ends_the_service(nats_server: str, cell: str) -> None:
    async def end(_: Bus, __: asyncio.Event) -> None:
        return

    with pytest.raises(ExceptionGroup) as caught:
        async with beside("test", config(nats_server, cell), end, DEFAULT_LOG):
            await asyncio.Event().wait()
    assert caught.group_contains(FatalError, match="ended unexpectedly")


async def test_an_error_of_the_service_ends_the_work(nats_server: str, cell: str) -> None:
    counting = Counting()

    async def serve() -> None:
        async with beside("test", config(nats_server, cell), counting.work, DEFAULT_LOG):
            await until(lambda: counting.count > 0, deadline_s=10, what="the first message")
            raise FatalError("the service fails")

    with pytest.raises(ExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(FatalError, match="the service fails")
    assert counting.has_ended


async def test_a_service_that_ends_before_the_work_is_connected_waits_for_no_server(cell: str) -> None:
    counting = Counting()
    async with (
        asyncio.timeout(5 * SLACK),
        beside("test", config("nats://127.0.0.1:1", cell), counting.work, DEFAULT_LOG),
    ):
        pass
    assert not counting.count
