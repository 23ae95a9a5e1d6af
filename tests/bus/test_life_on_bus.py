"""A service process on a real bus: it serves, stops when asked, and ends when the bus is lost."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.lab.servers.nats_server import EmbeddedServer
from tests.support.compiled_files import COMPILED_FILES

PROCESSES: list[subprocess.Popen[str]] = []
PROGRAM = """
import asyncio
from berth.runtime import process
from berth.runtime.config import ServiceConfig
from berth.runtime.errors import FatalError
from berth.schemas.subjects import StreamName

async def until_asked(bus, clock, config, instruments, stop):
    await bus.ensure_streams(replicas=config.bus.replicas)
    await bus.publish(bus.subjects.status("a", "b"), b"here")
    instruments.log.info("serving", cell=bus.subjects.cell, at_ms=clock.now_ms())
    await stop.wait()
    await bus.publish(bus.subjects.status("a", "b"), b"gone")

async def until_lost(bus, clock, config, instruments, stop):
    bus.lost.set_result(FatalError("connection closed permanently"))
    await stop.wait()

process.main("test", ServiceConfig, lambda registry: registry, {serve})
"""


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    yield
    while PROCESSES:
        with PROCESSES.pop() as process:
            process.kill()


def started(tmp_path: Path, serve: str, url: str, cell: str, *, more: str = "") -> subprocess.Popen[str]:
    path = tmp_path / "test.toml"
    path.write_text(f'[bus]\ncell = "{cell}"\n{more}')
    process = subprocess.Popen(  # noqa: S603  # our own interpreter and words
        [sys.executable, "-c", PROGRAM.replace("{serve}", serve), "--config", str(path)],
        cwd=Path(__file__).parents[2],
        env={**COMPILED_FILES, "BERTH_BUS__URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    PROCESSES.append(process)
    return process


def test_a_service_serves_until_it_is_asked_to_stop(tmp_path: Path, nats_server: str, cell: str) -> None:
    process = started(tmp_path, "until_asked", nats_server, cell)
    assert process.stderr is not None
    ready = json.loads(process.stderr.readline())
    assert (ready["event"], ready["service"], ready["cell"]) == ("serving", "test", cell)
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")


def test_a_service_whose_bus_is_lost_exits_1_and_says_so(tmp_path: Path, nats_server: str, cell: str) -> None:
    process = started(tmp_path, "until_lost", nats_server, cell)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    last = json.loads(err.splitlines()[-1])
    assert (last["event"], last["reason"]) == ("fatal error", "connection closed permanently")


async def test_a_service_with_wrong_credentials_exits_2_and_says_so(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    users = 'authorization { users: [{ user: "test", password: "s3cret" }] }'
    async with EmbeddedServer(tmp_path / "nats", more=users) as server:
        process = started(
            tmp_path, "until_asked", server.url, "cell", more=f'user = "test"\npassword_file = "{secret}"\n'
        )
        _, err = await asyncio.to_thread(process.communicate, timeout=30)
    assert process.returncode == 2
    last = json.loads(err.splitlines()[-1])
    assert last["event"] == "fatal error"
    assert last["reason"].startswith("authorization failed: ")
