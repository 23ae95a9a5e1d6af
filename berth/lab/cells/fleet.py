"""All processes of a cell on this machine: server, simulated cluster, scorers, dispatcher, binder, API for programs.

The services are processes of their own, or one process for all of them.
"""

import asyncio
import fcntl
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TextIO

from berth.cell.part import CELL
from berth.cli.output import FAILED, WRONG_USE, CommandError
from berth.core.text import pluralize
from berth.formats.clusters.topology_file import TopologyError, parse_cluster
from berth.lab.cells.page import HOST, LocalPage
from berth.lab.cells.processes import Child, GivenUpError, Restarts
from berth.lab.servers.log_files import put_aside
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.processes import LocalProcesses
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.inboxes import inbox_of_person
from berth.schemas.subjects import StreamName

EXAMPLES: Final = Path(__file__).parent / "examples"
DEMO_CLUSTER: Final = EXAMPLES / "demo-cluster.yaml"
_LOOK_S: Final = 0.1
_STOP_S: Final = 15.0
_GRACE_S: Final = 8.0
_READY_S: Final = 60.0
_ASK_S: Final = 0.5
_SET_HERE: Final = (
    "BERTH_BUS__*",
    "BERTH_PROBES__*",
    "BERTH_NATS_URL",
    "BERTH_SHARD",
    "BERTH_SHARDS",
    "BERTH_TOPOLOGY_FILE",
)
"""Environment variables that would override settings on which the processes of one fleet must agree."""
_GATEWAY: Final = "gateway"
_OF_GATEWAY: Final = ("BERTH_HOST", "BERTH_PORT", "BERTH_ACCESS", "BERTH_TOKENS", "BERTH_TLS_*")
"""Those that would override where the page is, and who may see it."""
SHARDS: Final = 2
"""Scorers by default."""


def services_words(shards: int | None) -> str:
    """The services of a cell without Kubernetes, as text; with None for ``shards`` in one process."""
    scorers = f"{pluralize(shards, 'scorer')}, " if shards else ""
    return f"{scorers}dispatcher, binder and API for programs{' in one process' if shards is None else ''}"


def shards_of(shards: int | None, *, is_one: bool) -> int | None:
    """Number of scorers, from what the command line says; None for all services in one process.

    Raises:
        CommandError: There are scorers, and all services are to be in one process.
    """
    if not is_one:
        return SHARDS if shards is None else shards
    if shards:
        raise CommandError(f"--shards is {shards}, expected 0 with --one: the dispatcher scores there", code=WRONG_USE)
    return None


