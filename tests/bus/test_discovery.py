"""Discovery: who is there, what it serves, and how it does."""

import asyncio
from typing import Any

import msgspec
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import QUIET_S, Endpoint
from berth.runtime.bus.process_stats import Identity, OwnReport, ProcessStats
from berth.runtime.cell_status.gathering import gather_status
from berth.runtime.clock import SystemClock
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.inboxes import inbox_of_person
from berth.schemas.subjects import StreamName
from tests.support.answers import answers
from tests.support.waiting import pause, until


def identity(number: int, *, cell: str = "here") -> Identity:
    return Identity(
        name="berth-scorer",
        id=f"one-{number}",
        version="1.2.3",
        metadata={"cell": cell},
        started_ms=1_700_000_000_000,
    )


async def handle(data: bytes) -> bytes:
    """Echo.

    Raises:
        PoisonError: What came is bad.
    """
    if data == b"bad":
        raise PoisonError("this is bad")
    await asyncio.sleep(0.002)
    return data


async def ask(bus: NatsBus, subject: str) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(await bus.request(subject, b"", timeout_s=5))
    return answer


async def test_a_process_says_who_it_is_and_how_it_does(own_server: EmbeddedServer) -> None:
    async with (
        await NatsBus.connect(own_server.url, "here", name="one") as bus,
        await NatsBus.connect(own_server.url, "here", name="asks", inbox=inbox_of_person("asks")) as user,
    ):
        await bus.announce(identity(1))
        served = await bus.serve("berth.here.score.1", handle, queue="shard-1")
        who = {"name": "berth-scorer", "id": "one-1", "version": "1.2.3", "metadata": {"cell": "here"}}
        for tail in ("", ".berth-scorer", ".berth-scorer.one-1"):
            assert await ask(user, f"$SRV.PING{tail}") == {"type": "io.nats.micro.v1.ping_response", **who}
        endpoint = {"name": "1", "subject": "berth.here.score.1", "queue_group": "shard-1"}
        info = await ask(user, "$SRV.INFO")
        assert info == {"type": "io.nats.micro.v1.info_response", **who, "description": "", "endpoints": [endpoint]}
        for data in (b"x", b"y"):
            await user.request("berth.here.score.1", data, timeout_s=5)
        with pytest.raises(TransientError):
            await user.request("berth.here.score.1", b"bad", timeout_s=0.2)
        stats = await ask(user, "$SRV.STATS.berth-scorer.one-1")
        assert (stats["type"], stats["started"]) == ("io.nats.micro.v1.stats_response", "2023-11-14T22:13:20Z")
        (counts,) = stats["endpoints"]
        took_ns = counts.pop("processing_time")
        assert took_ns > 4_000_000
        assert counts == {
            **endpoint,
            "num_requests": 3,
            "num_errors": 1,
            "last_error": "this is bad",
            "average_processing_time": took_ns // 3,
        }
        await served.stop()


async def test_every_process_answers_for_itself_and_one_that_has_ended_does_not(own_server: EmbeddedServer) -> None:
    async with await NatsBus.connect(own_server.url, "here", name="asks", inbox=inbox_of_person("asks")) as user:
        buses = [await NatsBus.connect(own_server.url, "here", name=f"bus-{number}") for number in range(2)]
        for number, bus in enumerate(buses):
            await bus.announce(identity(number))
        for number, bus in enumerate(buses):
            assert (await ask(user, f"$SRV.PING.berth-scorer.one-{number}"))["id"] == f"one-{number}"
            await bus.drain(timeout_s=5)
        with pytest.raises(TransientError, match="no responders"):
            await ask(user, "$SRV.PING.berth-scorer")


async def test_the_statistics_say_how_a_process_is_and_how_far_it_has_read(own_server: EmbeddedServer) -> None:
    async with (
        await NatsBus.connect(own_server.url, "here", name="one") as bus,
        await NatsBus.connect(own_server.url, "here", name="asks", inbox=inbox_of_person("asks")) as user,
    ):
        await user.ensure_streams()
        for number in range(3):
            await user.publish(user.subjects.fact_node(str(number)), b"x")
        gauges = {"berth_scorer_nodes": 7.0}
        await bus.announce(identity(1), lambda: OwnReport("facts are read", gauges))
        read: list[int] = []
        whole = bus.follow(
            StreamName.FACTS, on_message=lambda stored: read.append(stored.sequence), on_gap=lambda _: None
        )
        part = bus.follow(
            StreamName.FACTS, on_message=lambda _: None, on_gap=lambda _: None, filters=[bus.subjects.fact_node("1")]
        )
        await whole.caught_up.wait()
        await part.caught_up.wait()
        (process,) = await at_least(user, 1)
        assert process.data is not None
        assert (process.name, process.id, process.version) == ("berth-scorer", "one-1", "1.2.3")
        assert (process.data.not_ready, process.data.gauges) == ("facts are read", gauges)
        found = [(one.stream, one.sequence, one.waiting, one.is_filtered) for one in process.data.followed]
        assert found == [("FACTS", 3, 0, False), ("FACTS", 2, 0, True)]
        await user.publish(user.subjects.fact_node("0"), b"x")
        await until(lambda: whole.applied == 4, deadline_s=10, what="the last fact")
        await whole.stop()
        (process,) = await at_least(user, 1)
        assert process.data is not None
        assert [(one.sequence, one.waiting) for one in process.data.followed] == [(2, 0)]


