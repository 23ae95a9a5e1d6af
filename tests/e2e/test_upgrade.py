"""The steps of an upgrade from release 0.4, and of its rollback, with services of both releases on one NATS server.

Source: docs/upgrading.md, "Order".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.runtime.local.nats_server import EmbeddedServer
from berth.schemas.envelope import encode
from tests.sim.older import Older
from tests.support.cells import a_job
from tests.support.command import berth
from tests.support.load import status
from tests.support.processes import ROOT, Service, Services, services
from tests.support.waiting import until_true

pytestmark = pytest.mark.timeout(300)
CELL: Final = "upgraded"
READERS: Final[dict[str, dict[str, Any]]] = {
    "scorer": {"shards": 1},
    "binder": {},
    "nodesim": {"topology_file": str(ROOT / "docs" / "examples" / "cluster.yaml")},
}
LEADER: Final[dict[str, Any]] = {"shards": 1, "lease_s": 3}
SAFE: Final[dict[str, Any]] = {"decisions": {"chain": 0}}
"""What release 0.4 reads too."""


class Cell:
    """A cell whose services change their release one by one."""

    def __init__(self, made: Services, url: str, bus: NatsBus, older: Older) -> None:
        self._made = made
        self._url = url
        self._bus = bus
        self._older = older
        self._jobs = 0
        self.running: dict[str, Service] = {}

    def make(self, name: str, *, is_older: bool, label: str = "", **settings: object) -> Service:
        release = "-0.4" if is_older else "-now"
        service = self._made.service(name, CELL, label=f"{label}{release}", **settings)
        if is_older:
            service.folder, service.module = self._older.folder, f"services.{name}"
            service.env["PYTHONPATH"] = str(self._older.folder)
        return service

    async def change(self, name: str, *, is_older: bool, **settings: object) -> None:
        """Stop a service, if it runs, and start it in a release."""
        if name in self.running:
            await self.running.pop(name).stop()
        service = self.running[name] = self.make(name, is_older=is_older, label=f"-{self._jobs}", **settings)
        service.start()

    async def stop(self) -> None:
        """Stop all services."""
        for service in reversed(self.running.values()):
            await service.stop()
        self.running.clear()

    async def command(self, *words: str) -> str:
        """Run the command of this release, which must succeed."""
        code, printed, errors = await berth(*words, url=self._url, cell=CELL)
        assert code == 0, printed + errors
        return printed

    async def places(self) -> None:
        """See that a job gets a place and runs."""
        self._jobs += 1
        name = f"job-{self._jobs}"
        sent = [a_job(name, chips=8)]

        async def runs() -> bool:
            ended = [one.log() for one in self.running.values() if not one.is_running]
            assert not ended, "\n".join(ended)
            try:
                while sent:
                    await self._bus.publish(self._bus.subjects.intake_request("default", name), encode(sent[0]))
                    sent.clear()
                found = await status(self._bus, name)
            except TransientError:  # the services have not made the streams yet
                return False
            return found is not None and found.phase == "running"

        await until_true(runs, deadline_s=40, what=f"{name} runs")


@asynccontextmanager
async def before(folder: Path) -> AsyncIterator[Cell]:
    """A cell of release 0.4 that has placed a job."""
    older = Older(folder / "older")
    metadata = older.folder / "berth-0.4.0.dist-info" / "METADATA"  # as an installation of it would have
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: berth\nVersion: 0.4.0\n", "utf-8")
    async with EmbeddedServer(folder / "nats", sync="always") as server:
        with services(folder, server.url) as made:
            async with await NatsBus.connect(server.url, CELL, name="test", inbox="_INBOX.person.test") as bus:
                cell = Cell(made, server.url, bus, older)
                for name, settings in READERS.items():
                    await cell.change(name, is_older=True, **settings)
                await cell.change("dispatcher", is_older=True, **LEADER)
                await cell.places()
                yield cell
                await cell.stop()


async def test_readers_first_then_the_dispatcher_and_back_again(tmp_path: Path) -> None:
    async with before(tmp_path) as cell:
        for name, settings in READERS.items():  # they do not answer a dispatcher of before, which has another inbox
            await cell.change(name, is_older=False, **settings)
        await cell.change("dispatcher", is_older=False, **LEADER, **SAFE)
        await cell.places()
        # No record has a new version yet: the older release takes over again, and reads all that was decided.
        await cell.change("dispatcher", is_older=True, **LEADER)
        for name, settings in READERS.items():
            await cell.change(name, is_older=True, **settings)
        await cell.places()


async def test_after_the_first_record_of_a_new_version_the_older_release_stops_and_says_why(tmp_path: Path) -> None:
    async with before(tmp_path) as cell:
        for name, settings in READERS.items():
            await cell.change(name, is_older=False, **settings)
        await cell.change("dispatcher", is_older=False, **LEADER)
        await cell.places()
        await cell.running.pop("dispatcher").stop()  # an older one that stands by reads nothing before it leads
        for name in ("dispatcher", "binder", "scorer"):
            late = cell.make(name, is_older=True, label="-late", **(LEADER if name == "dispatcher" else {}))
            late.start()
            assert await late.ended() == 1, late.log()  # from 0.5 on it is 2, with the release that is needed
            assert "version is 2, this release reads 1" in late.log()
        await cell.change("dispatcher", is_older=False, **LEADER)
        await cell.places()


async def test_a_backup_before_the_dispatchers_is_the_way_back_after_the_first_new_record(tmp_path: Path) -> None:
    kept = str(tmp_path / "upgrade.backup")
    async with before(tmp_path) as cell:
        for name, settings in READERS.items():
            await cell.change(name, is_older=False, **settings)
        assert "Nothing is wrong." in await cell.command("fsck")
        await cell.command("backup", kept)
        await cell.change("dispatcher", is_older=False, **LEADER)
        await cell.places()
        await cell.stop()
        await cell.command("restore", kept, "--replace")
        for name, settings in READERS.items():
            await cell.change(name, is_older=True, **settings)
        await cell.change("dispatcher", is_older=True, **LEADER)
        await cell.places()
