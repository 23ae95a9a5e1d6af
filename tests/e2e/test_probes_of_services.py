"""Every service as a process: ready only when it has caught up, and its metrics count what it does."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.load import give_jobs, status
from tests.support.probes import answer, samples
from tests.support.processes import ROOT, services
from tests.support.waiting import SLACK, pause

CLUSTER = ROOT / "docs" / "examples" / "cluster.yaml"
SETTINGS: dict[str, dict[str, Any]] = {
    "dispatcher": {"shards": 1},
    "scorer": {"shards": 1},
    "binder": {},
    "api": {},
    "nodesim": {"topology_file": str(CLUSTER)},
}


async def ready(session: aiohttp.ClientSession, port: int) -> None:
    while (await answer(session, port, "readyz"))[0] != 200:
        await pause(0.02)


async def phase(bus: NatsBus, name: str) -> str:
    found = await status(bus, name)
    return found.phase if found is not None else ""


async def until_seen(see: Callable[[], Awaitable[None]]) -> None:
    """Look until all is as it should be: what a process counts may be a moment behind what it has done.

    Raises:
        AssertionError: Something is not in time; says what.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + SLACK * 10
    while True:
        try:
            return await see()
        except AssertionError:
            if loop.time() > end:
                raise
        await pause(0.05)


async def see_dispatcher(bus: NatsBus, session: aiohttp.ClientSession, port: int) -> None:
    found = await samples(session, port)
    assert found["berth_process_connected"] == 1
    assert "berth_process_waiting_messages.FACTS" in found
    assert found["berth_dispatcher_is_leader"] == 1
    assert found["berth_dispatcher_epoch"] == 1
    assert found["berth_dispatcher_admission_wait_time_seconds_count"] == 1
    assert found["berth_dispatcher_rounds_total"] >= 1
    assert found["berth_dispatcher_append_seconds_count"] == found["berth_dispatcher_rounds_total"]
    assert found["berth_dispatcher_placed_gangs_total"] == 1
    assert found["berth_dispatcher_refused_gangs_total"] >= 1
    assert found["berth_dispatcher_waiting_gangs"] == 1
    assert found["berth_dispatcher_requests_total"] == 2
    head = (await bus.state(StreamName.LEDGER)).last_seq
    assert found["berth_dispatcher_ledger_sequence"] == head


async def see_scorer(session: aiohttp.ClientSession, port: int) -> None:
    found = await samples(session, port)
    assert found["berth_scorer_requests_total.yes"] >= 1
    requests = found["berth_scorer_requests_total.yes"] + found["berth_scorer_requests_total.no"]
    assert found["berth_scorer_request_seconds_count"] == requests
    assert found["berth_scorer_facts_sequence"] > 0
    assert found["berth_scorer_nodes"] > 0


async def see_binder(session: aiohttp.ClientSession, port: int) -> None:
    found = await samples(session, port)
    assert found["berth_binder_gangs_total.bound"] == 1
    assert found["berth_binder_pending_gangs"] == 0
    assert found["berth_binder_ledger_sequence"] > 0


async def see_nodesim(session: aiohttp.ClientSession, port: int) -> None:
    found = await samples(session, port)
    assert found["berth_nodesim_live_pods"] == 1
    assert found["berth_nodesim_held_chips"] == 8
    assert found["berth_nodesim_double_allocations"] == 0


async def see_api(session: aiohttp.ClientSession, port: int) -> None:
    found = await samples(session, port)
    assert sum(chips for name, chips in found.items() if re.fullmatch(r"berth_chips\..+\.used", name)) == 8
    assert sum(chips for name, chips in found.items() if name.startswith("berth_waiting_chips.")) == 32_000
    assert (found["berth_jobs.running"], found["berth_jobs.waiting"]) == (1, 1)
    assert sum(jobs for name, jobs in found.items() if name.startswith("berth_waiting_jobs.")) == 1
    assert found["berth_counts_age_seconds"] < 60


@pytest.mark.timeout(90)
async def test_services_say_when_they_are_ready_and_what_they_have_done(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    ports = dict(zip(SETTINGS, free_ports(len(SETTINGS)), strict=True))
    with ExitStack() as stack:
        made = stack.enter_context(services(tmp_path, own_server.url))
        running = [
            made.service(name, cell, label="", probes={"port": ports[name]}, **settings)
            for name, settings in SETTINGS.items()
        ]
        async with (
            aiohttp.ClientSession() as session,
            asyncio.timeout(SLACK * 60),
            await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus,
        ):
            for service in running:
                service.start()
            for name in SETTINGS:
                await ready(session, ports[name])
            small = a_job("small", chips=8, run_ms=3_600_000)  # to the end of the test
            await give_jobs(bus, small, a_job("huge", chips=8, replicas=4_000))
            while (await phase(bus, "small"), await phase(bus, "huge")) != ("running", "waiting"):
                await pause(0.02)

            await until_seen(lambda: see_dispatcher(bus, session, ports["dispatcher"]))
            await until_seen(lambda: see_scorer(session, ports["scorer"]))
            await until_seen(lambda: see_binder(session, ports["binder"]))
            await until_seen(lambda: see_api(session, ports["api"]))
            await until_seen(lambda: see_nodesim(session, ports["nodesim"]))

            await own_server.kill()
            for name, port in ports.items():
                while await answer(session, port, "readyz") != (503, "the bus is not connected"):
                    await pause(0.02)
                assert await answer(session, port, "livez") == (200, "ok"), name
            await own_server.start()
            for name in SETTINGS:
                await ready(session, ports[name])
        for service in reversed(running):
            await service.stop()
