"""A follower is contiguous or loud, whatever happens to its connection, its consumer or its stream."""

import asyncio
import shutil
from collections.abc import AsyncIterator

import msgspec
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Gap, GapReason, Stored
from berth.runtime.errors import TransientError
from berth.schemas.subjects import StreamName
from tests.support.waiting import block, until, until_true

pytestmark = pytest.mark.timeout(50)
_DEADLINE_S = 15.0


class Log:
    """What a follower handed over, checked as it comes."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.gaps: list[Gap] = []

    def take(self, message: Stored) -> None:
        assert not self.sequences or message.sequence == self.sequences[-1] + 1
        self.sequences.append(message.sequence)


@pytest.fixture
async def bus(own_server: EmbeddedServer) -> AsyncIterator[NatsBus]:
    async with await NatsBus.connect(own_server.url, "cell", name="follower") as client:
        await client.ensure_streams()
        yield client


async def publish(bus: NatsBus, count: int) -> None:
    futures = [await bus.submit_wait(bus.subjects.fact_node(str(number % 50)), b"x" * 100) for number in range(count)]
    for future in futures:
        await future


async def publish_through_trouble(bus: NatsBus) -> None:
    stored = False
    async with asyncio.timeout(_DEADLINE_S):
        while not stored:
            try:
                await bus.publish(bus.subjects.fact_timer, b"x")
                stored = True
            except TransientError:
                await asyncio.sleep(0)


async def consumers(bus: NatsBus, stream: StreamName) -> list[str]:
    answer = await bus.request(f"$JS.API.CONSUMER.NAMES.{bus.subjects.stream(stream)}", b"", timeout_s=5)
    found = msgspec.json.decode(answer)["consumers"]
    return [str(name) for name in found or []]


async def test_it_goes_on_after_the_server_was_killed(own_server: EmbeddedServer, bus: NatsBus) -> None:
    log = Log()
    follower = bus.follow(StreamName.FACTS, on_message=log.take, on_gap=log.gaps.append)
    for _ in range(3):
        await publish(bus, 500)
        await until(lambda: follower.applied == len(log.sequences) > 0, deadline_s=_DEADLINE_S, what="some")
        await own_server.kill()
        await until(lambda: not bus._wire.connected, deadline_s=_DEADLINE_S, what="break noticed")
        await own_server.start()
        await publish_through_trouble(bus)
    head = (await bus.state(StreamName.FACTS)).last_seq
    await until(lambda: follower.applied == head, deadline_s=_DEADLINE_S, what="head after the restarts")
    assert log.sequences == list(range(1, head + 1))
    assert not log.gaps
    assert follower.recreations >= 3
    assert not bus.lost.done()


async def test_it_goes_on_after_its_consumer_was_deleted(bus: NatsBus) -> None:
    log = Log()
    follower = bus.follow(StreamName.FACTS, on_message=log.take, on_gap=log.gaps.append)
    await publish(bus, 2000)
    await until(lambda: follower.applied == 2000, deadline_s=_DEADLINE_S, what="the first part")
    (name,) = await consumers(bus, StreamName.FACTS)
    await bus.request(f"$JS.API.CONSUMER.DELETE.{bus.subjects.stream(StreamName.FACTS)}.{name}", b"", timeout_s=5)
    await publish(bus, 2000)
    await until(lambda: follower.applied == 4000, deadline_s=_DEADLINE_S, what="the second part")
    assert log.sequences == list(range(1, 4001))
    assert not log.gaps
    assert len(await consumers(bus, StreamName.FACTS)) == 1


async def test_a_stopped_one_leaves_no_consumer_behind(bus: NatsBus) -> None:
    follower = bus.follow(StreamName.FACTS, on_message=lambda _: None, on_gap=lambda _: None)
    async with asyncio.timeout(_DEADLINE_S):
        await follower.caught_up.wait()
    await follower.stop()

    async def no_consumer() -> bool:
        return not await consumers(bus, StreamName.FACTS)

    # The server answers a question for names beside the queue in which it deletes. It would remove the consumer by
    # itself only long after the deadline.
    await until_true(no_consumer, deadline_s=_DEADLINE_S, what="no consumer left")


async def test_a_slow_one_loses_nothing(bus: NatsBus) -> None:
    await publish(bus, 20_000)
    log = Log()

    def take(message: Stored) -> None:
        if message.sequence % 12_500 == 0:
            block(0.5)
        if message.sequence == 20_500:
            block(3.0)  # longer than the silence after which a consumer counts as lost
        log.take(message)

    follower = bus.follow(StreamName.FACTS, on_message=take, on_gap=log.gaps.append)
    await publish(bus, 30_000)
    await until(lambda: follower.applied == 50_000, deadline_s=30, what="all messages")
    assert log.sequences == list(range(1, 50_001))
    assert not log.gaps
    assert follower.recreations == 0


async def test_a_stream_made_anew_is_a_gap(bus: NatsBus) -> None:
    log = Log()
    follower = bus.follow(StreamName.LEDGER, on_message=log.take, on_gap=log.gaps.append)
    for number in range(5):
        await bus.append(b"x", expected_seq=number)
    await until(lambda: follower.applied == 5, deadline_s=_DEADLINE_S, what="the old stream")
    await bus.request(f"$JS.API.STREAM.DELETE.{bus.subjects.stream(StreamName.LEDGER)}", b"", timeout_s=5)
    await bus.ensure_streams()
    for number in range(9):
        await bus.append(b"y", expected_seq=number)
    async with asyncio.timeout(_DEADLINE_S):
        gap = await follower.wait()
    assert gap == Gap(
        StreamName.LEDGER, GapReason.RECREATED, 6, gap.first_seq if gap else 0, gap.last_seq if gap else 0
    )
    assert log.gaps == [gap]
    assert log.sequences == [1, 2, 3, 4, 5]


async def test_history_that_went_backwards_is_a_gap(own_server: EmbeddedServer, bus: NatsBus) -> None:
    for number in range(5):
        await bus.append(b"x", expected_seq=number)
    await own_server.stop()
    backup = own_server.root / "backup"
    shutil.copytree(own_server.store, backup)
    await own_server.start()
    await until(lambda: bus._wire.connected, deadline_s=_DEADLINE_S, what="reconnected")
    log = Log()
    follower = bus.follow(StreamName.LEDGER, on_message=log.take, on_gap=log.gaps.append)
    for number in range(5, 9):
        await bus.append(b"x", expected_seq=number)
    await until(lambda: follower.applied == 9, deadline_s=_DEADLINE_S, what="the newer history")
    await own_server.kill()
    shutil.rmtree(own_server.store)
    backup.rename(own_server.store)
    await own_server.start()
    async with asyncio.timeout(_DEADLINE_S):
        gap = await follower.wait()
    assert gap == Gap(StreamName.LEDGER, GapReason.BACKWARDS, 10, 1, 5)
    assert log.sequences == list(range(1, 10))


async def test_what_is_removed_while_it_is_away_is_a_gap(own_server: EmbeddedServer, bus: NatsBus) -> None:
    log = Log()
    follower = bus.follow(StreamName.LEDGER, on_message=log.take, on_gap=log.gaps.append)
    await bus.append(b"x", expected_seq=0)
    await until(lambda: follower.applied == 1, deadline_s=_DEADLINE_S, what="the first record")
    async with await NatsBus.connect(own_server.url, "cell", name="other") as other:
        async with other_end_blocked(bus):
            for number in range(1, 9):
                await other.append(b"x", expected_seq=number)
            await other.purge(StreamName.LEDGER, keep_from_seq=7)
        async with asyncio.timeout(_DEADLINE_S):
            gap = await follower.wait()
    assert gap is not None
    assert (gap.reason, gap.wanted, gap.first_seq) == (GapReason.TOO_OLD, 2, 7)
    assert log.sequences == [1]


class other_end_blocked:  # noqa: N801  # reads as a phrase where it is used
    """The connection of ``bus`` is broken and cannot come back until the end of the block."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    async def __aenter__(self) -> None:
        client = self._bus._wire._client
        self._port = client._server_pool[0].uri
        client._server_pool[0].uri = self._port._replace(netloc="127.0.0.1:1")
        await client.force_reconnect()
        await until(lambda: not self._bus._wire.connected, deadline_s=_DEADLINE_S, what="the break")

    async def __aexit__(self, *_: object) -> None:
        self._bus._wire._client._server_pool[0].uri = self._port