class Fleet(LocalProcesses):
    """The processes of a cell. As an async context manager it starts them all, and stops them all in order.

    Args:
        root: Folder for store, settings and logs; made if missing, never removed.
        topology: File that describes the simulated cluster.
        shards: Number of scorers; with 0 the dispatcher scores. None: all services are one process.
        cell: Name of the cell.
        port: Port of the server; 0 selects a free one.
        sync: When the server writes through to the disk.
        print_progress: Called with each line about the progress.
        is_alone: Ignore settings in the environment.
        page: Its gateway; None for none.
    """

    def __init__(  # noqa: PLR0913  # what the options of two commands say
        self,
        root: Path,
        *,
        topology: Path,
        shards: int | None,
        cell: str,
        port: int = 0,
        sync: Literal["interval", "always"] = "interval",
        print_progress: Callable[[str], None],
        is_alone: bool = False,
        page: LocalPage | None = None,
    ) -> None:
        self.root = root
        self.page = page
        self.cell = cell
        self.nodes = 0
        """Nodes of the simulated cluster; known after the start."""
        self.server = EmbeddedServer(root / "nats", port=port, sync=sync)
        self._topology = topology
        self._shards = shards or 0
        self.is_one = shards is None
        self._print_progress = print_progress
        self._clock: Clock = SystemClock()
        self._without = ("BERTH_*",) if is_alone else _SET_HERE
        self._children: list[Child] = []
        self._server_restarts = Restarts()
        self._server_due_s: float | None = None
        """Time of the next start of the server that ended."""
        self._full_logs: dict[Path, None] = {}
        """Logs that could not be put aside."""
        self._lock: TextIO | None = None
        self._epoch_after = 0

    @property
    def children(self) -> list[Child]:
        """Processes in the order in which they are stopped."""
        return self._children

    async def start(self) -> None:
        """Start the server, create the streams, start the services.

        Raises:
            CommandError: The topology file is wrong, the folder is in use, or the server does not start.
        """
        self.nodes = read_topology(self._topology)
        self._take_folder()
        try:
            await self.server.start()
        except FatalError as error:
            used = "address already in use" in str(error)
            hint = f"port {self.server.port} is in use; name another with --port" if used else str(error)
            raise CommandError(hint) from error
        self._server_restarts.started(self._clock.monotonic_s())
        async with await NatsBus.connect(
            self.server.url, self.cell, name="berth", inbox=inbox_of_person("berth")
        ) as bus:
            await bus.ensure_streams()
            self._epoch_after = (await bus.state(StreamName.LEDGER)).last_seq
        services = self._services()
        if self.is_one:
            services = [(CELL, CELL, {service: settings for _, service, settings in services})]
        self._children = [self._child(*parts) for parts in services]
        for child in reversed(self._children):
            child.start()

    async def watch(self) -> None:
        """Restart processes that end. Never returns.

        Raises:
            CommandError: A process ends again and again, or its settings are invalid.
        """
        while True:
            try:
                for child in self._children:
                    self._report(child.restart_if_ended())
                await self._restart_server_if_ended()
                self._put_logs_aside()
            except GivenUpError as error:
                code = WRONG_USE if error.is_setting else FAILED
                raise CommandError(*str(error).splitlines(), code=code) from error
            await asyncio.sleep(_LOOK_S)

    async def ready(self, bus: Bus) -> None:
        """Wait until the dispatcher is leader, the scorers, the API, the simulated cluster and the page answer.

        Raises:
            CommandError: They are not within a minute.
        """
        try:
            async with asyncio.timeout(_READY_S):
                while not await self._is_ready(bus):  # noqa: ASYNC110  # readiness can only be polled
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError as error:
            tails = [f"{child.name}: {line}" for child in self._children for line in child.log_tail().splitlines()[-1:]]
            raise CommandError(f"not everything is ready after {_READY_S:g} s", *tails) from error

    async def stop(self) -> None:
        """Stop all in order: gateway, API, binder, scorers, dispatcher, cluster, server; on Kubernetes readers."""
        for _, found in groupby(self._children, key=lambda child: child.service):
            group = list(found)
            for child in group:
                child.ask_to_stop()
            await self._ended(group)
        await self.server.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def _ended(self, group: list[Child]) -> None:
        end_s = self._clock.monotonic_s() + _STOP_S
        while any(child.pid is not None for child in group) and self._clock.monotonic_s() < end_s:  # noqa: ASYNC110  # a process has no event
            await asyncio.sleep(_LOOK_S / 2)
        for child in group:
            if child.pid is not None:
                self._print_progress(f"{child.name} did not end within {_STOP_S:g} s and is killed")
                child.kill()

    async def _is_ready(self, bus: Bus) -> bool:
        try:
            if (await bus.state(StreamName.LEDGER)).last_seq <= self._epoch_after:
                return False
            await bus.request(bus.subjects.sim("counts"), b"", timeout_s=_ASK_S)
            found = Counter(one.name for one in await bus.processes() if one.is_ready)
        except TransientError:
            return False
        # The API offers its operations one after the other, so that an answer to one says nothing of the others.
        if found["berth-api"] < 1 or found["berth-scorer"] < self._shards:
            return False
        return self.page is None or await _listens(self.page.port)

    async def _restart_server_if_ended(self) -> None:
        """Start the server again when it has ended, after a pause; a start that fails counts as a short life.

        Raises:
            GivenUpError: It ends again and again.
        """
        if self.server.pid is not None:
            return
        now_s = self._clock.monotonic_s()
        if self._server_due_s is None:
            self._await_server(now_s, "nats-server ended")
        elif now_s >= self._server_due_s:
            self._server_due_s = None
            self._server_restarts.started(now_s)
            try:
                await self.server.start()
            except FatalError as error:
                self._await_server(self._clock.monotonic_s(), str(error))

    def _await_server(self, now_s: float, what: str) -> None:
        wait_s = self._server_restarts.ended(now_s)
        if wait_s is None:
            often = f"{self._server_restarts.in_a_row + 1} times in a row"
            raise GivenUpError(f"{what}, {often}; its log is {self.server.log_path}")
        self._server_due_s = now_s + wait_s
        self._print_progress(f"{what}; it is started again in {wait_s:g} s")

    def _services(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Name, service and settings of each process, in the order in which they are stopped."""
        found: list[tuple[str, str, dict[str, Any]]] = []
        if self.page is not None:
            found.append((_GATEWAY, _GATEWAY, self.page.settings))
        found += [("api", "api", {}), ("binder", "binder", {})]
        found += self._scorers()
        found.append(("dispatcher", "dispatcher", {"shards": self._shards}))
        found.append(("nodesim", "nodesim", {"topology_file": self._topology.resolve()}))
        return found

    def _scorers(self) -> list[tuple[str, str, dict[str, Any]]]:
        shards = range(self._shards)
        return [(f"scorer-{shard}", "scorer", {"shard": shard, "shards": self._shards}) for shard in shards]

    def _child(self, name: str, service: str, settings: dict[str, Any]) -> Child:
        tree = {
            **settings,
            "grace_s": _GRACE_S,
            "bus": {"url": self.server.url, "cell": self.cell},
            "log": {"form": "json"},
        }
        without = (*self._without, *_OF_GATEWAY) if service in {_GATEWAY, CELL} else self._without
        return Child(name, service, tree, root=self.root, clock=self._clock, without=without)

    def _put_logs_aside(self) -> None:
        """Keep log files from growing without bound; a disk without room is reported once."""
        for path in (*(child.log_path for child in self._children), self.server.log_path):
            try:
                put_aside(path)
            except OSError as error:
                if path not in self._full_logs:
                    self._full_logs[path] = None
                    self._report(f"log {path} grows on: {error.strerror}")

    def _report(self, line: str) -> None:
        if line:
            self._print_progress(line)

    def _take_folder(self) -> None:
        """Check that no other process uses the folder.

        Raises:
            CommandError: Another process uses it, or it cannot be created.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._lock = (self.root / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(f"{self.root} is in use by another berth; name another folder with --store") from error
        except OSError as error:
            raise CommandError(f"cannot use {self.root}: {error.strerror}", code=WRONG_USE) from error


async def _listens(port: int) -> bool:
    """Whether something listens on a port of this machine."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


def read_topology(path: Path) -> int:
    """Check a topology file; returns how many nodes it has.

    Raises:
        CommandError: It is unreadable or describes no cluster; the error names field, value and valid values.
    """
    try:
        return len(parse_cluster(path.read_text("utf-8")).nodes)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", code=WRONG_USE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 at byte {error.start}", code=WRONG_USE) from error
    except TopologyError as error:
        field = error.path or "(top)"
        raise CommandError(f"{path}: {field}: is {error.value}, expected {error.expected}", code=WRONG_USE) from error
