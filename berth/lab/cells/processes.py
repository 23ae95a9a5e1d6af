"""Child process that runs a service: it is started, watched, restarted, and always ended with its parent."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.cell.part import CELL
from berth.lab.servers.place import die_with
from berth.runtime.backoff import Backoff
from berth.runtime.clock import Clock
from berth.runtime.config import environment_of_child
from berth.runtime.errors import FatalError

_MODULES: Final = {CELL: "berth.cell", "nodesim": "berth.lab.nodesim"}
"""Modules of processes that are none of ``berth.services``."""
RESTARTS_MAX: Final = 5
"""Short starts in a row after which a child is not restarted."""
_LASTED_S: Final = 30.0
_BACKOFF: Final = Backoff(first_s=0.25, max_s=8.0)
_TAIL_LINES: Final = 8
_TAIL_BYTES: Final = 8_000
_MISCONFIGURED: Final = 2


class GivenUpError(FatalError):
    """A child ends repeatedly, or its settings are invalid. The error contains the end of its log.

    Attributes:
        is_setting: Its settings are invalid.
    """

    def __init__(self, reason: str, *, is_setting: bool = False) -> None:
        super().__init__(reason)
        self.is_setting = is_setting


class Restarts:
    """Short lives in a row of a process that is started again, after ever longer pauses, until they are too many.

    How often it ended in all counts for nothing.
    """

    def __init__(self) -> None:
        self.in_a_row = 0
        self._started_s = 0.0

    def started(self, now_s: float) -> None:
        """Note a start."""
        self._started_s = now_s

    def ended(self, now_s: float) -> float | None:
        """Note an end; returns the pause before the next start in seconds, None if there is to be none."""
        if now_s - self._started_s > _LASTED_S:
            self.in_a_row = 0
        if self.in_a_row >= RESTARTS_MAX:
            return None
        self.in_a_row += 1
        return _BACKOFF.pause_s(self.in_a_row)


class Child:
    """A service as a child process.

    It gets a process group of its own, settings in a file, and a log file; the kernel kills it when the thread that
    started it ends.

    Args:
        name: Name of the process, also of its files.
        service: Name of the service; ``cell`` for all services in one process.
        settings: Its settings, as a tree.
        root: Folder of its files.
        clock: Source of time.
        without: Variables of the environment that it does not get; one that ends in ``*`` is a prefix.
    """

    def __init__(
        self,
        name: str,
        service: str,
        settings: Mapping[str, Any],
        *,
        root: Path,
        clock: Clock,
        without: tuple[str, ...],
    ) -> None:
        self.name = name
        self.service = service
        self.config_path = root / "config" / f"{name}.toml"
        self.log_path = root / "log" / f"{name}.log"
        self._restarts = Restarts()
        self._module = _MODULES.get(service, f"berth.services.{service}")
        self._settings = settings
        self._clock = clock
        self._without = without
        self._process: subprocess.Popen[bytes] | None = None
        self._due_s: float | None = None
        """Time of the next restart."""

    @property
    def restarts(self) -> int:
        """Restarts in a row."""
        return self._restarts.in_a_row

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it."""
        for path in (self.config_path, self.log_path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self.config_path.write_text(toml(self._settings), "utf-8")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and words
                [sys.executable, "-m", self._module, "--config", str(self.config_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_of_child(without=self._without),
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, nothing that takes a lock
            )
        self._restarts.started(self._clock.monotonic_s())
        self._due_s = None

    def restart_if_ended(self) -> str:
        """Check whether it runs, and restart it when that is due.

        Returns:
            The change as text; empty without a change.

        Raises:
            GivenUpError: It ends repeatedly, or its settings are wrong.
        """
        now_s = self._clock.monotonic_s()
        if self._due_s is not None:
            if now_s >= self._due_s:
                self.start()
            return ""
        if self._process is None or (code := self._process.poll()) is None:
            return ""
        wait_s = self._restarts.ended(now_s) if code != _MISCONFIGURED else None
        if wait_s is None:
            often = f" {self.restarts + 1} times in a row" if self.restarts else ""
            raise GivenUpError(
                f"{self.name} ended with code {code}{often}; the end of its log:\n{self.log_tail()}",
                is_setting=code == _MISCONFIGURED,
            )
        self._due_s = now_s + wait_s
        return f"{self.name} ended with code {code}; it is started again in {wait_s:g} s"

    def ask_to_stop(self) -> None:
        """Request that it finishes its current work and ends."""
        self._due_s = None
        if self.pid is not None:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and all its children."""
        if self.pid is not None:
            self._signal(signal.SIGKILL)
            if self._process is not None:
                self._process.wait()

    def log_tail(self) -> str:
        """The last lines of its log."""
        if not self.log_path.exists():
            return ""
        data = self.log_path.read_bytes()[-_TAIL_BYTES:]
        return "\n".join(data.decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                return


def toml(tree: Mapping[str, Any]) -> str:
    """Settings as TOML; a table in the tree becomes a section, one within it a section of that."""
    return "\n".join(_lines(tree, "")) + "\n"


def _lines(tree: Mapping[str, Any], path: str) -> Iterator[str]:
    yield from (f"{key} = {_value(value)}" for key, value in tree.items() if not isinstance(value, Mapping))
    for key, section in tree.items():
        if isinstance(section, Mapping):
            yield from ("", f"[{path}{key}]")
            yield from _lines(section, f"{path}{key}.")


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_value(one)}' for key, one in value.items())}}}"
    if isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        return f"[{', '.join(map(_value, value))}]"
    return msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()
