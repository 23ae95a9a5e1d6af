"""Fixtures of all tests: a real bus for those who ask, with a cell of its own for each."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Generator, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
import structlog

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import bus_url_from_environment
from tests.support.cell_mode import CELLS
from tests.support.compiled_files import compiler_of, use_compiled_files
from tests.support.costs import CostPlugin
from tests.support.forks import FORKER
from tests.support.waiting import SLACK

_LOG_CHARS: Final = 2_000
_YOUNG_OBJECTS: Final = 20_000

_cells = count(1)

use_compiled_files()
gc.disable()  # until all tests are found: what is made for them stays, and looking for garbage in it takes longer
# The same examples on every machine, and no deadline where cores are shared. make property tries many more.
hypothesis.settings.register_profile("berth", deadline=None, derandomize=True, database=None, max_examples=20)
hypothesis.settings.register_profile("long", hypothesis.settings.get_profile("berth"), max_examples=400)
hypothesis.settings.load_profile("berth")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--cells one`` runs whole cells in one process, and leaves out tests of single services."""
    parser.addoption("--cells", choices=["processes", "one"], help="how whole cells run; each test says it otherwise")
    parser.addoption("--costs", type=Path, metavar="FILE", help="add what each test costs to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mode of cells known to all who start one, and begin to note costs."""
    CELLS.is_one = config.getoption("--cells") == "one"
    if (path := config.getoption("--costs")) is not None:
        config.pluginmanager.register(CostPlugin(path))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Compile the tests of a new clone once, not in each process, and leave them out when garbage is looked for."""
    compiler = compiler_of(getattr(session.config, "workerinput", {}).get("workerid", ""))
    compiler.wait()
    try:
        found = yield
    finally:
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        gc.enable()
    compiler.finish()
    return found


def pytest_unconfigure() -> None:
    """End the process from which services are forked."""
    FORKER.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Timeouts are, like all deadlines, for a machine that is free for the test."""
    if CELLS.is_one:
        single = [item for item in items if item.get_closest_marker("processes")]
        config.hook.pytest_deselected(items=single)
        items[:] = [item for item in items if item not in single]
    usual_s = float(config.getini("timeout"))
    for item in items:
        mark = item.get_closest_marker("timeout")
        own_s = float(mark.args[0]) if mark is not None else usual_s
        item.add_marker(pytest.mark.timeout(SLACK * own_s), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show the ends of the logs of services with a failure: why nothing came is said there."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "call" and report.failed and folder is not None:
        for path in sorted(folder.rglob("*.log")):
            text = path.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARS:]
            report.sections.append((f"end of {path.relative_to(folder)}", text))
    return report


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server for all tests: that of the environment, or one of our own."""
    url = bus_url_from_environment()
    if url is not None:
        yield url
        return
    server = EmbeddedServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    try:
        yield server.url
    finally:
        asyncio.run(server.stop())


@pytest.fixture
def cell(tmp_path: Path) -> str:
    """Name of a cell that no other test uses."""
    return f"{tmp_path.parent.name}-{tmp_path.name}-{next(_cells)}"[-60:]


@pytest.fixture
async def real_bus(nats_server: str, cell: str) -> AsyncIterator[NatsBus]:
    """A connection to the server of all tests, with the streams of the test's own cell."""
    async with await NatsBus.connect(nats_server, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        yield bus


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server that the test may kill."""
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture(autouse=True)
def logs_of_one_test_end_with_it() -> Iterator[None]:
    """A test that sets up logs captures a stream that is closed when it ends."""
    yield
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one.formatter, structlog.stdlib.ProcessorFormatter)]:
        root.removeHandler(handler)
