"""``compose.yaml`` without containers: its commands, with its environment and its files, as plain processes.

What a container gives by itself is translated: the name of a service becomes the loopback address, each port of each
container a port of this machine, and each mounted file or volume a path below a folder; a file of the host stays where
it is. All else is as the file says.
"""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from berth.lab.servers.nats_server import server_binary
from berth.lab.servers.place import die_with
from berth.lab.servers.ports import free_ports
from tests.support.compiled_files import COMPILED_FILES
from tests.support.waiting import SLACK, pause

ROOT: Final = Path(__file__).parents[2]
_ADDRESS: Final = re.compile(r"(?<![\w.-])(?P<host>[a-z0-9][a-z0-9.-]*):(?P<port>\d{2,5})\b")
_HERE: Final = {"0.0.0.0", "127.0.0.1", "localhost"}  # noqa: S104  # what a container listens on
_LOOPBACK: Final = "127.0.0.1"
_VARIABLE: Final = re.compile(r"\$\{(?P<name>\w+):-(?P<default>[^}]*)\}")
_PORTS_MAX: Final = 64
_LOOK_S: Final = 0.1
_CHECK_S: Final = 0.5
"""Pause between two checks of a service, each of which is a Python process: they take time from what they wait for."""
_TAIL_CHARS: Final = 2_000
_FETCH: Final = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=2)"


