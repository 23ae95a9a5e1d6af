"""Services and programs of a bench as processes, with their CPU seconds and memory; an early end ends the bench."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from bench.ends import Watched
from berth.lab.servers.place import die_with

ROOT: Final = Path(__file__).parents[1]
_KIB: Final = 1024
_NS: Final = 1_000_000_000


class Program(Watched):
    """A program of this tree.

    Args:
        folder: Folder for its log.
        name: Name of its files, and in messages.
        arguments: Arguments of the interpreter, such as ``-m`` and a module.
        code: Tree from which it runs, in its own virtual environment if it has one.
    """

    def __init__(self, folder: Path, name: str, arguments: Sequence[str], *, code: Path = ROOT) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._code = code
        own = code / ".venv" / "bin" / "python"  # another release may have another name and other libraries
        self._command = [str(own) if own.exists() else sys.executable, *arguments]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; from now on its end is an error until it is ended by a method of this object."""
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603  # our own program
                self._command,
                cwd=self._code,
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, nothing that takes a lock
            )
        self.watch()

    def end_text(self) -> str | None:
        """How it ended; None while it runs."""
        code = self._child.poll() if self._child is not None else None
        return None if code is None else f"ended with exit code {code}"

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            EndedError: It does not run.
        """
        if self._child is None or self._child.poll() is not None:
            raise self.error()
        return self._child.pid

    def kill(self) -> None:
        """End it at once."""
        self.forget()
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        self.forget()
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        return self._child.wait() if self._child is not None else 0

    def cpu_s(self) -> float:
        """CPU seconds of its living threads since its start."""
        return cpu_s(self.pid)

    def pss_mib(self) -> float:
        """Proportional memory, in MiB.

        Raises:
            RuntimeError: The system does not say.
        """
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / _KIB
        raise RuntimeError(f"no proportional memory of {self.name}")


class Process(Program):
    """One service.

    Args:
        folder: Folder for its settings and log.
        service: Name of the service.
        settings: Its settings; a value that is a mapping is a section.
        code: Tree from which it runs.
        name: Name of its files.
        more: Further sections of its settings, as TOML.
        under: Module that runs the service, instead of the interpreter.
    """

    def __init__(
        self,
        folder: Path,
        service: str,
        settings: Mapping[str, object],
        *,
        code: Path = ROOT,
        name: str = "",
        more: str = "",
        under: str = "",
    ) -> None:
        name = name or service
        config = folder / f"{name}.toml"
        config.write_text(_toml({"log": {"level": "warning"}, **settings}) + more)
        packages = ("berth.lab", "berth.services", "services")  # the last one is that of old trees
        places = [one for one in packages if (code / one.replace(".", "/") / service).exists()]
        package = next(iter(places), "berth.services")
        arguments = ["-m", *([under] if under else []), f"{package}.{service}", "--config", str(config)]
        super().__init__(folder, name, arguments, code=code)


def cpu_s(pid: int) -> float:
    """CPU seconds that the living threads of a process have used, as the scheduler counts them, in ns."""
    used_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
            used_ns += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return used_ns / _NS


def _toml(table: Mapping[str, object]) -> str:
    """TOML of plain values and one level of sections."""
    plain = [f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    for key, section in table.items():
        if isinstance(section, Mapping):
            plain += [f"[{key}]", *(f"{inner} = {_value(value)}" for inner, value in section.items())]
    return "\n".join(plain) + "\n"


def _value(value: object) -> str:
    return msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()


async def until_ready(port: int, *, deadline_s: float, poll_s: float) -> None:
    """Wait until a service with probes on this port is ready.

    Args:
        port: Of its probes.
        deadline_s: Longest time to wait.
        poll_s: Pause between two looks.

    Raises:
        TimeoutError: It is not ready in time.
    """
    async with asyncio.timeout(deadline_s), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == HTTPStatus.OK:
                        return
            except aiohttp.ClientError:
                pass  # it does not listen yet
            await asyncio.sleep(poll_s)
