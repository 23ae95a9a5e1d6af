"""Services as real processes: started, killed, never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from berth.lab.servers.place import Place
from tests.support.cell_mode import CELLS
from tests.support.compiled_files import COMPILED_FILES
from tests.support.forks import FORKER, ForkedProcess, Start
from tests.support.services import PACKAGES
from tests.support.waiting import until

ROOT: Final = Path(__file__).parents[2]
_END_S: Final = 30.0
_TAIL_CHARS: Final = 3000
_STARTED: Final = {
    "api": "ready",
    "binder": "ledger folded",
    "dispatcher": "became leader",
    "gateway": "ready",
    "nodesim": "cluster ready",
    "scorer": "ready",
}
"""What each service logs when it works."""

Table = Mapping[str, object]
"""Settings; a value that is a mapping is a section."""


class Service:
    """One service: the same settings and the same log through all its starts.

    Args:
        folder: Where its settings and log are written.
        name: Folder below ``services``, or ``cell`` for all services in one process.
        url: Of the bus.
        cell: Of the bus.
        settings: The service's own.
        label: Tells processes of one service and cell apart.
        place: Where it runs.

    Attributes:
        env: More environment variables of its next starts.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        url: str,
        cell: str,
        settings: Table,
        label: str = "",
        place: Place | None = None,
    ) -> None:
        self.name = name
        self.label = f"{name}{label}-{cell}"
        self.starts = 0
        self.env: dict[str, str] = {}
        self.folder = ROOT
        """Folder of its sources."""
        self.module = "berth.cell" if name == "cell" else PACKAGES[name]
        self._place = place or Place()
        self._url = url
        self._file = folder / f"{self.label}.toml"
        self._log = folder / f"{self.label}.log"
        self._file.write_text(_toml({"bus": {"cell": cell}, "log": {"form": "text"}, **settings}))
        self._child: subprocess.Popen[bytes] | ForkedProcess | None = None

    def start(self, *, fault_point: str = "") -> None:
        """Start it; the one before must have ended."""
        assert self._child is None or self._child.poll() is not None, f"{self.label} still runs"
        self.starts += 1
        with self._log.open("ab") as log:
            log.write(f"--- start {self.starts} {fault_point}\n".encode())
            log.flush()
            self._child = self._started(log, fault_point)

    def _started(self, log: IO[bytes], fault_point: str) -> "subprocess.Popen[bytes] | ForkedProcess":
        """Its process: forked, but where its sources, its surroundings or its interpreter are of its own."""
        arguments = ["--config", str(self._file)]
        environment = {
            **COMPILED_FILES,
            "BERTH_BUS__URL": self._url,
            "BERTH_FAULT_POINT": fault_point,
            "OMP_NUM_THREADS": "1",
            **self.env,
        }
        is_usual = self.folder == ROOT and self._place == Place() and not self.env
        if is_usual:
            return FORKER.start(Start(self.module, arguments, environment, str(self._log)))
        return subprocess.Popen(  # noqa: S603  # our own interpreter and words
            [sys.executable, "-m", self.module, *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=self._place.prepare(),  # noqa: PLW1509  # system calls, nothing that takes a lock
        )

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""
        return self._child.poll() if self._child is not None else None

    @property
    def pid(self) -> int:
        """Number of the process of the last start."""
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._child is not None and self._child.poll() is None

    async def ended(self, *, deadline_s: float = _END_S) -> int:
        """Wait for its end; returns how it ended.

        Raises:
            AssertionError: It did not end; shows its log.
        """
        await self._until(lambda: self.returncode is not None, deadline_s=deadline_s, what="its end")
        code = self.returncode
        assert code is not None
        return code

    async def started(self) -> None:
        """Wait until it works.

        Raises:
            AssertionError: It does not; shows its log.
        """
        line = _STARTED[self.name]
        await self._until(lambda: line in self.log(), deadline_s=_END_S, what=f"{line!r} in its log")

    async def kill(self) -> None:
        """End it as a power cut would."""
        self._signal(signal.SIGKILL)
        await self.ended()

    async def stop(self) -> None:
        """Ask it to end; it must do so with 0, unless it was asked before it had begun to do anything."""
        self._signal(signal.SIGTERM)
        code = await self.ended()
        assert code == 0 or (code == -signal.SIGTERM and not self._has_spoken), self.log()

    @property
    def _has_spoken(self) -> bool:
        """Whether its log has a line of the last start: by then it heeds signals."""
        return bool(self.whole_log().rpartition("--- start ")[2].partition("\n")[2].strip())

    def log(self) -> str:
        """End of its log."""
        return self._log.read_text(errors="replace")[-_TAIL_CHARS:] if self._log.exists() else ""

    def whole_log(self) -> str:
        """All of its log."""
        return self._log.read_text(errors="replace")

    def destroy(self) -> None:
        """Kill it and all that it started, whatever state it is in."""
        if self._child is not None and self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    async def _until(self, condition: Callable[[], object], *, deadline_s: float, what: str) -> None:
        """Wait for something that the process does.

        Raises:
            AssertionError: It does not do it in time; shows its log.
        """
        try:
            await until(condition, deadline_s=deadline_s, what=f"{self.label}: {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)


class WholeCell(Service):
    """All services of a cell in one process: it starts with the first of them, and dies with any."""

    def start(self, *, fault_point: str = "") -> None:
        """Start it, if it does not run."""
        if not self.is_running:
            super().start(fault_point=fault_point)


class Services:
    """Makes services of one bus, and ends them all."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self._all: list[Service] = []

    def service(self, name: str, cell: str, *, label: str = "", **settings: object) -> Service:
        """A service that is not started yet."""
        made = Service(self._folder, name, url=self._url, cell=cell, settings=settings, label=label)
        self._all.append(made)
        return made

    def cell(self, cell: str, settings: Mapping[str, Table]) -> dict[str, Service]:
        """All services of a cell by name, not started yet: processes, or one process for all where the mode says so.

        Args:
            cell: Of the bus.
            settings: Settings of each service. Of one process there are no scorers, and it has the first of the probes.
        """
        if not CELLS.shares_process:
            return {name: self.service(name, cell, **own) for name, own in settings.items()}  # type: ignore[arg-type]  # no setting is called label
        sections: dict[str, object] = {
            name: {key: value for key, value in own.items() if key not in {"shards", "probes"}}
            for name, own in settings.items()
            if name != "scorer"
        }
        probes = [own["probes"] for own in settings.values() if "probes" in own]
        sections |= {"probes": probes[0]} if probes else {}
        made = WholeCell(self._folder, "cell", url=self._url, cell=cell, settings=sections)
        self._all.append(made)
        return dict.fromkeys(settings, made)

    def destroy(self) -> None:
        """End all of them."""
        for service in self._all:
            service.destroy()


async def output_of(*words: str | Path, folder: Path, within_s: float) -> str:
    """Output of another program, which must succeed.

    Args:
        words: The program and its arguments.
        folder: Where it runs.
        within_s: Longest time; then it is killed.
    """
    child = await asyncio.create_subprocess_exec(
        *map(str, words), cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(within_s):
            out, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, out.decode(errors="replace")
    return out.decode()


@contextmanager
def services(folder: Path, url: str) -> Iterator[Services]:
    """Services that end with the block."""
    made = Services(folder, url)
    try:
        yield made
    finally:
        made.destroy()


async def until_started(these: Iterable[Service]) -> None:
    """Wait until services work. One that loses NATS before ends, and only a supervisor would start it again.

    Raises:
        AssertionError: One does not; shows its log.
    """
    for service in these:
        await service.started()


def _toml(table: Table) -> str:
    """TOML of values and one level of sections; text and numbers are written as in JSON."""
    plain = [f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    for key, section in table.items():
        if isinstance(section, Mapping):
            plain += [f"[{key}]", *(f"{inner} = {_value(value)}" for inner, value in section.items())]
    return "\n".join(plain) + "\n"


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_value(one)}' for key, one in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()
