"""The service of ``docs/extending.md``: its modules are taken from the page as printed, linted and run."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.schemas.envelope import encode
from tests.support.cells import a_node
from tests.support.compiled_files import COMPILED_FILES
from tests.support.probes import answer, samples
from tests.support.waiting import until_true

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
MODULES = ("config", "metrics", "loop", "__main__")
RUN = """
import runpy
import sys

import berth.services

berth.services.__path__.append(sys.argv.pop(1))
runpy.run_module("berth.services.greeter", run_name="__main__", alter_sys=True)
"""
CHILDREN: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    yield
    while CHILDREN:
        with CHILDREN.pop() as child:
            child.kill()


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    """Folder with the package of the page."""
    section = PAGE.partition("## Add a service\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"`(\w+)\.py`(?:(?!\.py`|```).)*```python\n(.*?)```", section, re.DOTALL)
    assert [name for name, _ in blocks] == list(MODULES)
    folder = tmp_path / "services" / "greeter"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        '"""Greeter: follows nodes, writes nothing, owns nothing; a restart greets anew."""\n'
    )
    for name, text in blocks:
        (folder / f"{name}.py").write_text(text)
    return folder


def test_the_example_has_the_style_of_the_tree(greeter: Path) -> None:
    settings = ["--config", str(ROOT / "pyproject.toml"), "--config", 'lint.isort.known-first-party = ["berth"]']
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", *settings, str(greeter)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)  # noqa: S603  # our own interpreter
    assert done.returncode == 0, done.stdout


def started(greeter: Path, settings: Path, url: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(  # noqa: S603  # our own interpreter and words
        [sys.executable, "-c", RUN, str(greeter.parent), "--config", str(settings)],
        cwd=ROOT,
        env={**COMPILED_FILES, "BERTH_BUS__URL": url},
        stderr=subprocess.PIPE,
        text=True,
    )
    CHILDREN.append(child)
    return child


async def test_the_example_runs_as_printed(greeter: Path, nats_server: str, cell: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = tmp_path / "greeter.toml"
    settings.write_text(f'greeting = "welcome"\n[bus]\ncell = "{cell}"\n[probes]\nport = {port}\n')
    async with (
        await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus,
        aiohttp.ClientSession() as session,
    ):
        await bus.ensure_streams()
        await bus.publish(bus.subjects.fact_node("l1"), encode(pack_nodes("l1", [a_node("n1"), a_node("n2")])))
        child = started(greeter, settings, nats_server)

        async def is_ready() -> bool:
            return child.poll() is not None or await answer(session, port, "readyz") == (200, "ok")

        await until_true(is_ready, deadline_s=20, what="the greeter to be ready")
        await bus.publish(bus.subjects.fact_node("l2"), encode(pack_nodes("l2", [a_node("n3")])))

        async def is_greeted() -> bool:
            return (await samples(session, port)).get("berth_greeter_greeted_nodes_total") == 3

        await until_true(is_greeted, deadline_s=10, what="three greetings")
        child.send_signal(signal.SIGTERM)
        _, printed = child.communicate(timeout=20)
    assert child.returncode == 0, printed
    lines = [json.loads(line) for line in printed.splitlines()]
    assert {line["service"] for line in lines} == {"greeter"}
    greeted = [(line["node"], line["greeting"]) for line in lines if line["event"] == "node greeted"]
    assert sorted(greeted) == [("n1", "welcome"), ("n2", "welcome"), ("n3", "welcome")]