async def test_messages_removed_one_by_one_are_no_gap(bus: NatsBus) -> None:
    for number in range(9):
        await bus.append(b"x", expected_seq=number)
    stream = bus.subjects.stream(StreamName.LEDGER)
    await bus.request(f"$JS.API.STREAM.MSG.DELETE.{stream}", b'{"seq":4,"no_erase":true}', timeout_s=5)
    seen: list[int] = []
    gaps: list[Gap] = []
    follower = bus.follow(
        StreamName.LEDGER, on_message=lambda message: seen.append(message.sequence), on_gap=gaps.append
    )
    await until(lambda: follower.applied == 9, deadline_s=_DEADLINE_S, what="the rest")
    assert seen == [1, 2, 3, 5, 6, 7, 8, 9]
    assert not gaps


async def test_a_quiet_filter_is_no_gap_when_what_it_skipped_goes(bus: NatsBus) -> None:
    gaps: list[Gap] = []
    follower = bus.follow(
        StreamName.INTAKE,
        filters=[f"{bus.subjects.root}intake.cancel.>"],
        on_message=lambda _: None,
        on_gap=gaps.append,
    )
    async with asyncio.timeout(_DEADLINE_S):
        await follower.caught_up.wait()
    for number in range(20):
        await bus.publish(bus.subjects.intake_request("ns", str(number)), b"x")
    await until(lambda: follower.covered == 20, deadline_s=_DEADLINE_S, what="the regular look at the stream")
    await bus.purge(StreamName.INTAKE, keep_from_seq=15)
    (name,) = await consumers(bus, StreamName.INTAKE)
    await bus.request(f"$JS.API.CONSUMER.DELETE.{bus.subjects.stream(StreamName.INTAKE)}.{name}", b"", timeout_s=5)
    await bus.publish(bus.subjects.intake_cancel("ns", "1"), b"x")
    await until(lambda: follower.applied == 21, deadline_s=_DEADLINE_S, what="the cancel")
    assert not gaps


async def test_it_waits_for_a_stream_that_is_not_there_yet(own_server: EmbeddedServer) -> None:
    async with await NatsBus.connect(own_server.url, "later", name="early") as bus:
        log = Log()
        follower = bus.follow(StreamName.LEDGER, on_message=log.take, on_gap=log.gaps.append)
        await until(lambda: follower.trouble is not None, deadline_s=_DEADLINE_S, what="the missing stream")
        await bus.ensure_streams()
        await bus.append(b"x", expected_seq=0)
        await until(lambda: follower.applied == 1, deadline_s=_DEADLINE_S, what="the record")
        assert not log.gaps
