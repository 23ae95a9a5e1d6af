"""The example programs do what the guide says, where their languages are installed."""

import ast
import asyncio
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

from berth.client import Client
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from tests.e2e.test_programs import SETTINGS, answers
from tests.support.processes import ROOT, output_of, services
from tests.support.waiting import until_true

GUIDE: Final = ROOT / "docs" / "programs.md"
URL_OF_GUIDE: Final = "nats://127.0.0.1:4222"
EXAMPLES: Final = ROOT / "docs" / "examples" / "programs"
LINES_MAX: Final = 40
RANK: Final = re.compile(r"^rank (\d) on (\S+) chips \[?((?:\d ?){8})\]?$", re.MULTILINE)
run: Final = partial(output_of, within_s=150)


def tool(name: str) -> str:
    """Path of a tool; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@asynccontextmanager
async def a_cell(folder: Path, url: str, cell: str) -> AsyncIterator[Client]:
    with ExitStack() as stack:
        made = stack.enter_context(services(folder, url))
        for service in made.cell(cell, SETTINGS).values():
            service.start()
        async with (
            await NatsBus.connect(url, cell, name="test") as bus,
            await Client.connect(url, cell=cell, timeout_s=60) as client,
        ):
            await answers(bus)
            yield client


async def see_run(words: list[str], folder: Path, server: EmbeddedServer, cell: str) -> None:
    """Run a program, and compare what it printed with what the service says."""
    async with a_cell(folder, server.url, cell) as client:
        out = await run(*words, server.url, cell, "example", folder=folder)

        async def is_cancelled() -> bool:
            return (await client.status("example", namespace="team-a")).phase == "cancelled"

        await until_true(is_cancelled, deadline_s=30, what=f"the status follows the events: {out}")
        async with aclosing(client.follow("team-a", "example")) as events:
            placed = await anext(one async for one in events if one.event.phase == "placed")
        assert [
            (int(rank), node, [int(chip) for chip in chips.split()]) for rank, node, chips in RANK.findall(out)
        ] == [(each.rank, each.node, each.chips) for each in placed.event.ranks]
        assert len(placed.event.ranks) == 2
        assert "cancelled" in out


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*/train.*")), ids=lambda path: path.parent.name)
def test_an_example_is_short(program: Path) -> None:
    assert len(program.read_text("utf-8").splitlines()) <= LINES_MAX


@pytest.mark.timeout(170)
async def test_the_program_in_python(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    await see_run([sys.executable, str(EXAMPLES / "python" / "train.py")], tmp_path, own_server, cell)


@pytest.mark.timeout(170)
async def test_the_code_of_the_guide(
    own_server: EmbeddedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is there, but for the address of the server; the job is cancelled when it has its places."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert URL_OF_GUIDE in code
    program = compile(
        code.replace(URL_OF_GUIDE, own_server.url), str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    async with a_cell(tmp_path, own_server.url, "default") as client, asyncio.TaskGroup() as group:
        running = group.create_task(FunctionType(program, {})())
        placed = await client.wait("train", "placed", namespace="team-a", timeout_s=60)
        await client.cancel("train", namespace="team-a", uid=placed.uid)
        async with asyncio.timeout(60):
            await running
    ranks, *events = capsys.readouterr().out.splitlines()
    assert ranks == str([(rank.node, rank.chips) for rank in placed.ranks])
    phases = [line.split()[1] for line in events]
    assert [phase for phase in phases if phase in {"accepted", "placed", "cancelled"}] == [
        "accepted",
        "placed",
        "cancelled",
    ]


@pytest.mark.timeout(170)
async def test_the_program_in_javascript(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    node, npm = tool("node"), tool("npm")
    folder = tmp_path / "program"
    shutil.copytree(EXAMPLES / "javascript", folder, ignore=shutil.ignore_patterns("node_modules"))
    await run(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
    await see_run([node, str(folder / "train.js")], tmp_path, own_server, cell)


@pytest.mark.timeout(170)
async def test_the_program_in_go(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> None:
    go = tool("go")
    await run(go, "build", "-mod=readonly", "-o", str(tmp_path / "train"), ".", folder=EXAMPLES / "go")
    await see_run([str(tmp_path / "train")], tmp_path, own_server, cell)