async def at_least(bus: NatsBus, count: int) -> list[ProcessStats]:
    return await answers(bus, lambda found: len(found) >= count, deadline_s=10, what=f"{count} answers")


async def test_processes_of_a_cell_are_those_that_answer(own_server: EmbeddedServer) -> None:
    async with await NatsBus.connect(own_server.url, "here", name="asks", inbox=inbox_of_person("asks")) as user:
        assert await user.processes() == []
        buses = [await NatsBus.connect(own_server.url, "here", name=f"bus-{number}") for number in range(3)]
        for number, bus in enumerate(buses):
            await bus.announce(identity(number, cell="other" if number == 1 else "here"))
        found = await at_least(user, 2)
        assert [(one.id, one.data) for one in found] == [("one-0", None), ("one-2", None)]
        for bus in buses:
            await bus.drain(timeout_s=5)
        assert await user.processes() == []


async def test_a_scorer_that_answers_late_is_not_missing_in_the_status(own_server: EmbeddedServer) -> None:
    async with (
        await NatsBus.connect(own_server.url, "here", name="leads") as leads,
        await NatsBus.connect(own_server.url, "here", name="slow") as slow,
        await NatsBus.connect(own_server.url, "here", name="asks", inbox=inbox_of_person("asks")) as user,
    ):
        await user.ensure_streams()
        gauges = {"berth_dispatcher_is_leader": 1.0, "berth_dispatcher_shards": 1.0}
        await leads.announce(
            msgspec.structs.replace(identity(0), name="berth-dispatcher"), lambda: OwnReport("", gauges)
        )
        before = await NatsBus.connect(own_server.url, "here", name="before")
        await before.announce(identity(1))
        await before.serve("berth.here.score.0", handle, queue="shard-0")
        stats = await user.request("$SRV.STATS.berth-scorer.one-1", b"", timeout_s=5)
        await before.drain(timeout_s=5)

        async def late(_: bytes) -> bytes:
            await pause(2 * QUIET_S)
            return stats

        await slow.serve("$SRV.STATS", late)
        status = await gather_status(user, SystemClock())
        assert (status.scorers.answering, status.scorers.missing, status.problems) == ([0], [], [])


async def test_a_server_and_its_streams_are_described(own_server: EmbeddedServer) -> None:
    async with await NatsBus.connect(own_server.url, "here", name="asks", inbox=inbox_of_person("asks")) as user:
        assert await user.stream_report(StreamName.FACTS) is None
        await user.ensure_streams()
        await user.publish(user.subjects.fact_timer, b"12345")
        report = await user.stream_report(StreamName.FACTS)
        assert report is not None
        assert (report.messages, report.first_seq, report.last_seq, report.late) == (1, 1, 1, [])
        assert report.bytes > 5
        server = user.server
        assert own_server.url.endswith(server.address)
        assert server.version.count(".") == 2
        assert (server.name, server.cluster) == ("", "")
        await user.round_trip()


async def test_an_endpoint_has_a_name_and_says_its_schemas(own_server: EmbeddedServer) -> None:
    async def handle_named(_: str, data: bytes) -> bytes:
        return data

    async with (
        await NatsBus.connect(own_server.url, "here", name="one") as bus,
        await NatsBus.connect(own_server.url, "here", name="asks", inbox=inbox_of_person("asks")) as user,
    ):
        await bus.announce(identity(1))
        await bus.serve("berth.here.score.1", handle)
        await bus.offer(Endpoint("submit", "berth.here.api.submit.*", "api", '{"a":1}', '{"b":2}'), handle_named)
        endpoint = {"name": "submit", "subject": "berth.here.api.submit.*", "queue_group": "api"}
        assert endpoint in (await ask(user, "$SRV.INFO.berth-scorer"))["endpoints"]
        answer = await ask(user, "$SRV.SCHEMA.berth-scorer")
        assert answer["type"] == "io.nats.micro.v1.schema_response"
        assert answer["endpoints"] == [{**endpoint, "schema": {"request": '{"a":1}', "response": '{"b":2}'}}]