@dataclass(frozen=True)
class Planned:
    """A process as the file wants it.

    Attributes:
        after: Services that must be well before it starts.
        check: Command that ends with 0 when it is well; empty for none.
        restarts: Whether it is started again when it ends by itself.
        grace_s: How long it may take to end when asked.
        is_ours: Whether it is built from this tree.
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    after: tuple[str, ...]
    check: tuple[str, ...]
    restarts: bool
    grace_s: float
    is_ours: bool


@dataclass
class Translation:
    """From containers to this machine."""

    names: set[str]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    ports: dict[tuple[str, int], int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=lambda: free_ports(_PORTS_MAX))

    def port(self, service: str, number: int) -> int:
        """Port of this machine for a port of a container."""
        if (service, number) not in self.ports:
            self.ports[service, number] = self._free.pop()
        return self.ports[service, number]

    def text(self, service: str, text: str, places: dict[str, Path]) -> str:
        """Text that a container reads, with addresses and paths of this machine."""

        def address(match: re.Match[str]) -> str:
            host, number = match["host"], int(match["port"])
            if host in _HERE:
                return f"{_LOOPBACK}:{self.port(service, number)}"
            return f"{_LOOPBACK}:{self.port(host, number)}" if host in self.names else match[0]

        for target in sorted(places, key=len, reverse=True):
            text = re.sub(rf"(?<![\w./-]){re.escape(target)}(?![\w-])", str(places[target]), text)
        return _ADDRESS.sub(address, text)

    def variable(self, service: str, name: str, value: str, places: dict[str, Path]) -> str:
        """Value of an environment variable; one that is a port, or an address to listen on, is known by its name."""
        if name.endswith("_PORT"):
            return str(self.port(service, int(value)))
        return _LOOPBACK if value in _HERE else self.text(service, value, places)


def plan(
    text: str, folder: Path, *, profiles: Collection[str] = (), variables: Mapping[str, str] | None = None
) -> list[Planned]:
    """Processes of a compose file, in its order; the files that they read are written below ``folder``.

    Args:
        text: The file.
        folder: Where files go.
        profiles: Profiles that are asked for. A service that has profiles is started only for one of them.
        variables: What the file's ``${NAME:-default}`` take in place of their defaults.

    Raises:
        AssertionError: The file uses something that cannot be translated.
    """
    tree = yaml.safe_load(text)
    services: dict[str, dict[str, Any]] = tree["services"]
    translation = Translation(set(services), folder, variables or {})
    return [
        _planned(translation, tree, name, service)
        for name, service in services.items()
        if "profiles" not in service or set(service["profiles"]) & set(profiles)
    ]


def _planned(translation: Translation, tree: dict[str, Any], name: str, service: dict[str, Any]) -> Planned:
    places = _places(translation, name, service)
    for config in service.get("configs", []):
        source = tree["configs"][config["source"]]
        content = source["content"] if "content" in source else (ROOT / source["file"]).read_text("utf-8")
        path = places[config["target"]]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(translation.text(name, content, places))

    def words(items: list[str]) -> list[str]:
        return [translation.text(name, item, places) for item in items]

    environment = {
        key: translation.variable(name, key, str(value), places)
        for key, value in service.get("environment", {}).items()
    }
    waits_for = service.get("depends_on", {})
    assert {wait["condition"] for wait in waits_for.values()} <= {"service_healthy"}, waits_for
    return Planned(
        name=name,
        command=_command(service, words(service["command"])),
        environment=environment,
        after=tuple(waits_for),
        check=_check(words(service.get("healthcheck", {}).get("test", []))),
        restarts=service.get("restart") == "unless-stopped",
        grace_s=float(service.get("stop_grace_period", "10s").removesuffix("s")),
        is_ours="build" in service,
    )


def _places(translation: Translation, name: str, service: dict[str, Any]) -> dict[str, Path]:
    """Path on this machine of everything that is mounted, by its path in the container."""
    folder = translation.folder / name
    targets = [config["target"] for config in service.get("configs", [])]
    mounts = service.get("volumes", [])
    targets += [mount.split(":")[1] for mount in mounts if isinstance(mount, str)]
    places = {target: folder / target.lstrip("/") for target in targets}
    for mount in mounts:
        if isinstance(mount, dict):
            assert mount["type"] == "bind", f"no place on this machine for {mount}"
            places[mount["target"]] = _source(mount["source"], translation.variables)
    return places


def _source(text: str, variables: Mapping[str, str]) -> Path:
    """File of the host that a mount names."""
    return Path(_VARIABLE.sub(lambda match: variables.get(match["name"]) or match["default"], text)).expanduser()


def _command(service: dict[str, Any], words: list[str]) -> tuple[str, ...]:
    if "build" in service and words[0] == "python":
        return (sys.executable, *words[1:])
    assert str(service["image"]).startswith("nats:"), f"no program of this machine for {service}"
    return (str(server_binary()), *words)


def _check(words: list[str]) -> tuple[str, ...]:
    match words:
        case []:
            return ()
        case ["CMD", "python", *rest]:
            return (sys.executable, *rest)
        case ["CMD", "wget", *_, url]:
            return (sys.executable, "-c", _FETCH, url)
        case _:
            raise AssertionError(f"no program of this machine for {shlex.join(words)}")


class Process:
    """One service of the file at work."""

    def __init__(self, planned: Planned, folder: Path) -> None:
        self.planned = planned
        self.restarts = 0
        self.well = asyncio.Event()
        """Set when it was well for the first time."""
        self._log = folder / f"{planned.name}.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603  # words of our own file
                self.planned.command,
                cwd=ROOT,
                env={**COMPILED_FILES, **self.planned.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, nothing that takes a lock
            )

    def look(self) -> None:
        """Start it again if it has ended and the file wants that."""
        if self._child is not None and self._child.poll() is not None and self.planned.restarts and not self._is_over:
            self.restarts += 1
            self.start()

    async def is_well(self) -> bool:
        """Whether its own check says so."""
        if not self.planned.check:
            return self._child is not None and self._child.poll() is None
        check = await asyncio.create_subprocess_exec(
            *self.planned.check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return await check.wait() == 0

    def kill(self) -> None:
        """End it as a power cut would; it is not started again."""
        self._is_over = True
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    async def stop(self) -> int:
        """Ask it to end and wait as long as the file says; returns how it ended."""
        self._is_over = True
        assert self._child is not None
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.planned.grace_s):
                while self._child.poll() is None:
                    await pause(_LOOK_S / 4)
        except TimeoutError:
            self.kill()
        code = self._child.poll()
        assert code is not None
        return code

    def log(self) -> str:
        """The end of its log."""
        return self.whole_log()[-_TAIL_CHARS:]

    def whole_log(self) -> str:
        """All of its log."""
        return self._log.read_text(errors="replace")


class Composed:
    """All services of a plan.

    Args:
        planned: What is to run.
        folder: Where logs go.
    """

    def __init__(self, planned: list[Planned], folder: Path) -> None:
        self.processes = {one.name: Process(one, folder) for one in planned}

    async def start(self) -> None:
        """Start each as soon as those that it waits for are well; return when all are well."""
        async with asyncio.TaskGroup() as group:
            for name, process in self.processes.items():
                group.create_task(self._start(process), name=f"start {name}")

    async def _start(self, process: Process) -> None:
        for name in process.planned.after:
            await self.processes[name].well.wait()
        process.start()
        while not await process.is_well():
            await pause(_CHECK_S)
        process.well.set()

    async def watch(self) -> None:
        """Start again what ends by itself."""
        while True:
            for process in self.processes.values():
                process.look()
            await pause(_LOOK_S)

    def logs(self) -> str:
        """The end of every log."""
        return _named({name: process.log() for name, process in self.processes.items()})

    def restarted(self) -> str:
        """Logs of those that ended by themselves and were started again; empty if none did."""
        return _named({name: process.whole_log() for name, process in self.processes.items() if process.restarts})


def _named(logs: Mapping[str, str]) -> str:
    return "\n".join(f"--- {name}\n{log}" for name, log in logs.items())


@asynccontextmanager
async def composed(text: str, folder: Path, *, deadline_s: float) -> AsyncIterator[Composed]:
    """The processes of a compose file, as :func:`at_work`."""
    async with at_work(plan(text, folder), folder, deadline_s=deadline_s) as made:
        yield made


@asynccontextmanager
async def at_work(planned: list[Planned], folder: Path, *, deadline_s: float) -> AsyncIterator[Composed]:
    """Planned processes, all of them well; none is left when the block ends.

    Args:
        planned: What is to run.
        folder: Where logs go.
        deadline_s: How long they may take to be well on a free machine; a busy one gets three times as long.

    Raises:
        AssertionError: They were not all well in time; shows their logs.
    """
    made = Composed(planned, folder)
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(made.watch(), name="watch")
            try:
                async with asyncio.timeout(SLACK * deadline_s):
                    await made.start()
            except TimeoutError as error:
                raise AssertionError(f"not well within {SLACK * deadline_s} s\n{made.logs()}") from error
            yield made
            watching.cancel()
    finally:
        for process in made.processes.values():
            process.kill()
