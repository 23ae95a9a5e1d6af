"""The last hour as the gateway knows it: also what was before it began, and how much of the events it reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from berth.core.overview.hour_log import HOUR_MS
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.schemas.page.hour import Hour
from berth.schemas.programs.events import JobEvent
from berth.services.gateway.application import Application
from berth.services.gateway.config import GatewayConfig, Token
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.refusal_log import RefusalLog
from berth.services.gateway.serving import Parts, routes_of
from berth.services.gateway.view import past_events as reading
from berth.services.gateway.view.cell_view import CellView
from berth.services.gateway.view.past_events import past_events
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.gateway_requests import Told
from tests.support.gateway_requests import told as asked
from tests.support.programs import Programs, job_file, programs
from tests.support.waiting import until
from tests.unit.services.api.test_lists import TENANTS

SPEC: dict[str, Any] = {"product": "module910bx8", "replicas": 1, "chips": 8}


@asynccontextmanager
async def followed(told: Programs) -> AsyncIterator[CellView]:
    view = CellView(told.bus, told.cell.clock, DEFAULT_LOG)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(view.run(stop, lambda _: None))
        await until(lambda: view.is_known, deadline_s=5, what="a picture")
        yield view
        stop.set()


def told_of(hour: Hour) -> list[tuple[str, str]]:
    return [(one.what, one.name) for one in hour.events if one.name]


async def test_a_gateway_that_begins_knows_what_was_before() -> None:
    async with programs(nodes=1) as told:
        for name in ("first", "second"):
            assert (await told.ask("submit", {"job": job_file(name, uid=f"u-{name}", **SPEC)}))["ok"]
            await told.turns(4)
        async with followed(told) as view:
            hour = view.hour(lambda _: True)
            assert sorted(told_of(hour)) == [("placed", "first"), ("waiting", "first"), ("waiting", "second")]
            assert [(one.used, one.waiting) for one in (hour.points[0], hour.points[-1])] == [(0, 0), (8, 1)]
            assert hour.begin_ms == max(0, hour.at_ms - HOUR_MS)
            assert told_of(view.hour(lambda _: False)) == []
            assert (await told.ask("submit", {"job": job_file("third", uid="u-third", **SPEC)}))["ok"]
            await told.turns(4)
            await until(
                lambda: ("waiting", "third") in told_of(view.hour(lambda _: True)), deadline_s=5, what="the third job"
            )


async def test_a_reader_of_one_namespace_gets_no_names_of_others() -> None:
    async with programs(nodes=1, is_started=False) as told:
        await told.start(TENANTS)
        for namespace in ("team", "lab"):
            job = job_file(f"of-{namespace}", namespace=namespace, uid=f"u-{namespace}", **SPEC)
            assert (await told.ask("submit", {"job": job}, identity="admin"))["ok"]
            await told.turns(4)
        tokens = [Token(identity=name, sha256=sha256(name.encode()).hexdigest()) for name in ("admin", "two", "nobody")]
        config, metrics = GatewayConfig(tokens=tokens), GatewayMetrics(MetricsRegistry())
        clock = told.cell.clock
        parts = Parts(told.bus, clock, config, metrics, DEFAULT_LOG)
        routes = routes_of(told.bus, clock, config, parts)
        app = Application(routes, parts.guard, clock, metrics, RefusalLog(clock, DEFAULT_LOG))

        async def hour(identity: str) -> Told:
            headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {identity}".encode())]
            return await asked(app, "GET", "/api/v1/view/hour", headers=headers)

        assert (await hour("admin")).status == HTTPStatus.SERVICE_UNAVAILABLE
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.view.run(stop, lambda _: None))
            await until(lambda: parts.view.is_known, deadline_s=5, what="a picture")
            for _ in range(2):  # the second answer is kept
                every, some = [msgspec.json.decode((await hour(one)).body, type=Hour) for one in ("admin", "two")]
                assert {one.name for one in every.events} == {"of-team", "of-lab"}
                assert {one.name for one in some.events} == {"of-lab"}
                assert every.counts == some.counts
            assert (await hour("nobody")).status == HTTPStatus.FORBIDDEN
            stop.set()


async def test_a_bounded_part_of_the_events_is_read_from_the_newest_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_CHUNK", 3)
    server = FakeServer()
    async with FakeBus(server, "c") as bus:
        await bus.ensure_streams()
        for index in range(20):
            event = JobEvent(
                id=f"u{index}/0/0/accepted",
                namespace="n",
                name=f"j{index}",
                uid=f"u{index}",
                attempt=0,
                step=0,
                phase="accepted",
                at_ms=index,
            )
            await bus.publish(bus.subjects.event_job("n", f"j{index}"), msgspec.json.encode(event))
        assert len((await past_events(bus, 0)).events) == 20
        monkeypatch.setattr(reading, "_MOST", 7)
        found = await past_events(bus, 0)
        assert [one.name for one in found.events] == [f"j{index}" for index in range(13, 20)]
        assert found.begin_ms == 13
        monkeypatch.setattr(reading, "_BYTES_MAX", 1)
        assert [one.name for one in (await past_events(bus, 0)).events] == ["j17", "j18", "j19"]
