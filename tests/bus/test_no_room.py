"""A server that has no room, in the account or in the queue of a stream: what it refuses is tried again."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import AmbiguousError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.other_statuses import OtherStatuses
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.publish_queue import OutboundMessage, PublishQueue
from tests.support.cells import a_job
from tests.support.dispatchers import Dispatchers, turns

pytestmark = pytest.mark.timeout(50)
MORE = """
accounts { CELL { jetstream { max_file: 8MB }, users [{ user: cell, password: cell }] } }
no_auth_user: cell
"""
SIZES = {StreamName.FACTS: 4 << 20, StreamName.DEAD: 1 << 20}
FILLERS = (200_000, 2_000, 20, 0)
RECORD = bytes(1000)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats", more=MORE) as one:
        yield one


@pytest.fixture
async def bus(server: EmbeddedServer) -> AsyncIterator[NatsBus]:
    async with await NatsBus.connect(server.url, "cell", name="test", inbox="_INBOX.person.test") as client:
        await client.ensure_streams(max_bytes=SIZES)
        yield client


async def fill(bus: NatsBus) -> None:
    """Write chunks of a snapshot until not even an empty one is taken."""
    numbers = count()
    for size in FILLERS:
        with pytest.raises(TransientError, match="10002") as refused:
            await write_all(bus, numbers, bytes(size))
        assert not isinstance(refused.value, AmbiguousError)


async def write_all(bus: NatsBus, numbers: Iterator[int], data: bytes) -> None:
    for number in numbers:
        await bus.publish(bus.subjects.snapshot_chunk(1, number), data)


async def make_room(bus: NatsBus) -> None:
    await bus.purge(StreamName.SNAPSHOT, subject=bus.subjects.snapshot_all(1))


async def test_what_a_full_account_refuses_is_tried_again(bus: NatsBus) -> None:
    await fill(bus)
    with pytest.raises(TransientError, match="10002"):
        await bus.append(RECORD, expected_seq=0)
    with pytest.raises(TransientError, match="10002"):
        await (await bus.submit_batch([(bus.subjects.status("ns", "job"), RECORD)]))
    await make_room(bus)
    assert await bus.append(RECORD, expected_seq=0) == 1


async def test_facts_that_a_full_account_refuses_are_not_settled(bus: NatsBus) -> None:
    queue = PublishQueue(bus, Instruments.make(InventoryMetrics))
    message = OutboundMessage(bus.subjects.fact_timer, TimerSeen(1))
    await fill(bus)
    assert await queue.store([message, message]) == []
    await make_room(bus)
    assert await queue.store([message, message]) == [1, 2]
    assert len(await bus.read(StreamName.FACTS)) == 2


async def test_a_request_that_comes_before_the_account_is_full_is_no_dead_letter(
    server: EmbeddedServer, bus: NatsBus
) -> None:
    dispatchers = Dispatchers(server.url, "cell", DispatcherConfig())
    dispatcher = await dispatchers.begin()
    try:
        await bus.publish(bus.subjects.intake_request("default", "job"), encode(a_job("job", chips=8)))
        await fill(bus)
        await turns(dispatcher, lambda: dispatcher.intake.is_paused)
        assert not dispatcher.has_work, "it waits before it tries again"
        await make_room(bus)
        await turns(dispatcher, lambda: ("default", "job") in dispatcher.state.jobs)
        assert dispatcher.intake.dead == 0
    finally:
        await dispatchers.end()


async def test_batches_that_are_said_to_be_stored_are_although_the_queue_of_a_stream_is_full(tmp_path: Path) -> None:
    root = tmp_path / "nats"
    more = f'jetstream {{ store_dir: "{root / "store"}"\n max_file_store: 100TB\n max_buffered_msgs: 5 }}'
    async with EmbeddedServer(root, more=more) as server, await NatsBus.connect(server.url, "cell", name="t") as bus:
        await bus.ensure_streams()
        others = OtherStatuses(bus, SystemClock())
        others.begin(0)
        batches = [[bus.subjects.status("ns", f"{batch}-{job}") for job in range(500)] for batch in range(10)]
        sent = [
            (await bus.submit_batch([(subject, RECORD) for subject in batch]), others.sent(), batch)
            for batch in batches
        ]
        whole: list[str] = []
        refused = 0
        for future, number, batch in sent:
            try:
                sequence = await future
            except TransientError:
                others.failed()
                refused += 1
                continue
            if others.stored(number, sequence, len(batch)):
                whole.extend(batch)
        stored = {message.subject for message in await bus.read(StreamName.STATUS)}
        assert refused or len(stored) < 5_000, "the server dropped nothing: make its queue shorter"
        assert stored.issuperset(whole)
        assert await bus.publish(bus.subjects.status("ns", "last"), RECORD)
