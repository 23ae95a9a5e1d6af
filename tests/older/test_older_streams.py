"""Services and what commands read end on streams of 0.4 with exit code 2, and change nothing.

Streams say themselves of which release they are; where they are taken for new ones, records and snapshots say it.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.fsck.ledger_check import check_ledger
from berth.runtime.fsck.ledger_repair import find
from berth.runtime.history import state_now
from berth.runtime.instruments import Instruments
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.process import MISCONFIGURED, report
from berth.runtime.recording import record
from berth.runtime.stored_snapshots import newest_snapshot, settings_now
from berth.schemas.envelope import OlderVersionError
from berth.services.inventory.app import serve_on
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics
from tests.older.files import BACKUP, CELL, in_memory, on_server
from tests.support.cells import Cell
from tests.support.clock import ManualClock
from tests.support.command import berth
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import FakeServer
from tests.support.processes import ROOT
from tests.support.services import PACKAGES
from tests.support.waiting import SLACK

TOLD: Final = "written by a release before 0.5"
SERVICES: Final = ("api", "binder", "dispatcher", "gateway", "health", "nodesim", "scorer", "summary")
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "nodesim": {"topology_file": ROOT / "docs" / "examples" / "cluster.yaml"},
}


def content(server: FakeServer) -> dict[str, object]:
    """All that a server has."""
    return {name: (stream.state, list(stream.messages.values())) for name, stream in server.streams.items()}


async def ended(server: FakeServer, serve: Callable[[FakeBus, asyncio.Event], Awaitable[None]]) -> None:
    """See that a service ends with exit code 2 and has changed nothing."""
    before = content(server)
    bus = FakeBus(server, CELL)
    with pytest.raises((OlderVersionError, ExceptionGroup), match=rf"{TOLD}|unhandled") as caught:
        async with asyncio.timeout(10 * SLACK):
            await serve(bus, asyncio.Event())
    assert report(caught.value, DEFAULT_LOG) == MISCONFIGURED
    await bus.close()
    assert content(server) == before


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_ends_before_it_does_anything(name: str) -> None:
    clock = ManualClock()
    server = FakeServer(clock)
    in_memory(server)
    package = PACKAGES[name]
    config = getattr(importlib.import_module(f"{package}.config"), f"{name.title()}Config")
    metrics = getattr(importlib.import_module(f"{package}.metrics"), f"{name.title()}Metrics")
    serve = importlib.import_module(f"{package}.app").serve

    async def work(bus: FakeBus, stop: asyncio.Event) -> None:
        await serve(bus, clock, config(**SETTINGS.get(name, {})), Instruments.make(metrics), stop)

    await ended(server, work)


async def test_the_inventory_ends_before_it_does_anything() -> None:
    clock = ManualClock()
    server = FakeServer(clock)
    in_memory(server)

    async def work(bus: FakeBus, stop: asyncio.Event) -> None:
        instruments = Instruments.make(InventoryMetrics)
        await serve_on(bus, FakeKube(clock=clock), clock, InventoryConfig(), instruments, stop)

    await ended(server, work)


async def test_a_dispatcher_ends_at_the_records_themselves() -> None:
    server = FakeServer(ManualClock())
    in_memory(server, is_marked=True)
    cell = Cell(name=CELL, server=server)
    await cell.user.ensure_streams()
    before = content(server)
    with pytest.raises(OlderVersionError, match=TOLD):
        await cell.start_dispatcher()
    assert content(server) == before
    await cell.close()


async def test_what_commands_read_of_old_records_is_not_called_damaged(tmp_path: Path) -> None:
    clock = ManualClock()
    server = FakeServer(clock)
    in_memory(server, is_marked=True)
    bus = FakeBus(server, CELL)
    await bus.ensure_streams()
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: check_ledger(bus),
        lambda: find(bus, clock, by="me"),
        lambda: newest_snapshot(bus),
        lambda: state_now(bus, clock),
        lambda: settings_now(bus),
        lambda: record(bus, clock, tmp_path / "cell.rec"),
    ]
    for read in reads:
        with pytest.raises(OlderVersionError, match=TOLD):
            await read()
    await bus.close()


async def infos(bus: NatsBus) -> list[object]:
    """All streams of a cell as the server tells of them."""
    specs = bus.subjects.streams()
    return [(spec.name, await bus.stream_report(spec.name), await bus.keeping(spec.name)) for spec in specs]


@pytest.mark.timeout(300)
async def test_commands_end_on_a_real_server_and_leave_its_streams(own_server: EmbeddedServer, tmp_path: Path) -> None:
    written = [str(tmp_path / name) for name in ("cell.backup", "cell.rec")]
    async with await NatsBus.connect(own_server.url, CELL, name="test", inbox="_INBOX.person.test") as bus:
        await on_server(bus)
        before = await infos(bus)
        for words in (
            ["fsck"],
            ["repair", "--yes"],
            ["backup", written[0]],
            ["restore", str(BACKUP), "--replace"],
            ["record", written[1]],
            ["streams", "apply"],
            ["jobs"],
            ["explain", "job-1"],
        ):
            code, out, err = await berth(*words, url=own_server.url, cell=CELL)
            assert (code, out) == (2, ""), (words, out, err)
            assert TOLD in err
            assert "damaged" not in err
        assert await infos(bus) == before
    assert not [path for path in tmp_path.glob("cell.*") if str(path) in written]  # noqa: ASYNC240  # a few files
