"""Every publish has an outcome, and the outcome is true."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import nats.errors
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.publisher import OUTSTANDING_MAX
from berth.runtime.errors import AmbiguousError, ConflictError, FatalError, OversizeError, PoisonError, TransientError
from berth.schemas.subjects import StreamName
from tests.support.process_state import stop_process
from tests.support.waiting import SLACK, until

pytestmark = pytest.mark.timeout(50)
_DEADLINE_S = 8.0


@pytest.fixture
async def bus(own_server: EmbeddedServer) -> AsyncIterator[NatsBus]:
    async with await NatsBus.connect(own_server.url, "cell", name="publisher") as client:
        await client.ensure_streams()
        yield client


async def outcomes(futures: dict[bytes, asyncio.Future[int]]) -> dict[bytes, int | TransientError]:
    found: dict[bytes, int | TransientError] = {}
    async with asyncio.timeout(SLACK * _DEADLINE_S):
        for name, future in futures.items():
            try:
                found[name] = await future
            except TransientError as error:
                found[name] = error
    return found


async def test_what_is_on_its_way_when_the_server_dies_resolves_and_leaves_no_ghost(
    own_server: EmbeddedServer, bus: NatsBus
) -> None:
    subject = bus.subjects.fact_timer
    futures = {}
    for number in range(3000):
        futures[b"%d" % number] = bus.submit(subject, b"%d" % number)
        if number % 500 == 0:
            await asyncio.sleep(0)
    await asyncio.wait([futures[b"100"]])
    await own_server.kill()
    for number in range(3000, 3100):
        futures[b"%d" % number] = bus.submit(subject, b"%d" % number)
    await until(lambda: not bus._wire.connected, deadline_s=_DEADLINE_S, what="the break")
    for number in range(3100, 3200):
        futures[b"%d" % number] = bus.submit(subject, b"%d" % number)
    found = await outcomes(futures)
    await own_server.start()
    await until(lambda: bus._wire.connected, deadline_s=_DEADLINE_S, what="reconnected")
    fresh = await bus.publish(subject, b"fresh")
    stored = {message.data: message.sequence for message in await bus.read(StreamName.FACTS)}
    assert len(stored) == fresh  # nothing twice
    for name, outcome in found.items():
        match outcome:
            case AmbiguousError():
                pass
            case TransientError():
                assert name not in stored, f"{name!r} landed though it was said not to have been sent"
            case sequence:
                assert stored[name] == sequence
    assert stored[b"fresh"] == max(stored.values())
    assert (await bus.state(StreamName.FACTS)).last_seq == fresh
    assert isinstance(found[b"3150"], TransientError)
    assert bus._publisher.outstanding == 0
    await bus.append(b"x", expected_seq=0)


async def test_an_append_in_flight_when_the_server_dies_is_ambiguous(own_server: EmbeddedServer, bus: NatsBus) -> None:
    appended = 0

    async def append_for_ever() -> None:
        nonlocal appended
        while True:
            appended = await bus.append(b"%d" % appended, expected_seq=appended)

    async with asyncio.timeout(SLACK * _DEADLINE_S), asyncio.TaskGroup() as group:
        killing = group.create_task(own_server.kill())
        with pytest.raises(TransientError):
            await append_for_ever()
        await killing
    await own_server.start()
    await until(lambda: bus._wire.connected, deadline_s=_DEADLINE_S, what="reconnected")
    head = (await bus.state(StreamName.LEDGER)).last_seq
    assert head in {appended, appended + 1}
    assert await bus.append(b"on", expected_seq=head) == head + 1


async def test_of_two_appenders_one_wins_each_time(own_server: EmbeddedServer, bus: NatsBus) -> None:
    wins = {"a": 0, "b": 0}
    lasts: list[int | None] = []

    async def append(client: NatsBus, name: str, sequence: int) -> None:
        try:
            assert await client.append(name.encode(), expected_seq=sequence) == sequence + 1
            wins[name] += 1
        except ConflictError as conflict:
            lasts.append(conflict.last_seq)

    async with await NatsBus.connect(own_server.url, "cell", name="rival") as rival:
        for sequence in range(200):
            async with asyncio.TaskGroup() as group:
                group.create_task(append(bus, "a", sequence))
                group.create_task(append(rival, "b", sequence))
    assert wins["a"] + wins["b"] == 200
    assert lasts == list(range(1, 201))
    assert len(await bus.read(StreamName.LEDGER)) == 200


async def test_a_payload_too_large_with_its_headers_leaves_the_connection_usable(bus: NatsBus) -> None:
    limit = bus._wire.payload_limit_bytes
    with pytest.raises(OversizeError) as caught:
        await bus.append(bytes(limit - 10), expected_seq=0)
    assert caught.value.limit_bytes == limit
    assert caught.value.size_bytes > limit
    assert await bus.append(bytes(limit - 100), expected_seq=0) == 1
    assert not bus.lost.done()
    (record,) = await bus.read(StreamName.LEDGER)
    assert len(record.data) == limit - 100


async def test_the_bound_of_publishes_on_their_way_holds(bus: NatsBus) -> None:
    futures = [bus.submit(bus.subjects.fact_timer, b"x") for _ in range(OUTSTANDING_MAX)]
    with pytest.raises(TransientError, match=str(OUTSTANDING_MAX)):
        bus.submit(bus.subjects.fact_timer, b"x")
    async with asyncio.timeout(SLACK * _DEADLINE_S):
        last = await (await bus.submit_wait(bus.subjects.fact_timer, b"x"))
        assert last == OUTSTANDING_MAX + 1
        await asyncio.wait(futures)


async def test_a_publish_without_an_answer_times_out_as_ambiguous(bus: NatsBus) -> None:
    # A subject that somebody takes without a stream: the server is silent.
    async def mute(_: bytes) -> None:
        pass

    nowhere = f"{bus.subjects.root}nowhere"
    await bus.serve(nowhere, mute)
    with pytest.raises(AmbiguousError):
        await bus.publish(nowhere, b"x", timeout_s=0.2)
    assert bus._publisher.outstanding == 0


async def test_draining_while_reconnecting_closes_at_once(own_server: EmbeddedServer, bus: NatsBus) -> None:
    follower = bus.follow(StreamName.LEDGER, on_message=lambda _: None, on_gap=lambda _: None)
    await own_server.kill()
    await until(lambda: not bus._wire.connected, deadline_s=_DEADLINE_S, what="the break")
    async with asyncio.timeout(3):
        await bus.drain(timeout_s=30)
        assert await follower.wait() is None
    with pytest.raises(FatalError):
        await bus.append(b"x", expected_seq=0)
    assert not bus.lost.done()


async def test_draining_finishes_requests_in_hand(own_server: EmbeddedServer, bus: NatsBus) -> None:
    release = asyncio.Event()
    entered = asyncio.Event()

    async def slow(data: bytes) -> bytes:
        entered.set()
        await release.wait()
        return data

    await bus.serve(bus.subjects.sim("slow"), slow)
    async with await NatsBus.connect(own_server.url, "cell", name="asking") as asking, asyncio.TaskGroup() as group:
        first = group.create_task(asking.request(asking.subjects.sim("slow"), b"1", timeout_s=_DEADLINE_S))
        await entered.wait()
        second = group.create_task(asking.request(asking.subjects.sim("slow"), b"2", timeout_s=_DEADLINE_S))
        await until(lambda: bus._served[0]._queue, deadline_s=_DEADLINE_S, what="the second request")
        draining = group.create_task(bus.drain(timeout_s=_DEADLINE_S))
        release.set()
        await draining
        assert (await first, await second) == (b"1", b"2")


async def test_a_gather_does_not_wait_for_a_broken_connection(own_server: EmbeddedServer, bus: NatsBus) -> None:
    async def mute(_: bytes) -> None:
        pass

    await bus.serve(bus.subjects.score(0), mute)
    async with asyncio.timeout(SLACK * _DEADLINE_S), asyncio.TaskGroup() as group:
        gathering = group.create_task(bus.gather({0: bus.subjects.score(0)}, b"x", timeout_s=60))
        await until(lambda: bus._inbox._waiting, deadline_s=_DEADLINE_S, what="the request")
        await own_server.kill()
        assert await gathering == ({}, [0])


async def test_a_frozen_server_does_not_hold_the_client_for_ever(own_server: EmbeddedServer, bus: NatsBus) -> None:
    pid = own_server.pid
    assert pid is not None
    await stop_process(pid)
    try:
        futures = {b"%d" % number: bus.submit(bus.subjects.fact_timer, bytes(1 << 20)) for number in range(40)}
        await until(lambda: not bus._publisher._queue, deadline_s=_DEADLINE_S, what="everything written")
        futures[b"ghost"] = bus.submit(bus.subjects.fact_timer, b"ghost")  # stays in the client, the socket is full
        await until(lambda: not bus._publisher._queue, deadline_s=_DEADLINE_S, what="that too")
        client = bus._wire._client
        await client._process_op_err(nats.errors.StaleConnectionError())  # what unanswered pings lead to
        found = await outcomes(futures)  # in less than the time-out of a publish
    finally:
        os.kill(pid, signal.SIGCONT)
    assert all(isinstance(outcome, AmbiguousError) for outcome in found.values())
    await until(lambda: bus._wire.connected, deadline_s=_DEADLINE_S, what="reconnected")
    assert await bus.append(b"x", expected_seq=0) == 1
    assert await bus.publish(bus.subjects.fact_timer, b"fresh")
    assert b"ghost" not in {message.data for message in await bus.read(StreamName.FACTS)}


async def test_no_server_is_transient_and_says_where() -> None:
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:1 within"):
        await NatsBus.connect("nats://127.0.0.1:1", "cell", name="nobody", timeout_s=0.3)


@pytest.mark.parametrize("message_id", ["a\r\nNats-Rollup: all", "a\nb", "a\x00b", "a\u2028b"])
async def test_a_header_that_would_become_another_one_is_not_sent(bus: NatsBus, message_id: str) -> None:
    before = (await bus.state(StreamName.EVENTS)).last_seq
    with pytest.raises(PoisonError, match="has characters that the library replaces"):
        await bus.publish(bus.subjects.event_job("a", "b"), b"x", message_id=message_id)
    assert (await bus.state(StreamName.EVENTS)).last_seq == before


async def test_a_subject_for_which_the_server_would_end_the_connection_is_not_sent(bus: NatsBus) -> None:
    assert await bus.publish(bus.subjects.status("a", "b" * 3_700), b"x")
    for length in (3_900, 4_096, 9_000):
        with pytest.raises(PoisonError, match="bytes, with its reply"):
            await bus.publish(bus.subjects.status("a", "b" * length), b"x")
    assert bus.link_changes == 0
    assert not bus.lost.done()
