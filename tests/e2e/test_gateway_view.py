"""The picture of a cell over HTTP, from real processes: it follows jobs and nodes, also through restarts of NATS."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
import pytest

from berth.cli.cluster.folded_nodes import rows_of
from berth.cli.jobs.finding import statuses
from berth.cli.jobs.queue_order import in_order, positions
from berth.core.chips.picking import ids_of
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.errors import TransientError
from berth.runtime.history import state_now
from berth.schemas.page.hour import Hour
from berth.schemas.page.view import Job, View
from tests.e2e.test_client import start_again
from tests.support.gateways import Browser, browser, get
from tests.support.processes import ROOT, Service, services
from tests.support.programs import ask, job_file
from tests.support.waiting import until_true

CLUSTER: Final = ROOT / "docs" / "examples" / "cluster.yaml"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "dispatcher": {"shards": 0},
    "binder": {},
    "nodesim": {"topology_file": str(CLUSTER)},
    "api": {},
}


class Cell(NamedTuple):
    """A cell with a gateway."""

    bus: NatsBus
    session: aiohttp.ClientSession
    url: str
    page: Browser
    api: Service


@asynccontextmanager
async def running(server: EmbeddedServer, cell: str, folder: Path) -> AsyncIterator[Cell]:
    (port,) = free_ports(1)
    with ExitStack() as stack:
        made = stack.enter_context(services(folder, server.url))
        settings = SETTINGS | {"gateway": {"access": "open", "port": port}}
        started = {name: made.service(name, cell, **own) for name, own in settings.items()}
        for service in started.values():
            service.start()
        url = f"http://127.0.0.1:{port}"
        async with (
            await NatsBus.connect(server.url, cell, name="test", inbox="_INBOX.person.test") as bus,
            aiohttp.ClientSession() as session,
            browser(session, url) as page,
        ):
            await page.until(lambda view: len(view.nodes) > 10, deadline_s=30, what="nodes in the picture")
            yield Cell(bus, session, url, page, started["api"])


async def submit(bus: NatsBus, name: str, **spec: Any) -> None:  # noqa: ANN401  # fields of a job file
    async def is_stored() -> bool:
        try:
            return bool((await ask(bus, "submit", {"job": job_file(name, uid=f"uid-{name}", **spec)}))["ok"])
        except TransientError:
            return False

    await until_true(is_stored, deadline_s=20, what=f"{name} is stored")


def job_in(view: View, name: str) -> Job | None:
    return next((job for job in view.jobs if job.name == name), None)


def chips_of(view: View, name: str) -> int:
    job = job_in(view, name)
    return sum(row.owners.count(job.n) for row in view.nodes) if job is not None else 0


def is_in(name: str, *phases: str) -> Callable[[View], bool]:
    return lambda view: (job := job_in(view, name)) is not None and job.phase in phases


@pytest.mark.timeout(170)
async def test_the_picture_follows_the_cell(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    async with running(own_server, cell, tmp_path) as found:
        bus, page = found.bus, found.page
        await submit(bus, "short", product="module910bx8", chips=8, replicas=2, runFor="15s")
        view = await page.until(is_in("short", "placed", "bound", "running"), deadline_s=20, what="its placement")
        await page.until(lambda view: chips_of(view, "short") == 16, deadline_s=5, what="its chips")
        for number in range(6):  # more than there is room for
            await submit(bus, f"large-{number}", product="module910bx8", chips=8, replicas=3, runFor="10m")
        await page.until(is_in("short", "succeeded"), deadline_s=60, what="its end")
        view = await page.until(lambda view: not chips_of(view, "short"), deadline_s=10, what="its chips are free")
        assert view.ledger_seq > 0
        known = [phase for phase in page.history["short"] if phase in {"placed", "bound", "running", "succeeded"}]
        assert known == sorted(known, key=["placed", "bound", "running", "succeeded"].index)
        assert known[-1] == "succeeded"
        await until_true(lambda: is_as_the_commands_say(found), deadline_s=30, what="the same as berth jobs and nodes")
        assert len((await page.until(lambda view: view.queue, deadline_s=5, what="a queue")).queue) > 0
        whole = msgspec.convert(await get(found.session, f"{found.url}/api/v1/view"), View)
        assert [one.name for one in whole.layout.nodes] == [one.name for one in view.layout.nodes]
        await until_true(lambda: has_services(found), deadline_s=20, what="dispatcher, api and gateway in the status")
        assert await get(found.session, f"{found.url}/api/v1/dead") == []
        hour = msgspec.convert(await get(found.session, f"{found.url}/api/v1/view/hour"), Hour)
        assert {("placed", "short"), ("succeeded", "short")} <= {(one.what, one.name) for one in hour.events}
        assert max(point.used for point in hour.points) >= 16


async def has_services(found: Cell) -> bool:
    """Whether the status has these services; on a busy machine one may answer too late to count."""
    status: Any = await get(found.session, f"{found.url}/api/v1/cell")
    return {one["service"] for one in status["status"]["processes"]} >= {"dispatcher", "api", "gateway"}


async def is_as_the_commands_say(found: Cell) -> bool:
    """Whether the picture has what ``berth jobs`` and ``berth nodes`` print."""
    view = found.page.view
    assert view is not None
    known = await statuses(found.bus)
    places = positions(known)
    waiting = [one for one in in_order(known) if one.phase == "waiting"]
    names = {job.n: (job.namespace, job.name) for job in view.jobs}
    wanted = {
        (one.namespace, one.name): (one.phase, one.sentence, places.get((one.namespace, one.name), 0)) for one in known
    }
    if {(job.namespace, job.name): (job.phase, job.sentence, job.position) for job in view.jobs} != wanted:
        return False
    if [names[number] for number in view.queue] != [(one.namespace, one.name) for one in waiting]:
        return False
    state = await state_now(found.bus, SystemClock())
    rows = {row.name: row for row in rows_of(state)}
    shown = dict(zip((one.name for one in view.layout.nodes), view.nodes, strict=True))
    return shown.keys() == rows.keys() and all(
        (
            [chip for chip, owner in enumerate(row.owners) if owner],
            list(ids_of(row.unhealthy)),
            row.level,
        )
        == (sorted({*rows[name].used, *rows[name].releasing}), rows[name].unhealthy, rows[name].level)
        for name, row in shown.items()
    )


@pytest.mark.timeout(170)
async def test_the_picture_goes_on_after_a_restart_of_the_server(
    own_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    async with running(own_server, cell, tmp_path) as found, asyncio.TaskGroup() as group:
        bus, page = found.bus, found.page
        await submit(bus, "before", product="module910bx8", chips=8, runFor="10m")
        await page.until(is_in("before", "running"), deadline_s=30, what="a job that runs")
        kept = group.create_task(start_again(found.api))  # it ends if the server has lost events
        await own_server.kill()
        await own_server.start()
        await submit(bus, "after", product="module910bx8", chips=8, runFor="10m")
        await page.until(is_in("after", "running"), deadline_s=60, what="a job after the restart")
        view = await page.until(lambda view: chips_of(view, "after") == 8, deadline_s=10, what="its chips")
        assert chips_of(view, "before") == 8
        await until_true(lambda: is_as_the_commands_say(found), deadline_s=30, what="the same as the commands print")
        kept.cancel()
