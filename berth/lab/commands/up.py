"""``berth up``: a complete cell on this machine, until it is stopped."""

import asyncio
import shlex
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from berth.cli.cell import Form, run
from berth.cli.output import FAILED, INTERRUPTED, CommandError, emit, print_progress, print_result
from berth.core.text import pluralize
from berth.lab.cells.fleet import DEMO_CLUSTER, Fleet, read_topology, services_words, shards_of
from berth.lab.cells.page import LocalPage, missing_libraries, page_in
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import SHARDS_MAX
from berth.runtime.inboxes import inbox_of_person

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
Shards = Annotated[int, Parameter(validator=Number(gte=0, lte=SHARDS_MAX))]
Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]


@Parameter(name="*")
@dataclass(frozen=True)
class PageOptions:
    """Options of the page.

    Attributes:
        page_port: Port of the page; 0 selects a free one. Default: 8222, or a free one if that is in use.
        no_page: Start no gateway: there is no page, and no HTTP.
    """

    page_port: Annotated[Port | None, Parameter(show_default=False)] = None
    no_page: Annotated[bool, Parameter(negative=())] = False


class Running(msgspec.Struct, frozen=True):
    """What ``berth up --json`` prints once everything is ready."""

    url: str
    cell: str
    nodes: int
    shards: int
    folder: str
    pids: dict[str, int]
    page: str = ""
    """Address of the page; empty without one."""
    page_token: str = ""


class Stop(asyncio.Event):
    """Set when a signal asks the process to stop."""

    def __init__(self) -> None:
        super().__init__()
        self._is_interrupt = False

    def ask(self, number: signal.Signals) -> None:
        """Take the signal."""
        self._is_interrupt = number == signal.SIGINT
        self.set()

    def early(self) -> CommandError:
        """The error of a command that was to end by itself."""
        return CommandError("stopped before the end", code=INTERRUPTED if self._is_interrupt else FAILED)


@asynccontextmanager
async def asked_to_stop() -> AsyncIterator[Stop]:
    """An event that SIGTERM and SIGINT set, from now on for the rest of the process."""
    loop = asyncio.get_running_loop()
    stop = Stop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.ask, number)
    yield stop


@asynccontextmanager
async def watched(fleet: Fleet) -> AsyncIterator[None]:
    """The fleet, running and watched; an error of the watch ends the block."""
    async with fleet, asyncio.TaskGroup() as group:
        watching = group.create_task(fleet.watch(), name="watch the processes")
        try:
            yield
        finally:
            watching.cancel()


async def ready_bus(fleet: Fleet) -> NatsBus:
    """A connection to the fleet, opened once everything is ready."""
    bus = await NatsBus.connect(fleet.server.url, fleet.cell, name="berth", inbox=inbox_of_person("berth"))
    try:
        await fleet.ready(bus)
    except BaseException:
        await bus.close()
        raise
    return bus


def folder_of(store: Path | None, stack: ExitStack) -> Path:
    """The named folder, or a temporary one that ``stack`` removes."""
    if store is not None:
        return store
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-")))


def up(  # noqa: PLR0913  # options of a command
    *,
    topology: Path = DEMO_CLUSTER,
    one: Annotated[bool, Parameter(negative=())] = False,
    shards: Shards | None = None,
    store: Path | None = None,
    port: Port = 4222,
    page: PageOptions | None = None,
    sync: Literal["interval", "always"] = "interval",
    cell: str = "default",
    form: Form | None = None,
) -> int:
    """Start NATS, a simulated cluster and the services that decide for it; keep them running until Ctrl-C or SIGTERM.

    Args:
        topology: File that describes the simulated cluster; default: the cluster of the demo.
        one: Run all services in one process, for small cells: less memory, no scorers.
        shards: Number of scorers; with 0 the dispatcher scores in its own process. Default: 2, with --one 0.
        store: Folder for store, settings and logs, reused at the next start; default: one that is removed at the end.
        port: Port of NATS; 0 selects a free one.
        page: The page.
        sync: When NATS writes to the disk: always, or in intervals.
        cell: Name of the cell.
        form: Form of the output.
    """

    async def work() -> None:
        nodes = read_topology(topology)
        scorers = shards_of(shards, is_one=one)
        words = services_words(scorers)
        with ExitStack() as stack:
            root = folder_of(store, stack)
            fleet = Fleet(
                root,
                page=_page_of(page or PageOptions(), root, nats_port=port),
                topology=topology,
                shards=scorers,
                cell=cell,
                port=port,
                sync=sync,
                print_progress=print_progress,
            )
            async with asked_to_stop() as stop, watched(fleet):
                print_progress(f"starting NATS, {pluralize(nodes, 'simulated node')}, {words}")
                if await unless(stop, lambda: _announce(fleet, nodes, scorers or 0, json=(form or Form()).json)):
                    await stop.wait()
                print_progress(f"stopping {words}, simulated cluster and NATS")

    return run(work)


def _page_of(options: PageOptions, root: Path, *, nats_port: int) -> LocalPage | None:
    """The page that options ask for; None for none."""
    if options.no_page:
        return None
    if lack := missing_libraries():
        print_progress(lack)
        return None
    return page_in(root, options.page_port, nats_port=nats_port)


async def unless(stop: asyncio.Event, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Run ``work`` to its end, or until ``stop`` is set; returns whether it reached its end."""
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work(), name="work")
        asked = group.create_task(_wait(stop), name="wait for stop")
        await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        asked.cancel()
    return not working.cancelled()


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _announce(fleet: Fleet, nodes: int, shards: int, *, json: bool) -> None:
    bus = await ready_bus(fleet)
    await bus.close()
    pids = {child.name: child.pid for child in fleet.children if child.pid is not None}
    if fleet.server.pid is not None:
        pids["nats-server"] = fleet.server.pid
    if json:
        page, token = (fleet.page.url, fleet.page.token) if fleet.page is not None else ("", "")
        emit(Running(fleet.server.url, fleet.cell, nodes, shards, str(fleet.root), pids, page, token))
        return
    url = fleet.server.url
    options = options_of(fleet.server.port, url, fleet.cell)
    print_result(
        f"ready: {url}, cell {fleet.cell}, {pluralize(nodes, 'node')},"
        f" {'one process' if fleet.is_one else pluralize(shards, 'scorer')}; files in {fleet.root}"
    )
    if fleet.page is not None:
        print_result(f"page: {fleet.page.url} token {fleet.page.token}")
    for words in ("submit FILE", "jobs", "explain JOB", "nodes"):
        print_result(f"  berth {words}{options}")
    print_result("Ctrl-C stops everything.")


def options_of(port: int, url: str, cell: str) -> str:
    """Options with which other commands reach a cell, as a shell takes them; empty where the defaults do."""
    place = "" if port == 4222 else f" --url {url}"  # noqa: PLR2004  # the default of every command
    return place if cell == "default" else f"{place} --cell {shlex.quote(cell)}"
