"""Services of a bench as processes, of this tree or of another release, with their CPU seconds and memory."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from berth.runtime.local.place import die_with

ROOT: Final = Path(__file__).parents[1]
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_KIB: Final = 1024


class Process:
    """One service.

    Args:
        folder: Folder for its settings and log.
        service: Name of the service.
        settings: Its settings; a value that is a mapping is a section.
        code: Tree from which it runs, in its own virtual environment if it has one.
        name: Name of its files.
    """

    def __init__(
        self, folder: Path, service: str, settings: Mapping[str, object], *, code: Path = ROOT, name: str = ""
    ) -> None:
        self.name = name or service
        self.log_path = folder / f"{self.name}.log"
        self._config = folder / f"{self.name}.toml"
        self._code = code
        package = "berth.services" if (code / "berth" / "services").exists() else "services"
        own = code / ".venv" / "bin" / "python"  # another release may have another name and other libraries
        self._command = [
            str(own) if own.exists() else sys.executable,
            "-m",
            f"{package}.{service}",
            "--config",
            str(self._config),
        ]
        self._config.write_text(_toml({"log": {"level": "warning"}, **settings}))
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(  # noqa: S603  # our own service
                self._command,
                cwd=self._code,
                stdout=log,
                stderr=log,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, nothing that takes a lock
            )

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            RuntimeError: It does not run.
        """
        if self._child is None or self._child.poll() is not None:
            raise RuntimeError(f"{self.name} does not run; its log: {self.log_path.read_text()[-2000:]}")
        return self._child.pid

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        return self._child.wait() if self._child is not None else 0

    def cpu_s(self) -> float:
        """CPU seconds since its start."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def pss_mib(self) -> float:
        """Proportional memory, in MiB.

        Raises:
            RuntimeError: The system does not say.
        """
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / _KIB
        raise RuntimeError(f"no proportional memory of {self.name}")


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
