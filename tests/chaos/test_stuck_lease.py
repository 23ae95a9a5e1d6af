"""A stream of leases that no server leads after a power loss, on three real servers: a dispatcher makes it anew."""

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.kept_streams import KeptStreams
from tests.chaos.three_servers import start, three_servers
from tests.support.clock import ManualClock
from tests.support.waiting import until, until_true

_LEADS_S = 30.0
_WRITES = 3
_LOOK_S = 11
"""Time that passes between two looks: half a minute in three of them."""


class Group(msgspec.Struct):
    """Servers that have a stream; one of them may lead."""

    raft_group: str
    leader: str = ""


class Info(msgspec.Struct):
    """What the server says of a stream."""

    cluster: Group


async def group_of(bus: NatsBus, stream: str) -> Group:
    """Servers that have a stream."""
    answer = await bus.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=5)
    return msgspec.json.decode(answer, type=Info).cluster


async def let_another_lead(bus: NatsBus) -> str:
    """Let another server lead the stream of leases, which writes a snapshot of it; returns the name of its group."""
    stream = bus.subjects.stream(StreamName.LEASE)
    before = await group_of(bus, stream)

    async def has_another() -> bool:
        try:
            return (await group_of(bus, stream)).leader not in {"", before.leader}
        except (TransientError, msgspec.ValidationError):
            return False  # an election

    await bus.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"{}", timeout_s=5)
    await until_true(has_another, deadline_s=_LEADS_S, what="another server leads the stream of leases")
    return before.raft_group


def newest_snapshot(servers: list[EmbeddedServer], group: str) -> Path:
    """The latest snapshot that a server has of a stream; its name ends in the number of its last entry."""
    found = [path for server in servers for path in server.store.glob(f"jetstream/*/_js_/{group}/snapshots/*")]
    whole = [path for path in found if path.suffix != ".tmp"]  # that one is being written
    return max(whole, key=lambda path: int(path.suffix[1:]))


def lose_ends(servers: list[EmbeddedServer], group: str, stream: str) -> None:
    """Leave all disks as a power loss may: with a snapshot of a stream, and without the messages that it names.

    The messages had expired, so their blocks were removed; the block that says so was not synced.
    """
    newest = newest_snapshot(servers, group).parents[1]
    for server in servers:
        for folder in server.store.glob(f"jetstream/*/_js_/{group}"):
            if folder != newest:
                shutil.rmtree(folder)
                shutil.copytree(newest, folder)
        for block in server.store.glob(f"jetstream/*/streams/{stream}/msgs/*"):
            block.unlink()


async def is_usable(bus: NatsBus) -> bool:
    """Whether a lease can be written."""
    try:
        await bus.publish(bus.subjects.lease("dispatcher"), b"{}", ttl_s=2, timeout_s=1.0)
    except TransientError:
        return False
    return True


@pytest.mark.timeout(240)
async def test_a_stream_of_leases_that_no_server_can_lead_is_made_anew(cell: str, tmp_path: Path) -> None:
    servers = three_servers(tmp_path)
    async with AsyncExitStack() as stack:
        for server in servers:
            stack.push_async_callback(server.kill)
        await start(servers)
        bus = await stack.enter_async_context(
            await NatsBus.connect([server.url for server in servers], cell, name="test", inbox="_INBOX.person.test")
        )
        clock = ManualClock()
        kept = KeptStreams(bus, 3, clock, DEFAULT_LOG)
        await kept.begin()
        for _ in range(_WRITES):
            await bus.publish(bus.subjects.lease("dispatcher"), b"{}", ttl_s=60)
        group = await let_another_lead(bus)
        await until(
            lambda: int(newest_snapshot(servers, group).suffix[1:]) > _WRITES,
            deadline_s=_LEADS_S,
            what="a snapshot that names the messages",
        )
        for server in servers:
            await server.kill()
        lose_ends(servers, group, bus.subjects.stream(StreamName.LEASE))
        await start(servers)

        async def is_stuck() -> bool:
            try:
                return await bus.is_stuck(StreamName.LEASE, beside=StreamName.LEDGER)
            except TransientError:
                return False

        await until_true(is_stuck, deadline_s=60, what="the ledger is whole, and the leases have no leader")
        await kept.create_missing()
        assert not await is_usable(bus)
        await until_true(is_stuck, deadline_s=_LEADS_S, what="the servers elect no leader by themselves")

        async def is_free() -> bool:
            clock.advance(_LOOK_S)
            await kept.create_missing()
            return await is_usable(bus)

        await until_true(is_free, deadline_s=60, what="a lease can be written")
