"""One suite for the bus in memory and the bus over NATS: a fake that drifts away from the real one fails here.

Longer than 400 lines because the suite is one list of promises with shared fixtures.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Bus, Endpoint, Gap, GapReason, Stored
from berth.runtime.errors import (
    AmbiguousError,
    ConflictError,
    DuplicateError,
    FatalError,
    OversizeError,
    PoisonError,
    TransientError,
)
from berth.schemas.subjects import StreamName
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.waiting import SLACK, until

pytestmark = pytest.mark.timeout(20)
_DEADLINE_S = 5.0 * SLACK

MakeBus = Callable[[], Awaitable[Bus]]


@pytest.fixture(params=["fake", "nats"])
def make_bus(request: pytest.FixtureRequest, cell: str) -> MakeBus:
    """A function that makes one more client of the same server."""
    server = FakeServer()
    url = "" if request.param == "fake" else request.getfixturevalue("nats_server")

    async def make() -> Bus:
        return await NatsBus.connect(url, cell, name="contract") if url else FakeBus(server, cell)

    return make


@pytest.fixture
async def bus(make_bus: MakeBus) -> AsyncIterator[Bus]:
    client = await make_bus()
    await client.ensure_streams()
    yield client
    await client.close()


@pytest.fixture
async def other(make_bus: MakeBus) -> AsyncIterator[Bus]:
    client = await make_bus()
    yield client
    await client.close()


def no_gap(gap: Gap) -> None:
    raise AssertionError(gap)


async def test_a_published_message_is_read_back(bus: Bus) -> None:
    subject = bus.subjects.fact_node("d.1")
    assert await bus.publish(subject, b"one") == 1
    assert await bus.publish(subject, b"two") == 2
    stored = await bus.read(StreamName.FACTS)
    assert [(message.subject, message.sequence, message.data) for message in stored] == [
        (subject, 1, b"one"),
        (subject, 2, b"two"),
    ]
    assert all(message.at_ms > 1_600_000_000_000 for message in stored)


async def test_ensuring_streams_twice_changes_nothing(bus: Bus) -> None:
    await bus.publish(bus.subjects.fact_timer, b"x")
    before = await bus.state(StreamName.FACTS)
    await bus.ensure_streams()
    assert await bus.state(StreamName.FACTS) == before


async def test_reading_starts_where_asked_and_filters(bus: Bus) -> None:
    for number in range(6):
        await bus.publish(bus.subjects.fact_node(str(number % 2)), bytes([number]))
    stored = await bus.read(StreamName.FACTS, start_seq=3, filters=[bus.subjects.fact_node("1")])
    assert [message.sequence for message in stored] == [4, 6]
    assert await bus.read(StreamName.FACTS, start_seq=7) == []
    assert await bus.read(StreamName.FACTS, filters=[bus.subjects.fact_timer]) == []


async def test_submitted_messages_are_stored_in_order(bus: Bus) -> None:
    futures = [bus.submit(bus.subjects.fact_node("d"), b"%d" % number) for number in range(500)]
    assert [await future for future in futures] == list(range(1, 501))
    assert [message.data for message in await bus.read(StreamName.FACTS)] == [b"%d" % number for number in range(500)]


async def test_a_batch_is_stored_in_order_between_its_neighbours(bus: Bus) -> None:
    said = bus.subjects
    first = bus.submit(said.status("ns", "a"), b"0")
    batch = await bus.submit_batch([(said.status("ns", job), b"1") for job in "abc"])
    last = bus.submit(said.status("ns", "c"), b"2")
    assert [await first, await batch, await last] == [1, 4, 5]
    stored = {message.subject: message.data for message in await bus.read(StreamName.STATUS)}
    assert stored == {said.status("ns", "a"): b"1", said.status("ns", "b"): b"1", said.status("ns", "c"): b"2"}


async def test_waiting_for_room_submits(bus: Bus) -> None:
    assert await (await bus.submit_wait(bus.subjects.fact_timer, b"x")) == 1


async def test_a_publish_that_no_stream_takes_is_transient(bus: Bus) -> None:
    nowhere = f"{bus.subjects.root}nowhere"
    with pytest.raises(TransientError) as caught:
        await bus.publish(nowhere, b"x")
    assert not isinstance(caught.value, AmbiguousError)
    with pytest.raises(TransientError):
        await bus.submit(nowhere, b"x")


async def test_an_append_is_refused_when_another_was_first(bus: Bus, other: Bus) -> None:
    assert await bus.append(b"a", expected_seq=0) == 1
    with pytest.raises(ConflictError) as caught:
        await other.append(b"b", expected_seq=0)
    assert caught.value.last_seq == 1
    assert await other.append(b"b", expected_seq=1) == 2
    assert [message.data for message in await bus.read(StreamName.LEDGER)] == [b"a", b"b"]


async def test_a_lease_is_taken_once_renewed_by_its_sequence_and_overwritten(bus: Bus, other: Bus) -> None:
    lease = bus.subjects.lease("dispatcher")
    held = await bus.publish(lease, b"me", expected_subject_seq=0, ttl_s=60)
    with pytest.raises(ConflictError):
        await other.publish(lease, b"you", expected_subject_seq=0, ttl_s=60)
    renewed = await bus.publish(lease, b"me", expected_subject_seq=held, ttl_s=60)
    with pytest.raises(ConflictError):
        await bus.publish(lease, b"me", expected_subject_seq=held, ttl_s=60)
    latest = await other.last(StreamName.LEASE, lease)
    assert latest is not None
    assert (latest.sequence, latest.data) == (renewed, b"me")


async def test_a_lease_expires(bus: Bus) -> None:
    lease = bus.subjects.lease("dispatcher")
    await bus.publish(lease, b"me", expected_subject_seq=0, ttl_s=1)
    if isinstance(bus, FakeBus):
        bus.server.clock.advance(1)
    taken: list[int] = []

    async def take() -> None:
        while not taken:
            try:
                taken.append(await bus.publish(lease, b"you", expected_subject_seq=0, ttl_s=5))
            except ConflictError:
                await asyncio.sleep(0)

    async with asyncio.timeout(_DEADLINE_S):
        await take()
    latest = await bus.last(StreamName.LEASE, lease)
    assert latest is not None
    assert latest.data == b"you"


async def test_a_lifetime_is_refused_where_the_stream_has_none(bus: Bus) -> None:
    with pytest.raises(PoisonError):
        await bus.publish(bus.subjects.intake_cancel("ns", "job"), b"x", ttl_s=5)


async def test_the_last_message_of_a_subject(bus: Bus) -> None:
    subject = bus.subjects.status("ns", "job")
    assert await bus.last(StreamName.STATUS, subject) is None
    await bus.publish(subject, b"old")
    await bus.publish(subject, b"new")
    latest = await bus.last(StreamName.STATUS, subject)
    assert latest is not None
    assert (latest.subject, latest.sequence, latest.data) == (subject, 2, b"new")
    assert (await bus.state(StreamName.STATUS)).messages == 1


async def test_the_mirror_has_the_latest_of_each_subject_with_the_sequences_of_its_origin(bus: Bus) -> None:
    for number in range(10):
        await bus.publish(bus.subjects.fact_node(str(number % 3)), bytes([number]))
    await bus.wait_mirror(StreamName.LATEST, at_least=10, timeout_s=_DEADLINE_S)
    assert [(message.sequence, message.data) for message in await bus.read(StreamName.LATEST)] == [
        (8, b"\x07"),
        (9, b"\x08"),
        (10, b"\x09"),
    ]
    with pytest.raises(TransientError):
        await bus.wait_mirror(StreamName.LATEST, at_least=11, timeout_s=0.05)


async def test_a_read_has_one_message_of_each_subject_though_all_are_replaced_meanwhile(bus: Bus, other: Bus) -> None:
    subjects = [bus.subjects.status("ns", str(number)) for number in range(300)]
    await (await bus.submit_batch([(subject, b"0") for subject in subjects]))
    rounds = 0

    async def replace() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await (await other.submit_batch([(subject, b"%d" % rounds) for subject in subjects]))

    async with asyncio.TaskGroup() as group:
        replacing = group.create_task(replace())
        for _ in range(20):
            stored = await bus.read(StreamName.STATUS)
            assert sorted(message.subject for message in stored) == sorted(subjects)
            assert [message.sequence for message in stored] == sorted(message.sequence for message in stored)
        replacing.cancel()
    assert rounds


async def test_the_state_of_an_empty_stream(bus: Bus) -> None:
    state = await bus.state(StreamName.LEDGER)
    assert (state.first_seq, state.last_seq, state.messages) == (1, 0, 0)
    assert state.created


async def test_a_follower_hands_over_what_was_and_what_comes(bus: Bus, other: Bus) -> None:
    await bus.publish(bus.subjects.fact_timer, b"1")
    seen: list[Stored] = []
    follower = bus.follow(StreamName.FACTS, on_message=seen.append, on_gap=no_gap)
    async with asyncio.timeout(_DEADLINE_S):
        await follower.caught_up.wait()
    assert [message.data for message in seen] == [b"1"]
    for number in range(2, 50):
        await other.publish(other.subjects.fact_timer, b"%d" % number)
    await until(lambda: follower.applied == 49, deadline_s=_DEADLINE_S, what="everything followed")
    assert [message.sequence for message in seen] == list(range(1, 50))
    await follower.stop()
    assert await follower.wait() is None
    assert (follower.gaps, follower.recreations) == (0, 0)


async def test_a_filtered_follower_skips_and_catches_up(bus: Bus) -> None:
    for number in range(20):
        await bus.publish(bus.subjects.fact_node(str(number % 4)), bytes([number]))
    seen: list[int] = []
    follower = bus.follow(
        StreamName.FACTS,
        start_seq=5,
        filters=[bus.subjects.fact_node("0"), bus.subjects.facts("health")],
        on_message=lambda message: seen.append(message.sequence),
        on_gap=no_gap,
    )
    async with asyncio.timeout(_DEADLINE_S):
        await follower.caught_up.wait()
    assert seen == [5, 9, 13, 17]
    assert follower.applied == 17


async def test_a_follower_of_nothing_is_caught_up(bus: Bus) -> None:
    empty = bus.follow(StreamName.LEDGER, on_message=lambda _: None, on_gap=no_gap)
    await bus.publish(bus.subjects.fact_timer, b"x")
    nothing = bus.follow(
        StreamName.FACTS, filters=[bus.subjects.facts("pod")], on_message=lambda _: None, on_gap=no_gap
    )
    async with asyncio.timeout(_DEADLINE_S):
        await empty.caught_up.wait()
        await nothing.caught_up.wait()
    assert (empty.applied, nothing.applied) == (0, 0)


async def test_a_follower_of_what_is_no_longer_kept_is_told(bus: Bus) -> None:
    for number in range(10):
        await bus.append(b"x", expected_seq=number)
    await bus.purge(StreamName.LEDGER, keep_from_seq=6)
    gaps: list[Gap] = []
    follower = bus.follow(StreamName.LEDGER, start_seq=5, on_message=lambda _: None, on_gap=gaps.append)
    async with asyncio.timeout(_DEADLINE_S):
        gap = await follower.wait()
    assert gaps == [gap] == [Gap(StreamName.LEDGER, GapReason.TOO_OLD, 5, 6, 10)]
    assert follower.gaps == 1
    seen: list[int] = []
    for start_seq in (0, 6):
        allowed = bus.follow(
            StreamName.LEDGER,
            start_seq=start_seq,
            on_message=lambda message: seen.append(message.sequence),
            on_gap=no_gap,
        )
        async with asyncio.timeout(_DEADLINE_S):
            await allowed.caught_up.wait()
    assert seen == [6, 7, 8, 9, 10] * 2


async def test_a_follower_ahead_of_the_stream_is_told(bus: Bus) -> None:
    await bus.append(b"x", expected_seq=0)
    follower = bus.follow(StreamName.LEDGER, start_seq=5, on_message=lambda _: None, on_gap=lambda _: None)
    async with asyncio.timeout(_DEADLINE_S):
        assert await follower.wait() == Gap(StreamName.LEDGER, GapReason.BACKWARDS, 5, 1, 1)


async def test_a_follower_with_the_mark_of_another_stream_is_told(bus: Bus) -> None:
    await bus.append(b"x", expected_seq=0)
    follower = bus.follow(
        StreamName.LEDGER, start_seq=2, created="long ago", on_message=lambda _: None, on_gap=lambda _: None
    )
    async with asyncio.timeout(_DEADLINE_S):
        gap = await follower.wait()
    assert gap is not None
    assert gap.reason is GapReason.RECREATED


async def test_the_fault_of_a_follower_surfaces(bus: Bus) -> None:
    await bus.append(b"x", expected_seq=0)

    def fail(_: Stored) -> None:
        raise ValueError("broken")

    follower = bus.follow(StreamName.LEDGER, on_message=fail, on_gap=no_gap)
    async with asyncio.timeout(_DEADLINE_S):
        with pytest.raises(ValueError, match="broken"):
            await follower.wait()
        assert "broken" in (await bus.lost).reason
    assert follower.applied == 0


async def test_purging_removes_by_sequence_and_by_subject(bus: Bus) -> None:
    for sequence in (1, 2):
        await bus.publish(bus.subjects.snapshot_chunk(sequence, 0), b"x")
        await bus.publish(bus.subjects.snapshot_end(sequence), b"x")
    await bus.purge(StreamName.SNAPSHOT, subject=bus.subjects.snapshot_all(1))
    assert [message.sequence for message in await bus.read(StreamName.SNAPSHOT)] == [3, 4]
    await bus.purge(StreamName.SNAPSHOT, keep_from_seq=4)
    state = await bus.state(StreamName.SNAPSHOT)
    assert (state.first_seq, state.last_seq, state.messages) == (4, 4, 1)


@pytest.mark.parametrize("stream", [StreamName.FACTS, StreamName.LATEST, StreamName.STATUS, StreamName.LEASE])
async def test_purging_what_must_stay_is_refused(bus: Bus, stream: StreamName) -> None:
    await bus.publish(bus.subjects.fact_timer, b"x")
    with pytest.raises(FatalError, match=stream.value):
        await bus.purge(stream, keep_from_seq=2)
    assert (await bus.state(StreamName.FACTS)).messages == 1


@pytest.mark.parametrize("stream", [StreamName.LATEST, StreamName.STATUS])
async def test_what_is_below_the_floor_of_a_stream_does_not_count(bus: Bus, stream: StreamName) -> None:
    is_status = stream is StreamName.STATUS
    names = [bus.subjects.status("ns", name) if is_status else bus.subjects.fact_job("ns", name) for name in "abc"]
    for subject in names:
        await bus.publish(subject, b"x")
    await bus.wait_mirror(stream, at_least=3, timeout_s=_DEADLINE_S)
    following: list[int] = []
    before = bus.follow(stream, on_message=lambda stored: following.append(stored.sequence), on_gap=no_gap)
    async with asyncio.timeout(_DEADLINE_S):
        await before.caught_up.wait()
    await bus.raise_floor(stream, 3)
    await bus.raise_floor(stream, 2)  # it never sinks
    assert (await bus.state(stream)).first_seq == 3
    assert [stored.sequence for stored in await bus.read(stream)] == [3]
    assert [await bus.last(stream, subject) is not None for subject in names] == [False, False, True]
    seen: list[int] = []
    follower = bus.follow(stream, on_message=lambda stored: seen.append(stored.sequence), on_gap=no_gap)
    async with asyncio.timeout(_DEADLINE_S):
        await follower.caught_up.wait()
    assert seen == [3]
    with pytest.raises(FatalError, match=stream.value):
        await bus.purge(stream, keep_from_seq=4)
    await bus.purge(stream, keep_from_seq=3)
    assert (await bus.state(stream)).messages == 1
    await bus.publish(names[0], b"y")
    await bus.wait_mirror(stream, at_least=4, timeout_s=_DEADLINE_S)
    assert [stored.sequence for stored in await bus.read(stream)] == [3, 4]
    await until(lambda: following == [1, 2, 3, 4] and seen == [3, 4], deadline_s=_DEADLINE_S, what="the new message")


async def test_the_whole_of_a_stream_may_be_below_its_floor(bus: Bus) -> None:
    subject = bus.subjects.status("ns", "a")
    await bus.publish(subject, b"x")
    await bus.raise_floor(StreamName.STATUS, 2)
    await bus.purge(StreamName.STATUS, keep_from_seq=2)
    state = await bus.state(StreamName.STATUS)
    assert (state.first_seq, state.last_seq, state.messages) == (2, 1, 0)
    assert await bus.read(StreamName.STATUS) == []
    await bus.publish(subject, b"y")
    assert [(stored.sequence, stored.data) for stored in await bus.read(StreamName.STATUS)] == [(2, b"y")]


async def test_only_some_streams_have_a_floor(bus: Bus) -> None:
    with pytest.raises(FatalError, match="LEDGER has no floor"):
        await bus.raise_floor(StreamName.LEDGER, 2)


async def test_purging_everything_is_refused(bus: Bus) -> None:
    with pytest.raises(FatalError):
        await bus.purge(StreamName.LEDGER)


async def echo(data: bytes) -> bytes:  # a handler is a coroutine function
    return data + b"!"


async def test_a_request_is_answered(bus: Bus, other: Bus) -> None:
    subject = bus.subjects.sim("nodes")
    with pytest.raises(TransientError, match="no responders"):
        await other.request(subject, b"hello", timeout_s=_DEADLINE_S)
    served = await bus.serve(subject, echo)
    assert await other.request(subject, b"hello", timeout_s=_DEADLINE_S) == b"hello!"
    await served.stop()
    with pytest.raises(TransientError):
        await other.request(subject, b"hello", timeout_s=_DEADLINE_S)


async def test_a_request_without_a_reply_runs_into_its_time_out(bus: Bus) -> None:
    async def mute(_: bytes) -> None:
        pass

    await bus.serve(bus.subjects.sim("mute"), mute)
    with pytest.raises(TransientError, match="no reply"):
        await bus.request(bus.subjects.sim("mute"), b"x", timeout_s=0.05)


async def test_an_endpoint_is_told_the_subject_and_shares_its_requests(bus: Bus, other: Bus) -> None:
    found: list[str] = []

    async def handle(subject: str, data: bytes) -> bytes:
        found.append(subject)
        return subject.encode() + b" " + data

    root = bus.subjects.root
    endpoint = Endpoint("ask", f"{root}ask.*", "askers", "{}", "{}")
    serving = [await client.offer(endpoint, handle) for client in (bus, other)]
    assert await other.request(f"{root}ask.one", b"1", timeout_s=_DEADLINE_S) == f"{root}ask.one 1".encode()
    assert await bus.request(f"{root}ask.two", b"2", timeout_s=_DEADLINE_S) == f"{root}ask.two 2".encode()
    assert found == [f"{root}ask.one", f"{root}ask.two"]
    for served in serving:
        await served.stop()


async def test_a_message_with_an_id_is_stored_as_any_other(bus: Bus) -> None:
    subject = bus.subjects.event_job("team", "a.b")
    assert await bus.publish(subject, b"{}", expected_subject_seq=0, message_id="u/0/0/accepted") == 1
    with pytest.raises(ConflictError):
        await bus.publish(subject, b"{}", expected_subject_seq=0, message_id="u/1/0/placed")
    with pytest.raises(DuplicateError):
        await bus.publish(subject, b"{}", expected_subject_seq=1, message_id="u/0/0/accepted")
    other = bus.subjects.event_job("team", "other")
    with pytest.raises(DuplicateError):
        await bus.publish(other, b"{}", expected_subject_seq=0, message_id="u/0/0/accepted")
    assert await bus.publish(other, b"{}", expected_subject_seq=0) == 2


async def test_a_sent_message_reaches_all_who_serve(bus: Bus, other: Bus) -> None:
    seen: list[bytes] = []

    async def take(data: bytes) -> None:
        seen.append(data)

    await bus.serve(bus.subjects.advance, take)
    await other.serve(other.subjects.advance, take)
    await bus.send(bus.subjects.advance, b"5")
    await until(lambda: seen == [b"5", b"5"], deadline_s=_DEADLINE_S, what="both got it")


async def test_a_queue_group_gets_each_request_once(bus: Bus, other: Bus) -> None:
    seen: dict[str, int] = {"a": 0, "b": 0}

    def counting(name: str) -> Callable[[bytes], Awaitable[bytes]]:
        async def handle(data: bytes) -> bytes:
            seen[name] += 1
            return data

        return handle

    await bus.serve(bus.subjects.score(0), counting("a"), queue="shard-0")
    await other.serve(bus.subjects.score(0), counting("b"), queue="shard-0")
    for _ in range(100):
        await bus.request(bus.subjects.score(0), b"x", timeout_s=_DEADLINE_S)
    assert sum(seen.values()) == 100
    assert min(seen.values()) > 10


async def test_a_gather_names_dead_shards_at_once_and_hung_ones_after_the_time(bus: Bus, other: Bus) -> None:
    async def hang(_: bytes) -> None:
        pass

    await other.serve(bus.subjects.score(0), echo, queue="shard-0")
    await other.serve(bus.subjects.score(2), echo, queue="shard-2")
    shards = {shard: bus.subjects.score(shard) for shard in (2, 1, 0)}
    async with asyncio.timeout(_DEADLINE_S):  # far below the time-out of the gather
        found = await bus.gather(shards, {0: b"zero", 1: b"one", 2: b"two"}, timeout_s=60)
    assert found.replies == {0: b"zero!", 2: b"two!"}
    assert found.missing == [1]
    await other.serve(bus.subjects.score(1), hang, queue="shard-1")
    found = await bus.gather(shards, b"all", timeout_s=2)
    assert (found.replies, found.missing) == ({0: b"all!", 2: b"all!"}, [1])
    assert await bus.gather({}, b"", timeout_s=1) == ({}, [])


async def test_the_fault_of_a_handler_surfaces_and_a_poisoned_request_does_not(bus: Bus) -> None:
    async def handle(data: bytes) -> bytes:  # a handler is a coroutine function
        if data == b"poison":
            raise PoisonError("undecodable")
        if data == b"fault":
            raise ValueError("broken")
        return data

    subject = bus.subjects.sim("faulty")
    await bus.serve(subject, handle)
    with pytest.raises(TransientError):
        await bus.request(subject, b"poison", timeout_s=0.05)
    assert await bus.request(subject, b"fine", timeout_s=_DEADLINE_S) == b"fine"
    await bus.send(subject, b"fault")
    async with asyncio.timeout(_DEADLINE_S):
        assert "broken" in (await bus.lost).reason


async def test_an_oversize_message_is_refused_with_both_numbers(bus: Bus) -> None:
    large = bytes(8 << 20)
    for attempt in (
        bus.publish(bus.subjects.fact_timer, large),
        bus.submit(bus.subjects.fact_timer, large),
        bus.append(large, expected_seq=0),
        bus.send(bus.subjects.advance, large),
    ):
        with pytest.raises(OversizeError) as caught:
            await attempt
        assert caught.value.size_bytes >= len(large) > caught.value.limit_bytes
    assert await bus.publish(bus.subjects.fact_timer, b"small") == 1


async def test_a_drained_bus_is_closed_and_not_lost(bus: Bus) -> None:
    future = bus.submit(bus.subjects.fact_timer, b"x")
    await bus.drain(timeout_s=_DEADLINE_S)
    assert await future == 1
    assert not bus.lost.done()
    with pytest.raises(FatalError):
        await bus.publish(bus.subjects.fact_timer, b"x")
    await bus.close()


async def test_a_message_is_read_by_its_sequence(bus: Bus) -> None:
    assert await bus.message(StreamName.LEDGER, 1) is None
    assert await bus.append(b"one", expected_seq=0) == 1
    assert await bus.append(b"two", expected_seq=1) == 2
    found = await bus.message(StreamName.LEDGER, 1)
    assert found is not None
    assert (found.subject, found.sequence, found.data) == (bus.subjects.ledger, 1, b"one")
    assert await bus.message(StreamName.LEDGER, 3) is None
    assert await bus.message(StreamName.LEDGER, 0) is None
