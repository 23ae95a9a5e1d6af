"""Consumers that stand still: a subscriber that reads nothing, missing acknowledgements, services after SIGSTOP.

None of them may delay the others, or make the server keep more and more for it.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest

from berth.core.cluster.domains import shard_of
from berth.core.cluster.node_packing import unpack_health
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Gap
from berth.runtime.bus.wire import Received
from berth.runtime.errors import TransientError
from berth.runtime.inboxes import inbox_of_agent
from berth.schemas.envelope import decode
from berth.schemas.facts import HealthSeen
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job, a_node
from tests.support.load import give_jobs, give_nodes, status
from tests.support.probes import answer
from tests.support.processes import Service, services
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(60)
CELL = "cell"
PENDING = 2 << 20
"""Bytes that the server keeps for a connection at most."""
PIECE = bytes(500_000)
DEADLINE_S = 20.0


class Server(NamedTuple):
    """A server that keeps little for a connection, and its monitoring port."""

    url: str
    port: int
    monitor: str

    async def asked(self, path: str) -> dict[str, Any]:
        """What it says of itself."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.monitor}/{path}") as said:
            found: dict[str, Any] = await said.json(content_type=None)
            return found

    async def dropped(self) -> int:
        """Connections that it closed because they did not read."""
        return int((await self.asked("varz"))["slow_consumers"])

    async def keeps_little(self) -> None:
        """Check that it keeps no more for any connection than it may."""
        found = (await self.asked("connz"))["connections"]
        assert found
        assert max(one["pending_bytes"] for one in found) <= PENDING


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (port,) = free_ports(1)
    more = f'http: "127.0.0.1:{port}"\nwrite_deadline: "5s"'
    async with EmbeddedServer(
        tmp_path / "nats", max_payload_bytes=1 << 20, max_pending_bytes=PENDING, more=more
    ) as made:
        yield Server(made.url, made.port, f"http://127.0.0.1:{port}")


@pytest.fixture
async def bus(server: Server) -> AsyncIterator[NatsBus]:
    async with await NatsBus.connect(server.url, CELL, name="test", inbox=inbox_of_agent("node-1")) as made:
        await made.ensure_streams()
        yield made


