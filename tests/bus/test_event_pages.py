"""Stored events in pages on a real server: all of them once, also when it has lost the end of the stream."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Final

import msgspec
import pytest

from berth.client import Client, StoredEvent
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName
from tests.support.programs import answering_events, ask
from tests.support.stored_events import an_event, uids
from tests.support.waiting import SLACK, until

pytestmark = pytest.mark.timeout(60)
CELL: Final = "cell"


@pytest.fixture
async def bus(own_server: EmbeddedServer) -> AsyncIterator[NatsBus]:
    """A program's connection, beside two instances of the service."""
    async with AsyncExitStack() as stack:
        buses = [
            await stack.enter_async_context(await NatsBus.connect(own_server.url, CELL, name=name))
            for name in ("program", "first", "second")
        ]
        await buses[0].ensure_streams()
        for service in buses[1:]:
            await stack.enter_async_context(answering_events(service))
        yield buses[0]


async def store(bus: NatsBus, *numbers: int, namespace: str = "a", sentence: str = "") -> None:
    waiting = [
        await bus.submit_wait(
            bus.subjects.event_job(namespace, f"x-{number % 7}"),
            msgspec.json.encode(an_event(number, namespace, sentence=sentence)),
        )
        for number in numbers
    ]
    for future in waiting:
        await future


async def take(events: AsyncIterator[StoredEvent], count: int) -> list[str]:
    async with asyncio.timeout(20 * SLACK):
        return [(await anext(events)).event.uid for _ in range(count)]


@pytest.mark.parametrize("sentence", ["", "s" * 90_000], ids=["many", "long"])
async def test_all_events_come_once_and_in_their_order(bus: NatsBus, sentence: str) -> None:
    count = 60 if sentence else 2_500
    await store(bus, *range(count), sentence=sentence)
    await store(bus, *range(10), namespace="b")
    found: list[tuple[int, str]] = []
    after, mark = 0, ""
    while True:
        reply = await ask(bus, "events", {"namespace": "a", "after": after, "mark": mark})
        assert len(msgspec.json.encode(reply)) <= bus.payload_limit_bytes
        found += zip((one["position"] for one in reply["events"]), uids(reply), strict=True)
        after, mark = reply["position"], reply["mark"]
        if not reply["more"]:
            break
    assert found == [(number + 1, f"u-{number}") for number in range(count)]
    assert after == (await bus.state(StreamName.EVENTS)).last_seq
    times = [one.at_ms for one in await bus.read(StreamName.EVENTS, start_seq=after)]
    assert mark.endswith(f"/{after}/{times[0]}"), "it is the time of the server, however it was read"
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ask(bus, "events", {"namespace": "a", "after": after, "mark": mark, "wait_s": 8}))
        await asyncio.sleep(0)
        await store(bus, count)
    assert uids(waiting.result()) == [f"u-{count}"]


async def test_what_a_server_has_lost_comes_once(own_server: EmbeddedServer, bus: NatsBus, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    await store(bus, *range(5))
    await own_server.stop()
    shutil.copytree(own_server.store, kept)
    await own_server.start()
    await until(lambda: bus.connected, deadline_s=20, what="the connection")
    async with await Client.connect(own_server.url, cell=CELL) as client, aclosing(client.follow("a")) as events:
        await store(bus, 5, 6, 7)
        assert await take(events, 8) == [f"u-{number}" for number in range(8)]
        await own_server.kill()
        shutil.rmtree(own_server.store)
        shutil.copytree(kept, own_server.store)
        await own_server.start()
        await until(lambda: bus.connected, deadline_s=20, what="the connection")
        await store(bus, 7, 8, 5, 6, 9)
        assert await take(events, 2) == ["u-8", "u-9"]


async def test_a_stream_that_was_made_again_is_read_from_its_beginning(
    bus: NatsBus, own_server: EmbeddedServer
) -> None:
    async with await Client.connect(own_server.url, cell=CELL) as client, aclosing(client.follow("a")) as events:
        await store(bus, 0, 1)
        assert await take(events, 2) == ["u-0", "u-1"]
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(take(events, 1))
            await bus.delete_stream(StreamName.EVENTS)
            await bus.ensure_streams()
            await store(bus, 1, 0, 2)
        assert waiting.result() == ["u-2"]
