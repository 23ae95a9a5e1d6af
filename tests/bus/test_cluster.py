"""Three servers: streams with three copies, made as soon as the cluster can, kept when one server dies."""

from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import FatalError, TransientError
from berth.schemas.subjects import StreamName
from tests.support.nats_cluster import EmbeddedCluster
from tests.support.waiting import pause

pytestmark = pytest.mark.timeout(90)


async def test_streams_wait_for_a_leader_and_outlive_a_server(tmp_path: Path) -> None:
    async with EmbeddedCluster(tmp_path / "nats") as cluster:
        # Connected at once: the servers have not chosen a leader yet.
        async with await NatsBus.connect(
            cluster.url.split(","), "cell", name="test", inbox="_INBOX.person.test"
        ) as bus:
            await bus.ensure_streams(replicas=3)
            assert await bus.append(b"one", expected_seq=0) == 1
            await cluster.servers[0].kill()
            await appended(bus, b"two", expected_seq=1)
            assert await records(bus) == [b"one", b"two"]
            assert await late_replicas(bus) == ["server-0"]
        await cluster.servers[0].start()
        async with await NatsBus.connect(
            cluster.servers[0].url, "cell", name="test", inbox="_INBOX.person.test"
        ) as bus:
            await bus.ensure_streams(replicas=3)


async def test_three_copies_on_one_server_are_refused_at_once(own_server: EmbeddedServer) -> None:
    async with await NatsBus.connect(own_server.url, "cell", name="test", inbox="_INBOX.person.test") as bus:
        with pytest.raises(FatalError, match=r"LEDGER_cell cannot be created: .*replicas"):
            await bus.ensure_streams(replicas=3)


async def late_replicas(bus: NatsBus) -> list[str]:
    """Replicas of the ledger that are late, as soon as the cluster knows one."""
    while True:
        try:
            report = await bus.stream_report(StreamName.LEDGER)
        except TransientError:
            report = None
        if report is not None and report.leader and report.late:
            assert report.leader not in report.late
            assert bus.server.cluster
            return report.late
        await pause(0.1)


async def records(bus: NatsBus) -> list[bytes]:
    """The ledger, however often it takes: a leader of one stream may be there before that of the cluster."""
    while True:
        try:
            return [record.data for record in await bus.read(StreamName.LEDGER)]
        except TransientError:
            await pause(0.1)


async def appended(bus: NatsBus, data: bytes, *, expected_seq: int) -> None:
    """Append, however often it takes until the cluster has a leader again; doubt is cleared up by reading."""
    while True:
        try:
            if (await bus.state(StreamName.LEDGER)).last_seq > expected_seq:
                return
            await bus.append(data, expected_seq=expected_seq)
        except TransientError:
            await pause(0.1)