def a_mute_reader(port: int) -> socket.socket:
    """A subscriber to everything in the cell that reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(DEADLINE_S)
    made.connect(("127.0.0.1", port))
    made.sendall(b'CONNECT {"verbose":false}\r\nSUB berth.> 1\r\nPING\r\n')
    heard = b""
    while b"PONG" not in heard:
        heard += made.recv(1)
    return made


async def test_a_subscriber_that_reads_nothing_is_dropped_and_the_others_miss_nothing(
    server: Server, bus: NatsBus
) -> None:
    seen: list[int] = []
    async with await NatsBus.connect(server.url, CELL, name="reader") as reader:
        reader.follow(StreamName.FACTS, on_message=lambda one: seen.append(one.sequence), on_gap=broken)
        with a_mute_reader(server.port) as mute:
            sent = 0
            while not await server.dropped():
                assert sent < 200, "it was not dropped"  # 100 MB; the kernel takes some of them
                sent = await bus.publish(bus.subjects.fact_timer, PIECE)
                await server.keeps_little()
            await until_true(partial(only_named, server, {"test", "reader"}), deadline_s=DEADLINE_S, what="its end")
            heard = await asyncio.to_thread(until_closed, mute)
            assert heard < sent * len(PIECE)
        sent = await bus.publish(bus.subjects.fact_timer, PIECE)
        await until(
            lambda: seen == list(range(1, sent + 1)), deadline_s=DEADLINE_S, what="all facts at the other reader"
        )
        assert reader.link_changes == 0
        assert bus.link_changes == 0


def broken(gap: Gap) -> None:
    """A follower cannot go on."""
    pytest.fail(f"history broke: {gap}")


async def only_named(server: Server, names: set[str]) -> bool:
    """Whether these are the names of all connections."""
    return {one.get("name", "") for one in (await server.asked("connz"))["connections"]} == names


def until_closed(mute: socket.socket) -> int:
    """Read until the server has closed the connection; returns how much came."""
    heard = 0
    try:
        while data := mute.recv(1 << 20):
            heard += len(data)
    except ConnectionResetError:
        pass
    return heard


async def test_acknowledgements_that_never_come_keep_no_record_and_no_reader(server: Server, bus: NatsBus) -> None:
    stream = bus.subjects.stream(StreamName.LEDGER)
    held, records = 50, 300
    config = {"durable_name": "stuck", "ack_policy": "explicit", "max_ack_pending": held, "deliver_policy": "all"}
    body = msgspec.json.encode({"stream_name": stream, "config": config})
    made = msgspec.json.decode(await bus.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.stuck", body, timeout_s=5))
    assert "error" not in made
    inbox = bus._wire.deliveries()
    got: list[Received] = []
    seen: list[int] = []
    await bus._wire.listen(inbox, got.append)
    await bus._wire.write(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.stuck", msgspec.json.encode({"batch": records}), inbox)
    bus.follow(StreamName.LEDGER, on_message=lambda one: seen.append(one.sequence), on_gap=broken)
    for number in range(records):
        await bus.append(b"x", expected_seq=number)
    await until(lambda: seen == list(range(1, records + 1)), deadline_s=DEADLINE_S, what="all records at the other")
    await until(lambda: len(got) >= held, deadline_s=DEADLINE_S, what="as many as may be unacknowledged")
    info = msgspec.json.decode(await bus.request(f"$JS.API.CONSUMER.INFO.{stream}.stuck", b"", timeout_s=5))
    assert (info["num_ack_pending"], info["num_pending"]) == (held, records - held)
    await bus.purge(StreamName.LEDGER, keep_from_seq=records)
    state = await bus.state(StreamName.LEDGER)
    assert (state.messages, state.first_seq) == (1, records), "what nobody acknowledged is removed like the rest"
    assert len(got) == held
    await server.keeps_little()


async def test_a_health_service_that_stood_still_is_dropped_and_hears_again(
    server: Server, bus: NatsBus, tmp_path: Path
) -> None:
    await give_nodes(bus, [a_node("node-1")])
    with services(tmp_path, server.url) as made:
        health = made.service("health", CELL, source="none", flap_hold_s=0)
        health.start()
        await until_true(lambda: reports(bus, "ok"), deadline_s=DEADLINE_S, what="a report that is taken")
        stand_still(health)
        report = msgspec.json.encode({"node": "node-1", "source": "test", "reason": "x" * 900})
        sent = 0
        while not await server.dropped():
            assert sent < 200_000, "it was not dropped"  # 200 MB; the kernel takes some of them
            for _ in range(1_000):
                await bus.send(bus.subjects.report_health("node-1"), report)
            sent += 1_000
            await server.keeps_little()
        assert await bus.publish(bus.subjects.fact_timer, b"x"), "others store what they have"
        go_on(health)
        await until_true(
            lambda: reports(bus, "no-new-work"), deadline_s=DEADLINE_S, what="a report that is taken again"
        )
        await until_true(lambda: accepts_no_work(bus), deadline_s=DEADLINE_S, what="the fact of that report")
        assert (health.returncode, health.starts) == (None, 1)
        assert "bus disconnected" in health.whole_log()
        await health.stop()


async def test_a_scorer_and_a_standby_that_stood_still_go_on_where_they_were(
    server: Server, bus: NatsBus, tmp_path: Path
) -> None:
    leaves = sorted("abcdef", key=lambda leaf: shard_of(f"leaf-{leaf}", 2))
    assert {shard_of(f"leaf-{leaf}", 2) for leaf in leaves} == {0, 1}
    await give_nodes(bus, [a_node(f"node-{leaf}", leaf=leaf) for leaf in leaves])
    with services(tmp_path, server.url) as made:
        settings: dict[str, Any] = {"shards": 2, "lease_s": 1, "tick_s": 0.1, "decisions": {"shard_retry_ms": 300}}
        leader = made.service("dispatcher", CELL, label="a", **settings)
        (port,) = free_ports(1)
        standby = made.service("dispatcher", CELL, label="b", probes={"port": port}, **settings)
        scorers = [made.service("scorer", CELL, label=str(shard), shard=shard, shards=2) for shard in range(2)]
        for one in (leader, *scorers):
            one.start()
        await place(bus, "first", 1)
        standby.start()
        await until_true(partial(is_ready, port), deadline_s=DEADLINE_S, what="the standby")
        stand_still(scorers[1])
        stand_still(standby)
        for number in range(5):
            await place(bus, f"meanwhile-{number}", 1)
        await server.keeps_little()
        go_on(standby)
        go_on(scorers[1])
        await place(bus, "large", len(leaves) - 2, chips=8)  # more whole nodes than the other scorer has left
        await leader.kill()
        await place(bus, "last", 1)
        assert (standby.returncode, standby.starts) == (None, 1)
        assert [(one.returncode, one.starts) for one in scorers] == [(None, 1), (None, 1)]


def stand_still(service: Service) -> None:
    """Let it do nothing, with its connections open."""
    os.kill(service.pid, signal.SIGSTOP)


def go_on(service: Service) -> None:
    """Let it go on."""
    os.kill(service.pid, signal.SIGCONT)


async def is_ready(port: int) -> bool:
    """Whether the process with probes on this port is ready."""
    async with aiohttp.ClientSession() as session:
        return (await answer(session, port, "readyz"))[0] == HTTPStatus.OK


async def reports(bus: NatsBus, level: str) -> bool:
    """Send a report; returns whether it was taken."""
    data = msgspec.json.encode({"node": "node-1", "source": "test", "level": level})
    try:
        said = await bus.request(bus.subjects.report_health("node-1"), data, timeout_s=1.0)
    except TransientError:
        return False
    return bool(msgspec.json.decode(said).get("ok"))


async def accepts_no_work(bus: NatsBus) -> bool:
    """Whether the newest fact says that the node accepts no work."""
    found = await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),))
    conditions = [one for stored in found for one in unpack_health(decode(stored.data, HealthSeen))]
    return any("test" in one.reason or one.level.name == "NO_NEW_WORK" for one in conditions)


async def place(bus: NatsBus, name: str, pods: int, *, chips: int = 1) -> None:
    """Submit a job, and wait until it is placed."""
    await give_jobs(bus, a_job(name, chips=chips, replicas=pods))

    async def is_placed() -> bool:
        found = await status(bus, name)
        return found is not None and found.placement is not None

    await until_true(is_placed, deadline_s=DEADLINE_S, what=f"{name} is placed")
