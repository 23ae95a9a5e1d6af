"""The process of a cell, inside the test: one probe server, restarts of one service, the order of the end."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from berth.cell.config import Running, load_cell
from berth.cell.process import Cell
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.config import ConfigError
from berth.runtime.errors import FatalError
from berth.runtime.instruments import Instruments
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.envelope import encode
from berth.services.binder import app as binder
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from tests.support.cells import a_job
from tests.support.load import status
from tests.support.waiting import until, until_true

pytestmark = pytest.mark.timeout(60)
CLUSTER = "apiVersion: berth/v1\nkind: Cluster\nnodes:\n  - {product: module910bx8, count: 4, name: 'n-{index}'}\n"


class Planned:
    """A cell whose binder ends at each start, before it serves, while there is an error for it.

    Args:
        url: Of the server.
        name: Of the cell.
        folder: Of its files.

    Attributes:
        error: What the binder ends with at its next starts; None to let it serve.
    """

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.error: Exception | None = None
        self.starts = 0
        self.stop = asyncio.Event()
        self.breaks = asyncio.Event()
        (self.port,) = free_ports(1)
        topology, file = folder / "cluster.yaml", folder / "cell.toml"
        topology.write_text(CLUSTER)
        file.write_text(
            f'grace_s = 10\n[bus]\nurl = "{url}"\ncell = "{name}"\n[probes]\nport = {self.port}\n'
            f'[dispatcher]\ntick_s = 0.1\n[nodesim]\ntopology_file = "{topology}"\nterminating_s = 0\n'
        )
        settings = load_cell(file, {})
        self.services = [self._with_errors(one) if one.name == "binder" else one for one in settings.services]
        self.cell = Cell(settings._replace(services=self.services), DEFAULT_LOG)

    def _with_errors(self, running: Running) -> Running:
        async def serve(
            bus: Bus, clock: Clock, config: BinderConfig, own: Instruments[BinderMetrics], stop: asyncio.Event
        ) -> None:
            self.starts += 1
            if self.error is not None:
                raise self.error
            async with asyncio.TaskGroup() as group:
                broken = group.create_task(self._break())
                await binder.serve(bus, clock, config, own, stop)
                broken.cancel()

        part = type(running.part)(running.part.config_type, running.part.metrics, serve, running.part.fixed)
        return running._replace(part=part)

    async def _break(self) -> None:
        await self.breaks.wait()
        self.breaks.clear()
        raise FatalError("broken by the test")

    async def ask(self, session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
        async with session.get(f"http://127.0.0.1:{self.port}/{path}") as answer:
            return answer.status, await answer.text()

    async def ready(self) -> None:
        await until(lambda: not self.cell.reason, deadline_s=20, what="all services to be ready")


@asynccontextmanager
async def running(planned: Planned) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(planned.cell.run(planned.stop))
        yield
        planned.stop.set()


async def placed(url: str, cell: str, name: str) -> None:
    """A job is asked for, placed and bound."""
    async with await NatsBus.connect(url, cell, name="test", inbox="_INBOX.person.test") as bus:
        job = a_job(name, chips=8)
        await bus.publish(bus.subjects.intake_request(job.namespace, job.name), encode(job))

        async def is_running() -> bool:
            found = await status(bus, name)
            return found is not None and found.phase == "running"

        await until_true(is_running, deadline_s=20, what=f"{name} to run")


async def test_one_probe_server_answers_for_all_and_names_the_one_that_is_not_ready(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    planned = Planned(nats_server, cell, tmp_path)
    planned.error = FatalError("until the test has seen it")
    async with running(planned), aiohttp.ClientSession() as session:
        await until(lambda: planned.starts, deadline_s=20, what="the first start")
        told: re.Match[str] | None = None

        # It ends until it is the only one that is not ready: how long the others take is not known.
        async def is_told() -> bool:
            nonlocal told
            code, text = await planned.ask(session, "readyz")
            told = re.fullmatch(r"binder: it ended (\d+) times in a row, and starts again\n", text)
            return code == 503 and told is not None

        await until_true(is_told, deadline_s=20, what="only the binder is not ready")
        assert told is not None
        assert 2 <= int(told[1]) <= planned.starts
        assert await planned.ask(session, "livez") == (200, "ok\n")
        planned.error = None
        await planned.ready()
        assert await planned.ask(session, "readyz") == (200, "ok\n")
        await placed(nats_server, cell, "one")
        _, text = await planned.ask(session, "metrics")
        families = {family.name: family for family in text_string_to_metric_families(text)}
        ready = {one.labels["service"]: one.value for one in families["berth_process_ready"].samples}
        assert ready == dict.fromkeys(("api", "binder", "cell", "dispatcher", "nodesim"), 1)
        restarts = {one.labels["service"]: one.value for one in families["berth_cell_restarts"].samples}
        assert restarts == {"api": 0, "binder": planned.starts - 1, "dispatcher": 0, "nodesim": 0}
        (leads,) = families["berth_dispatcher_is_leader"].samples
        assert (leads.labels, leads.value) == ({}, 1)
        assert len(families["process_resident_memory_bytes"].samples) == 1


async def test_a_service_that_ends_starts_again_alone_and_goes_on_where_it_was(
    nats_server: str, cell: str, tmp_path: Path
) -> None:
    planned = Planned(nats_server, cell, tmp_path)
    async with running(planned):
        await planned.ready()
        await placed(nats_server, cell, "before")
        planned.breaks.set()
        await until(lambda: planned.starts == 2, deadline_s=20, what="the second start")
        await planned.ready()
        await placed(nats_server, cell, "after")
    assert planned.starts == 2


async def test_what_a_restart_cannot_help_ends_the_process(nats_server: str, cell: str, tmp_path: Path) -> None:
    planned = Planned(nats_server, cell, tmp_path)
    planned.error = ConfigError(field="kube", expected="another file")
    with pytest.raises(ExceptionGroup) as errors:
        await planned.cell.run(planned.stop)
    (error,) = errors.value.exceptions
    assert isinstance(error, ConfigError)
    assert str(error) == "binder cannot run with its settings"


async def test_services_end_in_order(nats_server: str, cell: str, tmp_path: Path) -> None:
    planned = Planned(nats_server, cell, tmp_path)
    ended: list[str] = []

    async def note(name: str, event: asyncio.Event) -> None:
        await event.wait()
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        for one in planned.cell.services:
            group.create_task(note(one.name, one.ended))
        async with running(planned):
            await planned.ready()
    assert ended == ["api", "binder", "dispatcher", "nodesim"]
