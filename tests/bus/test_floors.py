"""A real server that is killed: purged messages may leave older ones behind, which no reader is given."""

import asyncio

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamName

pytestmark = pytest.mark.timeout(120)
KILLS = 6
_DEADLINE_S = 20


async def seen_of(bus: NatsBus, stream: StreamName) -> dict[str, bytes]:
    """What each way to read gives: they agree."""
    followed: list[Stored] = []

    def fail(gap: object) -> None:
        raise AssertionError(gap)

    follower = bus.follow(stream, on_message=followed.append, on_gap=fail)
    async with asyncio.timeout(_DEADLINE_S):
        await follower.caught_up.wait()
    await follower.stop()
    read = {stored.subject: stored.data for stored in await bus.read(stream)}
    assert {stored.subject: stored.data for stored in followed} == read
    return read


@pytest.mark.parametrize("stream", [StreamName.LATEST, StreamName.STATUS])
async def test_nothing_old_comes_back_when_the_server_is_killed(own_server: EmbeddedServer, stream: StreamName) -> None:
    newest: dict[str, bytes] = {}
    for number in range(KILLS):
        async with await NatsBus.connect(own_server.url, "cell", name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()
            subject = bus.subjects.status if stream is StreamName.STATUS else bus.subjects.fact_job
            over = [subject("ns", f"over-{number}-{index}") for index in range(5)]
            head = 0
            for text in (b"runs", b"ended"):  # the first is the one that must not come back
                for name in [*over, subject("ns", "stays")]:
                    head = await bus.publish(name, b"%s %d" % (text, number))
            newest[subject("ns", "stays")] = b"ended %d" % number
            await bus.wait_mirror(stream, at_least=head, timeout_s=_DEADLINE_S)
            assert {**newest, **dict.fromkeys(over, b"ended %d" % number)} == await seen_of(bus, stream)
            await bus.raise_floor(stream, head)
            assert await seen_of(bus, stream) == newest  # also while they are on file
            await bus.purge(stream, keep_from_seq=head)
            assert await seen_of(bus, stream) == newest
        await own_server.restart()
        async with await NatsBus.connect(own_server.url, "cell", name="test", inbox="_INBOX.person.test") as bus:
            await bus.ensure_streams()  # it leaves the floor alone
            await bus.wait_mirror(stream, at_least=head, timeout_s=_DEADLINE_S)
            assert (await bus.state(stream)).floor == head
            assert await seen_of(bus, stream) == newest
            assert [await bus.last(stream, name) for name in over] == [None] * len(over)
            assert [stored.data for stored in await bus.read(stream, filters=[over[0]])] == []
