"""Probes: alive, ready or why not, and the metrics in a form that a reader of Prometheus takes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from berth.lab.servers.ports import free_ports
from berth.runtime.bus.process_stats import Followed
from berth.runtime.config import ProbeConfig
from berth.runtime.errors import FatalError
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.probes import Readiness, ServicePages, serving
from tests.support.waiting import SLACK


class Link:
    def __init__(self) -> None:
        self.connected = True
        self.followed: list[Followed] = []


@asynccontextmanager
async def asking(
    readiness: Readiness, registry: MetricsRegistry | None = None
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    (port,) = free_ports(1)
    config, shown = ProbeConfig(port=port), registry or MetricsRegistry()
    async with serving(config, ServicePages(readiness, shown), DEFAULT_LOG), aiohttp.ClientSession() as session:
        yield session, f"http://127.0.0.1:{port}"


async def test_a_process_is_ready_when_its_bus_is_connected_and_its_service_has_caught_up() -> None:
    readiness, link = Readiness(), Link()
    async with asking(readiness) as (session, url):

        async def answer(path: str) -> tuple[int, str]:
            async with session.get(url + path) as response:
                return response.status, (await response.text()).strip()

        assert await answer("/livez") == (200, "ok")
        assert await answer("/readyz") == (503, "the bus has not been connected yet")
        readiness.attach(link)
        assert await answer("/readyz") == (503, "the service has not started")
        readiness.wait("the ledger is being folded")
        assert await answer("/readyz") == (503, "the ledger is being folded")
        readiness.ready()
        assert await answer("/readyz") == (200, "ok")
        link.connected = False
        assert await answer("/readyz") == (503, "the bus is not connected")
        link.connected = True
        assert await answer("/readyz") == (200, "ok")
        readiness.stop()
        assert await answer("/readyz") == (503, "the process is stopping")
        assert await answer("/livez") == (200, "ok")
        assert (await answer("/elsewhere"))[0] == 404


async def test_metrics_are_in_the_form_of_prometheus() -> None:
    registry = MetricsRegistry()
    registry.counter("test_events_total", "Events of this test.", ["kind"]).labels("good").inc(2)
    registry.gauge("test_height_sequence", "A height.").set(7)
    registry.seconds("test_event_seconds", "How long an event took.").observe(0.003)
    async with asking(Readiness(), registry) as (session, url), session.get(f"{url}/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        text = await response.text()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["berth_test_events_total", "good"] == 2
    assert samples["berth_test_height_sequence",] == 7
    assert samples["berth_test_event_seconds_count",] == 1
    assert samples["berth_test_event_seconds_bucket", "0.0025"] == 0
    assert samples["berth_test_event_seconds_bucket", "0.005"] == 1
    assert samples["berth_process_ready",] == 0
    assert samples["process_resident_memory_bytes",] > 0
    assert not [name for name, *_ in samples if name.endswith("_created")]


async def test_the_connection_and_what_waits_are_known_when_they_are_asked_for() -> None:
    readiness, link, registry = Readiness(), Link(), MetricsRegistry()
    async with asking(readiness, registry) as (session, url):

        async def scraped() -> dict[str, float]:
            async with session.get(f"{url}/metrics") as response:
                assert response.status == 200
            return {name: value for name, value in registry.gauges().items() if "_process_" in name}

        assert await scraped() == {"berth_process_ready": 0, "berth_process_connected": 0}
        readiness.attach(link)
        readiness.ready()
        link.followed = [
            Followed("FACTS", 10, 3, is_filtered=False),
            Followed("FACTS", 8, 2, is_filtered=True, foreign=4),
            Followed("STATUS", 4, 0, is_filtered=False),
        ]
        assert await scraped() == {
            "berth_process_ready": 1,
            "berth_process_connected": 1,
            'berth_process_waiting_messages{stream="FACTS"}': 5,
            'berth_process_waiting_messages{stream="STATUS"}': 0,
            'berth_process_foreign_messages{stream="FACTS"}': 4,
            'berth_process_foreign_messages{stream="STATUS"}': 0,
        }
        link.connected, link.followed = False, []
        assert await scraped() == {"berth_process_ready": 0, "berth_process_connected": 0}


async def test_no_port_means_no_server_and_a_taken_port_is_named() -> None:
    readiness = Readiness()
    async with serving(ProbeConfig(), ServicePages(readiness, MetricsRegistry()), DEFAULT_LOG):
        pass
    async with asking(readiness) as (_, url):
        port = int(url.rpartition(":")[2])
        with pytest.raises(FatalError, match=rf"setting probes\.port is {port}: cannot listen on 127\.0\.0\.1:{port}"):
            async with serving(ProbeConfig(port=port), ServicePages(readiness, MetricsRegistry()), DEFAULT_LOG):
                pass


async def sent(port: int, data: bytes) -> str:
    """What is answered to some bytes until the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.write_eof()
    try:
        return (await reader.read()).decode()
    except ConnectionResetError:  # it closed before it had read all
        return ""
    finally:
        writer.close()


async def test_other_requests_get_an_error_and_hurt_nobody() -> None:
    async with asking(Readiness()) as (session, url):
        port = int(url.rpartition(":")[2])
        assert (await sent(port, b"POST /livez HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 405 ")
        assert (await sent(port, b"nonsense\r\n\r\n")).startswith("HTTP/1.1 400 ")
        assert await sent(port, b"GET /livez HTTP/1.1\r\n") == ""
        assert await sent(port, b"x" * 100_000) == ""
        async with session.head(f"{url}/livez") as answer:
            assert (answer.status, answer.headers["Content-Length"], await answer.text()) == (200, "3", "")
        async with session.get(f"{url}/livez?verbose") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")


class LongPages:
    reason = ""

    def exposition(self) -> bytes:
        return bytes(8 << 20)


async def test_clients_that_send_and_take_nothing_are_ended_for_those_that_do() -> None:
    (port,) = free_ports(1)
    async with serving(ProbeConfig(port=port), LongPages(), DEFAULT_LOG), AsyncExitStack() as stack:
        slow = [socket.socket() for _ in range(100)]
        for own in slow:
            stack.callback(own.close)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            own.setblocking(False)  # noqa: FBT003  # takes no keyword
            await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", port))
            own.send(b"GET /metrics HTTP/1.1\r\n\r\n" if own is slow[0] else b"GET /liv")
        assert (await sent(port, b"GET /livez HTTP/1.1\r\n\r\n")).endswith("ok\n")
        reader, writer = await asyncio.open_connection(sock=slow[0])
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(8 << 20)
        writer.close()


async def test_the_end_waits_for_no_client_that_is_silent() -> None:
    async with asyncio.timeout(5 * SLACK):
        async with asking(Readiness()) as (_, url):
            _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(b"GET /livez")
            await writer.drain()
        writer.close()
