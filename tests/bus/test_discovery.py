"""Discovery: who is there, what it serves, and how it does."""

import asyncio
from typing import Any

import msgspec
import pytest

from berth.runtime.bus.discovery import Identity
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Endpoint
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.local.nats_server import EmbeddedServer


def identity(number: int) -> Identity:
    return Identity(
        name="berth-scorer",
        id=f"one-{number}",
        version="1.2.3",
        metadata={"cell": "here"},
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
        await NatsBus.connect(own_server.url, "here", name="asks") as user,
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
    async with await NatsBus.connect(own_server.url, "here", name="asks") as user:
        buses = [await NatsBus.connect(own_server.url, "here", name=f"bus-{number}") for number in range(2)]
        for number, bus in enumerate(buses):
            await bus.announce(identity(number))
        for number, bus in enumerate(buses):
            assert (await ask(user, f"$SRV.PING.berth-scorer.one-{number}"))["id"] == f"one-{number}"
            await bus.drain(timeout_s=5)
        with pytest.raises(TransientError, match="no responders"):
            await ask(user, "$SRV.PING.berth-scorer")


async def test_an_endpoint_has_a_name_and_says_its_schemas(own_server: EmbeddedServer) -> None:
    async def handle_named(_: str, data: bytes) -> bytes:
        return data

    async with (
        await NatsBus.connect(own_server.url, "here", name="one") as bus,
        await NatsBus.connect(own_server.url, "here", name="asks") as user,
    ):
        await bus.announce(identity(1))
        await bus.serve("berth.here.score.1", handle)
        await bus.offer(Endpoint("submit", "berth.here.api.submit.*", "api", '{"a":1}', '{"b":2}'), handle_named)
        endpoint = {"name": "submit", "subject": "berth.here.api.submit.*", "queue_group": "api"}
        assert endpoint in (await ask(user, "$SRV.INFO.berth-scorer"))["endpoints"]
        answer = await ask(user, "$SRV.SCHEMA.berth-scorer")
        assert answer["type"] == "io.nats.micro.v1.schema_response"
        assert answer["endpoints"] == [{**endpoint, "schema": {"request": '{"a":1}', "response": '{"b":2}'}}]
