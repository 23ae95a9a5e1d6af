"""The embedded server: found, started, killed, and never left behind."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from berth.lab.servers import nats_server
from berth.lab.servers.nats_server import EmbeddedServer, server_binary
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import FatalError
from berth.runtime.release import install_extra
from berth.schemas.subjects import StreamName
from tests.support.process_state import process_state
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(30)


def is_running(pid: int) -> bool:
    return process_state(pid) not in {"", "Z"}


async def test_a_killed_server_comes_back_on_its_port_with_its_store(own_server: EmbeddedServer) -> None:
    port = own_server.port
    async with await NatsBus.connect(own_server.url, "cell", name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        await bus.append(b"kept", expected_seq=0)
    await own_server.restart()
    assert own_server.port == port
    async with await NatsBus.connect(own_server.url, "cell", name="test", inbox="_INBOX.person.test") as bus:
        assert [record.data for record in await bus.read(StreamName.LEDGER)] == [b"kept"]


async def test_write_through_works(tmp_path: Path) -> None:
    async with (
        EmbeddedServer(tmp_path, sync="always") as server,
        await NatsBus.connect(server.url, "c", name="t") as bus,
    ):
        await bus.ensure_streams()
        assert await bus.append(b"x", expected_seq=0) == 1


async def test_a_server_that_does_not_start_shows_its_log(own_server: EmbeddedServer, tmp_path: Path) -> None:
    rival = EmbeddedServer(tmp_path / "rival", port=own_server.port, start_deadline_s=5)
    with pytest.raises(FatalError, match="address already in use"):
        await rival.start()
    assert rival.pid is None


async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from berth.lab.servers.nats_server import EmbeddedServer\n"
        "server = EmbeddedServer(Path(sys.argv[1]))\n"
        "asyncio.run(server.start())\n"
        "print(server.pid, flush=True)\n"
        "os._exit(1)\n"
    )
    parent = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    pid = int(parent.stdout)
    await until(lambda: not is_running(pid), deadline_s=5, what="the end of the server")


def test_the_binary_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert server_binary().is_file()


async def test_without_the_package_the_error_names_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_server, "_PACKAGE", "nats-server-that-nobody-published")
    with pytest.raises(FatalError) as refused:
        await EmbeddedServer(tmp_path).start()
    assert str(refused.value) == f"no nats-server is installed: {install_extra('lab')}"
