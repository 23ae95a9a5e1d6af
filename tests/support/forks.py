"""Services and commands that are forked from a process which has imported them: a start takes some ms, not 0.4 s.

:class:`Forker` starts that process, ``python -m tests.support.forks``, once for each process of pytest. They exchange
lines of JSON over a socket: a :class:`Start` is answered with the process number, and each end is reported with its
exit code and CPU time. A forked service is a process of its own, with its own session, environment and log, as one that
is started; it has in common with the others only the seed of its hashes, so tests of equal results start programs.
"""

import gc
import importlib
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from berth.lab.servers.place import die_with
from tests.support.compiled_files import COMPILED_FILES
from tests.support.services import PACKAGES

ROOT: Final = Path(__file__).parents[2]
_IMPORTED: Final = ("app", "config", "metrics")
"""Modules of each service that are imported before it is forked; its ``__main__`` runs it."""
_SEEN_MAX: Final = 65_536


class Start(msgspec.Struct, frozen=True):
    """What is to be started.

    Attributes:
        module: Run as ``python -m`` does.
        arguments: Of the command line.
        environment: Its whole environment.
        log: File to which its output is appended.
        errors: File for what it writes to stderr; empty for the same one.
    """

    module: str
    arguments: list[str]
    environment: dict[str, str]
    log: str
    errors: str = ""


class End(msgspec.Struct, frozen=True):
    """How a forked process ended: its exit code as :mod:`subprocess` gives it, and its CPU time in seconds."""

    pid: int
    code: int
    cpu_s: float


class ForkedProcess:
    """A forked process, with what a :class:`subprocess.Popen` has."""

    def __init__(self, forker: "Forker", pid: int) -> None:
        self._forker = forker
        self.pid = pid

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._forker.code_of(self.pid, wait=False)

    def wait(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._forker.code_of(self.pid, wait=True)

    def send_signal(self, number: int) -> None:
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the report of that is on its way
                os.kill(self.pid, number)


class Forker:
    """The process from which services are forked, on its first use; it ends with this one.

    Attributes:
        cpu_s: CPU time of all forked processes that have ended.
    """

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self._socket: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._codes: dict[int, int] = {}
        self._rest = b""

    def start(self, start: Start) -> ForkedProcess:
        """Fork a process."""
        if self._socket is None:
            self._socket = self._connect()
        self._socket.sendall(msgspec.json.encode(start) + b"\n")
        while (pid := self._read(wait=True)) is None:
            pass
        return ForkedProcess(self, pid)

    def code_of(self, pid: int, *, wait: bool) -> int | None:
        """Exit code of a forked process; None if it runs, and nobody wants to wait for its end."""
        self._read(wait=False)
        while wait and pid not in self._codes:
            self._read(wait=True)
        return self._codes.get(pid)

    def close(self) -> None:
        """Let the process end, and with it all that were forked."""
        if self._socket is not None and self._child is not None:
            self._socket.close()
            self._child.wait()
            self._socket = None

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._child = subprocess.Popen(  # noqa: S603  # our own interpreter and words
            [sys.executable, "-m", "tests.support.forks", str(theirs.fileno())],
            cwd=ROOT,
            env={**COMPILED_FILES, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # system calls, nothing that takes a lock
            start_new_session=True,
        )
        theirs.close()
        return ours

    def _read(self, *, wait: bool) -> int | None:
        """Take what has been said; returns the number of a process that was forked.

        Raises:
            RuntimeError: The process that forks has ended.
        """
        forked = None
        while self._socket is not None and (wait or select.select([self._socket], [], [], 0)[0]):
            said = self._socket.recv(_SEEN_MAX)
            if not said:
                raise RuntimeError("the process that forks services has ended")
            *lines, self._rest = (self._rest + said).split(b"\n")
            for line in lines:
                told = msgspec.json.decode(line, type=End | int)
                if isinstance(told, int):
                    forked = told
                    self._codes.pop(told, None)  # the number may be that of one that ended long ago
                else:
                    self._codes[told.pid] = told.code
                    self.cpu_s += told.cpu_s
            wait = wait and not lines
        return forked


FORKER: Final = Forker()
"""That of this process."""


def serve(channel: socket.socket) -> None:
    """Fork what the other end asks for, and report ends, until it closes."""
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    rest = b""
    while True:
        ready, _, _ = select.select([channel.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, _SEEN_MAX)
            _report_ends(channel)
        if channel.fileno() in ready:
            said = channel.recv(_SEEN_MAX)
            if not said:
                return
            *lines, rest = (rest + said).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for one in (ended, wake):
                        os.close(one)
                    channel.close()
                    _become(msgspec.json.decode(line, type=Start))
                channel.sendall(b"%d\n" % pid)


def _report_ends(channel: socket.socket) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            end = End(pid, os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)
            channel.sendall(msgspec.json.encode(end) + b"\n")


def _become(start: Start) -> None:
    """Be the service, and end with it."""
    code = 1
    try:
        die_with(os.getppid())()
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, path in ((1, start.log), (2, start.errors or start.log)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), number)
        os.environ.clear()  # noqa: TID251  # its own environment
        os.environ.update(start.environment)  # noqa: TID251  # likewise
        sys.argv = [start.module, *start.arguments]
        gc.unfreeze()
        runpy.run_module(start.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  # as the interpreter does
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main(number: int) -> None:
    """Import all services and commands, then serve."""
    for service in PACKAGES.values():
        for name in _IMPORTED:
            with suppress(ModuleNotFoundError):
                importlib.import_module(f"{service}.{name}")
    for commands in ("berth.cli", "berth.lab.commands"):
        package = importlib.import_module(commands)
        for module in pkgutil.walk_packages(package.__path__, f"{commands}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    importlib.import_module("berth.cell.process")
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=number))


if __name__ == "__main__":
    main(int(sys.argv[1]))
